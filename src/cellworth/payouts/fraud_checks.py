"""Checks before money is paid: copied rows and columns, and owners who harm the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Floats, Mask, Model, Positions, Scoring
from cellworth.data.holdings import Holdings
from cellworth.data.owners import Owners
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.diagnostics.cells import check_valuation
from cellworth.diagnostics.comparison import Comparison, compare_models
from cellworth.diagnostics.repair import repair_cells
from cellworth.knn.columns import CategoricalColumn, CodedColumn, read_column
from cellworth.payouts.allocation import (
    check_owners_type,
    check_same_table,
    compute_owner_errors,
    estimate_rounding,
    sum_owner_values,
)
from cellworth.payouts.policy import has_joint_rows, join_names
from cellworth.sampling.moments import WIDTH_95
from cellworth.valuation.valuation import Valuation

# Owners are one party, perhaps, if the area under the curve exceeds 0.5 by less than this.
_LEAST_SEPARABLE = 0.05
_LEAST_ROWS_SEPARABLE = 20
_MOST_ROWS = 20_000
_FAR = 1e9
# Kind of the finding for sharded tables, whose cells are not checked.
NOT_CHECKED = "not checked"
# Splits of the rows into halves: few, because there may be many owners.
N_SPLITS = 5
# Rows are twins if every number is within this many scale units and all else is equal.
_NEAR = 0.02
# Share of twins, beyond chance, that is reported.
_MOST_TWINS = 0.01
# Differences of this many standard errors may be due to chance.
_WIDE = 4.0
# Columns with at least this association count as copies.
_MOST_ALIKE = 0.95
_LEAST_ROWS = 10
_FEW_LEVELS = 50


@dataclass(frozen=True)
class Finding:
    """A problem to resolve before money is paid; it names no rows and no cells.

    Parameters
    ----------
    kind : str
        "copied rows", "copied columns", "one identity", "below zero", "within noise", "better
        without", or "not checked" for a sharded table.
    owners : tuple of str
        Owners concerned.
    figure : float
        The size of the problem: a share of rows, an association, an area under the curve, a value,
        a total, a change of the score or a number of rows, depending on ``kind``.
    sentence : str

    Examples
    --------
    >>> from cellworth import Owners
    >>> from cellworth.payouts import check_owners
    >>> X = [[i % 7, i % 5, i * i % 11] for i in range(30)]
    >>> owners = Owners(X + X).assign("ann", rows=slice(0, 30)).assign("bob", rows=slice(30, 60))
    >>> (finding,) = check_owners(owners)
    >>> finding.kind, finding.owners, finding.figure
    ('copied rows', ('ann', 'bob'), 1.0)
    """

    kind: str
    owners: tuple[str, ...]
    figure: float
    sentence: str


def check_owners(
    owners: Owners,
    valuation: Valuation | None = None,
    *,
    model: Model | None = None,
    y: VectorLike | None = None,
    X_val: TableLike | None = None,
    y_val: VectorLike | None = None,
    scoring: Scoring = None,
) -> list[Finding]:
    """Look for problems that make a split unfair.

    Copies are paid under every value that is symmetric and efficient, so they must be found before
    the split: rows of one owner that nearly equal rows of another, and columns with the same
    information. With a valuation, the checks also report owners with negative values and a total
    whose 95% interval contains 0. If blocks were the players, they report pairs of owners whose
    rows cannot be distinguished: an owner under two names is paid for both.

    With a model, the checks report owners whose cells make the model worse.
    :func:`~cellworth.diagnostics.compare_models` compares the table with one in which the owner's
    cells are shuffled within their columns. This takes 22 trainings for each owner, 20 of them on
    half of the rows.

    Parameters
    ----------
    owners : Owners
    valuation : Valuation, default=None
    model : classifier or regressor, default=None
        Needs ``y``, ``X_val`` and ``y_val`` as well.
    y : array-like of shape (n_rows,), default=None
        Labels of the owners' table.
    X_val, y_val : table and labels, default=None
        Rows to score the model on; none of the table's own.
    scoring : str or callable, default=None
        As in :func:`~cellworth.diagnostics.compare_models`; None means accuracy or R squared.

    Returns
    -------
    list of Finding
        Empty if there are none.

    Examples
    --------
    >>> from cellworth import Owners
    >>> from cellworth.payouts import check_owners
    >>> X = [[i % 7, i % 5, i * i % 11] for i in range(30)]
    >>> owners = Owners(X + X).assign("ann", rows=slice(0, 30)).assign("bob", rows=slice(30, 60))
    >>> for finding in check_owners(owners):
    ...     print(finding.sentence.split(" (")[0])
    100.0% of the rows of ann equal or nearly equal rows of bob in the 3 columns that both hold
    """
    check_owners_type(owners, empty_ok=True)
    holdings = None
    if valuation is not None:
        check_valuation(valuation)
        check_same_table(owners, valuation)
        holdings = owners.on(valuation.blocks)
    findings = run_checks(owners, valuation, holdings)
    data: dict[str, Any] = {"y": y, "X_val": X_val, "y_val": y_val}
    _check_model_arguments(model, data, scoring)
    if model is not None:
        compared = compare_without_each_owner(owners, model, **data, scoring=scoring)
        findings += _check_harmful_owners(compared)
    return findings


def run_checks(
    owners: Owners, valuation: Valuation | None, holdings: Holdings | None
) -> list[Finding]:
    """Run all checks that need no model."""
    findings = _check_cells(owners, valuation)
    if valuation is not None and holdings is not None:
        findings += _check_negative_values(holdings, valuation)
        findings += _check_total(owners, valuation)
    return findings


def _check_cells(owners: Owners, valuation: Valuation | None) -> list[Finding]:
    if not owners.sees_cells:
        return [_report_not_checked(owners)]
    cells = _Cells(owners.table)
    held = {name: owners.cells_of(name) for name in owners.names}
    findings = [*_check_copied_rows(held, cells), *_check_copied_columns(held, cells)]
    if valuation is not None and has_joint_rows(valuation):
        findings += _check_identity(held, cells)
    return findings


def _report_not_checked(owners: Owners) -> Finding:
    return Finding(
        NOT_CHECKED,
        tuple(owners.names),
        float(owners.shape[0]),
        f"the {owners.shape[0]:,} rows were not checked for copies, because the table is sharded; "
        "run check_owners on a part of it in memory.",
    )


def _check_model_arguments(model: Model | None, data: Mapping[str, Any], scoring: Scoring) -> None:
    given = [name for name, part in data.items() if part is not None]
    if model is None and (given or scoring is not None):
        raise ValueError(
            f"{(given or ['scoring'])[0]} needs a model; pass model=, y=, X_val= and y_val=, or "
            "none of them."
        )
    if model is not None and len(given) < len(data):
        missing = [name for name in data if name not in given]
        raise ValueError(
            f"model needs {join_names(missing)}; pass the labels of the owners' table as y, and "
            "rows to score on as X_val and y_val."
        )


class _Cells:
    """A table as numbers: numeric columns in scale units, categories as codes."""

    def __init__(self, table: Table) -> None:
        read = [
            read_column(position, [table], None, "robust") for position in range(table.shape[1])
        ]
        self.categorical = np.array([isinstance(c, CategoricalColumn | CodedColumn) for c in read])
        self.numbers = np.column_stack([_read_numbers(column) for column in read])
        self.known = np.column_stack([_is_known(column) for column in read])
        self.names = table.names.tolist()

    def of(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
        """Return cells of some rows; different categories are always far apart."""
        scale = np.where(self.categorical[columns], _FAR, 1.0)
        return np.asarray(self.numbers[np.ix_(rows, columns)] * scale)


def _read_numbers(column: Any) -> Floats:
    cells = column.cells[0].astype(np.float64)
    if isinstance(column, CategoricalColumn | CodedColumn):
        return np.asarray(cells)
    scaled = cells * np.sqrt(column.weight)
    # Missing values are equal to each other only.
    return np.where(np.isnan(cells), MISSING * _FAR, scaled)


def _is_known(column: Any) -> Mask:
    cells = column.cells[0]
    if isinstance(column, CategoricalColumn | CodedColumn):
        return np.asarray(cells != MISSING)
    return np.asarray(~np.isnan(cells.astype(np.float64)))


def _check_copied_rows(held: Mapping[str, Mask], cells: _Cells) -> Iterator[Finding]:
    sides = OwnerRowsCache(cells.of)
    kept = {name: mine.any(axis=0) for name, mine in held.items()}
    complete: dict[tuple[str, bytes], Mask] = {}
    for one, other in combinations(held, 2):
        columns = np.flatnonzero(kept[one] & kept[other])
        if len(columns) == 0:
            continue
        for key in ((name, columns.tobytes()) for name in (one, other)):
            if key not in complete:
                complete[key] = _find_complete_rows(held[key[0]], columns)
        rows = _separate_rows(*(complete[name, columns.tobytes()] for name in (one, other)))
        if min(map(len, rows)) < 2:
            continue
        finding = find_copied_rows(
            dict(zip((one, other), (sides.of(some, columns) for some in rows), strict=True))
        )
        if finding is not None:
            copier, source, share, usual = finding
            yield Finding(
                "copied rows",
                (copier, source),
                share,
                f"{share:.1%} of the rows of {copier} equal or nearly equal rows of {source} in "
                f"the {len(columns)} columns that both hold (about {usual:.1%} expected by "
                "chance); copies are paid at the expense of other owners.",
            )


def _find_complete_rows(held: Mask, columns: NDArray[np.intp]) -> Mask:
    return np.asarray(held[:, columns].all(axis=1))


def _separate_rows(one: Mask, other: Mask) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the rows that only one of two owners holds; a shared row is not a copy."""
    return _thin_out(np.flatnonzero(one & ~other)), _thin_out(np.flatnonzero(other & ~one))


def _thin_out(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return at most 20,000 rows, evenly spaced."""
    return rows[:: max(-(-len(rows) // _MOST_ROWS), 1)]


def _check_copied_columns(held: Mapping[str, Mask], cells: _Cells) -> Iterator[Finding]:
    holders = _list_holders(held)
    everyone = {name for name, mine in held.items() if mine.any()}
    found: dict[tuple[str, ...], list[tuple[float, int, int]]] = {}
    rows = _thin_out(np.arange(len(cells.numbers)))
    owned = np.flatnonzero([len(some) > 0 for some in holders])
    for one, other, alike in find_copied_columns(
        cells.numbers[rows], cells.known[rows], cells.categorical, owned
    ):
        concerned = tuple(dict.fromkeys(holders[one] + holders[other]))
        # If every owner holds both columns, no owner gains.
        if set(holders[one]) != everyone or set(holders[other]) != everyone:
            found.setdefault(concerned, []).append((alike, one, other))
    for concerned, pairs in found.items():
        alike, one, other = max(pairs, key=lambda pair: pair[0])
        more = f", and {len(pairs) - 1} more such pairs" if len(pairs) > 1 else ""
        yield Finding(
            "copied columns",
            concerned,
            alike,
            f"columns {cells.names[one]!r} and {cells.names[other]!r} ({join_names(concerned)}) "
            f"hold the same information (association {alike:.3f}{more}); a copied column is paid "
            "at the expense of other owners.",
        )


def _list_holders(held: Mapping[str, Mask]) -> list[tuple[str, ...]]:
    """Return, for each column, the owners who hold cells of it."""
    holds = np.array([mine.any(axis=0) for mine in held.values()])
    names = list(held)
    return [tuple(names[position] for position in np.flatnonzero(column)) for column in holds.T]


def _check_identity(held: Mapping[str, Mask], cells: _Cells) -> Iterator[Finding]:
    """Find pairs of owners of the same columns whose rows cannot be distinguished."""
    alike: dict[bytes, list[str]] = {}
    for name, mine in held.items():
        alike.setdefault(mine.any(axis=0).tobytes(), []).append(name)
    for names in alike.values():
        columns = np.flatnonzero(held[names[0]].any(axis=0))
        rows = [
            _thin_out(np.flatnonzero(_find_complete_rows(held[name], columns))) for name in names
        ]
        enough = [i for i, some in enumerate(rows) if len(some) >= _LEAST_ROWS_SEPARABLE]
        separability = _compute_separability(cells.numbers[:, columns], [rows[i] for i in enough])
        for (i, one), (j, other) in combinations(enumerate(enough), 2):
            if separability[i, j] <= _estimate_chance_area(len(rows[one]), len(rows[other])):
                yield Finding(
                    "one identity",
                    (names[one], names[other]),
                    float(separability[i, j]),
                    f"rows of {names[one]} and {names[other]} cannot be distinguished (area under "
                    f"the curve {separability[i, j]:.2f}); if they are one party, game='blocks' "
                    "pays it under both names.",
                )


def _compute_separability(numbers: Floats, parts: list[NDArray[np.intp]]) -> Floats:
    """Return, for each pair of parts, the area under the curve of a forest that predicts it."""
    from scipy.stats import rankdata
    from sklearn.ensemble import ExtraTreesClassifier
    from sklearn.model_selection import StratifiedKFold, cross_val_predict

    n_parts = len(parts)
    areas = np.ones((n_parts, n_parts))
    if n_parts < 2:
        return areas
    whose = np.repeat(np.arange(n_parts), [len(part) for part in parts])
    forest = ExtraTreesClassifier(50, min_samples_leaf=3, random_state=0)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    chances = cross_val_predict(
        forest, numbers[np.concatenate(parts)], whose, cv=folds, method="predict_proba"
    )
    for i, j in combinations(range(n_parts), 2):
        sides = [chances[whose == k, j] - chances[whose == k, i] for k in (i, j)]
        ranks = rankdata(np.concatenate(sides))[len(sides[0]) :]
        areas[i, j] = (ranks.mean() - (len(ranks) + 1) / 2) / len(sides[0])
    return areas


def _estimate_chance_area(n_one: int, n_other: int) -> float:
    """Return the area under the curve that chance reaches; it is larger for few rows."""
    return 0.5 + max(_LEAST_SEPARABLE, 2.0 * float(np.sqrt((1 / n_one + 1 / n_other) / 12)))


def _check_negative_values(holdings: Holdings, valuation: Valuation) -> Iterator[Finding]:
    errors = compute_owner_errors(valuation, holdings).together
    values = [float(exact) for exact in sum_owner_values(valuation, holdings)[0]]
    for name, value, error in zip(holdings.names, values, errors, strict=True):
        if value < 0:
            sure = "by more than two standard errors" if value + 2.0 * error < 0 else "within noise"
            yield Finding(
                "below zero",
                (name,),
                value,
                f"the cells of {name} have a negative value, {value:.4f} ({sure}): on average over "
                "coalitions, the model is better without them.",
            )


def _check_total(owners: Owners, valuation: Valuation) -> Iterator[Finding]:
    total, error = valuation.total, valuation.total_error
    # An unknown error (NaN) gives no finding.
    if abs(total) <= WIDTH_95 * error + estimate_rounding(valuation):
        low, high = total - WIDTH_95 * error, total + WIDTH_95 * error
        yield Finding(
            "within noise",
            tuple(owners.names),
            total,
            f"the total value of all cells, {total:.4g} (95% interval {low:.4g} to {high:.4g}), "
            "cannot be distinguished from 0; shares of it are noise.",
        )


def _check_harmful_owners(compared: Iterable[tuple[str, Comparison]]) -> Iterator[Finding]:
    for name, found in compared:
        low, high = found.interval
        if low > 0:
            yield Finding(
                "better without",
                (name,),
                found.change,
                f"the model is better without the cells of {name}: if they are shuffled, its score "
                f"({found.scoring}) changes by {found.change:+.4f} (95% interval {low:+.4f} to "
                f"{high:+.4f}).",
            )


def compare_without_each_owner(
    owners: Owners,
    model: Model,
    *,
    y: VectorLike,
    X_val: TableLike,
    y_val: VectorLike,
    scoring: Scoring = None,
) -> Iterator[tuple[str, Comparison]]:
    """Compare a model before and after each owner's cells are shuffled within their columns."""
    table = owners.table
    for name in owners.names:
        mine = owners.cells_of(name)
        if mine.any():
            shuffled = repair_cells(
                table.native, mine, how="values", values=_shuffle_cells(table, mine)
            )
            yield (
                name,
                compare_models(
                    model, table.native, y, X_repaired=shuffled, X_test=X_val, y_test=y_val,
                    scoring=scoring, n_repeats=N_SPLITS, progress=False,
                ),
            )  # fmt: skip


def _shuffle_cells(table: Table, mine: Mask) -> list[Any]:
    """Return the marked cells, row by row, permuted within their columns."""
    # The same draw for the same cells, for any other owners.
    rng = np.random.default_rng(0)
    values = np.empty(mine.shape, dtype=object)
    for position in np.flatnonzero(mine.any(axis=0)).tolist():
        rows = np.flatnonzero(mine[:, position])
        cells = _list_cells(table, position)
        for row, source in zip(rows.tolist(), rng.permutation(rows).tolist(), strict=True):
            values[row, position] = cells[source]
    return list(values[mine])


def _list_cells(table: Table, position: int) -> list[Any]:
    if isinstance(table.data, np.ndarray):
        return list(table.data[:, position].tolist())
    return list(table.data[:, position].to_list())


@dataclass(frozen=True, eq=False)
class OwnerRows:
    """Distinct rows of one owner, and which of them have a twin of the same owner."""

    points: Floats
    counts: Positions
    tree: Any
    has_twin: Mask

    @classmethod
    def of(cls, rows: Floats) -> OwnerRows:
        """Find twins among rows."""
        from scipy.spatial import KDTree

        points, counts = np.unique(rows, axis=0, return_counts=True)
        tree = KDTree(points)
        apart = tree.query(points, k=[2], p=np.inf, distance_upper_bound=_NEAR)[0].ravel()
        return cls(points, counts, tree, np.asarray((counts > 1) | np.isfinite(apart)))

    def __len__(self) -> int:
        return int(self.counts.sum())


def find_copied_rows(sides: Mapping[str, OwnerRows]) -> tuple[str, str, float, float] | None:
    """Return copier, source, share of copies and share expected by chance; None without copies."""
    found = []
    for copier, source in permutations(sides):
        share, usual = _compute_share_of_twins(sides[copier], sides[source])
        n_rows = (len(sides[name]) for name in (copier, source))
        if share > usual + _estimate_chance(usual, *n_rows):
            found.append((copier, source, share, usual))
    return max(found, key=lambda one: one[2] - one[3], default=None)


class OwnerRowsCache:
    """OwnerRows by rows and columns, each computed once."""

    def __init__(self, cells: Callable[[Positions, Positions], Floats]) -> None:
        self._cells = cells
        self._made: dict[tuple[bytes, bytes], OwnerRows] = {}

    def of(self, rows: Positions, columns: Positions) -> OwnerRows:
        """Return the rows of one owner, in the columns that are compared."""
        key = rows.tobytes(), columns.tobytes()
        if key not in self._made:
            self._made[key] = OwnerRows.of(self._cells(rows, columns))
        return self._made[key]


def _compute_share_of_twins(copier: OwnerRows, source: OwnerRows) -> tuple[float, float]:
    """Return the share of rows with a twin in the source, and the share expected by chance."""
    # Dense rows have twins by chance: as often as the source's rows among themselves, or as those
    # of them that are twins of the copier's rows, whichever share is larger.
    apart, nearest = source.tree.query(copier.points, p=np.inf, distance_upper_bound=_NEAR)
    found = np.isfinite(apart)
    crowded = np.append(source.has_twin, False)[nearest]
    nearby = np.average(crowded, weights=copier.counts)
    at_home = np.average(source.has_twin, weights=source.counts)
    return float(np.average(found, weights=copier.counts)), float(max(nearby, at_home))


def _estimate_chance(usual: float, n_copier: int, n_source: int) -> float:
    """Return the excess over the expected share that chance may reach."""
    # With few rows, a share of 0 does not mean that twins never occur.
    likely = (usual * n_source + 1.0) / (n_source + 2.0)
    # Similar rows are not independent: n rows count as about half as many.
    error = np.sqrt(likely * (1.0 - likely) * (2.0 / n_copier + 2.0 / n_source))
    return max(_MOST_TWINS, _WIDE * float(error))


def find_copied_columns(
    numbers: Floats, known: Mask, categorical: Mask, columns: Positions
) -> Iterator[tuple[int, int, float]]:
    """Yield pairs of columns with the same information, with their association."""
    if len(numbers) < _LEAST_ROWS:
        return
    by_rank = _correlate_ranks(numbers, known)
    comparable = _find_comparable(known)
    codes = [np.unique(column, return_inverse=True)[1].ravel() for column in numbers.T]
    for one, other in combinations(columns.tolist(), 2):
        if not comparable[one, other]:
            continue
        if categorical[[one, other]].any():
            both = known[:, one] & known[:, other]
            alike = _compute_shared_information(codes[one][both], codes[other][both])
        else:
            alike = float(by_rank[one, other])
        if alike >= _MOST_ALIKE:
            yield one, other, alike


def _find_comparable(known: Mask) -> Mask:
    """Return which columns share enough known rows: half of those of the sparser column."""
    counts = known.astype(np.float64)
    both = counts.T @ counts
    fewer = np.minimum.outer(np.diag(both), np.diag(both))
    return np.asarray((both >= _LEAST_ROWS) & (both >= fewer / 2))


def _correlate_ranks(numbers: Floats, known: Mask) -> Floats:
    """Return absolute rank correlations of columns, over rows in which both are known."""
    from scipy.stats import rankdata

    ranks = rankdata(np.where(known, numbers, np.nan), axis=0, nan_policy="omit")
    counts = np.maximum(known.sum(axis=0), 1)
    ranks = np.where(known, ranks - np.nansum(ranks, axis=0) / counts, 0.0)
    inside = known.astype(np.float64)
    both = np.maximum(inside.T @ inside, 1.0)
    # Means and sizes of a column's ranks over the rows in which the other is known too.
    sums = ranks.T @ inside
    squares = (ranks**2).T @ inside
    sizes = squares - sums**2 / both
    products = ranks.T @ ranks - sums * sums.T / both
    # A constant has no information; its remaining size is rounding.
    sizes = np.where(sizes > 1e-9 * squares, sizes, np.inf)
    found: Floats = np.abs(products) / np.sqrt(sizes * sizes.T)
    return found


def _compute_shared_information(one: NDArray[np.intp], other: NDArray[np.intp]) -> float:
    """Return the normalized information that two columns share; 1 if one renames the other."""
    from sklearn.metrics import normalized_mutual_info_score

    one, other = (np.unique(codes, return_inverse=True)[1].ravel() for codes in (one, other))
    levels = [int(codes.max()) + 1 for codes in (one, other)]
    # Constants, and identifiers that are nearly unique, have no shared information.
    if min(levels) == 1 or max(levels) > len(one) // 2:
        return 0.0
    if max(levels) <= _FEW_LEVELS:
        return float(normalized_mutual_info_score(one, other, average_method="max"))
    # Many levels share information by chance, but no one-to-one renaming occurs by chance.
    pairs = len(np.unique(one * levels[1] + other))
    return 1.0 if levels[0] == levels[1] == pairs else 0.0
