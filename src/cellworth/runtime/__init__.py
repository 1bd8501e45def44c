"""How tasks are run, stopped and written down; no game is known here."""

from cellworth.runtime.checkpoint import (
    DirectoryJournal,
    Journal,
    Loader,
    MemoryJournal,
    State,
    merge,
)
from cellworth.runtime.dask_executor import Dask
from cellworth.runtime.engine import Bookkeeper, Outcome, Ready, TaskBook, Work, run, run_shard
from cellworth.runtime.executors import Executor, Serial, Threads
from cellworth.runtime.places import in_processes, in_threads
from cellworth.runtime.processes import Processes
from cellworth.runtime.progress import count_tasks, steps_bar
from cellworth.runtime.stopping import (
    AfterSeconds,
    AfterTasks,
    AfterUtilities,
    Progress,
    RankingStable,
    StandardErrorBelow,
    StoppingRule,
)
from cellworth.runtime.workers import leave_if_cancelled

__all__ = [
    "AfterSeconds",
    "AfterTasks",
    "AfterUtilities",
    "Bookkeeper",
    "Dask",
    "DirectoryJournal",
    "Executor",
    "Journal",
    "Loader",
    "MemoryJournal",
    "Outcome",
    "Processes",
    "Progress",
    "RankingStable",
    "Ready",
    "Serial",
    "StandardErrorBelow",
    "State",
    "StoppingRule",
    "TaskBook",
    "Threads",
    "Work",
    "count_tasks",
    "in_processes",
    "in_threads",
    "leave_if_cancelled",
    "merge",
    "run",
    "run_shard",
    "steps_bar",
]
