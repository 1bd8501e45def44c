"""How tasks are run, stopped and written down; no game is known here."""

from cellworth.execution.engine import Bookkeeper, Outcome, Work, describe_errors, run
from cellworth.execution.executors import Executor, Processes, Serial, Threads
from cellworth.execution.journal import Entry, Journal, MemoryJournal
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
    "Entry",
    "Executor",
    "Journal",
    "MemoryJournal",
    "Outcome",
    "Processes",
    "Progress",
    "RankingStable",
    "Serial",
    "StandardErrorBelow",
    "StoppingRule",
    "Threads",
    "Work",
    "describe_errors",
    "run",
]
