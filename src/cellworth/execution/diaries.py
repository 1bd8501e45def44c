"""What one session of a run writes into its journal, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from cellworth.execution.books import Bookkeeper, kept_elsewhere
from cellworth.execution.crews import Failure, Lost
from cellworth.execution.journal import Journal, State
from cellworth.execution.pacing import Pace
from cellworth.execution.stopping import Progress

_SECONDS_BETWEEN_STATES = 10.0
_SHARE_OF_TIME = 0.05


class Diary:
    """Reads a journal, if there is one, at the start of a session, and writes to it until the end.

    Parameters
    ----------
    journal : Journal or None
    bookkeeper : Bookkeeper
        Takes in what the journal holds, and spells out what is to be written.
    identity : mapping
        Names the run; a journal that holds another one is refused.
    """

    def __init__(
        self, journal: Journal | None, bookkeeper: Bookkeeper, identity: Mapping[str, Any]
    ) -> None:
        """Read how far earlier sessions came."""
        self._journal, self._bookkeeper = journal, bookkeeper
        self.seconds_before = 0.0
        self.latest = Progress(0, 0.0, None)
        if journal is not None:
            journal.open(identity)
            state = journal.read()
            folded = bookkeeper.resume(None if state is None else state.content, journal.answers())
            if state is not None:
                self.seconds_before = state.seconds
                self.latest = Progress(state.tasks, 0.0, folded)
        # Numbers only: what was written may be large, and is not needed again.
        self._tasks_written, self._seconds_written = self.latest.tasks, 0.0
        self._pace = Pace(_SHARE_OF_TIME)

    @property
    def writes(self) -> bool:
        """Whether there is a journal that keeps single answers."""
        return self._journal is not None and self._journal.keeps_answers

    def kept(self, request: Any, answer: Any) -> Any:
        """Write an answer down; return it, or where it can be read Later."""
        if self._journal is None or isinstance(answer, Failure | Lost):
            return answer
        load = self._journal.keep(*self._bookkeeper.part(request, answer))
        return answer if load is None else kept_elsewhere(load, self._bookkeeper.answer)

    def flush(self) -> None:
        """Have everything on disk that was kept so far."""
        if self._journal is not None:
            self._journal.flush()

    def note(self, progress: Progress, round_ends: bool) -> None:
        """Remember how far the run is, and write it down where that is due."""
        self.latest = progress
        old = progress.seconds - self._seconds_written >= _SECONDS_BETWEEN_STATES
        if (round_ends or old) and self._pace.due:
            self._write()

    def __enter__(self) -> Self:
        """Be open until the session ends."""
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Write down the end, be it an error."""
        if self._journal is None:
            return
        try:
            self._write()
            self._journal.flush()
        except OSError:
            # Where the disk is full, the first error tells it best.
            if error is None:
                raise

    def _write(self) -> None:
        latest = self.latest
        if self._journal is None or latest.contribution is None:
            return
        if latest.tasks == self._tasks_written:
            return
        with self._pace.taken():
            content = self._bookkeeper.state(latest.contribution)
            self._journal.write(State(latest.tasks, self.seconds_before + latest.seconds, content))
        self._tasks_written, self._seconds_written = latest.tasks, latest.seconds
