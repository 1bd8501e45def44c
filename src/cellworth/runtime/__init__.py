"""How tasks are run, stopped and written down; no game is known here."""

from cellworth.runtime.cache import Cache, FileCache, MemoryCache
from cellworth.runtime.checkpoint import (
    Checkpoint,
    DirectoryCheckpoint,
    Loader,
    MemoryCheckpoint,
    RunState,
    merge,
)
from cellworth.runtime.dask_executor import Dask
from cellworth.runtime.engine import Outcome, Planner, Ready, TaskPlanner, Work, run, run_partition
from cellworth.runtime.executors import (
    Executor,
    Runtime,
    Serial,
    Threads,
    check_runtime,
    choose_process_executor,
    choose_thread_executor,
)
from cellworth.runtime.processes import Processes
from cellworth.runtime.stopping import (
    MaxSeconds,
    MaxTasks,
    MaxUtilities,
    Progress,
    StableRanking,
    StoppingRule,
    TargetStandardError,
    count_tasks,
    make_progress_bar,
)
from cellworth.runtime.workers import leave_if_cancelled

__all__ = [
    "Cache",
    "Checkpoint",
    "Dask",
    "DirectoryCheckpoint",
    "Executor",
    "FileCache",
    "Loader",
    "MaxSeconds",
    "MaxTasks",
    "MaxUtilities",
    "MemoryCache",
    "MemoryCheckpoint",
    "Outcome",
    "Planner",
    "Processes",
    "Progress",
    "Ready",
    "RunState",
    "Runtime",
    "Serial",
    "StableRanking",
    "StoppingRule",
    "TargetStandardError",
    "TaskPlanner",
    "Threads",
    "Work",
    "check_runtime",
    "choose_process_executor",
    "choose_thread_executor",
    "count_tasks",
    "leave_if_cancelled",
    "make_progress_bar",
    "merge",
    "run",
    "run_partition",
]
