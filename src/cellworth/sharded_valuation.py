"""ShardedValuation: values of a larger-than-memory table, in Parquet files with a manifest."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Blocks, NumberedAxis
from cellworth.certainty import Signs, widening
from cellworth.counts import Floats, checked_count
from cellworth.files import local_path
from cellworth.indexing import Lookup, narrowed
from cellworth.listing import ValueList
from cellworth.storage import (
    column_tables,
    files_to_replace,
    made_folder,
    read_column_tables,
    read_whole_manifest,
    replace_manifest,
    write_tables,
)
from cellworth.stored_lists import StoredList
from cellworth.stored_moments import StoredMoments
from cellworth.stored_values import ValueFile
from cellworth.valuation import Strip, Valuation, read_plain, refuse_unmergeable

_TABLES = ("columns", "total", "column_groups")


@dataclass(frozen=True, eq=False, repr=False)
class ShardedValuation(Valuation):
    """A Valuation whose values stay in files; :func:`cellworth.load` reads it.

    It has all methods of a Valuation. Sums, signs, the lowest and highest values, single cells and
    :meth:`strips` need little memory. ``values`` and other arrays of all cells are refused beyond
    2**27 cells. Row labels are 0, 1, 2, ...

    ``load`` checks the manifest, the small tables, and that every file exists and has its size.
    :meth:`strips` and all that reads every row check the SHA-256 of each file, once. Reading single
    row groups checks their schema and page checksums.

    Parameters
    ----------
    sums_validation : array of shape (n_columns + 1,) or None
        Errors of the column sums and of the total from the choice of validation rows. Those of
        single cells and rows are not known.
    """

    moments: StoredMoments
    sums_validation: Floats | None = None

    def __post_init__(self) -> None:
        """Check that the files hold the values of all blocks."""
        if self.moments.shape != self.shape:
            raise ValueError(
                f"the shards hold values of {self.moments.shape[0]} x {self.moments.shape[1]} "
                f"blocks, but the table has {self.shape[0]} x {self.shape[1]}; give those of all "
                "rows."
            )

    @classmethod
    def from_folder(cls, folder: str | os.PathLike[str]) -> ShardedValuation:
        """Read the manifest and the small tables; the files of values are not opened."""
        path = local_path(folder, "folder")
        manifest = read_whole_manifest(path)
        columns, sums, validation = read_column_tables(path, manifest, _TABLES)
        moments = StoredMoments(path, _list_files(path, manifest), sums)
        moments.check_sizes()
        plain = read_plain(manifest, (moments.shape[0], len(columns)), folder)
        blocks = Blocks(NumberedAxis(moments.shape[0]), columns)
        return cls(blocks, moments, sums_validation=validation, **plain)

    @cached_property
    def values(self) -> Floats:
        """Value of each block, shape (n_rows, n_columns); read on first access."""
        return _read_only(self.moments.read_all("mean"))

    @cached_property
    def standard_errors(self) -> Floats:
        """Sampling error of each value; 0 for exact values, NaN where it is not known."""
        self.moments.check_fits("standard errors")
        nothing = np.broadcast_to(0.0, self.shape)
        spread = self.moments.read_all("spread") if self._reads_spread else nothing
        return _read_only(self._errors_of(spread))

    @property
    def total(self) -> float:
        """Sum of all values."""
        return float(self.moments.sums.mean[-1])

    @property
    def total_error(self) -> float:
        """Error of the total, from sampling and from the choice of validation rows."""
        validation = 0.0 if self.sums_validation is None else float(self.sums_validation[-1])
        return math.hypot(float(self._errors_of(self.moments.sums.spread)[-1]), validation)

    @property
    def largest_error(self) -> float:
        """Largest of the standard errors that are known; NaN where none is."""
        return float(self._errors_of(np.array([self.moments.largest_spread("mean")]))[0])

    @property
    def loc(self) -> Lookup:
        """Values by label; only their row groups are read."""
        return Lookup(self.blocks, _Indexer(self.moments), by_label=True)

    @property
    def iloc(self) -> Lookup:
        """Values by position; only their row groups are read."""
        return Lookup(self.blocks, _Indexer(self.moments), by_label=False)

    def rows(self) -> ValueList:
        """Return the value of each row; ranking does not read all of them."""
        return StoredList(self.moments, None, self._errors_of, self.backend)

    def columns(self) -> ValueList:
        """Return the value of each column: the sum of its blocks, with its own errors."""
        sums, validation = self.moments.sums, self.sums_validation
        return ValueList(
            {"column": self.column_labels},
            sums.values[:-1],
            self._errors_of(sums.spread)[:-1],
            sums.count[:-1],
            self.backend,
            None if validation is None else validation[:-1],
        )

    def owners(self) -> ValueList:
        """Refuse: errors of sums over rows of a sharded table are not known."""
        if self.owned is None:
            raise ValueError(
                "this valuation is of a sharded table, where errors of sums over rows are not "
                "known; use split, whose intervals are wide bounds, or columns(), where errors are "
                "known."
            )
        return super().owners()

    def line(self, side: Literal["row", "column"], place: int) -> ValueList:
        """Return the values of the blocks of one row or one column, and read only these."""
        n_rows, n_columns = self.shape
        if side == "row":
            positions, other = range(n_rows)[place] * n_columns + np.arange(n_columns), "column"
        else:
            self.moments.check_fits("the chosen values", n_rows)
            positions, other = np.arange(n_rows) * n_columns + range(n_columns)[place], "row"
        found = self._all_blocks().part(positions)
        return replace(found, labels={other: found.labels[other]})

    def strips(self, n_rows: int = 65_536) -> Iterator[Strip]:
        """Yield the values in order, ``n_rows`` rows at a time.

        The files are read one after the other; the hash of each is checked before.
        """
        parts = ("mean", "spread") if self._reads_spread else ("mean",)
        for rows, found in self.moments.strips(checked_count(n_rows, "n_rows"), parts):
            spread = found.get("spread", np.broadcast_to(0.0, found["mean"].shape))
            yield Strip(rows, _read_only(found["mean"]), _read_only(self._errors_of(spread)), None)

    @property
    def lacks_validation_errors(self) -> bool:
        """Whether validation errors are known of sums; those of single cells never are."""
        return self.sums_validation is not None

    def signs(self) -> Signs:
        """Count the blocks that are surely negative, surely positive, or neither.

        Only sampling errors count: validation errors of single cells are not known, so that fewer
        blocks than this may differ from zero.
        """
        if self.status != "exact" and not self._reads_spread:
            return Signs(0, 0, 0, math.prod(self.shape))
        return super().signs()

    def to_frame(self, *, wide: bool = False, backend: str | None = None) -> Any:
        """Return a data frame in the caller's library, if all blocks may be held at once."""
        self.moments.check_fits("values")
        return super().to_frame(wide=wide, backend=backend)

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
        path = None if folder is None else local_path(folder, "folder")
        refuse_unmergeable(self, other)
        other = cast("ShardedValuation", other)
        if path and any(_same_folder(path, one.moments.folder) for one in (self, other)):
            raise ValueError(
                f"folder must not hold one of the two valuations, got {path}; give another folder."
            )
        merged = self._merged(other, self.moments.merge(other.moments, path))
        merged = replace(merged, sums_validation=_merge_validation(self, other))
        if path is not None:
            merged.save(path)
        return merged

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Copy the files, then write the manifest; an earlier result in the folder is replaced.

        In the folder that holds the files already, write only the manifest.
        """
        path = made_folder(folder)
        before = files_to_replace(path)
        self.moments.check_sizes()
        if not _same_folder(path, self.moments.folder):
            for file in self.moments.files:
                file.copy(self.moments.folder, path)
        sums = {name: getattr(self.moments.sums, name) for name in ("count", "mean", "spread")}
        if self.sums_validation is not None:
            sums |= {"validation_error": self.sums_validation}
        files = write_tables(path, column_tables(self.blocks.columns, sums))
        shards = {f"values-{n:05d}": asdict(file) for n, file in enumerate(self.moments.files)}
        replace_manifest(path, self._plain() | {"sharded": True}, files | shards, before)

    @property
    def _reads_spread(self) -> bool:
        """Whether standard errors depend on the files at all."""
        least = max(self.provenance.method.get("errors_from", 0), 2)
        return self.status != "exact" and self.moments.n_observations >= least

    def _errors_of(self, spread: Floats) -> Floats:
        if self.status == "exact":
            return np.zeros(spread.shape)
        if not self._reads_spread:
            return np.full(spread.shape, np.nan)
        count = self.moments.n_observations
        errors: Floats = np.sqrt(spread / (count * (count - 1.0))) * widening(count)
        return errors

    def _told_validation(self) -> str | None:
        if self.sums_validation is None:
            return super()._told_validation()
        largest = f"up to {self.sums_validation.max():.2g}"
        return f"{largest} from the choice of validation rows (of columns; of cells not known)"

    def _noise_and_signal(self) -> tuple[float, float]:
        count = self.moments.n_observations
        spreads = self.moments.add_up("spreads") if self._reads_spread else 0.0
        return spreads / max(count * (count - 1.0), 1.0), self.moments.add_up("squares")

    def _all_blocks(self) -> ValueList:
        return StoredList(self.moments, self.column_labels, self._errors_of, self.backend)


@dataclass(frozen=True, eq=False)
class _Indexer:
    """Values that are indexed like an array; only their row groups are read."""

    moments: StoredMoments

    def __getitem__(self, key: tuple[Any, Any]) -> Any:
        (rows, row_key), (columns, column_key) = (
            narrowed(one, length) for one, length in zip(key, self.moments.shape, strict=True)
        )
        shape = len(rows), len(columns)
        self.moments.check_fits("the chosen values", math.prod(shape))
        pairs = np.repeat(rows, shape[1]), np.tile(columns, shape[0])
        (found,) = self.moments.read_at(*pairs, ("mean",))
        return found.reshape(shape)[row_key, column_key]


def _list_files(path: Path, manifest: Mapping[str, Any]) -> list[ValueFile]:
    try:
        shards = [entry for name, entry in manifest["files"].items() if name not in _TABLES]
        return [ValueFile.from_plain(entry) for entry in shards]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the manifest of {path} is incomplete or was changed ({error}); restore it from a "
            "copy."
        ) from error


def _merge_validation(one: ShardedValuation, other: ShardedValuation) -> Floats | None:
    """Average the variances, weighted by the numbers of observations: both estimate one error."""
    if one.sums_validation is None or other.sums_validation is None:
        return None
    counts = one.moments.n_observations, other.moments.n_observations
    squares = counts[0] * one.sums_validation**2 + counts[1] * other.sums_validation**2
    merged: Floats = np.sqrt(squares / sum(counts))
    return merged


def _same_folder(one: Path, other: Path) -> bool:
    return one.resolve() == other.resolve()


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.setflags(write=False)
    return view
