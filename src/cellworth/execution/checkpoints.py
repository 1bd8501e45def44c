"""A journal in a folder: it outlives the process, and any number of machines may write to it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

from cellworth.execution.journal import Loader, State, refuse_another_run
from cellworth.execution.parts import PATTERN, Parts
from cellworth.files import (
    local_path,
    read_manifest,
    remove_stale_temporaries,
    written_atomically,
)
from cellworth.packing import Plain, PlainFile, prefixed, write_plain
from cellworth.provenance import fingerprint

FORMAT = "cellworth checkpoint"
VERSION = 1

_MANIFEST = "manifest.json"
_STATE = "state.npz"
_CONTENT = "content"


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
    >>> from cellworth import AfterTasks, TableGame, value_game
    >>> game, folder = TableGame([[0.0, 0.0], [0.0, 1.0]]), Path(tempfile.mkdtemp())
    >>> run = {"random_state": 0, "checkpoint": DirectoryJournal(folder)}
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
        self._parts: Parts | None = None

    def open(self, identity: Mapping[str, Any]) -> None:
        """Take up a run; a folder that holds another one is refused."""
        # As it will be read, so that the two can be compared.
        asked = json.loads(json.dumps(identity))
        with failing_disk_explained(self.folder):
            _made(self.folder)
            remove_stale_temporaries(self.folder)
            kept = _kept_run(self.folder)
            if kept is None:
                _begin(self.folder, asked)
                kept = _kept_run(self.folder) or asked
        refuse_another_run(kept, asked, str(self.folder))
        self._run, self._parts = fingerprint(asked), None

    def read(self) -> State | None:
        """Return the latest state, or None for a new run."""
        return _read_state(self.folder / _STATE, self._run)

    def write(self, state: State) -> None:
        """Keep a state in place of the one before; then the parts that it holds go."""
        path = self.folder / _STATE
        if _tasks_in(path) > state.tasks:
            # Another process has come further in this folder.
            return
        head = {"run": self._run, "tasks": state.tasks, "seconds": state.seconds}
        with failing_disk_explained(self.folder), written_atomically(path) as file:
            write_plain(file, head | prefixed(_CONTENT, state.content))
        self._opened.drop_before(state.tasks)

    def answers(self) -> Iterator[tuple[int, Loader]]:
        """Numbers of tasks with answers in the folder, and ways to read these."""
        return self._opened.answers()

    def keep(self, task: int, answer: Plain) -> Loader | None:
        """Write an answer; those that come faster than they can be written share a file."""
        with failing_disk_explained(self.folder):
            return self._opened.keep(task, answer)

    def flush(self) -> None:
        """Write the answers that wait for others."""
        with failing_disk_explained(self.folder):
            self._opened.flush()

    @property
    def _opened(self) -> Parts:
        if not self._run:
            raise ValueError(f"{self!r} has not been opened for a run.")
        if self._parts is None:
            # Looked at when they are first needed: a run may be taken up to see whose it is.
            self._parts = Parts(self.folder, self._run)
        return self._parts

    def __repr__(self) -> str:
        """Return the way to make it."""
        return f"DirectoryJournal({str(self.folder)!r})"

    def __deepcopy__(self, memo: dict[int, Any]) -> DirectoryJournal:
        """Be another journal of the same folder."""
        return DirectoryJournal(self.folder)


def merge(folders: Iterable[str | os.PathLike[str]], into: str | os.PathLike[str]) -> None:
    """Bring the shards of one run together in one folder.

    Shards that share a folder need no merging. Afterwards ``fit`` of the same valuer, without
    ``shard`` and with ``checkpoint=into``, finds everything done.

    Parameters
    ----------
    folders : paths
        Checkpoints of shards. They are left as they are.
    into : path
        Made if it is not there; it may be one of the folders.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> data, place = {"X": X, "y": y, "X_val": X, "y_val": y}, Path(tempfile.mkdtemp())
    >>> for i in (0, 1):
    ...     shard = KNNValuer(1, random_state=0, checkpoint=place / f"shard{i}", shard=(i, 2))
    ...     shard = shard.fit(**data)
    >>> merge([place / "shard0", place / "shard1"], into=place / "all")
    >>> KNNValuer(1, random_state=0, checkpoint=place / "all").fit(**data).valuation_.columns()
    column   value  validation error
        x0  0.3750            0.1172
        x1  0.1250            0.1172
    """
    if isinstance(folders, str | os.PathLike):
        raise TypeError(f"folders is {folders!r}; give a list of the checkpoints of the shards.")
    whole = local_path(into, "into")
    sources = [local_path(folder, "folders") for folder in folders]
    if not sources:
        raise ValueError("there are no folders to merge; give the checkpoints of the shards.")
    # All are looked at before anything is written.
    runs = [_run_in(source) for source in sources]
    for source, kept in zip(sources, runs, strict=True):
        refuse_another_run(kept, runs[0], str(source))
    for source in sources:
        journal = DirectoryJournal(whole)
        journal.open(runs[0])
        if not source.samefile(journal.folder):
            _copy(source, journal, runs[0])


def _run_in(folder: Path) -> dict[str, Any]:
    kept = _kept_run(folder) if folder.is_dir() else None
    if kept is None:
        raise FileNotFoundError(f"{folder} holds no checkpoint; give folders of shards.")
    return kept


def _copy(source: Path, into: DirectoryJournal, run: Mapping[str, Any]) -> None:
    # The source is left as it is, be it damaged.
    state = _read_state(source / _STATE, fingerprint(run))
    if state is not None:
        into.write(state)
    for path in sorted(source.glob(PATTERN)):
        with (
            failing_disk_explained(into.folder),
            path.open("rb") as original,
            written_atomically(into.folder / path.name) as file,
        ):
            shutil.copyfileobj(original, file)


def _read_state(path: Path, run: str) -> State | None:
    if not path.exists():
        return None
    try:
        file = PlainFile(path)
        head = file.rest
        if head["run"] != run:
            raise ValueError("it belongs to another run")
        (content,) = file.read(_CONTENT)
        return State(int(head["tasks"]), float(head["seconds"]), content)
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
def failing_disk_explained(folder: Path) -> Iterator[None]:
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
