"""Where and how a run is executed: executors, stopping rules and checkpoints.

Nothing here knows any game or any table.

Examples
--------
>>> from cellworth import Runtime, value_game
>>> from cellworth.games import TableGame
>>> from cellworth.runtime import MaxTasks, Serial
>>> game = TableGame([[0.0, 0.0], [0.0, 3.0]])
>>> runtime = Runtime(executor=Serial(), progress=False)
>>> value_game(game, (1, 1), stop=MaxTasks(8), random_state=0, runtime=runtime).values
array([[3.]])
"""

from cellworth.runtime.checkpoint import DirectoryCheckpoint
from cellworth.runtime.dask_executor import Dask
from cellworth.runtime.executors import Processes, Serial, Threads
from cellworth.runtime.progress import Progress
from cellworth.runtime.ray_executor import Ray
from cellworth.runtime.run_settings import Runtime
from cellworth.runtime.stopping import (
    MaxSeconds,
    MaxTasks,
    MaxUtilities,
    StoppingRule,
    TargetPrecision,
    TargetStandardError,
)
from cellworth.runtime.workers import LostWorkersError

__all__ = [
    "Dask",
    "DirectoryCheckpoint",
    "LostWorkersError",
    "MaxSeconds",
    "MaxTasks",
    "MaxUtilities",
    "Processes",
    "Progress",
    "Ray",
    "Runtime",
    "Serial",
    "StoppingRule",
    "TargetPrecision",
    "TargetStandardError",
    "Threads",
]
