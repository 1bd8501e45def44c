"""Who stands between task numbers and workers: what to ask for, and what answers add."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from cellworth.execution.crews import Later, Lost
from cellworth.execution.journal import Loader
from cellworth.moments import Addition
from cellworth.packing import Plain, packed, unpacked


@dataclass(frozen=True)
class Ready:
    """A request whose answer is there already, or Later: no worker is needed."""

    request: Any
    answer: Any


def kept_elsewhere(load: Loader, answer: Callable[[Plain], Any]) -> Later:
    """An answer that a journal keeps; lost if it cannot be read any more."""

    def read() -> Any:
        part = load()
        return Lost(None) if part is None else answer(part)

    return Later(read)


class Bookkeeper(Protocol):
    """Turns numbers of tasks into requests and answers into what tasks add.

    It lives in the process that folds. It knows what earlier tasks taught, so that a task asks
    workers only for what is missing, and it may split a task into several requests.
    """

    # Whether workers look at the clock themselves, so that the engine need not.
    keeps_deadlines: ClassVar[bool]
    # Whether it can tell, before any answer, at which task a budget of utilities ends.
    counts_utilities: ClassVar[bool]

    def resume(self, state: Plain | None, answers: Iterable[tuple[int, Loader]]) -> Addition | None:
        """Take in what earlier sessions taught: folded tasks, and answers of others."""
        ...

    def ask(self, number: int) -> Iterable[Any] | None:
        """Requests that workers must answer for a task; None ends the run before it."""
        ...

    def share(self, number: int, mine: bool) -> Iterable[Any] | None:
        """Requests of a task for one shard, where others answer those of other tasks."""
        ...

    def book(self, request: Any, answer: Any) -> Addition | None:
        """Take in an answer; the one that completes a task gives what the task adds."""
        ...

    def state(self, contribution: Any) -> Plain:
        """Write down what finished tasks added."""
        ...

    def part(self, request: Any, answer: Any) -> tuple[int, Plain]:
        """Number of a task, and an answer for it, to be written down."""
        ...

    def answer(self, part: Plain) -> Any:
        """Read an answer."""
        ...


@dataclass(frozen=True)
class Work:
    """One task from its number to what it adds; this is what travels to the workers."""

    task: Callable[[int], Any]
    contribution: Callable[[Any], Any]

    def __call__(self, number: int) -> Any:
        """Do the task of this number."""
        return self.contribution(self.task(number))


class TaskBook:
    """The simplest bookkeeper: a task is one request.

    Parameters
    ----------
    kind : dataclass
        What a task adds.
    answer : dataclass, default=None
        What a worker answers with; None: what the task adds.
    added : callable, default=None
        From an answer to what the task adds, where the two differ.
    """

    keeps_deadlines: ClassVar[bool] = False
    counts_utilities: ClassVar[bool] = False

    def __init__(
        self,
        kind: type[Any],
        answer: type[Any] | None = None,
        added: Callable[[Any], Any] | None = None,
    ) -> None:
        """Begin without answers."""
        self._kind, self._answer_kind, self._added = kind, answer or kind, added
        self._kept: dict[int, Loader] = {}

    def resume(self, state: Plain | None, answers: Iterable[tuple[int, Loader]]) -> Any:
        """Remember where answers are; they are read when their turn comes."""
        self._kept = dict(answers)
        return None if state is None else unpacked(self._kind, state)

    def ask(self, number: int) -> Iterable[Any]:
        """Ask for a task, unless its answer is kept."""
        load = self._kept.pop(number, None)
        return [number] if load is None else [Ready(number, kept_elsewhere(load, self.answer))]

    def share(self, number: int, mine: bool) -> Iterable[Any]:
        """Ask for a task of this shard, unless its answer is kept."""
        return [number] if mine and number not in self._kept else []

    def book(self, request: int, answer: Any) -> Any:
        """Return what a task adds."""
        return answer if self._added is None else self._added(answer)

    def state(self, contribution: Any) -> Plain:
        """Write down what finished tasks added."""
        return packed(contribution)

    def part(self, request: int, answer: Any) -> tuple[int, Plain]:
        """Write down an answer."""
        return request, packed(answer)

    def answer(self, part: Plain) -> Any:
        """Read an answer."""
        return unpacked(self._answer_kind, part)
