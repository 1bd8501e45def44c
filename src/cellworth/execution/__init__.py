"""How tasks are run, stopped and written down; no game is known here."""

from cellworth.execution.bars import count_tasks, steps_bar
from cellworth.execution.books import Bookkeeper, Ready, TaskBook, Work
from cellworth.execution.checkpoints import DirectoryJournal, merge
from cellworth.execution.cluster import Dask
from cellworth.execution.crews import leave_if_cancelled
from cellworth.execution.engine import Outcome, run, run_shard
from cellworth.execution.executors import Executor, Serial, Threads
from cellworth.execution.journal import Journal, Loader, MemoryJournal, State
from cellworth.execution.places import in_processes, in_threads
from cellworth.execution.processes import Processes
from cellworth.execution.stopping import (
    AfterSeconds,
    AfterTasks,
    AfterUtilities,
    Progress,
    RankingStable,
    StandardErrorBelow,
    StoppingRule,
)

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
