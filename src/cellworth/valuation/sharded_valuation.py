"""ShardedValuation: values in Parquet files, read by row groups as they are needed."""

from __future__ import annotations

import itertools
import os
import shutil
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Literal, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Labels, Positions, check_count
from cellworth.data.io import AnyPath, get_stamp, make_folder
from cellworth.sampling.moments import Counts, Moments, widening
from cellworth.valuation.storage import (
    GROUP_ROWS,
    ValueFile,
    column_tables,
    to_array,
    write_groups,
    write_tables,
)
from cellworth.valuation.valuation import (
    FROM_ROWS,
    RowChunk,
    Valuation,
    check_mergeable,
    merge_validation,
)
from cellworth.valuation.values import ValueList, read_only

Statistics = dict[str, Floats]
# About a gigabyte of each statistic.
MAX_HELD = 2**27
_GROUPS_PER_FILE = 16


class StoredMoments(Moments):
    """Moments of a table's cells and of their sums by row, column and in total, kept in files.

    The files, in any order, hold each row once. ``sums``, of shape (n_columns + 1,), are the
    moments of the column sums and of the total.
    """

    folder: AnyPath
    files: tuple[ValueFile, ...]
    sums: Moments

    def __init__(self, folder: AnyPath, files: Sequence[ValueFile], sums: Moments) -> None:
        self.folder = folder
        self.files = tuple(sorted(files, key=lambda file: file.first_row))
        self.sums = sums
        self._checked: dict[str, str] = {}
        self._temporary: _TemporaryFolder | None = None
        self._groups = [
            (file, number) for file in self.files for number in range(len(file.groups["n_rows"]))
        ]
        ends = np.cumsum(self.statistic("n_rows")).astype(np.intp)
        self._starts = np.append(0, ends[:-1])
        self.shape: tuple[int, int] = (int(ends[-1]), len(sums.mean) - 1)

    def __repr__(self) -> str:
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
    def sum_sq(self) -> Floats:
        """Sums of squared deviations of all cells and sums; read on every access."""
        return self._read_with_sums("sum_sq")

    def largest_sum_sq(self, part: str) -> float:
        """Return the largest sum of squared deviations of ``"mean"`` or of ``"row_mean"``."""
        return float(self.statistic(f"largest_{part.replace('mean', 'sum_sq')}").max())

    @property
    def with_validation(self) -> bool:
        """Whether files have validation errors of cells and rows."""
        return all(file.with_validation for file in self.files)

    def largest(self, part: str) -> float:
        """Return the largest absolute value, of ``"mean"`` of cells or of ``"row_mean"``."""
        return float(max(-self._bounds(part, lowest=end).min() for end in (True, False)))

    def check_fits(self, what: str, n_numbers: int | None = None) -> None:
        """Raise if there are more numbers than fit into the memory of most machines."""
        n_rows, n_columns = self.shape
        n_numbers = n_rows * n_columns if n_numbers is None else n_numbers
        if n_numbers > MAX_HELD:
            raise MemoryError(
                f"{what} of {n_rows:,} x {n_columns:,} blocks are {n_numbers:,} numbers, and at "
                f"most {MAX_HELD:,} are held at once; use iter_rows(), loc or lowest()."
            )

    def iter_rows(
        self, n_rows: int = GROUP_ROWS, parts: Sequence[str] = ("mean", "sum_sq")
    ) -> Iterator[tuple[slice, Statistics]]:
        """Yield ``n_rows`` rows at a time, in order; check the hash of each file once."""
        import pyarrow as pa

        known, columns = self._select_available(parts), range(self.shape[1])
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
        if self._select_available([part]):
            for rows, statistics in self.iter_rows(GROUP_ROWS, [part]):
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
            table = file.read(self.folder, number, self._select_available(parts), some.tolist())
            within = rows[here] - self._starts[groups[here[0]]]
            for part in self._select_available(parts):
                numbers = to_array(table, part, some.tolist())
                found[part][here] = numbers[within] if numbers.ndim == 1 else numbers[within, near]
        return [found[part] for part in parts]

    def __getitem__(self, key: tuple[Any, Any]) -> Any:
        """Return means of cells, by arrays of positions; read only their row groups."""
        rows, columns = np.broadcast_arrays(*key)
        self.check_fits("the chosen values", rows.size)
        (found,) = self.read_at(rows.ravel(), columns.ravel(), ("mean",))
        return found.reshape(rows.shape)[()]

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

    def merge(self, other: Moments, folder: AnyPath | None = None) -> StoredMoments:
        """Return the moments of both sets of observations, in files of their own.

        Without a folder the files are temporary and are deleted with the result.
        """
        if not isinstance(other, StoredMoments):
            raise TypeError("other must be StoredMoments, got Moments; save them in shards first.")
        into = Path(mkdtemp(prefix="cellworth-")) if folder is None else folder
        groups, entries = self._merge_groups(other), []
        n_rows = GROUP_ROWS * _GROUPS_PER_FILE
        for number, first in enumerate(range(0, self.shape[0], n_rows)):
            some = itertools.islice(groups, _GROUPS_PER_FILE)
            entries.append(write_groups(into, number, first, some))
        files = [ValueFile.from_plain(entry) for entry in entries]
        merged = StoredMoments(into, files, self.sums.merge(other.sums))
        if isinstance(into, Path) and folder is None:
            merged.delete_with_last_copy(into)
        return merged

    def delete_with_last_copy(self, folder: Path) -> None:
        """Delete a folder when the last copy of these moments is garbage collected."""
        self._temporary = _TemporaryFolder(folder)

    def _check(self, file: ValueFile) -> None:
        """Check the hash of a file, unless that was done since its last change."""
        file.check_size(self.folder)
        state = get_stamp(self.folder / file.file)
        if self._checked.get(file.file) != state:
            file.check(self.folder)
            self._checked[file.file] = state

    def statistic(self, name: str) -> Floats:
        """Return one number of each row group, as the manifest has it."""
        return np.array([file.groups[name][number] for file, number in self._groups], dtype=float)

    def _bounds(self, part: str, *, lowest: bool) -> Floats:
        """Lower bound of each row group, of values or of values with the sign changed."""
        of = part.removesuffix("mean")
        return self.statistic(f"{of}lowest") if lowest else -self.statistic(f"{of}highest")

    def _select_available(self, parts: Sequence[str]) -> list[str]:
        """Leave out statistics that files do not have."""
        known = {
            "mean": True,
            "sum_sq": all(file.with_sum_sq for file in self.files),
            "validation_se": self.with_validation,
        }
        return [part for part in parts if known[part.removeprefix("row_")]]

    def _read_with_sums(self, part: str) -> Floats:
        rows = np.column_stack([self.read_all(part), self.read_all(f"row_{part}")])
        return np.vstack([rows, getattr(self.sums, part)])

    def _merge_groups(self, other: StoredMoments) -> Iterator[Mapping[str, Floats]]:
        cells = ("mean", "sum_sq", "validation_se")
        parts = [side + part for part in cells for side in ("", "row_")]
        counts = self.n_observations, other.n_observations
        both = (moments.iter_rows(GROUP_ROWS, parts) for moments in (self, other))
        for (_, mine), (_, others) in zip(*both, strict=True):
            merged: dict[str, Floats] = {}
            for side in ("", "row_"):
                one = _select(self.n_observations, mine, side)
                joint = one.merge(_select(other.n_observations, others, side))
                merged |= {f"{side}mean": joint.mean, f"{side}sum_sq": joint.sum_sq}
                name = f"{side}validation_se"
                errors = merge_validation(mine.get(name), others.get(name), counts)
                merged |= {} if errors is None else {name: errors}
            yield merged


@dataclass(frozen=True, eq=False, repr=False)
class ShardedValuation(Valuation):
    """A Valuation whose values stay in files; :func:`~cellworth.load` reads it.

    It has all methods of a Valuation. Sums, sign counts, the lowest and highest values, single
    cells and :meth:`iter_rows` need little memory. ``values`` and other arrays of all cells raise
    MemoryError beyond 2**27 cells. Row labels are 0, 1, 2, ...

    ``load`` checks the manifest, the small tables, and that every file exists and has its size.
    :meth:`iter_rows` and all methods that read every row check the SHA-256 of each file, once.
    Reading single row groups checks their schema and page checksums.

    Parameters
    ----------
    blocks, moments, expected_total, empty, status, provenance, backend
        As in a Valuation.
    validation : array of shape (n_columns + 1,) or None
        Errors of the column sums and of the total due to the choice of validation rows. Those of
        single cells and rows are in the files.
    baseline, owned, scores, column_info, held_out, utilities
        As in a Valuation.

    See Also
    --------
    cellworth.ShardedKNNValuer, cellworth.Valuation

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from pathlib import Path
    >>> from cellworth import ShardedKNNValuer, ShardedTable
    >>> folder, X = Path(tempfile.mkdtemp()), {"x0": [0.0, 1.0, 9.0], "x1": [5.0, 4.0, 5.0]}
    >>> pq.write_table(pa.table(X | {"y": [0, 0, 1]}), folder / "part.parquet")
    >>> table = ShardedTable.from_files(folder, target="y")
    >>> valuer = ShardedKNNValuer(1, n_passes=1, random_state=0)
    >>> valuation = valuer.fit(table, X_val=pa.table(X), y_val=[0, 0, 1]).valuation_
    >>> type(valuation).__name__, valuation.shape
    ('ShardedValuation', (3, 2))
    """

    moments: StoredMoments

    @cached_property
    def values(self) -> Floats:
        """Value of each block, shape (n_rows, n_columns); read on first access."""
        return read_only(self.moments.read_all("mean"))

    @cached_property
    def sampling_se(self) -> Floats:
        """Sampling error of each value; 0 for exact values, NaN where it is not known."""
        self.moments.check_fits("standard errors")
        nothing = np.broadcast_to(0.0, self.shape)
        sum_sq = self.moments.read_all("sum_sq") if self._reads_sum_sq else nothing
        return read_only(self._errors_of(sum_sq))

    @cached_property
    def validation_se(self) -> Floats | None:
        """Error of each value due to the choice of validation rows; None if it is not known."""
        if not self.moments.with_validation:
            return None
        return read_only(self.moments.read_all("validation_se"))

    @property
    def largest_error(self) -> float:
        """Largest of the standard errors that are known; NaN where none is."""
        return float(self._errors_of(np.array([self.moments.largest_sum_sq("mean")]))[0])

    @property
    def _indexable(self) -> StoredMoments:
        return self.moments

    @property
    def _column_sums(self) -> tuple[Floats, Floats, Counts, Floats | None]:
        sums = self.moments.sums
        return sums.values, self._errors_of(sums.sum_sq), sums.count, self.validation

    def rows(self) -> ValueList:
        """Return the value of each row; ranking does not read all of them."""
        return StoredList(self.moments, None, self._errors_of, self.backend)

    def _cross_section(self, side: Literal["row", "column"], position: int) -> ValueList:
        n_rows, n_columns = self.shape
        if side == "row":
            positions, other = range(n_rows)[position] * n_columns + np.arange(n_columns), "column"
        else:
            self.moments.check_fits("the chosen values", n_rows)
            positions, other = np.arange(n_rows) * n_columns + range(n_columns)[position], "row"
        found = self.list_blocks().part(positions)
        return replace(found, labels={other: found.labels[other]})

    def iter_rows(self, n_rows: int = 65_536) -> Iterator[RowChunk]:
        """Yield the values in order, ``n_rows`` rows at a time.

        The files are read one after the other; the hash of each is checked before.
        """
        parts = ("mean", *(("sum_sq",) if self._reads_sum_sq else ()), "validation_se")
        for rows, found in self.moments.iter_rows(check_count(n_rows, "n_rows"), parts):
            sum_sq = found.get("sum_sq", np.broadcast_to(0.0, found["mean"].shape))
            validation = found.get("validation_se")
            yield RowChunk(
                rows,
                read_only(found["mean"]),
                read_only(self._errors_of(sum_sq)),
                None if validation is None else read_only(validation),
            )

    @property
    def validation_se_only_for_sums(self) -> bool:
        """Whether validation errors are known of sums, but not of single cells."""
        return self.validation is not None and not self.moments.with_validation

    def merge(
        self, other: Valuation, folder: str | os.PathLike[str] | None = None
    ) -> ShardedValuation:
        """Merge two independent estimates of the same values into a better one.

        Parameters
        ----------
        other : Valuation
            Also of a sharded table; its files may hold other rows.
        folder : path, default=None
            Where the merged values are saved; None means a temporary folder that is deleted with
            the last use of the result. ``save`` copies it elsewhere.
        """
        path = None if folder is None else make_folder(folder, "folder")
        check_mergeable(self, other)
        other = cast("ShardedValuation", other)
        if path and any(_same_folder(path, one.moments.folder) for one in (self, other)):
            raise ValueError(
                f"folder must not hold one of the two valuations, got {path}; give another folder."
            )
        merged = self._merge_parts(other, self.moments.merge(other.moments, path))
        if path is not None:
            merged.save(path)
        return merged

    def _write_files(self, path: AnyPath) -> dict[str, dict[str, Any]]:
        """Copy the files, unless the folder holds them already."""
        for file in self.moments.files:
            file.check_size(self.moments.folder)
        if not _same_folder(path, self.moments.folder):
            for file in self.moments.files:
                file.copy(self.moments.folder, path)
        sums = column_tables(self.blocks.columns, self.moments.sums, self.validation)
        return write_tables(path, sums) | {
            f"values-{number:05d}": asdict(file) for number, file in enumerate(self.moments.files)
        }

    @property
    def _reads_sum_sq(self) -> bool:
        """Whether standard errors depend on the files at all."""
        return self.status != "exact" and self.moments.n_observations >= 2

    def _errors_of(self, sum_sq: Floats) -> Floats:
        if self.status == "exact":
            return np.zeros(sum_sq.shape)
        if not self._reads_sum_sq:
            return np.full(sum_sq.shape, np.nan)
        count = self.moments.n_observations
        return np.asarray(np.sqrt(sum_sq / (count * (count - 1.0))) * widening(count))

    def _describe_validation(self) -> str | None:
        if self.moments.with_validation:
            return f"up to {self.moments.statistic('largest_validation_se').max():.2g} {FROM_ROWS}"
        if self.validation is None:
            return None if self.scores is None else f"not known {FROM_ROWS}"
        largest = f"up to {self.validation.max():.2g} {FROM_ROWS}"
        return f"{largest} (of columns; of cells not known)"

    def list_blocks(self) -> ValueList:
        """Return the value of each block, row by row."""
        return StoredList(self.moments, self.column_labels, self._errors_of, self.backend)


def _same_folder(one: AnyPath, other: AnyPath) -> bool:
    return one.resolve() == other.resolve()


class StoredList(ValueList):
    """Values of all cells, or of all rows (without ``column_labels``), of a sharded table.

    Ranking and :meth:`part` read a few row groups; ``values`` and the other arrays are read on
    access, up to a limit. ``errors`` converts sums of squared deviations to standard errors.
    """

    _moments: StoredMoments
    _column_labels: Labels | None
    _errors: Callable[[Floats], Floats]

    def __init__(
        self,
        moments: StoredMoments,
        column_labels: Labels | None,
        errors: Callable[[Floats], Floats],
        backend: str | None,
    ) -> None:
        attributes = {"_moments": moments, "_column_labels": column_labels, "_errors": errors}
        for name, value in {**attributes, "backend": backend}.items():
            object.__setattr__(self, name, value)

    def __len__(self) -> int:
        return self._moments.shape[0] * self._width

    @property
    def labels(self) -> Mapping[str, Labels]:
        """Labels of the entries."""
        self._moments.check_fits("labels", len(self))
        return self._label(np.arange(len(self)))

    @property
    def values(self) -> Floats:
        """All values."""
        return self._moments.read_all(f"{self._side}mean").ravel()

    @property
    def sampling_se(self) -> Floats:
        """All standard errors."""
        return self._errors(self._moments.read_all(f"{self._side}sum_sq")).ravel()

    @property
    def validation_se(self) -> Floats | None:
        """All validation errors; None if they are not known."""
        if not self._moments.with_validation:
            return None
        return self._moments.read_all(f"{self._side}validation_se").ravel()

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of observations behind each value."""
        return np.broadcast_to(np.int64(self._moments.n_observations), len(self))

    def _rank(self, k: int, *, lowest: bool) -> NDArray[np.intp]:
        return self._moments.rank(f"{self._side}mean", k, lowest=lowest)

    def part(self, positions: NDArray[np.intp]) -> ValueList:
        """Return the entries at these positions, in this order."""
        positions = np.asarray(positions)
        positions = np.flatnonzero(positions) if positions.dtype.kind == "b" else positions
        parts = [self._side + part for part in ("mean", "sum_sq", "validation_se")]
        found = self._moments.read_at(*np.divmod(positions, self._width), parts)
        mean, sum_sq, validation = found
        return ValueList(
            self._label(positions),
            mean,
            self._errors(sum_sq),
            np.full(len(positions), self._moments.n_observations),
            self.backend,
            validation if self._moments.with_validation else None,
        )

    @property
    def _width(self) -> int:
        return 1 if self._column_labels is None else len(self._column_labels)

    @property
    def _side(self) -> str:
        return "row_" if self._column_labels is None else ""

    def _label(self, positions: NDArray[np.intp]) -> dict[str, Labels]:
        if self._column_labels is None:
            return {"row": positions}
        rows, columns = np.divmod(positions, self._width)
        return {"row": rows, "column": self._column_labels[columns]}

    def find_largest(self) -> float:
        """Return the largest absolute value."""
        return self._moments.largest(f"{self._side}mean")

    def _has_errors(self) -> bool:
        largest = self._moments.largest_sum_sq(f"{self._side}mean")
        return bool(np.any(self._errors(np.array([largest]))))


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
    sum_sq = statistics.get(f"{side}sum_sq", np.zeros(mean.shape))
    return Moments(np.full(mean.shape, count), mean, sum_sq)
