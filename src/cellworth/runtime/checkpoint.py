"""Checkpoints: a run in a folder or in an object store, to be resumed later."""

from __future__ import annotations

import json
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial, reduce
from operator import or_
from pathlib import Path
from typing import Any
from uuid import uuid4

from numpy.typing import NDArray

from cellworth.data.io import (
    AnyPath,
    Options,
    Plain,
    PlainFile,
    add_prefix,
    hash_json,
    list_names,
    make_folder,
    n_bytes,
    read_manifest,
    remove_prefix,
    to_path,
    write_atomically,
    write_plain,
)
from cellworth.data.text import shorten
from cellworth.runtime.progress import CheckpointLog, RateLimiter
from cellworth.runtime.workers import RecoverableError

# Loads an answer that is stored elsewhere; returns None if it is lost.
Loader = Callable[[], Plain | None]
# Arrays by name that belong to one shard; together about as large as its values.
ShardState = dict[str, NDArray[Any]]
FORMAT = "cellworth checkpoint"
VERSION = 1
_MANIFEST = "manifest.json"
_STATE = "state.npz"
_ANSWERS = "answers-*.npz"
_RESULT = "round-{:08d}.npz"
_ENTRY = "entry-{:06d}.npz"
_CONTENT = "content"
_REPORT = "report"
_SECONDS = "seconds"
# Writing takes at most this share of the time; more frequent answers share a file.
_SHARE_OF_TIME = 0.05
# Answers of so many bytes get their own file.
_LARGE = 2**20
_MANY_ANSWERS = 256


class AnotherRunError(ValueError):
    """A checkpoint of another run; ``difference`` is the first one, in the order of names."""

    def __init__(self, difference: str, text: str) -> None:
        super().__init__(text)
        self.difference = difference


def check_same_run(kept: Mapping[str, Any], asked: Mapping[str, Any], where: str) -> None:
    """Raise if two runs differ, and name the first difference."""
    for name, (before, now) in _iter_differences(kept, asked, ()):
        raise AnotherRunError(
            name,
            f"{where} holds another run: its {name} is {shorten(repr(before))}, but here it is "
            f"{shorten(repr(now))}; give a new checkpoint, or the data, settings, versions and "
            "random_state of that run.",
        )


def _iter_differences(
    kept: Any, asked: Any, path: tuple[str, ...]
) -> Iterable[tuple[str, tuple[Any, Any]]]:
    if isinstance(kept, Mapping) and isinstance(asked, Mapping):
        for name in sorted(set(kept) | set(asked)):
            yield from _iter_differences(kept.get(name), asked.get(name), (*path, str(name)))
    elif kept != asked:
        yield ".".join(path), (kept, asked)


class DamagedFileError(RecoverableError):
    """A file is missing, or does not contain what its name promises."""

    def __init__(self, path: AnyPath, reason: str) -> None:
        super().__init__(path, reason)
        self.path: AnyPath = path
        self.reason: str = reason

    def __str__(self) -> str:
        return f"{self.path} is damaged ({self.reason})"

    def set_aside(self) -> bool:
        """Rename the file, so that its content is computed again; False if it is gone."""
        damaged: Any = self.path.with_name(f"damaged-{self.path.name}")
        try:
            self.path.rename(damaged)
        except FileNotFoundError:
            # It was deleted, or another process that shares the folder has renamed it.
            return False
        warnings.warn(
            f"{self}; it was renamed to {damaged.name}, and its content is computed again.",
            stacklevel=3,
        )
        return True


@dataclass(frozen=True)
class RunFiles:
    """Files of one run in a folder or object store: arrays and plain values by key.

    Every file names its run and its key. Many processes, on many machines, may share them.
    """

    folder: AnyPath
    # Hash of the run's identity.
    run: str
    # Whether files must survive a crash of the machine, and not only killed processes.
    durable: bool = True

    def put(self, key: str, content: Plain) -> None:
        """Write a file, or replace it, in one step."""
        path = self.folder / key
        with explain_disk_errors(self.folder), write_atomically(path, durable=self.durable) as file:
            write_plain(file, {"run": self.run, "key": key} | content)

    def get(self, key: str, *prefixes: str) -> list[Plain]:
        """Return the plain values of a file, then its entries with each prefix."""
        path = self.folder / key
        try:
            file = PlainFile(path)
            found = [file.rest, *(file.read(*prefixes) if prefixes else ())]
        except ValueError as error:
            raise DamagedFileError(path, str(error)) from error
        if file.rest.get("run") != self.run:
            raise ValueError(
                f"{path} belongs to another run than {_MANIFEST} beside it; remove it from the "
                "folder."
            )
        if file.rest.get("key") != key:
            raise DamagedFileError(path, f"it was written as {file.rest.get('key')}")
        return found

    def head(self, key: str) -> Plain | None:
        """Return the plain values of a file; None if it is missing or damaged, and set aside."""
        try:
            return self.get(key)[0]
        except FileNotFoundError:
            return None
        except DamagedFileError as damaged:
            damaged.set_aside()
            return None

    def keys(self, pattern: str) -> list[str]:
        """Return the sorted keys that match a pattern."""
        return list_names(self.folder, pattern)

    def drop(self, key: str) -> None:
        """Delete a file, if it exists."""
        (self.folder / key).unlink(missing_ok=True)


class DirectoryCheckpoint:
    """A checkpoint in a folder or object store, which survives the death of a process at any time.

    ``manifest.json`` identifies the run; a different run raises an error. Answers of workers are
    written as they arrive (``answers-*.npz``). A state (``state.npz``) contains the folded tasks,
    whose answers are then deleted. Every file is written under a temporary name, synced and
    renamed, or uploaded to an object store in one step. Nothing in it is unpickled. Several
    machines may share it. Two runs of one valuer at once do no harm: both get the same values.

    Parameters
    ----------
    folder : path or address
        A folder, created if missing, or an address such as ``s3://bucket/run1``. An address needs
        ``pip install 'cellworth[remote]'`` and the package of its store, such as s3fs.
    storage_options : dict, default=None
        Options of fsspec for an address, such as keys. They are sent to workers, and never shown
        or stored. By default the store reads its usual environment variables and files.

    See Also
    --------
    cellworth.Runtime

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

    def __init__(
        self, folder: str | os.PathLike[str], storage_options: Options | None = None
    ) -> None:
        self.folder: AnyPath = to_path(folder, "checkpoint", storage_options)
        self._opened: RunFiles | None = None
        # Files of answers with their tasks.
        self._files: dict[str, list[int]] | None = None
        self._pending: list[tuple[int, Plain]] = []
        self._latest: tuple[str, list[Plain]] = "", []
        self._limiter = RateLimiter(_SHARE_OF_TIME)

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
        self._opened = RunFiles(self.folder, hash_json(asked))
        self._files, self._pending, self._latest = None, [], ("", [])

    def read_state(self) -> tuple[int, float, Plain] | None:
        """Return the latest state, or None for a new run.

        It has the number of finished tasks, the seconds spent on them in all sessions, and their
        contributions, folded in order.
        """
        files = self.files
        try:
            head, content = files.get(_STATE, _CONTENT)
        except FileNotFoundError:
            return None
        except (DamagedFileError, ValueError) as error:
            raise ValueError(
                f"{files.folder / _STATE} is damaged or belongs to another run ({error}); restore "
                "it from a copy, or delete it to compute its tasks again."
            ) from error
        return int(head["tasks"]), float(head["seconds"]), content

    def write_state(self, n_tasks: int, seconds: float, content: Plain) -> None:
        """Replace the state, and delete the answers that it contains."""
        stored = self.files.head(_STATE)
        if stored is not None and stored["tasks"] > n_tasks:
            # Another process has stored a later state.
            return
        head = {"tasks": n_tasks, "seconds": seconds}
        self.files.put(_STATE, head | add_prefix(_CONTENT, content))
        self._pending = [(task, answer) for task, answer in self._pending if task >= n_tasks]
        for key in [key for key, tasks in self._tasks.items() if max(tasks) < n_tasks]:
            self._tasks.pop(key)
            self.files.drop(key)

    def answers(self) -> Iterator[tuple[int, Loader]]:
        """Return task numbers with loaders of their answers."""
        # A file that turns out to be damaged is dropped meanwhile.
        for key, tasks in list(self._tasks.items()):
            for index, task in enumerate(tasks):
                yield task, partial(self._read_answer, key, index)

    def write_answer(self, task: int, answer: Plain) -> Loader | None:
        """Write an answer; return a loader for a large one. Small ones may wait to share a file."""
        if n_bytes(answer) >= _LARGE:
            return partial(self._read_answer, self._write([(task, answer)]), 0)
        # A copy, because folding uses answers up.
        self._pending.append((task, deepcopy(answer)))
        if len(self._pending) >= _MANY_ANSWERS or self._limiter.due:
            self.flush()
        return None

    def flush(self) -> None:
        """Write all pending answers."""
        if not self._pending:
            return
        with self._limiter.measure():
            self._write(self._pending)
        self._pending = []

    @property
    def files(self) -> RunFiles:
        """The files of the run that the checkpoint was opened for."""
        if self._opened is None:
            raise ValueError(f"{self!r} has not been opened for a run.")
        return self._opened

    @property
    def _tasks(self) -> dict[str, list[int]]:
        if self._files is None:
            # Read when first needed: a checkpoint may be opened only to check the run.
            heads = [(key, self.files.head(key)) for key in self.files.keys(_ANSWERS)]
            self._files = {key: head["tasks"] for key, head in heads if head is not None}
        return self._files

    def _write(self, answers: list[tuple[int, Plain]]) -> str:
        tasks = [task for task, _ in answers]
        content: Plain = {"tasks": tasks}
        for index, (_, answer) in enumerate(answers):
            content |= add_prefix(str(index), answer)
        key = f"answers-{min(tasks):08d}-{uuid4().hex}.npz"
        self.files.put(key, content)
        self._tasks[key] = tasks
        return key

    def _read_answer(self, key: str, index: int) -> Plain | None:
        """Return an answer; a file with several stays in memory for the next call."""
        if self._latest[0] != key:
            self._latest = key, self._read(key)
        answers = self._latest[1]
        if len(answers) == 1:
            # It may be large, and is not needed again.
            self._latest = "", []
        return answers[index] if answers else None

    def _read(self, key: str) -> list[Plain]:
        """Return all answers of a file; none if it is gone or damaged."""
        try:
            return self.files.get(key, *map(str, range(len(self._tasks[key]))))[1:]
        except (FileNotFoundError, KeyError):
            return []
        except DamagedFileError as damaged:
            self._tasks.pop(key, None)
            damaged.set_aside()
            return []

    def __repr__(self) -> str:
        return f"DirectoryCheckpoint({str(self.folder)!r})"


def _read_identity(folder: AnyPath) -> dict[str, Any] | None:
    """Return the identity of the run in a folder; None if there is no run."""
    path = folder / _MANIFEST
    try:
        manifest = read_manifest(path, FORMAT, VERSION)
    except FileNotFoundError:
        if (folder / _STATE).exists() or list_names(folder, _ANSWERS):
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


def _begin(folder: AnyPath, identity: Mapping[str, Any]) -> None:
    head = {"format": FORMAT, "version": VERSION, "sha256": hash_json(identity)}
    # When a run began is no part of its identity.
    head["created"] = datetime.now(UTC).isoformat(timespec="seconds")
    # Several processes may begin at once; the first one writes the manifest.
    with suppress(FileExistsError), write_atomically(folder / _MANIFEST, replacing=False) as file:
        file.write(json.dumps(head | {"run": identity}, indent=1).encode())


@contextmanager
def explain_disk_errors(folder: AnyPath) -> Iterator[None]:
    """Add advice to errors of the disk or the store."""
    advice = "Existing data is intact; fix the problem and run the same call to resume"
    try:
        yield
    except OSError as error:
        if not isinstance(folder, Path):
            raise type(error)(f"cannot write the checkpoint: {error} {advice}.") from error
        if error.errno is None:
            raise
        reason = f"cannot write the checkpoint ({error.strerror}). {advice}"
        raise type(error)(error.errno, reason, str(folder)) from error


class ShardCheckpoint(RunFiles):
    """What the workers of a run over shards write, besides values.

    Results of rounds, as long as they are not in the states of all shards; these states, some
    rounds apart; and entries of the results of shards. All are the same on every machine.
    """

    def read(self, shard: int, rounds: int) -> ShardState:
        """Read the state after so many rounds and verify its checksums."""
        return self._read(_shard_key(shard, rounds), _CONTENT)[0]

    def write(self, shard: int, rounds: int, state: ShardState) -> None:
        """Write a state."""
        self.put(_shard_key(shard, rounds), add_prefix(_CONTENT, state))

    def read_result(self, number: int) -> tuple[NDArray[Any], dict[int, Plain]]:
        """Return what all shards, and what single shards need of a round."""
        key = _RESULT.format(number)
        shards = self._read(key, _CONTENT)[0]["shards"]
        shared, *parts = self._read(key, _CONTENT, *map(str, shards))
        return shared["shared"], dict(zip(shards, parts, strict=True))

    def write_result(
        self, number: int, shared: NDArray[Any], per_shard: Mapping[int, Plain]
    ) -> None:
        """Write what shards need of a round."""
        content: Plain = {"shards": list(per_shard), "shared": shared}
        parts = [add_prefix(str(shard), part) for shard, part in per_shard.items()]
        self.put(_RESULT.format(number), reduce(or_, parts, add_prefix(_CONTENT, content)))

    def read_entry(self, shard: int, rounds: int, into: AnyPath) -> Plain | None:
        """Return the entry of the result of a shard after so many rounds, if it is in a folder."""
        key = _ENTRY.format(shard)
        if (self.head(key) or {}).get("rounds") != rounds:
            return None
        (entry,) = self._read(key, _CONTENT)
        return entry if (into / str(entry.get("file", ""))).exists() else None

    def write_entry(self, shard: int, rounds: int, entry: Plain) -> None:
        """Write the entry of the result of a shard."""
        self.put(_ENTRY.format(shard), {"rounds": rounds} | add_prefix(_CONTENT, entry))

    def find(self, n_shards: int) -> tuple[list[list[int]], set[int]]:
        """Return, by shard, the numbers of rounds of its states, and the rounds with a result."""
        states: list[list[int]] = [[0] for _ in range(n_shards)]
        for key in self.keys("shard-*.npz"):
            states[int(key[6:12])].append(int(key[-12:-4]))
        return states, {int(key[-12:-4]) for key in self.keys("round-*.npz")}

    def drop_before(self, rounds: int) -> None:
        """Delete states after fewer rounds, and the results that later states include."""
        for key in (*self.keys("shard-*.npz"), *self.keys("round-*.npz")):
            if int(key[-12:-4]) < rounds:
                self.drop(key)

    def _read(self, key: str, *prefixes: str) -> list[Plain]:
        try:
            return self.get(key, *prefixes)[1:]
        except FileNotFoundError as error:
            raise DamagedFileError(self.folder / key, "it is missing") from error


def _shard_key(shard: int, rounds: int) -> str:
    return f"shard-{shard:06d}-{rounds:08d}.npz"


def check_folder(folder: AnyPath, what: str = "run") -> None:
    """Raise if this machine cannot see a folder: all machines of a cluster must share it."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see the folder {folder} of the {what}; give a "
            "checkpoint in a folder that all workers of the cluster share."
        )


class RoundsCheckpoint:
    """How far a run over shards is: reports of rounds and, with a folder, what resumes it.

    ``identity`` holds everything that determines what rounds compute and report; the checkpoint of
    another run raises an error.
    """

    # Rounds that have a report, and a result that all shards have added up or that waits for them.
    complete: int
    # By shard, the rounds that it has added up.
    added: list[int]

    def __init__(
        self, folder: AnyPath | str | None, identity: Mapping[str, Any], n_shards: int
    ) -> None:
        self._began, self._seconds_before = time.perf_counter(), 0.0
        self._n_shards, self._reports = n_shards, dict[int, Plain]()
        self._log = CheckpointLog()
        self.states: ShardCheckpoint | None = None
        self._directory: DirectoryCheckpoint | None = None
        if folder is not None:
            self._directory = DirectoryCheckpoint(folder)
            self._directory.open(identity)
            files = self._directory.files
            self.states = ShardCheckpoint(files.folder.absolute(), files.run)
            for number, load in self._directory.answers():
                record = load()
                if record is not None:
                    self._reports[number] = remove_prefix(_REPORT, record)
                    self._seconds_before = max(self._seconds_before, float(record[_SECONDS]))
        self.find_complete()

    def find_complete(self) -> None:
        """Find out how far the run is, from the files in the folder."""
        self.complete, self.added = 0, [0] * self._n_shards
        if self.states is None:
            return
        states, results = self.states.find(self._n_shards)
        known = next(n for n in range(len(self._reports) + 1) if n not in self._reports)
        for self.complete in range(known, -1, -1):
            # Since then, all results are there.
            since = self.complete
            while since - 1 in results:
                since -= 1
            usable = [[n for n in own if since <= n <= self.complete] for own in states]
            if all(usable):
                self.added = [max(own) for own in usable]
                break
        # The latest that all shards have.
        self._stored = min(self.added)

    @property
    def n_visits(self) -> int:
        """How often a shard counted or added a round."""
        return self.complete * self._n_shards + sum(self.added)

    @property
    def seconds(self) -> float:
        """Time spent so far, earlier sessions included."""
        return self._seconds_before + time.perf_counter() - self._began

    def record_report(self, number: int, report: Plain) -> None:
        """Record that a round is complete; its result has been written."""
        self.complete = number + 1
        if number in self._reports:
            return
        self._reports[number] = report
        if self._directory is not None:
            record = add_prefix(_REPORT, report) | {_SECONDS: self.seconds}
            self._directory.write_answer(number, record)
            self._directory.flush()
            self._log.record(self._directory, rounds=number + 1)

    def record_states(self, rounds: int) -> None:
        """Record that the states of all shards after so many rounds were written.

        Those before stay, with the results since: if a state is damaged, no round is lost.
        """
        if self.states is not None:
            self.states.drop_before(self._stored)
            self._stored = rounds

    def reports(self, n_rounds: int) -> tuple[Plain, ...]:
        """Return the reports of the first rounds."""
        return tuple(self._reports[number] for number in range(n_rounds))
