"""Where a run is written down, so that another session can go on where this one ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

from cellworth.packing import Plain

# How to get at an answer that is kept elsewhere; None if it is lost.
Loader = Callable[[], Plain | None]


@dataclass(frozen=True)
class State:
    """A run up to some task: how far it came and what it learned.

    Parameters
    ----------
    tasks : int
        Tasks 0..tasks - 1 are done.
    seconds : float
        Time spent on them, all sessions together.
    content : dict
        What these tasks added, folded in order.
    """

    tasks: int
    seconds: float
    content: Plain


@runtime_checkable
class Journal(Protocol):
    """Keeps one run: its latest state, and answers of tasks that are not in the state yet."""

    # Whether it keeps answers, or the state alone.
    keeps_answers: ClassVar[bool]

    def open(self, identity: Mapping[str, Any]) -> None:
        """Take up a run, which all that decides its tasks and what they add names."""
        ...

    def read(self) -> State | None:
        """Return the latest state, or None for a new run."""
        ...

    def write(self, state: State) -> None:
        """Keep a state in place of the one before, and drop the answers that are in it."""
        ...

    def answers(self) -> Iterable[tuple[int, Loader]]:
        """Numbers of tasks with answers that are kept, and ways to read these."""
        ...

    def keep(self, task: int, answer: Plain) -> Loader | None:
        """Keep an answer until a state holds it; a journal that lets memory go can read it back."""
        ...

    def flush(self) -> None:
        """Have everything written that was kept so far."""
        ...


class AnotherRunError(ValueError):
    """A journal that holds a run other than the one asked for."""


class MemoryJournal:
    """A journal that lives as long as the Python session does.

    Hand the same journal to a second run with more budget, and it pays only for the new tasks.

    Examples
    --------
    >>> from cellworth import AfterTasks, TableGame, value_game
    >>> game, journal = TableGame([[0.0, 0.0], [0.0, 1.0]]), MemoryJournal()
    >>> run = {"random_state": 0, "checkpoint": journal}
    >>> short = value_game(game, (1, 1), stop=AfterTasks(16), **run)
    >>> value_game(game, (1, 1), stop=AfterTasks(64), **run).provenance.sessions
    (Session(seed=0, tasks=64),)
    """

    keeps_answers: ClassVar[bool] = False

    def __init__(self) -> None:
        """Start with nothing written."""
        self._identity: Mapping[str, Any] | None = None
        self._state: State | None = None

    def open(self, identity: Mapping[str, Any]) -> None:
        """Take up a run, which all that decides its tasks and what they add names."""
        if self._identity is not None:
            refuse_another_run(self._identity, identity, "the journal")
        self._identity = identity

    def read(self) -> State | None:
        """Return the latest state, or None for a new run."""
        return self._state

    def write(self, state: State) -> None:
        """Keep a state in place of the one before."""
        self._state = state

    def answers(self) -> Iterable[tuple[int, Loader]]:
        """None: what is not in the state goes with the session."""
        return ()

    def keep(self, task: int, answer: Plain) -> Loader | None:
        """Leave an answer where it is."""

    def flush(self) -> None:
        """Do nothing: a state is kept at once."""

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryJournal:
        """Stay one journal: a cloned valuer shares it, as it would share a folder."""
        return self


def refuse_another_run(kept: Mapping[str, Any], asked: Mapping[str, Any], where: str) -> None:
    """Compare two runs; where they differ, say in what first."""
    for name, (before, now) in _differences(kept, asked, ()):
        raise AnotherRunError(
            f"{where} holds another run: its {name} is {_short(before)}, but here it is "
            f"{_short(now)}; give a new checkpoint, or the data, settings, versions and "
            "random_state of that run."
        )


def _differences(
    kept: Any, asked: Any, place: tuple[str, ...]
) -> Iterable[tuple[str, tuple[Any, Any]]]:
    if isinstance(kept, Mapping) and isinstance(asked, Mapping):
        for name in sorted(set(kept) | set(asked)):
            yield from _differences(kept.get(name), asked.get(name), (*place, str(name)))
    elif kept != asked:
        yield ".".join(place), (kept, asked)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
