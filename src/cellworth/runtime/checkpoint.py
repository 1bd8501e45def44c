"""Checkpoint: stores a run in memory or in a folder, so that another session can resume it."""

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

from cellworth.data.io import (
    Plain,
    PlainFile,
    add_prefix,
    hash_json,
    local_path,
    make_folder,
    n_bytes,
    read_manifest,
    write_atomically,
    write_plain,
)
from cellworth.runtime.stopping import RateLimiter

# Loads an answer that is stored elsewhere; returns None if it is lost.
Loader = Callable[[], Plain | None]
FORMAT = "cellworth checkpoint"
VERSION = 1
_MANIFEST = "manifest.json"
_STATE = "state.npz"
_CONTENT = "content"
PATTERN = "answers-*.npz"
# Writing takes at most this share of the time; more frequent answers share a file.
_SHARE_OF_TIME = 0.05
# Answers of so many bytes get their own file.
_LARGE = 2**20
_MANY_FILES = 500
_MANY_ANSWERS = 256
_NOTHING: tuple[Path | None, list[Plain]] = (None, [])


@dataclass(frozen=True)
class RunState:
    """A run up to some task.

    Parameters
    ----------
    tasks : int
        Tasks 0..tasks - 1 are done.
    seconds : float
        Time spent on them in all sessions.
    content : dict
        Their contributions, folded in order.
    """

    tasks: int
    seconds: float
    content: Plain


@runtime_checkable
class Checkpoint(Protocol):
    """Stores one run: its latest state, and answers of tasks that the state does not contain."""

    # Whether it stores answers, or the state alone.
    stores_answers: ClassVar[bool]

    def open(self, identity: Mapping[str, Any]) -> None:
        """Open the checkpoint for the run identified by ``identity``."""

    def read_state(self) -> RunState | None:
        """Return the latest state, or None for a new run."""

    def write_state(self, state: RunState) -> None:
        """Replace the state, and drop the answers that it contains."""

    def answers(self) -> Iterable[tuple[int, Loader]]:
        """Return task numbers with loaders of their answers."""

    def write_answer(self, task: int, answer: Plain) -> Loader | None:
        """Store an answer until a state contains it; return a loader if it left memory."""

    def flush(self) -> None:
        """Write all pending answers."""


class AnotherRunError(ValueError):
    """A checkpoint of another run."""


class MemoryCheckpoint:
    """A checkpoint in memory, for one Python session.

    Pass the same checkpoint to a second run with more budget: it computes only the new tasks.

    Examples
    --------
    >>> from cellworth.runtime import MaxTasks, MemoryCheckpoint
    >>> from cellworth import Runtime, value_game
    >>> from cellworth.games import TableGame
    >>> game, checkpoint = TableGame([[0.0, 0.0], [0.0, 1.0]]), MemoryCheckpoint()
    >>> run = {"random_state": 0, "runtime": Runtime(checkpoint=checkpoint)}
    >>> short = value_game(game, (1, 1), stop=MaxTasks(16), **run)
    >>> value_game(game, (1, 1), stop=MaxTasks(64), **run).provenance.sessions
    (Session(seed=0, tasks=64),)
    """

    stores_answers: ClassVar[bool] = False

    def __init__(self) -> None:
        self._identity: Mapping[str, Any] | None = None
        self._state: RunState | None = None

    def open(self, identity: Mapping[str, Any]) -> None:
        """Open the checkpoint for the run identified by ``identity``."""
        if self._identity is not None:
            check_same_run(self._identity, identity, "the checkpoint")
        self._identity = identity

    def read_state(self) -> RunState | None:
        """Return the latest state, or None for a new run."""
        return self._state

    def write_state(self, state: RunState) -> None:
        """Replace the state."""
        self._state = state

    def answers(self) -> Iterable[tuple[int, Loader]]:
        """Return nothing: answers outside the state are not stored."""
        return ()

    def write_answer(self, task: int, answer: Plain) -> Loader | None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing: a state is stored at once."""

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryCheckpoint:
        """Return itself: a cloned valuer shares it, as it would share a folder."""
        return self


def check_same_run(kept: Mapping[str, Any], asked: Mapping[str, Any], where: str) -> None:
    """Raise if two runs differ, and name the first difference."""
    for name, (before, now) in _iter_differences(kept, asked, ()):
        raise AnotherRunError(
            f"{where} holds another run: its {name} is {_short(before)}, but here it is "
            f"{_short(now)}; give a new checkpoint, or the data, settings, versions and "
            "random_state of that run."
        )


def _iter_differences(
    kept: Any, asked: Any, path: tuple[str, ...]
) -> Iterable[tuple[str, tuple[Any, Any]]]:
    if isinstance(kept, Mapping) and isinstance(asked, Mapping):
        for name in sorted(set(kept) | set(asked)):
            yield from _iter_differences(kept.get(name), asked.get(name), (*path, str(name)))
    elif kept != asked:
        yield ".".join(path), (kept, asked)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


class DirectoryCheckpoint:
    """A checkpoint in a folder, which survives the death of a process at any moment.

    ``manifest.json`` identifies the run; a different run raises an error. Answers of workers are
    written as they arrive (``answers-*.npz``). A state (``state.npz``) contains the folded tasks,
    whose answers are then deleted. Every file is written under a temporary name, synced and
    renamed. Several machines may share the folder. Nothing in it is unpickled.

    Parameters
    ----------
    folder : path
        Created if missing.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth.runtime import DirectoryCheckpoint, MaxTasks
    >>> from cellworth import Runtime, value_game
    >>> from cellworth.games import TableGame
    >>> game, folder = TableGame([[0.0, 0.0], [0.0, 1.0]]), Path(tempfile.mkdtemp())
    >>> run = {"random_state": 0, "runtime": Runtime(checkpoint=DirectoryCheckpoint(folder))}
    >>> short = value_game(game, (1, 1), stop=MaxTasks(16), **run)
    >>> (folder / "state.npz").is_file()
    True
    >>> value_game(game, (1, 1), stop=MaxTasks(64), **run).provenance.sessions
    (Session(seed=0, tasks=64),)
    """

    stores_answers: ClassVar[bool] = True

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder: Path = local_path(folder, "checkpoint")
        self._run = ""
        self._files: AnswerFiles | None = None

    def open(self, identity: Mapping[str, Any]) -> None:
        """Open the checkpoint for the run identified by ``identity``; raise if it holds another."""
        # As JSON returns it, so that the two can be compared.
        asked = json.loads(json.dumps(identity))
        with explain_disk_errors(self.folder):
            make_folder(self.folder, "checkpoint")
            kept = _read_identity(self.folder)
            if kept is None:
                _begin(self.folder, asked)
                kept = _read_identity(self.folder) or asked
        check_same_run(kept, asked, str(self.folder))
        self._run, self._files = hash_json(asked), None

    def read_state(self) -> RunState | None:
        """Return the latest state, or None for a new run."""
        return _read_state(self.folder / _STATE, self._run)

    def write_state(self, state: RunState) -> None:
        """Replace the state, and delete the answers that it contains."""
        path = self.folder / _STATE
        if _count_tasks(path) > state.tasks:
            # Another process has stored a later state.
            return
        head = {"run": self._run, "tasks": state.tasks, "seconds": state.seconds}
        with explain_disk_errors(self.folder), write_atomically(path) as file:
            write_plain(file, head | add_prefix(_CONTENT, state.content))
        self._answer_files.drop_before(state.tasks)

    def answers(self) -> Iterator[tuple[int, Loader]]:
        """Return task numbers with loaders of their answers."""
        return self._answer_files.answers()

    def write_answer(self, task: int, answer: Plain) -> Loader | None:
        """Write an answer; frequent small answers share a file."""
        with explain_disk_errors(self.folder):
            return self._answer_files.write_answer(task, answer)

    def flush(self) -> None:
        """Write all pending answers."""
        with explain_disk_errors(self.folder):
            self._answer_files.flush()

    @property
    def _answer_files(self) -> AnswerFiles:
        if not self._run:
            raise ValueError(f"{self!r} has not been opened for a run.")
        if self._files is None:
            # Read when first needed: a checkpoint may be opened only to check the run.
            self._files = AnswerFiles(self.folder, self._run)
        return self._files

    def __repr__(self) -> str:
        return f"DirectoryCheckpoint({str(self.folder)!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> DirectoryCheckpoint:
        """Return another checkpoint of the same folder."""
        return DirectoryCheckpoint(self.folder)


def merge(folders: Iterable[str | os.PathLike[str]], into: str | os.PathLike[str]) -> None:
    """Merge the checkpoints of the partitions of one run into one folder.

    Partitions that share a folder need no merging. Afterwards, ``fit`` the same valuer with
    ``checkpoint=into`` and without ``partition``: all tasks are done.

    Parameters
    ----------
    folders : paths
        Checkpoints of partitions. They are not changed.
    into : path
        Created if missing; it may be one of the folders.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, Runtime
    >>> from cellworth.runtime import merge
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> data, folder = {"X": X, "y": y, "X_val": X, "y_val": y}, Path(tempfile.mkdtemp())
    >>> for i in (0, 1):
    ...     runtime = Runtime(checkpoint=folder / f"part{i}", partition=(i, 2))
    ...     part = KNNValuer(1, random_state=0, runtime=runtime).fit(**data)
    >>> merge([folder / "part0", folder / "part1"], into=folder / "all")
    >>> valuer = KNNValuer(1, random_state=0, runtime=Runtime(checkpoint=folder / "all"))
    >>> valuer.fit(**data).valuation_.columns()
    column   value  validation_se
        x0  0.3750         0.1172
        x1  0.1250         0.1172
    """
    if isinstance(folders, str | os.PathLike):
        raise TypeError(f"folders is {folders!r}; give a list of the partitions' checkpoints.")
    merged = local_path(into, "into")
    sources = [local_path(folder, "folders") for folder in folders]
    if not sources:
        raise ValueError("there are no folders to merge; give the checkpoints of the partitions.")
    # Check all before anything is written.
    runs = [_run_in(source) for source in sources]
    for source, kept in zip(sources, runs, strict=True):
        check_same_run(kept, runs[0], str(source))
    for source in sources:
        checkpoint = DirectoryCheckpoint(merged)
        checkpoint.open(runs[0])
        if not source.samefile(checkpoint.folder):
            _copy(source, checkpoint, runs[0])


def _run_in(folder: Path) -> dict[str, Any]:
    kept = _read_identity(folder) if folder.is_dir() else None
    if kept is None:
        raise FileNotFoundError(f"{folder} holds no checkpoint; give folders of partitions.")
    return kept


def _copy(source: Path, into: DirectoryCheckpoint, run: Mapping[str, Any]) -> None:
    # The source is left unchanged, even if it is damaged.
    state = _read_state(source / _STATE, hash_json(run))
    if state is not None:
        into.write_state(state)
    for path in sorted(source.glob(PATTERN)):
        with (
            explain_disk_errors(into.folder),
            path.open("rb") as original,
            write_atomically(into.folder / path.name) as file,
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
            f"{path} is damaged or belongs to another run ({error}); restore it from a copy, or "
            "delete it to compute its tasks again."
        ) from error


def _count_tasks(path: Path) -> int:
    """Return the number of tasks in a state; 0 if it is missing or damaged."""
    try:
        return int(PlainFile(path).rest["tasks"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return 0


def _read_identity(folder: Path) -> dict[str, Any] | None:
    """Return the identity of the run in a folder; None if there is no run."""
    path = folder / _MANIFEST
    try:
        manifest = read_manifest(path, FORMAT, VERSION)
    except FileNotFoundError:
        if (folder / _STATE).exists() or any(folder.glob(PATTERN)):
            raise ValueError(
                f"{folder} contains files of a run, but no {_MANIFEST}; restore it from a copy, or "
                "give a new folder."
            ) from None
        return None
    run = manifest.get("run")
    if not isinstance(run, dict) or manifest.get("sha256") != hash_json(run):
        raise ValueError(
            f"{path} was changed after it was written (its sha256 differs); restore it from a copy."
        )
    return run


def _begin(folder: Path, identity: Mapping[str, Any]) -> None:
    head = {"format": FORMAT, "version": VERSION, "sha256": hash_json(identity)}
    # Several processes may begin at once; the first one writes the manifest.
    with suppress(FileExistsError), write_atomically(folder / _MANIFEST, replacing=False) as file:
        file.write(json.dumps(head | {"run": identity}, indent=1).encode())


@contextmanager
def explain_disk_errors(folder: Path) -> Iterator[None]:
    """Add advice to errors of the disk."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise type(error)(
            error.errno,
            f"cannot write the checkpoint ({error.strerror}). Existing data is intact; fix the "
            "problem and run the same call to resume",
            str(folder),
        ) from error


class AnswerFiles:
    """Files with answers of one run, in a folder that several processes may share.

    The headers of existing files are read at once, and damaged files renamed. ``run``, the hash of
    the run's identity, is stored in every file.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._folder, self._run = folder, run
        self._tasks: dict[Path, list[int]] = {}
        self._small: list[Path] = []
        self._pending: list[tuple[int, Plain]] = []
        self._latest = _NOTHING
        self._limiter = RateLimiter(_SHARE_OF_TIME)
        for path in sorted(folder.glob(PATTERN)):
            if tasks := self._tasks_of(path):
                self._tasks[path] = tasks

    def answers(self) -> Iterator[tuple[int, Loader]]:
        """Return task numbers with loaders of their answers."""
        # A file that turns out to be damaged is dropped meanwhile.
        for path, tasks in list(self._tasks.items()):
            for index, task in enumerate(tasks):
                yield task, partial(self._read_answer, path, index)

    def write_answer(self, task: int, answer: Plain) -> Loader | None:
        """Write an answer; return a loader for a large one. Small ones may wait to share a file."""
        if n_bytes(answer) >= _LARGE:
            return partial(self._read_answer, self._write([(task, answer)]), 0)
        self._pending.append((task, answer))
        if len(self._pending) >= _MANY_ANSWERS or self._limiter.due:
            self.flush()
        return None

    def flush(self) -> None:
        """Write all pending answers."""
        if not self._pending:
            return
        with self._limiter.measure():
            self._small.append(self._write(self._pending))
        self._pending = []
        if len(self._small) >= _MANY_FILES:
            self._join_small_ones()

    def drop_before(self, task: int) -> None:
        """Delete answers of earlier tasks: a state contains them."""
        self._pending = [(number, answer) for number, answer in self._pending if number >= task]
        for path in [path for path, tasks in self._tasks.items() if max(tasks) < task]:
            self._drop(path)

    def _write(self, answers: list[tuple[int, Plain]]) -> Path:
        tasks = [task for task, _ in answers]
        content: Plain = {"run": self._run, "tasks": tasks}
        for index, (_, answer) in enumerate(answers):
            content |= add_prefix(str(index), answer)
        path = self._folder / f"answers-{min(tasks):08d}-{uuid4().hex}.npz"
        with write_atomically(path) as file:
            write_plain(file, content)
        self._tasks[path] = tasks
        return path

    def _join_small_ones(self) -> None:
        """Join small files: a partition of a run may take days before it is folded."""
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
        """Return the tasks in a file; none if it cannot be read."""
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
                f"{path} belongs to another run than manifest.json beside it; remove it from the "
                "folder."
            )
        return tasks

    def _read_answer(self, path: Path, index: int) -> Plain | None:
        contents = self._contents(path)
        return contents[index] if contents else None

    def _contents(self, path: Path) -> list[Plain]:
        """Return all answers of a file; the latest file stays in memory for the next call."""
        if self._latest[0] != path:
            self._latest = path, self._read(path)
        contents = self._latest[1]
        if len(contents) == 1:
            # It may be large, and is not needed again.
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
        self._tasks.pop(path, None)
        set_aside(path, error, "tasks are")


def set_aside(path: Path, reason: object, lost: str) -> bool:
    """Rename a damaged file, so that what is lost is computed again; False if it is gone."""
    damaged = path.with_name(f"damaged-{path.name}")
    try:
        path.rename(damaged)
    except FileNotFoundError:
        # It was deleted, or another process that shares the folder has renamed it.
        return False
    warnings.warn(
        f"{path} is damaged ({reason}); it was renamed to {damaged.name}, and its {lost} computed "
        "again.",
        stacklevel=3,
    )
    return True
