"""Parts: answers in files of their own, until a state holds what they add."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from uuid import uuid4

from cellworth.execution.journal import Loader
from cellworth.execution.pacing import Pace
from cellworth.files import written_atomically
from cellworth.packing import Plain, PlainFile, n_bytes, prefixed, write_plain

PATTERN = "part-*.npz"

# Writing takes at most this share of the time; answers that come faster share a file.
_SHARE_OF_TIME = 0.05
# Answers of so many bytes have a file of their own.
_LARGE = 2**20
_MANY_PARTS = 500
_MANY_ANSWERS = 256

_NOTHING: tuple[Path | None, list[Plain]] = (None, [])


class Parts:
    """Answers of one run in a folder that several processes may share.

    Parameters
    ----------
    folder : Path
    run : str
        Fingerprint of the run, which stands in every file.
    """

    def __init__(self, folder: Path, run: str) -> None:
        """Look at the files that are there; those that cannot be read are set aside."""
        self._folder, self._run = folder, run
        self._tasks: dict[Path, list[int]] = {}
        self._small: list[Path] = []
        self._pending: list[tuple[int, Plain]] = []
        self._latest = _NOTHING
        self._pace = Pace(_SHARE_OF_TIME)
        for path in sorted(folder.glob(PATTERN)):
            tasks = self._tasks_of(path)
            if tasks:
                self._tasks[path] = tasks

    def answers(self) -> Iterator[tuple[int, Loader]]:
        """Numbers of tasks, and ways to read their answers."""
        # A part that turns out to be damaged is dropped on the way.
        for path, tasks in list(self._tasks.items()):
            for place, task in enumerate(tasks):
                yield task, partial(self._answer, path, place)

    def keep(self, task: int, answer: Plain) -> Loader | None:
        """Write an answer; a large one can be read back, small ones may wait to share a file."""
        if n_bytes(answer) >= _LARGE:
            return partial(self._answer, self._write([(task, answer)]), 0)
        self._pending.append((task, answer))
        if len(self._pending) >= _MANY_ANSWERS or self._pace.due:
            self.flush()
        return None

    def flush(self) -> None:
        """Write the answers that wait for others."""
        if not self._pending:
            return
        with self._pace.taken():
            self._small.append(self._write(self._pending))
        self._pending = []
        if len(self._small) >= _MANY_PARTS:
            self._join_small_ones()

    def drop_before(self, task: int) -> None:
        """Let go of answers of earlier tasks: a state holds them."""
        self._pending = [(number, answer) for number, answer in self._pending if number >= task]
        for path in [path for path, tasks in self._tasks.items() if max(tasks) < task]:
            self._drop(path)

    def _write(self, answers: list[tuple[int, Plain]]) -> Path:
        tasks = [task for task, _ in answers]
        content: Plain = {"run": self._run, "tasks": tasks}
        for place, (_, answer) in enumerate(answers):
            content |= prefixed(str(place), answer)
        path = self._folder / f"part-{min(tasks):08d}-{uuid4().hex}.npz"
        with written_atomically(path) as file:
            write_plain(file, content)
        self._tasks[path] = tasks
        return path

    def _join_small_ones(self) -> None:
        """Make few files of many: a share of a run may go on for days before it is folded."""
        still_there = [path for path in self._small if path in self._tasks]
        answers = [
            (task, answer)
            for path in still_there
            for task, answer in zip(self._tasks.get(path, ()), self._contents(path), strict=False)
        ]
        self._small = []
        for start in range(0, len(answers), _MANY_ANSWERS):
            self._write(answers[start : start + _MANY_ANSWERS])
        for path in still_there:
            self._drop(path)

    def _drop(self, path: Path) -> None:
        self._tasks.pop(path, None)
        path.unlink(missing_ok=True)

    def _tasks_of(self, path: Path) -> list[int]:
        """Tasks that a part has answers of; a part that cannot be read has none."""
        try:
            head = PlainFile(path).rest
            run, tasks = head["run"], [int(task) for task in head["tasks"]]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError) as error:
            self._set_aside(path, error)
            return []
        if run != self._run:
            raise ValueError(
                f"{path} belongs to another run than manifest.json beside it; take it out of the "
                "folder."
            )
        return tasks

    def _answer(self, path: Path, place: int) -> Plain | None:
        contents = self._contents(path)
        return contents[place] if contents else None

    def _contents(self, path: Path) -> list[Plain]:
        """All answers of a part; they are read at once and asked for one after the other."""
        if self._latest[0] != path:
            self._latest = path, self._read(path)
        contents = self._latest[1]
        if len(contents) == 1:
            # It may be large, and will not be asked for again.
            self._latest = _NOTHING
        return contents

    def _read(self, path: Path) -> list[Plain]:
        try:
            return PlainFile(path).read(*map(str, range(len(self._tasks[path]))))
        except (FileNotFoundError, KeyError):
            return []
        except ValueError as error:
            self._set_aside(path, error)
            return []

    def _set_aside(self, path: Path, error: Exception) -> None:
        damaged = path.with_name(f"damaged-{path.name}")
        self._tasks.pop(path, None)
        try:
            path.rename(damaged)
        except FileNotFoundError:
            # Another process that shares the folder was faster.
            return
        warnings.warn(
            f"{path} is damaged ({error}); it is set aside as {damaged.name}, and its tasks are "
            "computed again.",
            stacklevel=2,
        )
