"""Caches of utilities, which several runs share: in memory or in an SQLite file."""

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

_APPLICATION = 0x63656C6C  # "cell": marks our files among other databases
_VERSION = 4
_SECONDS_TO_WAIT_FOR_A_WRITER = 30.0
# A message of SQLite that quotes a damaged file may not be valid text.
_DAMAGED = (sqlite3.DatabaseError, UnicodeDecodeError)
_AT_A_TIME = 500  # SQLite limits the parameters of a query


@runtime_checkable
class Cache(Protocol):
    """Stores utilities by the hash of their game and the bytes of their coalition.

    A utility may be a :class:`~cellworth.sampling.DetailedUtility`. A cache may store the
    float alone; the utility is then computed again if the run needs validation errors.

    See Also
    --------
    MemoryCache, FileCache

    Examples
    --------
    >>> from cellworth.runtime import Cache, MemoryCache
    >>> isinstance(MemoryCache(), Cache)
    True
    """

    def find(self, game: str, coalitions: Iterable[bytes]) -> dict[bytes, float]:
        """Return the cached utilities of these coalitions; others are left out."""

    def add(self, game: str, found: Mapping[bytes, float]) -> None:
        """Add utilities; existing entries are not changed."""


class MemoryCache:
    """A cache in memory, for one Python session.

    Pass it to several valuers with the same model and table: each fit is computed once.

    See Also
    --------
    FileCache

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
        self._known: dict[tuple[str, bytes], float] = {}

    def find(self, game: str, coalitions: Iterable[bytes]) -> dict[bytes, float]:
        """Return the cached utilities of these coalitions; others are left out."""
        return {c: self._known[game, c] for c in coalitions if (game, c) in self._known}

    def add(self, game: str, found: Mapping[bytes, float]) -> None:
        """Add utilities; existing entries are not changed."""
        for coalition, utility in found.items():
            self._known.setdefault((game, coalition), utility)

    def entries(self) -> Iterator[tuple[str, bytes, float]]:
        """Yield game, coalition and utility of every entry."""
        for (game, coalition), utility in self._known.items():
            yield game, coalition, utility

    def __deepcopy__(self, memo: dict[int, Any]) -> MemoryCache:
        """Return itself: a cloned valuer shares it, as it would share a file."""
        return self

    def __len__(self) -> int:
        return len(self._known)


class FileCache:
    """A cache in an SQLite file, which survives the death of a process at any moment.

    Only the process that runs a valuer writes; workers send their results to it. Several valuers,
    also in several processes, may share the file. Nothing in it is executed.

    Parameters
    ----------
    path : path
        Created if missing.

    See Also
    --------
    MemoryCache, cellworth.Runtime

    Examples
    --------
    >>> import tempfile
    >>> from cellworth.runtime import FileCache
    >>> cache = FileCache(tempfile.mkdtemp() + "/utilities.sqlite")
    >>> len(cache)
    0
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Store the path; the file is opened when it is first used."""
        self.path: Path = local_path(path, "path")
        self._connection: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    def find(self, game: str, coalitions: Iterable[bytes]) -> dict[bytes, float]:
        """Return the cached utilities of these coalitions; others are left out."""
        wanted = list(coalitions)
        found: dict[bytes, float] = {}
        with self._use() as connection:
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
        """Add utilities; existing entries are not changed."""
        entries = [(game, c, *_pack_utility(utility)) for c, utility in found.items()]
        with self._use() as connection, connection:
            connection.executemany("INSERT OR IGNORE INTO utilities VALUES (?, ?, ?, ?)", entries)

    def entries(self) -> Iterator[tuple[str, bytes, float]]:
        """Yield game, coalition and utility of every entry."""
        with self._use() as connection:
            rows = connection.execute(
                "SELECT game, coalition, utility, deviations FROM utilities "
                "ORDER BY game, coalition"
            ).fetchall()
        yield from ((game, coalition, _read(*kept)) for game, coalition, *kept in rows)

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def __len__(self) -> int:
        with self._use() as connection:
            return int(connection.execute("SELECT count(*) FROM utilities").fetchone()[0])

    def __repr__(self) -> str:
        return f"FileCache({str(self.path)!r})"

    def __getstate__(self) -> dict[str, Path]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Path]) -> None:
        self.__init__(state["path"])  # type: ignore[misc]

    @contextmanager
    def _use(self) -> Iterator[sqlite3.Connection]:
        """Use the open file, and add advice to errors of SQLite."""
        with self._lock:
            if self._connection is None:
                self._connection = _connect(self.path)
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
                    "compute its utilities again."
                ) from error


def _pack_utility(utility: float) -> tuple[float, bytes]:
    """Return a utility and the bytes of its deviations."""
    deviations = getattr(utility, "deviations", None)
    packed = b"" if deviations is None else np.asarray(deviations, dtype="<f4").tobytes()
    return float(utility), packed


def _read(utility: float, deviations: bytes) -> float:
    if not deviations:
        return utility
    return DetailedUtility(utility, np.frombuffer(deviations, dtype="<f4").astype(np.float32))


def _connect(path: Path) -> sqlite3.Connection:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file for the cache.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent} for the cache; make it first.")
    connection = sqlite3.connect(
        path, timeout=_SECONDS_TO_WAIT_FOR_A_WRITER, check_same_thread=False
    )
    try:
        _prepare(connection, path)
    except BaseException as error:
        connection.close()
        if isinstance(error, sqlite3.OperationalError):
            raise PermissionError(
                f"{path} cannot be used as a cache ({error}); give a file in a folder that can be "
                "written to."
            ) from error
        if isinstance(error, _DAMAGED):
            raise ValueError(
                f"{path} is not a cache of utilities ({error}); give a new file, or one that "
                "FileCache created."
            ) from error
        raise
    return connection


def _prepare(connection: sqlite3.Connection, path: Path) -> None:
    # Committed entries survive a killed process.
    connection.execute("PRAGMA synchronous = NORMAL")
    # Several processes may open a new file at once; one of them creates the table.
    connection.execute("BEGIN IMMEDIATE")
    names = ("application_id", "user_version")
    found = tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    n_tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if n_tables and found != (_APPLICATION, _VERSION):
        connection.rollback()
        raise ValueError(
            f"{path} is a database, but not a cache of utilities of this version; give a new file."
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
