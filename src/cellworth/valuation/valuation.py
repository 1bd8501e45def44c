"""Valuation: values of blocks, with errors, sums, ranking and provenance."""

from __future__ import annotations

import importlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Labels, check_count
from cellworth.data.blocks import Blocks
from cellworth.data.io import AnyPath, Options, jsonable, make_folder
from cellworth.data.tables import HashedRows, Table, TableLike, VectorLike, frame, label_array
from cellworth.data.views import heading, paragraph, view
from cellworth.sampling.moments import (
    SAMPLING_ALONE,
    Moments,
    OwnerSums,
    Signs,
    append_margins,
    combine_errors,
    widening,
)
from cellworth.valuation.column_info import ColumnTable
from cellworth.valuation.known_utilities import Utilities
from cellworth.valuation.provenance import Provenance, Scores, read_number
from cellworth.valuation.storage import (
    cell_tables,
    files_to_replace,
    replace_manifest,
    write_tables,
)
from cellworth.valuation.values import (
    LabelIndexer,
    ValueList,
    read_only,
)

Status = Literal["exact", "estimated", "interrupted"]
FROM_ROWS = "from the choice of validation rows"
_COLUMNS_SHOWN = 20
_LOWEST_SHOWN = 10
# Fields of a Valuation that its manifest holds as they are; NaN is null.
_PLAIN, _NUMBERS = ("status", "empty", "backend"), ("expected_total", "baseline")
# Parts of a Valuation that may be unknown, which is null in its manifest.
_PARTS: dict[str, Any] = {
    "owned": OwnerSums, "scores": Scores, "column_info": ColumnTable, "held_out": HashedRows,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class RowChunk:
    """Some rows of a Valuation, with all columns.

    Parameters
    ----------
    rows : slice
        Which rows these are, by position.
    values, sampling_se : arrays of shape (n_rows of the strip, n_columns)
    validation_se : array of the same shape or None

    See Also
    --------
    ShardedValuation

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    >>> [(chunk.rows, chunk.values.shape) for chunk in valuation.iter_rows(n_rows=3)]
    [(slice(0, 3, None), (3, 2)), (slice(3, 4, None), (1, 2))]
    """

    rows: slice
    values: Floats
    sampling_se: Floats
    validation_se: Floats | None

    @property
    def errors(self) -> Floats:
        """Both kinds of errors together, as far as they are known."""
        return combine_errors(self.sampling_se, self.validation_se)


@dataclass(frozen=True, eq=False)
class Valuation:
    """Values of all blocks, with errors, sums and provenance; immutable.

    Parameters
    ----------
    blocks : Blocks
        What was valued.
    moments : Moments of shape (n_rows + 1, n_columns + 1)
        Moments of blocks, with the sums of rows and columns in the last column and row.
    expected_total : float
        h(N, M) - h(N, 0) - h(0, M) + h(0, 0): the sum of exact Shapley values. NaN if values have
        no expected sum.
    empty : str
        Utility of coalitions without rows or columns: "prior", "zero", "game" if the game defines
        it, or "none" if no row or column is ever absent.
    status : {"exact", "estimated", "interrupted"}
        Whether all coalitions were evaluated, or tasks until the stopping rule was met, or fewer.
    provenance : Provenance
        The record of problem, method, seeds and versions.
    backend : str or None
        Data-frame library of the user's table.
    validation : array of shape (n_rows + 1, n_columns + 1) or None
        Errors due to the choice of validation rows, of blocks and of sums, if known.
    baseline : float
        h(N, 0) + h(0, M) - h(0, 0): the part of the score that exists without any rows or columns.
        No block earns it. NaN if unknown.
    owned : OwnerSums or None
        Sums of the values of each owner's cells, if ``fit`` was given owners.
    scores : Scores or None
        Scoring, number of validation rows, and accuracy or R squared to compare with; None if a
        game has no validation rows.
    column_info : ColumnTable or None
        How each column was read, if a table was valued.
    held_out : Table or HashedRows or None
        The validation rows, for checks before a payout. Only their hashes are saved, copied or
        sent.
    utilities : Utilities or None
        The coalitions that were evaluated, if the run asked for utilities of coalitions; None for
        nearest neighbors, after a merge, and if they were not saved.

    See Also
    --------
    load, cellworth.valuation.ValueList, cellworth.plots.heatmap, cellworth.report.save

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    >>> valuation.columns().highest(1)
    rank  column   value  validation_se
       1      x0  0.3750         0.1172
    >>> round(valuation.loc[1, "x0"], 3), valuation.loc[:, "x1"].round(3).tolist()
    (0.135, [0.031, 0.031, 0.031, 0.031])
    >>> print(f"{valuation.total:.3f} = {valuation.expected_total:.3f}, {valuation.status}")
    0.500 = 0.500, exact
    """

    blocks: Blocks
    moments: Moments
    expected_total: float
    empty: str
    status: Status
    provenance: Provenance
    backend: str | None = None
    validation: Floats | None = None
    baseline: float = math.nan
    owned: OwnerSums | None = None
    scores: Scores | None = None
    column_info: ColumnTable | None = None
    held_out: Table | HashedRows | None = None
    utilities: Utilities | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "held_out": self._hashed}

    @cached_property
    def _hashed(self) -> HashedRows | None:
        """Hashes of the validation rows."""
        return HashedRows.of(self.held_out) if isinstance(self.held_out, Table) else self.held_out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the values, for functions of NumPy."""
        return np.array(self.values, dtype=dtype, copy=copy)

    @cached_property
    def values(self) -> Floats:
        """Value of each block, shape (n_rows, n_columns); NaN where a block was not visited."""
        return read_only(self._values[:-1, :-1].copy())

    @cached_property
    def sampling_se(self) -> Floats:
        """Sampling error of each value; 0 for exact values, NaN if unknown.

        Errors from few passes or tasks are widened, so that 1.96 of them to either side make a
        95% interval.
        """
        return read_only(self._errors[:-1, :-1].copy())

    @cached_property
    def validation_se(self) -> Floats | None:
        """Error of each value due to the choice of validation rows; None if unknown.

        It estimates how much values would change with other validation rows, from how values differ
        between the validation rows. More tasks do not reduce it. Errors from few validation rows
        are widened, so that 1.96 of them to either side make a 95% interval.
        """
        return None if self.validation is None else read_only(self.validation[:-1, :-1].copy())

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of observations of each value."""
        return read_only(self.moments.count[:-1, :-1].copy())

    @property
    def shape(self) -> tuple[int, int]:
        """Number of row players and of column players."""
        return self.blocks.shape

    @property
    def row_labels(self) -> Labels:
        """The user's row ids, or the names of row groups."""
        return self.blocks.rows.labels

    @property
    def column_labels(self) -> Labels:
        """The user's column names, or the names of column groups."""
        return self.blocks.columns.labels

    @property
    def total(self) -> float:
        """Sum of all values."""
        return float(self._column_sums[0][-1])

    @property
    def total_error(self) -> float:
        """Error of the total, due to sampling and to the choice of validation rows.

        The validation error is left out if unknown; NaN if the sampling error is unknown.
        """
        _, sampling, _, validation = self._column_sums
        return math.hypot(sampling[-1], 0.0 if validation is None else validation[-1])

    @property
    def score(self) -> float:
        """Score of the whole table: the expected total plus the baseline."""
        return self.expected_total + self.baseline

    @property
    def largest_error(self) -> float:
        """Largest of the standard errors that are known; NaN where none is."""
        return float(np.fmax.reduce(self.sampling_se, axis=None))

    @property
    def efficiency_residual(self) -> float:
        """Total minus expected total; 0 up to rounding for Shapley rows and columns only.

        NaN where no total is expected.
        """
        return self.total - self.expected_total

    @property
    def loc(self) -> LabelIndexer:
        """Values by label: ``valuation.loc["row 7", "age"]``; lists and ``:`` give arrays."""
        return LabelIndexer(self.blocks, self._indexable)

    def rows(self) -> ValueList:
        """Return the value of each row: the sum of its blocks, with its own errors."""
        return self._list({"row": self.row_labels}, np.s_[:-1, -1])

    def columns(self) -> ValueList:
        """Return the value of each column: the sum of its blocks, with its own errors."""
        values, sampling, counts, validation = self._column_sums
        validation = None if validation is None else validation[:-1]
        labels = {"column": self.column_labels}
        return ValueList(labels, values[:-1], sampling[:-1], counts[:-1], self.backend, validation)

    def owners(self) -> ValueList:
        """Return the value of each owner: the sum of its cells, with its own errors.

        ``fit`` must have been given owners; :func:`~cellworth.payouts.split_revenue` also accepts
        other valuations.

        Examples
        --------
        >>> from cellworth import KNNValuer, Owners
        >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
        >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
        >>> fitted = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners)
        >>> fitted.valuation_.owners()
        owner   value  validation_se
          ann  0.3750         0.1172
          bob  0.1250         0.1172
        """
        if self.owned is None:
            raise ValueError(
                "this valuation has no owners; pass owners=Owners(X).assign(...) to the fit of a "
                "valuer, or use split_revenue."
            )
        seen, validation = self.owned.moments, self.owned.validation
        n_owners = len(self.owned.names)
        errors = seen.sampling_se * widening(seen.count)
        return ValueList(
            {"owner": label_array(self.owned.names, what="owner")},
            seen.values[:n_owners],
            np.zeros(n_owners) if self.status == "exact" else errors[:n_owners],
            seen.count[:n_owners],
            self.backend,
            None if validation is None else validation[:n_owners],
        )

    def row(self, position: int) -> ValueList:
        """Return the values of the blocks of one row, by its position.

        Examples
        --------
        >>> from cellworth.games import TableGame
        >>> from cellworth import value_game
        >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
        >>> value_game(game, (2, 2)).row(0)
        column   value
             0   3.000
             1  -1.000
        """
        return self._cross_section("row", position)

    def column(self, position: int) -> ValueList:
        """Return the values of the blocks of one column, by its position."""
        return self._cross_section("column", position)

    def _cross_section(self, side: Literal["row", "column"], position: int) -> ValueList:
        # The last row and column hold sums, so a negative position must not reach them.
        if side == "row":
            at = range(self.shape[0])[position]
            return self._list({"column": self.column_labels}, np.s_[at, :-1])
        at = range(self.shape[1])[position]
        return self._list({"row": self.row_labels}, np.s_[:-1, at])

    def iter_rows(self, n_rows: int = 65_536) -> Iterator[RowChunk]:
        """Yield the values in order, ``n_rows`` rows at a time."""
        for start in range(0, self.shape[0], check_count(n_rows, "n_rows")):
            rows = slice(start, min(start + n_rows, self.shape[0]))
            validation = None if self.validation_se is None else self.validation_se[rows]
            yield RowChunk(rows, self.values[rows], self.sampling_se[rows], validation)

    @property
    def validation_se_only_for_sums(self) -> bool:
        """Whether validation errors are known for sums but not for blocks.

        That happens for sharded tables with a balanced score of more than four classes. Results
        for single blocks, such as :meth:`sign_counts`, then use sampling errors only.
        """
        return False

    def sign_counts(self) -> Signs:
        """Count the blocks with clearly negative, clearly positive and other values.

        A value is clearly positive or negative if its 95% interval excludes zero. The interval
        includes both errors, if known.
        """
        counted = (Signs.of(chunk.values, chunk.errors) for chunk in self.iter_rows())
        return reduce(Signs.merge, counted)

    def lowest(self, k: int = 10) -> ValueList:
        """Return the k blocks of lowest value, lowest first.

        Examples
        --------
        >>> from cellworth.games import TableGame
        >>> from cellworth import value_game
        >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
        >>> valuation = value_game(game, (2, 2))
        >>> valuation.lowest(2)
        rank  row  column   value
           1    0       1  -1.000
           2    1       0   1.000
        """
        return self.list_blocks().lowest(k)

    def highest(self, k: int = 10) -> ValueList:
        """Return the k blocks of highest value, highest first."""
        return self.list_blocks().highest(k)

    def to_frame(self, *, wide: bool = False, backend: str | None = None) -> Any:
        """Return a data frame in the caller's library.

        From pandas, ``set_index(["row", "column"]).to_xarray()`` leads to xarray.

        Parameters
        ----------
        wide : bool, default=False
            False: one line per block with row, column, value, sampling_se, count and, where
            known, validation_se. True: one line per row, with its values under the column
            labels.
        backend : {"pandas", "polars", "pyarrow"}, default=None
            None means the library that X came in; for arrays the first that is installed.

        Examples
        --------
        >>> from cellworth import KNNValuer
        >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
        >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
        >>> valuation.to_frame(wide=True, backend="pandas").round(3)
           row     x0     x1
        0    0  0.052  0.031
        1    1  0.135  0.031
        2    2  0.135  0.031
        3    3  0.052  0.031
        """
        if not wide:
            return self.list_blocks().to_frame(backend)
        names = [str(label) for label in self.column_labels.tolist()]
        row = "row"
        while row in names:
            row += "_id"
        columns = {row: self.row_labels.tolist()}
        columns |= {name: self.values[:, j].tolist() for j, name in enumerate(names)}
        return frame(columns, backend or self.backend)

    def merge(self, other: Valuation) -> Valuation:
        """Merge two independent estimates of the same values into a better one.

        Both must have the same problem spec (data, model, semivalues) and different seeds.

        Examples
        --------
        >>> from cellworth.runtime import MaxTasks
        >>> from cellworth.games import TableGame
        >>> from cellworth import value_game
        >>> game = TableGame(np.arange(64.0).reshape(8, 8) ** 2)
        >>> one, other = (
        ...     value_game(game, (3, 3), stop=MaxTasks(100), random_state=seed) for seed in (0, 1)
        ... )
        >>> both = one.merge(other)
        >>> both.provenance.sessions
        (Session(seed=0, tasks=100), Session(seed=1, tasks=100))
        >>> bool(both.sampling_se.max() < one.sampling_se.max())
        True
        """
        check_mergeable(self, other)
        return self._merge_parts(other, self.moments.merge(other.moments))

    def _merge_parts(self, other: Valuation, moments: Moments) -> Self:
        counts = int(self.moments.count.max()), int(other.moments.count.max())
        owned = None
        if self.owned and other.owned and self.owned.keys == other.owned.keys:
            owned = self.owned.merge(other.owned)
        return replace(
            self,
            moments=moments,
            provenance=self.provenance.merge(other.provenance),
            status="interrupted" if "interrupted" in (self.status, other.status) else "estimated",
            validation=merge_validation(self.validation, other.validation, counts),
            owned=owned,
            utilities=None,
        )

    def save(
        self,
        folder: str | os.PathLike[str],
        storage_options: Options | None = None,
        *,
        utilities: bool = False,
    ) -> None:
        """Write Parquet files and a manifest.json, for :func:`~cellworth.load`.

        An earlier result in the folder is replaced.

        Parameters
        ----------
        folder : path or address
            Such as ``"values"`` or ``"s3://bucket/values"``.
        storage_options : dict, default=None
            Options of fsspec for an address, such as keys.
        utilities : bool, default=False
            Whether to save the utilities of coalitions, too.
        """
        if utilities and self.utilities is None:
            raise ValueError("this valuation has no utilities; leave out utilities=True.")
        path = make_folder(folder, "folder", storage_options)
        before, files = files_to_replace(path), self._write_files(path)
        if utilities and self.utilities is not None:
            files |= write_tables(path, {"utilities": self.utilities.to_table()})
        replace_manifest(path, self._plain() | {"files": files}, before)

    def _write_files(self, path: AnyPath) -> dict[str, dict[str, Any]]:
        """Write values and labels; return the entries of the files in the manifest."""
        return write_tables(path, cell_tables(self.blocks, self.moments, self.validation))

    def _plain(self) -> dict[str, Any]:
        """Return the entries of the manifest besides the tables."""
        parts = {name: getattr(self, name) for name in _PARTS} | {"held_out": self._hashed}
        return {
            "shape": list(self.shape),
            **{name: jsonable(getattr(self, name)) for name in (*_PLAIN, *_NUMBERS)},
            "provenance": self.provenance.to_dict(),
            **{name: None if part is None else part.to_plain() for name, part in parts.items()},
        }

    def __repr__(self) -> str:
        lines = [*_summarize(self).items()]
        lines += [("failure", message) for message in self.provenance.tally.messages]
        return "\n".join([_headline(self), *(f"  {name:<10}  {text}" for name, text in lines)])

    def _repr_html_(self) -> str:
        """Return a summary for notebooks: plain HTML without script."""
        return view(*_view(self))

    def show(
        self, X: TableLike | None = None, y: VectorLike | None = None, *, height: int = 720
    ) -> Any:
        """Show the report in a notebook, with its heat map.

        Parameters
        ----------
        X, y : table and labels, default=None
            What was valued. Without them, contents and the verdict of an audit are left out.
        height : int, default=720
            Height of the frame in pixels.

        Returns
        -------
        page
            The page of :func:`~cellworth.report.save`, in a frame. It loads and sends nothing.

        Examples
        --------
        >>> from cellworth import KNNValuer
        >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
        >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
        >>> valuation.show(X, y)._repr_html_().startswith("<iframe")
        True
        """
        check_count(height, "height")
        # By name: a method may lead to a page, but values do not depend on it.
        build = importlib.import_module("cellworth.report.build")
        return build.Page(build.render(build.summarize(self, X, y)), height)

    @property
    def _indexable(self) -> Any:
        return self.values

    @property
    def _column_sums(self) -> tuple[Floats, Floats, NDArray[np.int64], Floats | None]:
        """Sums of columns and the total: values, both kinds of errors, and in between counts."""
        validation = None if self.validation is None else self.validation[-1]
        return self._values[-1], self._errors[-1], self.moments.count[-1], validation

    @cached_property
    def _values(self) -> Floats:
        # A sum whose blocks no single task saw together is the sum of their values; its error
        # is unknown, because blocks are correlated.
        values = self.moments.values
        sums = append_margins(values[:-1, :-1])
        return np.where(self.moments.count > 0, values, sums)

    @cached_property
    def _errors(self) -> Floats:
        if self.status == "exact":
            return np.zeros(self.moments.mean.shape)
        return self.moments.sampling_se * widening(self.moments.count)

    def _describe_errors(self) -> str:
        """Return the sizes of both kinds of errors in words."""
        found = f"up to {self.largest_error:.2g} from sampling"
        if self.status == "exact":
            found = "none from sampling"
        elif math.isnan(self.largest_error):
            found = "not known from sampling (too few utilities, or a semivalue without errors)"
        scored = self._describe_validation()
        return found + (f"; {scored}" if scored else "")

    def _describe_validation(self) -> str | None:
        """Return the size of validation errors in words; None without validation rows."""
        if self.validation_se is None:
            return None if self.scores is None else f"not known {FROM_ROWS}"
        largest = np.fmax.reduce(self.validation_se, axis=None, initial=0.0)
        return f"up to {largest:.2g} {FROM_ROWS}"

    def _list(self, labels: dict[str, Labels], part: Any) -> ValueList:
        return ValueList(
            labels,
            self._values[part].ravel(),
            self._errors[part].ravel(),
            self.moments.count[part].ravel(),
            self.backend,
            None if self.validation is None else self.validation[part].ravel(),
        )

    def list_blocks(self) -> ValueList:
        """Return the value of each block, row by row."""
        n_rows, n_columns = self.shape
        labels = {
            "row": np.repeat(self.row_labels, n_columns),
            "column": np.tile(self.column_labels, n_rows),
        }
        return self._list(labels, np.s_[:-1, :-1])


def check_mergeable(one: Valuation, other: Valuation) -> None:
    """Raise unless both are independent estimates of the same values."""
    if not isinstance(other, Valuation):
        raise TypeError(f"merge takes a Valuation, not {type(other).__name__}.")
    if type(one) is not type(other):
        raise ValueError(
            "one valuation is of a sharded table and the other is not; merge like with like."
        )
    if "exact" in (one.status, other.status):
        raise ValueError("exact values cannot be improved by merging; keep the exact ones.")
    if one.blocks != other.blocks:
        raise ValueError("the two valuations have different rows or columns; merge like with like.")
    specs = one.provenance.problem_spec, other.provenance.problem_spec
    different = [name for name in set().union(*specs) if specs[0].get(name) != specs[1].get(name)]
    if different:
        raise ValueError(
            f"the two valuations must be of the same problem (they differ in "
            f"{', '.join(sorted(different))}); merge like with like."
        )
    methods = one.provenance.method, other.provenance.method
    names = [method["name"] for method in methods]
    if names[0] != names[1]:
        raise ValueError(
            f"the two valuations were estimated in different ways ({names[0]} and {names[1]}), "
            "whose counts are not comparable; merge like with like."
        )
    if not methods[0].get("merges", True):
        raise ValueError(
            f"estimates by {names[0]} cannot be averaged; run one with a larger budget and a "
            "cache, so that only new utilities are computed."
        )
    totals = one.expected_total, other.expected_total
    if not all(map(math.isnan, totals)) and not math.isclose(*totals, rel_tol=1e-9, abs_tol=1e-12):
        raise ValueError(
            f"the two valuations should add up to {one.expected_total:.6g} and "
            f"{other.expected_total:.6g}: they are of different problems, or one was stopped "
            "before it used all validation rows; merge like with like."
        )
    seeds = [{session.seed for session in v.provenance.sessions} for v in (one, other)]
    if shared := seeds[0] & seeds[1]:
        raise ValueError(
            f"both valuations used seed {min(map(str, shared))} and so share their tasks; "
            "run one of them with another random_state."
        )


def read_plain(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a Valuation that its manifest holds."""
    parts = {name: manifest[name] for name in _PARTS}
    return {
        **{name: manifest[name] for name in _PLAIN},
        **{name: read_number(manifest[name]) for name in _NUMBERS},
        "provenance": Provenance.from_dict(manifest["provenance"]),
        **{name: part and _PARTS[name].from_plain(part) for name, part in parts.items()},
    }


def check_total(means: Floats, plain: Mapping[str, Any]) -> None:
    """Raise ValueError unless the last row, of sums, suits the fields of a Valuation."""
    if not np.isfinite(means).all():
        raise ValueError("some values are not finite")
    sums, expected = np.atleast_2d(means)[-1], plain["expected_total"]
    if plain["status"] == "exact" and plain["provenance"].adds_up:
        scale = np.abs(sums).sum() + abs(expected) + abs(plain["baseline"])
        if abs(sums[-1] - expected) > 1e-6 * scale + 1e-12:
            raise ValueError(f"exact values add up to {sums[-1]}, but {expected} is expected")


def merge_validation(
    one: Floats | None, other: Floats | None, counts: tuple[int, int]
) -> Floats | None:
    """Average the variances, weighted by the numbers of observations: both estimate one error."""
    if one is None or other is None:
        return None
    return np.asarray(np.sqrt((counts[0] * one**2 + counts[1] * other**2) / sum(counts)))


def _headline(valuation: Valuation) -> str:
    n_rows, n_columns = valuation.shape
    return f"Valuation of {n_rows:,} x {n_columns:,} blocks, {valuation.status}"


def _summarize(valuation: Valuation) -> dict[str, str]:
    """Return what is printed, by name."""
    lines = {**_score_lines(valuation), "total": _total_line(valuation)}
    lines |= {"errors": valuation._describe_errors()}
    for name, listing in (("lowest", valuation.lowest(1)), ("highest", valuation.highest(1))):
        for entry in listing:
            lines[name] = f"{entry['value']:.4g} ({entry['row']}, {entry['column']})"
    if valuation.column_info is not None:
        lines["columns"] = valuation.column_info.summary
    lines |= {
        "method": valuation.provenance.method["name"],
        "utilities": _utilities_line(valuation),
    }
    return lines


def _score_lines(valuation: Valuation) -> dict[str, str]:
    """Return lines on the task and the score, and on a figure to compare the score with."""
    scores = valuation.scores
    if scores is None or math.isnan(valuation.score):
        return {} if valuation.empty == "none" else {"empty": valuation.empty}
    empty = "" if valuation.empty == "none" else f" (empty={valuation.empty!r})"
    entries = {
        "task": f"{scores.task}, {scores.scored_on}",
        "score": f"{format_score(valuation)}; baseline {valuation.baseline:.4g}{empty}",
    }
    return entries if scores.beside is None else entries | dict([scores.beside])


def format_score(valuation: Valuation) -> str:
    """Return the score of the whole table, with its name and model."""
    return f"{valuation.score:.4g} {name_of_score(valuation)}".strip()


def name_of_score(valuation: Valuation) -> str:
    """Return the name of the score and of the model; empty without validation rows."""
    scores, problem_spec = valuation.scores, valuation.provenance.problem_spec
    if scores is None:
        return ""
    of_model = f" of {problem_spec['model'].rpartition('.')[2]}" if "model" in problem_spec else ""
    neighbors = f" (K = {problem_spec['n_neighbors']})" if "n_neighbors" in problem_spec else ""
    if problem_spec.get("radius") is not None:
        neighbors = f" (radius = {problem_spec['radius']:g})"
    return f"{scores.name}{of_model}{neighbors}"


def _total_line(valuation: Valuation) -> str:
    has_score = valuation.scores is not None and not math.isnan(valuation.score)
    if not valuation.provenance.adds_up:
        target = f" (score minus baseline is {valuation.expected_total:.6g}; only Shapley values "
        return f"{valuation.total:.6g}" + (f"{target}add up to it)" if has_score else "")
    entries = "score minus baseline" if has_score else f"expected {valuation.expected_total:.6g}"
    return f"{valuation.total:.6g} ({entries}, residual {valuation.efficiency_residual:.2g})"


def _utilities_line(valuation: Valuation) -> str:
    tally = valuation.provenance.tally
    failed = f"{tally.failed:,} failed" if tally.failed else "none failed"
    utilities = f"{tally.utilities:,}"
    if tally.reused:
        computed = tally.utilities - tally.reused
        used = f"{tally.new:,} different in {tally.utilities:,} lookups"
        utilities = f"{used} ({computed:,} computed, including empty coalitions)"
    return f"{utilities}, {failed}, {valuation.provenance.seconds:.1f} s"


def _view(valuation: Valuation) -> Iterator[str]:
    n_rows, n_columns = valuation.shape
    yield heading(_headline(valuation))
    yield from (paragraph(f"{name}: {text}") for name, text in _summarize(valuation).items())
    lacking = f", {SAMPLING_ALONE}" if valuation.validation_se_only_for_sums else ""
    yield paragraph(f"{valuation.sign_counts()}{lacking}.")
    columns = valuation.columns()
    yield paragraph(_title("Columns", min(n_columns, _COLUMNS_SHOWN), n_columns, "highest first"))
    yield columns.highest(_COLUMNS_SHOWN).to_html(bars=True)
    lowest = valuation.lowest(_LOWEST_SHOWN)
    yield paragraph(_title("Blocks", len(lowest), n_rows * n_columns, "lowest first"))
    yield lowest.to_html()


def _title(what: str, shown: int, total: int, order: str) -> str:
    left_out = f"; {shown:,} of {total:,} are shown" if shown < total else ""
    return f"{what}, {order}{left_out}."
