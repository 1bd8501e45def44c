"""StoredMoments: moments in Parquet files, read by row group and never all at once unasked."""

from __future__ import annotations

import itertools
import math
import os
import shutil
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NoReturn

import numpy as np

from cellworth.counts import Floats, Positions
from cellworth.files import local_path
from cellworth.moments import Counts, Moments
from cellworth.stored_values import ValueFile, to_array
from cellworth.value_files import GROUP_ROWS, write_groups

Statistics = dict[str, Floats]

# About a gigabyte of each statistic.
MOST_HELD = 2**27

_GROUPS_PER_FILE = 16


class StoredMoments(Moments):
    """Moments of a table's cells and of their sums by row, column and in total, kept in files.

    Parameters
    ----------
    folder : Path
        Folder of the files.
    files : sequence of ValueFile
        In any order; together they hold each row once.
    sums : Moments of shape (n_columns + 1,)
        Moments of the column sums and of the total.
    """

    folder: Path
    files: tuple[ValueFile, ...]
    sums: Moments

    def __init__(self, folder: Path, files: Sequence[ValueFile], sums: Moments) -> None:
        """Check the manifest entries; the files are not opened."""
        self.folder = folder
        self.files = tuple(sorted(files, key=lambda file: file.first_row))
        self.sums = sums
        self._checked: dict[str, tuple[int, int]] = {}
        self._temporary: _TemporaryFolder | None = None
        self._check_rows()
        self._groups = [
            (file, number) for file in self.files for number in range(len(file.groups["n_rows"]))
        ]
        ends = np.cumsum(self._statistic("n_rows")).astype(np.intp)
        self._starts, self.shape = np.append(0, ends[:-1]), (int(ends[-1]), len(sums.mean) - 1)

    def __repr__(self) -> str:
        """Name the folder."""
        return f"StoredMoments in {len(self.files)} files in {self.folder}"

    @property
    def n_observations(self) -> int:
        """Number of observations of each cell."""
        return int(self.sums.count[-1])

    @property
    def count(self) -> Counts:
        """Number of observations of each cell and sum."""
        n_rows, n_columns = self.shape
        return np.broadcast_to(np.int64(self.n_observations), (n_rows + 1, n_columns + 1))

    @property
    def mean(self) -> Floats:
        """Means of all cells and sums; read on every access."""
        return self._read_with_sums("mean")

    @property
    def spread(self) -> Floats:
        """Spreads of all cells and sums; read on every access."""
        return self._read_with_sums("spread")

    def add_up(self, name: str) -> float:
        """Return the sum over all cells of their ``"squares"`` or ``"spreads"``."""
        return math.fsum(self._statistic(name))

    def largest_spread(self, part: str) -> float:
        """Return the largest spread, of ``"mean"`` of cells or of ``"row_mean"``."""
        return float(self._statistic(f"largest_{part.replace('mean', 'spread')}").max())

    def largest(self, part: str) -> float:
        """Return the largest absolute value, of ``"mean"`` of cells or of ``"row_mean"``."""
        return float(max(-self._bounds(part, lowest=end).min() for end in (True, False)))

    def check_fits(self, what: str, n_numbers: int | None = None) -> None:
        """Refuse to hold more numbers at once than fit into the memory of most machines."""
        n_rows, n_columns = self.shape
        n_numbers = n_rows * n_columns if n_numbers is None else n_numbers
        if n_numbers > MOST_HELD:
            raise MemoryError(
                f"{what} of {n_rows:,} x {n_columns:,} blocks are {n_numbers:,} numbers, and at "
                f"most {MOST_HELD:,} are held at once; use strips(), loc or lowest()."
            )

    def strips(
        self, n_rows: int = GROUP_ROWS, parts: Sequence[str] = ("mean", "spread")
    ) -> Iterator[tuple[slice, Statistics]]:
        """Yield ``n_rows`` rows at a time, in order; check the hash of each file once."""
        import pyarrow as pa

        known, columns = self._known(parts), range(self.shape[1])
        start, held = 0, None
        for file, group in self._groups:
            self._check(file)
            table = file.read(self.folder, group, known, columns)
            held = table if held is None else pa.concat_tables([held, table])
            del table
            ends = start + held.num_rows == self.shape[0]
            while held.num_rows >= n_rows or (ends and held.num_rows):
                some, held = held.slice(0, n_rows), held.slice(n_rows)
                rows = slice(start, start + some.num_rows)
                statistics = {part: to_array(some, part, columns) for part in known}
                del some
                yield rows, statistics
                start = rows.stop
            # An empty slice would keep the row group in memory.
            held = held if held.num_rows else None

    def read_all(self, part: str) -> Floats:
        """Return one statistic of all cells, or of all rows."""
        n_rows, n_columns = self.shape
        of_rows = part.startswith("row")
        self.check_fits("row sums" if of_rows else "values", n_rows if of_rows else None)
        found = np.zeros(n_rows if of_rows else (n_rows, n_columns))
        if self._known([part]):
            for rows, statistics in self.strips(GROUP_ROWS, [part]):
                found[rows] = statistics[part]
        return found

    def read_at(self, rows: Positions, columns: Positions, parts: Sequence[str]) -> list[Floats]:
        """Return statistics of single cells, or of rows, in any order; read their groups alone."""
        found = {part: np.zeros(len(rows)) for part in parts}
        groups = np.searchsorted(self._starts, rows, side="right") - 1
        order = np.argsort(groups, kind="stable")
        ends = np.flatnonzero(np.diff(groups[order], append=-1)) + 1
        for start, end in itertools.pairwise([0, *ends.tolist()]):
            here = order[start:end]
            file, number = self._groups[groups[here[0]]]
            some, near = np.unique(columns[here], return_inverse=True)
            table = file.read(self.folder, number, self._known(parts), some.tolist())
            within = rows[here] - self._starts[groups[here[0]]]
            for part in self._known(parts):
                numbers = to_array(table, part, some.tolist())
                found[part][here] = numbers[within] if numbers.ndim == 1 else numbers[within, near]
        return [found[part] for part in parts]

    def rank(self, part: str, k: int, *, lowest: bool) -> Positions:
        """Return positions of the k lowest or highest cells or row sums; ties in table order.

        Read only row groups that may hold one of them, by the bounds in the manifest.
        """
        width = 1 if part.startswith("row") else self.shape[1]
        k = min(k, self.shape[0] * width)
        self.check_fits("the ranked values", k)
        bounds = self._bounds(part, lowest=lowest)
        positions, values = np.empty(0, dtype=np.intp), np.empty(0)
        for group in np.argsort(bounds, kind="stable").tolist():
            first, full = self._starts[group] * width, len(values) == k
            if full and (bounds[group], first) > (values[-1], positions[-1]):
                break
            file, number = self._groups[group]
            table = file.read(self.folder, number, [part], range(width))
            entries = to_array(table, part, range(width)).ravel()
            entries = entries if lowest else -entries
            last = min(k, len(entries)) - 1
            bound = values[-1] if full else np.partition(entries, last)[last]
            near = np.flatnonzero(entries <= bound)
            positions = np.concatenate([positions, near + first])
            values = np.concatenate([values, entries[near]])
            kept = np.lexsort((positions, values))[:k]
            positions, values = positions[kept], values[kept]
        return positions

    def merge(self, other: Moments, folder: str | os.PathLike[str] | None = None) -> StoredMoments:
        """Return the moments of both sets of observations, in files of their own.

        Without a folder the files are temporary and are deleted with the result.
        """
        if not isinstance(other, StoredMoments):
            raise TypeError("other must be StoredMoments, got Moments; save them in shards first.")
        into = local_path(mkdtemp(prefix="cellworth-") if folder is None else folder, "folder")
        groups, entries = self._merge_groups(other), []
        n_rows = GROUP_ROWS * _GROUPS_PER_FILE
        for number, first in enumerate(range(0, self.shape[0], n_rows)):
            some = itertools.islice(groups, _GROUPS_PER_FILE)
            entries.append(write_groups(into, number, first, some))
        files = [ValueFile.from_plain(entry) for entry in entries]
        merged = StoredMoments(into, files, self.sums.merge(other.sums))
        if folder is None:
            merged.delete_with_last_copy(into)
        return merged

    def delete_with_last_copy(self, folder: Path) -> None:
        """Delete a folder when the last copy of these moments is garbage collected."""
        self._temporary = _TemporaryFolder(folder)

    def check_sizes(self) -> None:
        """Refuse files that are missing or have another size, without reading them."""
        for file in self.files:
            file.check_size(self.folder)

    def _check(self, file: ValueFile) -> None:
        """Check the hash of a file, unless that was done since its last change."""
        file.check_size(self.folder)
        seen = (self.folder / file.file).stat()
        state = seen.st_mtime_ns, seen.st_size
        if self._checked.get(file.file) != state:
            file.check(self.folder)
            self._checked[file.file] = state

    def _check_rows(self) -> None:
        if not self.files:
            raise ValueError("there are no shards of values; give those of all rows.")
        end, n_columns = 0, len(self.sums.mean) - 1
        for file in self.files:
            if file.first_row != end:
                what = "more than once" if file.first_row < end else "by no file"
                first, last = sorted((file.first_row, end))
                raise ValueError(
                    f"rows {first} to {last - 1} are held {what}; give shards that hold each row "
                    "once."
                )
            if file.n_columns != n_columns:
                raise ValueError(
                    f"{file.file} must have values of {n_columns} columns, got {file.n_columns}."
                )
            if self.n_observations > 1 and not file.with_spread:
                raise ValueError(
                    f"{file.file} has no spreads of its {self.n_observations} observations; give "
                    "spreads."
                )
            end += file.n_rows

    def _statistic(self, name: str) -> Floats:
        """One number of each row group, from the manifest."""
        return np.array([file.groups[name][number] for file, number in self._groups], dtype=float)

    def _bounds(self, part: str, *, lowest: bool) -> Floats:
        """Lower bound of each row group, of values or of values with the sign changed."""
        of = part.removesuffix("mean")
        return self._statistic(f"{of}lowest") if lowest else -self._statistic(f"{of}highest")

    def _known(self, parts: Sequence[str]) -> list[str]:
        """Leave out spreads that files do not have, as after one observation."""
        spread = all(file.with_spread for file in self.files)
        return [part for part in parts if spread or not part.endswith("spread")]

    def _read_with_sums(self, part: str) -> Floats:
        rows = np.column_stack([self.read_all(part), self.read_all(f"row_{part}")])
        return np.vstack([rows, getattr(self.sums, part)])

    def _merge_groups(self, other: StoredMoments) -> Iterator[Mapping[str, Floats]]:
        parts = ("mean", "spread", "row_mean", "row_spread")
        both = (moments.strips(GROUP_ROWS, parts) for moments in (self, other))
        for (_, mine), (_, others) in zip(*both, strict=True):
            merged: dict[str, Floats] = {}
            for side in ("", "row_"):
                one = _select(self.n_observations, mine, side)
                joint = one.merge(_select(other.n_observations, others, side))
                merged |= {f"{side}mean": joint.mean, f"{side}spread": joint.spread}
            yield merged


class _TemporaryFolder:
    """A folder that is deleted with the last reference to this; copies share it."""

    def __init__(self, folder: Path) -> None:
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def __deepcopy__(self, memo: dict[int, Any]) -> _TemporaryFolder:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "these values are in a temporary folder of this process and cannot be pickled; save "
            "the valuation first and load it there."
        )


def _select(count: int, statistics: Statistics, side: str) -> Moments:
    mean = statistics[f"{side}mean"]
    spread = statistics.get(f"{side}spread", np.zeros(mean.shape))
    return Moments(np.full(mean.shape, count), mean, spread)
