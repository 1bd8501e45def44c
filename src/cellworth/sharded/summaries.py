"""What one pass over a shard tells: a summary of each column, class counts and fingerprints."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Distance, Kind
from cellworth.neighbours.columns import checked_kinds
from cellworth.neighbours.summaries import Categories, Gathering, Numbers
from cellworth.sharded.cells import NO_TIME, READERS, Coder, Sort, sort_of
from cellworth.sharded.tables import ShardedTable

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_CATEGORIES = 10**6
_NO_CATEGORIES = "so that it names rows rather than describing them; leave it out with columns=."
_MOST_LABELS = 2**16
_NO_LABELS = "but rank bins are for class labels; group its cells into classes."


@dataclass(frozen=True, eq=False)
class TableSummary:
    """Summary of some shards of a table; those of all shards merge into that of the table.

    Parameters
    ----------
    columns : tuple of Numbers or Categories
        One for each column of the table.
    labels : Categories
        Labels of the rows.
    unlabelled : int or None
        Number of the first row without a label.
    digests : dict
        Fingerprint of the cells of each shard, by its number.
    """

    columns: tuple[Numbers | Categories, ...]
    labels: Categories
    unlabelled: int | None
    digests: dict[int, str]

    def merge(self, other: TableSummary) -> TableSummary:
        """Summary of the shards of both; none may be in both."""
        twice = self.digests.keys() & other.digests.keys()
        if twice:
            raise ValueError(f"shard {min(twice)} is in both summaries; merge each shard once.")
        rows = [row for row in (self.unlabelled, other.unlabelled) if row is not None]
        return TableSummary(
            tuple(map(_merged, self.columns, other.columns)),
            self.labels.merge(other.labels),
            min(rows, default=None),
            self.digests | other.digests,
        )

    def sha256(self, table: ShardedTable) -> str:
        """Fingerprint of names, types and cells of a table.

        It depends on how rows are cut into shards, and not on how files are compressed or cut into
        row groups. Numbers are what they are worth: 1 and 1.0 are the same.
        """
        digest = hashlib.sha256()
        for name, type_ in zip(table.schema.names, table.schema.types, strict=True):
            digest.update(f"{name}\0{type_}\0".encode())
        for shard in sorted(self.digests):
            digest.update(f"{shard}:{self.digests[shard]};".encode())
        return digest.hexdigest()


def summarise(
    table: ShardedTable, shard: int, kinds: Mapping[Any, Kind | Distance] | None = None
) -> TableSummary:
    """Read one shard once, batch by batch."""
    told = told_kinds(kinds, table)
    types = dict(zip(table.schema.names, table.schema.types, strict=True))
    names = table.names.tolist()
    columns = [_gatherer(name, sort_of(types[name], told.get(name), name)) for name in names]
    labels = _GatheredCategories(table.target, _MOST_LABELS, _NO_LABELS)
    unlabelled = None
    first = table.rows(shard).start
    for *cells, targets in table.batches(shard, [*names, table.target]):
        for column, array in zip(columns, cells, strict=True):
            column.add(array, first)
        gap = labels.add(targets, first)
        unlabelled = gap if unlabelled is None else unlabelled
        first += len(targets)
    digest = hashlib.sha256("".join(c.digest() for c in (*columns, labels)).encode())
    return TableSummary(
        tuple(column.summary() for column in columns),
        labels.summary(),
        unlabelled,
        {shard: digest.hexdigest()},
    )


def told_kinds(kinds: Mapping[Any, Any] | None, table: ShardedTable) -> dict[Any, Kind]:
    """Kinds that the user gives; a distance of one's own is refused."""
    told = checked_kinds(kinds, table.names)
    for name, kind in told.items():
        if callable(kind):
            raise ValueError(
                f"kinds has a function for column {name!r}, which would need the distances of all "
                "its cells at once; for a ShardedTable give 'numeric' or 'categorical'."
            )
    return cast("dict[Any, Kind]", told)


class _GatheredNumbers:
    def __init__(self, name: str, sort: Sort) -> None:
        self._name, self._read = name, READERS[sort]
        self._whole = sort == "times"
        self._gathering = Gathering(whole=self._whole)
        self._digest = hashlib.sha256(sort.encode())

    def add(self, array: pa.Array, _first: int) -> None:
        cells = self._read(array, self._name)
        if self._whole:
            known = cells[cells != NO_TIME]
            self._gathering.add_gaps(len(cells) - len(known))
        else:
            # Adding 0.0 turns -0.0 into 0.0; every NaN becomes the same one.
            cells += 0.0
            cells[np.isnan(cells)] = np.nan
            known = cells
        self._gathering.add(known)
        self._digest.update(_plain(cells))

    def digest(self) -> str:
        return self._digest.hexdigest()

    def summary(self) -> Numbers:
        return self._gathering.summary()


class _GatheredCategories:
    def __init__(self, name: str, most: int, advice: str) -> None:
        self._name, self._coder = name, Coder({}, most, advice)
        self._counts = np.zeros(1, dtype=np.int64)
        self._firsts: list[int] = []
        self._digest = hashlib.sha256(b"codes")

    def add(self, array: pa.Array, first: int) -> int | None:
        """Count cells; tell the number of the first gap among them."""
        codes, new = self._coder.read(array, self._name)
        self._firsts += (first + new).tolist()
        # The first place counts gaps, whose code is -1.
        counts = np.bincount(codes + 1, minlength=len(self._coder.codes) + 1)
        counts[: len(self._counts)] += self._counts
        gapless = counts[0] == self._counts[0]
        self._counts = counts
        self._digest.update(_plain(codes))
        return None if gapless else first + int(np.flatnonzero(codes < 0)[0])

    def digest(self) -> str:
        values = self._digest.copy()
        for value in self._coder.codes:
            # The length in front keeps ("ab", "c") apart from ("a", "bc").
            text = repr(value).encode()
            values.update(len(text).to_bytes(8, "little") + text)
        return values.hexdigest()

    def summary(self) -> Categories:
        gaps, *counts = self._counts.tolist()
        values = list(self._coder.codes)
        return Categories(
            dict(zip(values, counts, strict=True)),
            dict(zip(values, self._firsts, strict=True)),
            gaps,
        )


def _merged(one: Numbers | Categories, other: Numbers | Categories) -> Numbers | Categories:
    if isinstance(one, Numbers) and isinstance(other, Numbers):
        return one.merge(other)
    if isinstance(one, Categories) and isinstance(other, Categories):
        both = one.merge(other)
        if len(both.counts) > _MOST_CATEGORIES:
            raise ValueError(
                f"a column has more than {_MOST_CATEGORIES} different cells such as "
                f"{next(iter(both.counts))!r}, {_NO_CATEGORIES}"
            )
        return both
    raise ValueError("the summaries are of columns of different kinds; give both the same kinds.")


def _gatherer(name: str, sort: Sort) -> _GatheredNumbers | _GatheredCategories:
    if sort == "codes":
        return _GatheredCategories(name, _MOST_CATEGORIES, _NO_CATEGORIES)
    return _GatheredNumbers(name, sort)


def _plain(cells: NDArray[Any]) -> bytes:
    return cells.astype(cells.dtype.newbyteorder("<"), copy=False).tobytes()
