"""Caches of utilities: in memory or in an SQLite file."""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cellworth.data.io import local_path
from cellworth.sampling.moments import DetailedUtility

_APPLICATION = 0x63656C6C  # "cell", which tells our files from other people's databases
_VERSION = 4
_SECONDS_TO_WAIT_FOR_A_WRITER = 30.0
# A message that quotes a damaged file may be no text.
_DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError)
_AT_A_TIME = 500  # SQLite takes some thousand parameters at most


@runtime_checkable
class Cache(Protocol):
    """Keeps utilities by the fingerprint of their game and the bytes of their coalition.

    A utility may be a :class:`cellworth.DetailedUtility`: a cache that keeps the float alone has it
    computed again where validation errors are known.
    """

    def find(self, game: str, coalitions: Iterable[bytes]) -> dict[bytes, float]:
        """Return those of the coalitions that are known."""
        ...

    def add(self, game: str, found: Mapping[bytes, float]) -> None:
        """Remember utilities; those that are there already stay as they are."""
        ...


class MemoryCache:
    """Utilities that live as long as the Python session does.

    Hand it to several valuers of one model and one table: they pay for each fit once.

    Examples
    --------
    >>> from cellworth.runtime import MaxTasks, MemoryCache
    >>> from cellworth import Runtime, value_game
    >>> from cellworth.games import TableGame
    >>> game, cache = TableGame([[0.0, 0.0], [0.0, 1.0]]), MemoryCache()
    >>> shared = Runtime(cache=cache)
    >>> exact = value_game(game, (1, 1), runtime=shared)
    >>> estimate = value_game(game, (1, 1), stop=MaxTasks(8), random_state=0, runtime=shared)
    >>> len(cache)
    4
    """

    def __init__(self) -> None:
        """Start empty."""
        self._known: dict[tuple[str, bytes], float] = {}

    def find(self, game: str, coalitions: Iterable[bytes]) -> dict[bytes, float]:
        """Return those of the coalitions that are known."""
        return {c: self._known[game, c] for c in coalitions if (game, c) in self._known}

    def add(self, game: str, found: Mapping[bytes, float]) -> None:
        """Remember utilities; those that are there already stay as they are."""
        for coalition, utility in found.items():
            self._known.setdefault((game, coalition), utility)

    def entries(self) -> Iterator[tuple[str, bytes, float]]:
        """Game, coalition and utility of all that is known."""
        for (game, coalition), utility in self._known.items():
            yield game, coalition, utility

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryCache:
        """Stay one cache: a cloned valuer shares it, as it would share a file."""
        return self

    def __len__(self) -> int:
        """Count the utilities."""
        return len(self._known)


class FileCache:
    """Utilities in a SQLite file: they outlive the process, even one that is killed.

    The process that runs a valuer is the only one to write; workers send their results to it.
    Several valuers, also in several processes, may share the file. Nothing in it is executed.

    Parameters
    ----------
    path : path
        Made if it is not there.

    Examples
    --------
    >>> import tempfile
    >>> from cellworth.runtime import FileCache
    >>> cache = FileCache(tempfile.mkdtemp() + "/utilities.sqlite")
    >>> len(cache)
    0
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Remember the path; the file is opened when it is first used."""
        self.path = local_path(path, "path")
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def find(self, game: str, coalitions: Iterable[bytes]) -> dict[bytes, float]:
        """Return those of the coalitions that are known."""
        wanted = list(coalitions)
        found: dict[bytes, float] = {}
        with self._used() as connection:
            for start in range(0, len(wanted), _AT_A_TIME):
                some = wanted[start : start + _AT_A_TIME]
                positions = ",".join("?" * len(some))
                rows = connection.execute(
                    "SELECT coalition, utility, deviations FROM utilities "  # noqa: S608 (only ?)
                    f"WHERE game = ? AND coalition IN ({positions})",
                    [game, *some],
                )
                for coalition, utility, deviations in rows:
                    found[coalition] = _read(utility, deviations)
        return found

    def add(self, game: str, found: Mapping[bytes, float]) -> None:
        """Remember utilities; those that are there already stay as they are."""
        entries = [(game, c, *_written(utility)) for c, utility in found.items()]
        with self._used() as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO utilities VALUES (?, ?, ?, ?)", entries)

    def entries(self) -> Iterator[tuple[str, bytes, float]]:
        """Game, coalition and utility of all that is known."""
        with self._used() as connection:
            rows = connection.execute(
                "SELECT game, coalition, utility, deviations FROM utilities "
                "ORDER BY game, coalition"
            ).fetchall()
        yield from ((game, coalition, _read(*kept)) for game, coalition, *kept in rows)

    def close(self) -> None:
        """Close the file; it is opened again where it is used again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __len__(self) -> int:
        """Count the utilities of all games in the file."""
        with self._used() as connection:
            return int(connection.execute("SELECT count(*) FROM utilities").fetchone()[0])

    def __repr__(self) -> str:
        """Return the way to make it."""
        return f"FileCache({str(self.path)!r})"

    def __getstate__(self) -> dict[str, Path]:
        """Travel as a path; an open file stays where it is."""
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Path]) -> None:
        """Open anew where it arrives."""
        self.__init__(state["path"])  # type: ignore[misc]

    @contextmanager
    def _used(self) -> Iterator[sqlite3.Connection]:
        """Use the open file; say what it means where SQLite fails."""
        with self._lock:
            if self._connection is None:
                self._connection = _connected(self.path)
                weakref.finalize(self, self._connection.close)
            try:
                yield self._connection
            except sqlite3.OperationalError as error:
                raise OSError(
                    f"cannot use {self.path} ({error}). Its utilities are kept; fix the problem "
                    "and run the same call to resume."
                ) from error
            except _DAMAGED as error:
                raise ValueError(
                    f"{self.path} is damaged ({error}); restore it from a copy, or delete it to "
                    "have its utilities computed again."
                ) from error


def _written(utility: float) -> tuple[float, bytes]:
    """A utility and its deviations; no bytes where there are none."""
    deviations = getattr(utility, "deviations", None)
    packed = b"" if deviations is None else np.asarray(deviations, dtype="<f4").tobytes()
    return float(utility), packed


def _read(utility: float, deviations: bytes) -> float:
    if not deviations:
        return utility
    return DetailedUtility(utility, np.frombuffer(deviations, dtype="<f4").astype(np.float32))


def _connected(path: Path) -> sqlite3.Connection:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file for the cache.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for the cache; make it first.")
    connection = sqlite3.connect(
        path, timeout=_SECONDS_TO_WAIT_FOR_A_WRITER, check_same_thread=False
    )
    try:
        _prepare(connection, path)
    except sqlite3.OperationalError as error:
        connection.close()
        raise PermissionError(
            f"{path} cannot be used as a cache ({error}); give a file in a folder that can be "
            "written to."
        ) from error
    except _DAMAGED as error:
        connection.close()
        raise ValueError(
            f"{path} is no cache of utilities ({error}); give a new file, or one that a FileCache "
            "has made."
        ) from error
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    # What was committed survives a killed process; a reader never waits for the writer.
    connection.execute("PRAGMA synchronous = NORMAL")
    # One process at a time looks and makes the table, should several open a new file at once.
    connection.execute("BEGIN IMMEDIATE")
    names = ("application_id", "user_version")
    found = tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    n_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if n_tables and found != (_APPLICATION, _VERSION):
        connection.rollback()
        raise ValueError(
            f"{path} is a database, but no cache of utilities of this version; give a new file."
        )
    if not n_tables:
        for name, number in zip(names, (_APPLICATION, _VERSION), strict=True):
            connection.execute(f"PRAGMA {name} = {number}")
        connection.execute(
            "CREATE TABLE utilities (game TEXT, coalition BLOB, utility REAL NOT NULL, "
            "deviations BLOB NOT NULL, PRIMARY KEY (game, coalition)) WITHOUT ROWID"
        )
    connection.commit()
    connection.execute("PRAGMA journal_mode = WAL")
