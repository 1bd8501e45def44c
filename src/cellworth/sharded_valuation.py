"""ShardedValuation: values of a table that no machine holds, in Parquet files beside a manifest."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Axis, Blocks, NumberedAxis
from cellworth.certainty import Signs, widening
from cellworth.column_info import ColumnTable
from cellworth.counts import checked_count
from cellworth.files import local_path
from cellworth.indexing import Lookup, narrowed
from cellworth.listing import ValueList
from cellworth.moments import Moments
from cellworth.provenance import Provenance
from cellworth.scores import Scores
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
from cellworth.sums import OwnerSums
from cellworth.valuation import Status, Strip, Valuation, read_plain, refuse_unmergeable

Floats = NDArray[np.float64]

_TABLES = ("columns", "total", "column_groups")


@dataclass(frozen=True, eq=False, repr=False)
class ShardedValuation(Valuation):
    """A Valuation whose values stay in files; :func:`cellworth.load` reads it.

    Everything works as for any Valuation. Sums, signs, the lowest and highest, single cells and
    :meth:`strips` need little memory; ``values`` and whatever else holds all cells at once is
    refused beyond 2**27 of them. Rows are called 0, 1, 2, ...

    What is checked, and when: at ``load`` the manifest, the small tables and that every file is
    there with its size; at :meth:`strips`, and all that goes through every row, the sha256 of
    each file, once; where single groups of rows are read, their shape and check sums.

    Parameters
    ----------
    sums_validation : array of shape (n_columns + 1,) or None
        Errors that come from the choice of validation rows, of the sums of columns and of the
        total. Those of single cells and rows are not known.
    """

    moments: StoredMoments
    sums_validation: Floats | None = None

    @classmethod
    def of_folder(cls, folder: str | os.PathLike[str]) -> ShardedValuation:
        """Read a manifest and what is small; files with values stay where they are."""
        path = local_path(folder, "folder")
        manifest = read_whole_manifest(path)
        columns, sums, validation = read_column_tables(path, manifest, _TABLES)
        moments = StoredMoments(path, _files(path, manifest), sums)
        moments.refuse_missing()
        told = read_plain(manifest, (moments.shape[0], len(columns)), folder)
        blocks = Blocks(NumberedAxis(moments.shape[0]), columns)
        return cls(blocks, moments, sums_validation=validation, **told)

    @cached_property
    def values(self) -> Floats:
        """Value of each block, shape (n_rows, n_columns); read when asked for."""
        return _read_only(self.moments.all_of("mean"))

    @cached_property
    def standard_errors(self) -> Floats:
        """Sampling error of each value; 0 for exact values, NaN where it is not known."""
        self.moments.refuse_too_many("standard errors")
        if not self._reads_spread:
            return _read_only(self._errors_of(np.broadcast_to(0.0, self.shape)))
        return _read_only(self._errors_of(self.moments.all_of("spread")))

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """How many observations stand behind each value."""
        return np.broadcast_to(np.int64(self.moments.n_observations), self.shape)

    @property
    def total(self) -> float:
        """Sum of all values."""
        return float(self.moments.sums.mean[-1])

    @property
    def total_error(self) -> float:
        """Error of the total: of sampled coalitions and of the choice of validation rows."""
        judged = 0.0 if self.sums_validation is None else float(self.sums_validation[-1])
        return math.hypot(float(self._errors_of(self.moments.sums.spread)[-1]), judged)

    @property
    def largest_error(self) -> float:
        """Largest of the standard errors that are known; NaN where none is."""
        return float(self._errors_of(np.array([self.moments.largest_spread]))[0])

    @property
    def loc(self) -> Lookup:
        """Values by label; only what is asked for is read."""
        return Lookup(self.blocks, _StoredValues(self.moments), by_label=True)

    @property
    def iloc(self) -> Lookup:
        """Values by position; only what is asked for is read."""
        return Lookup(self.blocks, _StoredValues(self.moments), by_label=False)

    def rows(self) -> ValueList:
        """Value of each row; the lowest and highest are found without reading all of them."""
        return StoredList(self.moments, None, self._errors_of, self.backend)

    def columns(self) -> ValueList:
        """Value of each column: the sum of its blocks, with errors of its own."""
        sums, judged = self.moments.sums, self.sums_validation
        return ValueList(
            {"column": self.column_labels},
            sums.values[:-1],
            self._errors_of(sums.spread)[:-1],
            sums.count[:-1],
            self.backend,
            None if judged is None else judged[:-1],
        )

    def owners(self) -> ValueList:
        """Refuse to tell errors of sums over rows, which are not known of a table in shards."""
        if self.owned is None:
            raise ValueError(
                "this valuation is of a table in shards, where errors of sums over rows are not "
                "known; use split, whose intervals are wide bounds, or columns(), where they are "
                "known."
            )
        return super().owners()

    def line(self, side: Literal["row", "column"], place: int) -> ValueList:
        """Values of the blocks of one row, or of one column; only these are read."""
        n_rows, n_columns = self.shape
        rows = np.array([place]) if side == "row" else np.arange(n_rows)
        columns = range(n_columns) if side == "row" else [place]
        self.moments.refuse_too_many("the chosen values", len(rows) * len(columns))
        figures = self.moments.at(rows, columns, ("mean", "spread"))
        return ValueList(
            {"column": self.column_labels} if side == "row" else {"row": rows},
            figures["mean"].ravel(),
            self._errors_of(figures["spread"]).ravel(),
            np.full(figures["mean"].size, self.moments.n_observations),
            self.backend,
        )

    def strips(self, n_rows: int = 65_536) -> Iterator[Strip]:
        """Go through the values from top to bottom, some rows at a time, which alone are held.

        Files are read one after the other, each checked against its fingerprint before.
        """
        parts = ("mean", "spread") if self._reads_spread else ("mean",)
        for rows, figures in self.moments.strips(checked_count(n_rows, "n_rows"), parts):
            mean = figures["mean"]
            spread = figures.get("spread", np.broadcast_to(0.0, mean.shape))
            yield Strip(rows, _read_only(mean), _read_only(self._errors_of(spread)), None)

    @property
    def lacks_validation_errors(self) -> bool:
        """Whether validation errors are known of sums; those of single cells never are."""
        return self.sums_validation is not None

    def signs(self) -> Signs:
        """Count the blocks that are surely worth less than nothing, surely more, or neither.

        Of sampling errors alone: validation errors of single cells are not known, so that fewer
        blocks than this may be told from zero.
        """
        if self.status != "exact" and not self._reads_spread:
            return Signs(0, 0, 0, math.prod(self.shape))
        return super().signs()

    def to_frame(self, *, wide: bool = False, backend: str | None = None) -> Any:
        """Return a data frame in the caller's library, of as many blocks as may be held."""
        self.moments.refuse_too_many("values")
        return super().to_frame(wide=wide, backend=backend)

    def merge(
        self, other: Valuation, folder: str | os.PathLike[str] | None = None
    ) -> ShardedValuation:
        """Join two independent estimates of the same values into a better one.

        Parameters
        ----------
        other : Valuation
            In shards as well, which may be cut at other rows.
        folder : path, default=None
            Where the joint values are saved; None means a temporary folder that goes when they
            are no longer used, from which ``save`` takes them elsewhere.
        """
        folder = None if folder is None else local_path(folder, "folder")
        refuse_unmergeable(self, other)
        other = cast("ShardedValuation", other)
        if folder is not None:
            self._refuse_own_folder(folder, other)
        merged = self._merged(other, self.moments.merge(other.moments, folder))
        merged = replace(merged, sums_validation=_merged_validation(self, other))
        if folder is not None:
            merged.save(folder)
        return merged

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Copy the files one by one, then write a manifest; a result that stands there is replaced.

        In the folder where the files lie already, only the manifest is written.
        """
        path = made_folder(folder)
        before = files_to_replace(path)
        if not _same_folder(path, self.moments.folder):
            for file in self.moments.files:
                file.copy(self.moments.folder, path)
        sums = {name: getattr(self.moments.sums, name) for name in ("count", "mean", "spread")}
        if self.sums_validation is not None:
            sums |= {"validation_error": self.sums_validation}
        files = write_tables(path, column_tables(self.blocks.columns, sums))
        shards = {f"values-{n:05d}": file.to_plain() for n, file in enumerate(self.moments.files)}
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
        of_sums = "(of columns; of cells not known)"
        return f"{largest} from the choice of validation rows {of_sums}"

    def _noise_and_signal(self) -> tuple[float, float]:
        files, count = self.moments.files, self.moments.n_observations
        spreads = math.fsum(file.spreads for file in files) if self._reads_spread else 0.0
        signal = math.fsum(file.squares for file in files)
        return spreads / max(count * (count - 1.0), 1.0), signal

    def _all_blocks(self) -> ValueList:
        return StoredList(self.moments, self.column_labels, self._errors_of, self.backend)

    def _refuse_own_folder(self, folder: Path, other: ShardedValuation) -> None:
        if any(_same_folder(folder, one.moments.folder) for one in (self, other)):
            raise ValueError(
                f"{folder} holds one of the two valuations that are merged; give another folder."
            )


def finish(
    folder: str | os.PathLike[str],
    entries: Sequence[Mapping[str, Any]],
    *,
    shape: tuple[int, int],
    column_labels: Iterable[Any] | Axis,
    count: int,
    columns: tuple[Floats, Floats],
    expected_total: float,
    empty: str,
    status: Status,
    provenance: Provenance,
    validation: Floats | None = None,
    unearned: float = math.nan,
    owned: OwnerSums | None = None,
    scores: Scores | None = None,
    backend: str | None = None,
    column_info: ColumnTable | None = None,
) -> ShardedValuation:
    """Write the manifest that makes files of values in a folder one Valuation, and return that.

    Parameters
    ----------
    folder : path
        Where :func:`cellworth.value_files.write_values` wrote the files.
    entries : sequence of mappings
        What it returned, in any order; together they must hold each row once.
    shape : (n_rows, n_columns)
    column_labels : labels of the columns, or an Axis where columns are grouped
    count : int
        How many observations stand behind each value.
    columns : (mean, spread), arrays of shape (n_columns + 1,)
        Of the sums of columns and, at the end, of the total.
    expected_total, empty, status, provenance, unearned, owned, scores, backend, column_info
        As in a Valuation.
    validation : array of shape (n_columns + 1,) or None
        Errors of these sums that come from the choice of validation rows.
    """
    axis = column_labels
    if not isinstance(axis, Axis):
        axis = Axis.of_singles(axis, what="column")
    counts = np.full(len(axis) + 1, checked_count(count, "count"), dtype=np.int64)
    if any(np.shape(part) != counts.shape for part in (*columns, validation) if part is not None):
        raise ValueError(
            f"sums of columns have shapes {[np.shape(part) for part in columns]}; give "
            f"{len(counts)} figures, of {len(axis)} columns and of the total."
        )
    files = [ValueFile.from_plain(entry) for entry in entries]
    moments = StoredMoments(local_path(folder, "folder"), files, Moments(counts, *columns))
    if moments.shape != tuple(shape):
        raise ValueError(
            f"the shards hold values of {moments.shape[0]} x {moments.shape[1]} blocks, but the "
            f"table has {shape[0]} x {shape[1]}; give those of all rows."
        )
    moments.refuse_missing()
    valuation = ShardedValuation(
        Blocks(NumberedAxis(shape[0]), axis),
        moments,
        expected_total,
        empty,
        status,
        provenance,
        backend,
        unearned=unearned,
        owned=owned,
        scores=scores,
        column_info=column_info,
        sums_validation=validation,
    )
    valuation.save(folder)
    return valuation


@dataclass(frozen=True, eq=False)
class _StoredValues:
    """Values that can be cut as an array is, of which only what is asked for is read."""

    moments: StoredMoments

    def __getitem__(self, key: tuple[Any, Any]) -> Any:
        (rows, row_key), (columns, column_key) = (
            narrowed(one, length) for one, length in zip(key, self.moments.shape, strict=True)
        )
        self.moments.refuse_too_many("the chosen values", len(rows) * len(columns))
        found = self.moments.at(rows, columns.tolist(), ("mean",))["mean"]
        return found[row_key, column_key]


def _files(path: Path, manifest: Mapping[str, Any]) -> list[ValueFile]:
    try:
        shards = [entry for name, entry in manifest["files"].items() if name not in _TABLES]
        return [ValueFile.from_plain(entry) for entry in shards]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"the manifest of {path} is incomplete or was changed ({error}); restore it from a "
            "copy."
        ) from error


def _merged_validation(one: ShardedValuation, other: ShardedValuation) -> Floats | None:
    """Both tell the same error; take the mean of the variances, by how much stands behind each."""
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
