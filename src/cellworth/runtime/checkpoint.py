"""Where a run is written down, so that another session can go on where this one ended."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable
from uuid import uuid4

from cellworth.files import (
    local_path,
    read_manifest,
    written_atomically,
)
from cellworth.packing import Plain, PlainFile, n_bytes, prefixed, write_plain
from cellworth.provenance import fingerprint
from cellworth.runtime.progress import RateLimiter

# How to get at an answer that is kept elsewhere; None if it is lost.
Loader = Callable[[], Plain | None]
FORMAT = "cellworth checkpoint"
VERSION = 1
_MANIFEST = "manifest.json"
_STATE = "state.npz"
_CONTENT = "content"
PATTERN = "part-*.npz"
# Writing takes at most this share of the time; answers that come faster share a file.
_SHARE_OF_TIME = 0.05
# Answers of so many bytes have a file of their own.
_LARGE = 2**20
_MANY_FILES = 500
_MANY_ANSWERS = 256
_NOTHING: tuple[Path | None, list[Plain]] = (None, [])


@dataclass(frozen=True)
class RunState:
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
class Checkpoint(Protocol):
    """Keeps one run: its latest state, and answers of tasks that are not in the state yet."""

    # Whether it keeps answers, or the state alone.
    keeps_answers: ClassVar[bool]

    def open(self, identity: Mapping[str, Any]) -> None:
        """Take up a run, which all that decides its tasks and what they add names."""
        ...

    def read(self) -> RunState | None:
        """Return the latest state, or None for a new run."""
        ...

    def write(self, state: RunState) -> None:
        """Keep a state in place of the one before, and drop the answers that are in it."""
        ...

    def answers(self) -> Iterable[tuple[int, Loader]]:
        """Numbers of tasks with answers that are kept, and ways to read these."""
        ...

    def keep(self, task: int, answer: Plain) -> Loader | None:
        """Store an answer until a state contains it; return a loader if it left memory."""
        ...

    def flush(self) -> None:
        """Have everything written that was kept so far."""
        ...


class AnotherRunError(ValueError):
    """A checkpoint that holds a run other than the one asked for."""


class MemoryJournal:
    """A checkpoint that lives as long as the Python session does.

    Hand the same checkpoint to a second run with more budget, and it pays only for the new tasks.

    Examples
    --------
    >>> from cellworth import AfterTasks, Runtime, TableGame, value_game
    >>> game, checkpoint = TableGame([[0.0, 0.0], [0.0, 1.0]]), MemoryJournal()
    >>> run = {"random_state": 0, "runtime": Runtime(checkpoint=checkpoint)}
    >>> short = value_game(game, (1, 1), stop=AfterTasks(16), **run)
    >>> value_game(game, (1, 1), stop=AfterTasks(64), **run).provenance.sessions
    (Session(seed=0, tasks=64),)
    """

    keeps_answers: ClassVar[bool] = False

    def __init__(self) -> None:
        """Start with nothing written."""
        self._identity: Mapping[str, Any] | None = None
        self._state: RunState | None = None

    def open(self, identity: Mapping[str, Any]) -> None:
        """Take up a run, which all that decides its tasks and what they add names."""
        if self._identity is not None:
            refuse_another_run(self._identity, identity, "the checkpoint")
        self._identity = identity

    def read(self) -> RunState | None:
        """Return the latest state, or None for a new run."""
        return self._state

    def write(self, state: RunState) -> None:
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
        """Stay one checkpoint: a cloned valuer shares it, as it would share a folder."""
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


class DirectoryJournal:
    """A run in a folder, safe against a process that is killed at any moment.

    ``manifest.json`` names the run, and no other run is let in. An answer of a worker is written as
    it comes (``part-*.npz``); a state (``state.npz``) holds the tasks that were folded, and then
    their parts go. Every file is written beside its place, synced and renamed. Several machines may
    share the folder. Nothing in it is unpickled.

    Parameters
    ----------
    folder : path
        Made if it is not there.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import AfterTasks, Runtime, TableGame, value_game
    >>> game, folder = TableGame([[0.0, 0.0], [0.0, 1.0]]), Path(tempfile.mkdtemp())
    >>> run = {"random_state": 0, "runtime": Runtime(checkpoint=DirectoryJournal(folder))}
    >>> short = value_game(game, (1, 1), stop=AfterTasks(16), **run)
    >>> (folder / "state.npz").is_file()
    True
    >>> value_game(game, (1, 1), stop=AfterTasks(64), **run).provenance.sessions
    (Session(seed=0, tasks=64),)
    """

    keeps_answers: ClassVar[bool] = True

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Remember the folder; it is looked at when a run begins."""
        self.folder = local_path(folder, "checkpoint")
        self._run = ""
        self._parts: AnswerFiles | None = None

    def open(self, identity: Mapping[str, Any]) -> None:
        """Take up a run; a folder that holds another one is refused."""
        # As it will be read, so that the two can be compared.
        asked = json.loads(json.dumps(identity))
        with explain_disk_errors(self.folder):
            _made(self.folder)
            kept = _kept_run(self.folder)
            if kept is None:
                _begin(self.folder, asked)
                kept = _kept_run(self.folder) or asked
        refuse_another_run(kept, asked, str(self.folder))
        self._run, self._parts = fingerprint(asked), None

    def read(self) -> RunState | None:
        """Return the latest state, or None for a new run."""
        return _read_state(self.folder / _STATE, self._run)

    def write(self, state: RunState) -> None:
        """Keep a state in place of the one before; then the parts that it holds go."""
        path = self.folder / _STATE
        if _tasks_in(path) > state.tasks:
            # Another process has come further in this folder.
            return
        head = {"run": self._run, "tasks": state.tasks, "seconds": state.seconds}
        with explain_disk_errors(self.folder), written_atomically(path) as file:
            write_plain(file, head | prefixed(_CONTENT, state.content))
        self._opened.drop_before(state.tasks)

    def answers(self) -> Iterator[tuple[int, Loader]]:
        """Numbers of tasks with answers in the folder, and ways to read these."""
        return self._opened.answers()

    def keep(self, task: int, answer: Plain) -> Loader | None:
        """Write an answer; those that come faster than they can be written share a file."""
        with explain_disk_errors(self.folder):
            return self._opened.keep(task, answer)

    def flush(self) -> None:
        """Write the answers that wait for others."""
        with explain_disk_errors(self.folder):
            self._opened.flush()

    @property
    def _opened(self) -> AnswerFiles:
        if not self._run:
            raise ValueError(f"{self!r} has not been opened for a run.")
        if self._parts is None:
            # Looked at when they are first needed: a run may be taken up to see whose it is.
            self._parts = AnswerFiles(self.folder, self._run)
        return self._parts

    def __repr__(self) -> str:
        """Return the way to make it."""
        return f"DirectoryJournal({str(self.folder)!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> DirectoryJournal:
        """Be another checkpoint of the same folder."""
        return DirectoryJournal(self.folder)


def merge(folders: Iterable[str | os.PathLike[str]], into: str | os.PathLike[str]) -> None:
    """Bring the partitions of one run together in one folder.

    Partitions that share a folder need no merging. Afterwards ``fit`` of the same valuer, without
    ``partition`` and with ``checkpoint=into``, finds everything done.

    Parameters
    ----------
    folders : paths
        Checkpoints of partitions. They are left as they are.
    into : path
        Made if it is not there; it may be one of the folders.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, Runtime
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> data, place = {"X": X, "y": y, "X_val": X, "y_val": y}, Path(tempfile.mkdtemp())
    >>> for i in (0, 1):
    ...     runtime = Runtime(checkpoint=place / f"part{i}", partition=(i, 2))
    ...     part = KNNValuer(1, random_state=0, runtime=runtime).fit(**data)
    >>> merge([place / "part0", place / "part1"], into=place / "all")
    >>> valuer = KNNValuer(1, random_state=0, runtime=Runtime(checkpoint=place / "all"))
    >>> valuer.fit(**data).valuation_.columns()
    column   value  validation error
        x0  0.3750            0.1172
        x1  0.1250            0.1172
    """
    if isinstance(folders, str | os.PathLike):
        raise TypeError(f"folders is {folders!r}; give a list of the partitions' checkpoints.")
    whole = local_path(into, "into")
    sources = [local_path(folder, "folders") for folder in folders]
    if not sources:
        raise ValueError("there are no folders to merge; give the checkpoints of the partitions.")
    # All are looked at before anything is written.
    runs = [_run_in(source) for source in sources]
    for source, kept in zip(sources, runs, strict=True):
        refuse_another_run(kept, runs[0], str(source))
    for source in sources:
        checkpoint = DirectoryJournal(whole)
        checkpoint.open(runs[0])
        if not source.samefile(checkpoint.folder):
            _copy(source, checkpoint, runs[0])


def _run_in(folder: Path) -> dict[str, Any]:
    kept = _kept_run(folder) if folder.is_dir() else None
    if kept is None:
        raise FileNotFoundError(f"{folder} holds no checkpoint; give folders of partitions.")
    return kept


def _copy(source: Path, into: DirectoryJournal, run: Mapping[str, Any]) -> None:
    # The source is left as it is, be it damaged.
    state = _read_state(source / _STATE, fingerprint(run))
    if state is not None:
        into.write(state)
    for path in sorted(source.glob(PATTERN)):
        with (
            explain_disk_errors(into.folder),
            path.open("rb") as original,
            written_atomically(into.folder / path.name) as file,
        ):
            shutil.copyfileobj(original, file)


def _read_state(path: Path, run: str) -> RunState | None:
    if not path.exists():
        return None
    try:
        file = PlainFile(path)
        head = file.rest
        if head["run"] != run:
            raise ValueError("it belongs to another run")
        (content,) = file.read(_CONTENT)
        return RunState(int(head["tasks"]), float(head["seconds"]), content)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is damaged or was put there ({error}); restore it from a copy, or delete it "
            "to have its tasks computed again."
        ) from error


def _tasks_in(path: Path) -> int:
    """Tasks that a state holds; one that was damaged since it was read holds none."""
    try:
        return int(PlainFile(path).rest["tasks"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return 0


def _kept_run(folder: Path) -> dict[str, Any] | None:
    """All that names the run in a folder; None where no run has begun."""
    path = folder / _MANIFEST
    try:
        manifest = read_manifest(path, FORMAT, VERSION)
    except FileNotFoundError:
        if (folder / _STATE).exists() or any(folder.glob(PATTERN)):
            raise ValueError(
                f"{folder} holds parts of a run, but no {_MANIFEST} that names it; restore it from "
                "a copy, or give a new folder."
            ) from None
        return None
    run = manifest.get("run")
    if not isinstance(run, dict) or manifest.get("sha256") != fingerprint(run):
        raise ValueError(
            f"{path} was changed since it was written (its sha256 differs); restore it from a copy."
        )
    return run


def _begin(folder: Path, identity: Mapping[str, Any]) -> None:
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "sha256": fingerprint(identity),
        "run": identity,
    }
    # Several processes may begin at once; the first of them names the run.
    with (
        suppress(FileExistsError),
        written_atomically(folder / _MANIFEST, replacing=False) as file,
    ):
        file.write(json.dumps(manifest, indent=1).encode())


def _made(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"{folder} is a file; give a folder as checkpoint.")
    folder.mkdir(parents=True, exist_ok=True)


@contextmanager
def explain_disk_errors(folder: Path) -> Iterator[None]:
    """Say what a failing disk means for the run."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise type(error)(
            error.errno,
            f"the checkpoint cannot be written ({error.strerror}); what it holds is whole, and the "
            "same call goes on from there once this is mended",
            str(folder),
        ) from error


class AnswerFiles:
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
        self._limiter = RateLimiter(_SHARE_OF_TIME)
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
        if len(self._pending) >= _MANY_ANSWERS or self._limiter.due:
            self.flush()
        return None

    def flush(self) -> None:
        """Write the answers that wait for others."""
        if not self._pending:
            return
        with self._limiter.measure():
            self._small.append(self._write(self._pending))
        self._pending = []
        if len(self._small) >= _MANY_FILES:
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
