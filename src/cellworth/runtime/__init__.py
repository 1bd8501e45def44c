"""How tasks are run, stopped and written down; no game is known here."""

from cellworth.runtime.checkpoint import (
    Checkpoint,
    DirectoryJournal,
    Loader,
    MemoryJournal,
    RunState,
    merge,
)
from cellworth.runtime.dask_executor import Dask
from cellworth.runtime.engine import Outcome, Planner, Ready, TaskPlanner, Work, run, run_partition
from cellworth.runtime.executors import Executor, Serial, Threads
from cellworth.runtime.places import (
    Runtime,
    check_runtime,
    choose_process_executor,
    choose_thread_executor,
)
from cellworth.runtime.processes import Processes
from cellworth.runtime.progress import count_tasks, make_progress_bar
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
    "Checkpoint",
    "Dask",
    "DirectoryJournal",
    "Executor",
    "Loader",
    "MemoryJournal",
    "Outcome",
    "Planner",
    "Processes",
    "Progress",
    "RankingStable",
    "Ready",
    "RunState",
    "Runtime",
    "Serial",
    "StandardErrorBelow",
    "StoppingRule",
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
