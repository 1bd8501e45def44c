"""Where a run is written down, so that another session can go on where this one ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from cellworth.moments import Addition


@dataclass(frozen=True)
class Entry:
    """A run up to some task: whose it is, how far it came and what it learned.

    Parameters
    ----------
    fingerprint : str
        Names the run: data, game, design and seed. Another run must not continue this one.
    tasks : int
        Tasks 0..tasks - 1 are done.
    contribution : Addition
        What these tasks added, folded in order.
    seconds : float
        Time spent on them, all sessions together.
    """

    fingerprint: str
    tasks: int
    contribution: Addition
    seconds: float


@runtime_checkable
class Journal(Protocol):
    """Keeps the latest entry of one run."""

    def read(self) -> Entry | None:
        """Return the latest entry, or None for a new run."""
        ...

    def write(self, entry: Entry) -> None:
        """Keep an entry in place of the one before."""
        ...


class MemoryJournal:
    """A journal that lives as long as the Python session does.

    Hand the same journal to a second run with more budget, and it pays only for the new tasks.
    """

    def __init__(self) -> None:
        """Start with nothing written."""
        self._entry: Entry | None = None

    def read(self) -> Entry | None:
        """Return the latest entry, or None for a new run."""
        return self._entry

    def write(self, entry: Entry) -> None:
        """Keep an entry in place of the one before."""
        self._entry = entry
