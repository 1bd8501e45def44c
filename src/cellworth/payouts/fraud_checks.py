"""Checks before money is paid: copied rows and columns, and owners who harm the model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask, Model, Positions, Scoring
from cellworth.data.owners import Owners, are_players
from cellworth.data.tables import HashedRows, Table, TableLike, VectorLike
from cellworth.findings.cells import check_valuation
from cellworth.findings.changed_cells import take_cells
from cellworth.findings.comparison import Comparison, compare_models
from cellworth.payouts.allocation import (
    OwnerValues,
    check_owners_type,
    check_same_table,
    estimate_rounding,
)
from cellworth.payouts.copies import (
    Cells,
    EqualSearch,
    Twins,
    TwinSearch,
    compare_with_reserve,
    find_copied_rows,
    find_repeated_rows,
    iter_pairs,
)
from cellworth.payouts.policy import has_joint_rows, join_names
from cellworth.sampling.moments import WIDTH_95
from cellworth.valuation.valuation import Valuation

# Owners are one party, perhaps, if the area under the curve exceeds 0.5 by less than this.
_MIN_SEPARABLE = 0.05
_MIN_ROWS_SEPARABLE = 20
_MAX_ROWS = 20_000
# Names of the sides of a comparison with validation rows, if no owner holds whole rows.
VALIDATION, ALL = "validation rows", "all owners"
# Kind of the finding for sharded tables, whose cells are not checked.
NOT_CHECKED = "not checked"
# Kind of the finding for a total that is not above 0 beyond noise.
WITHIN_NOISE = "within noise"
LEAKED = "leaked rows"
# Kind of the finding for an owner who is nearer to validation rows than to a reserve.
TOO_GOOD = "too good"
# Chance that one or more honest owners of a table are reported for this.
_CHANCE_TOO_GOOD = 0.01
# Least rows of an owner, and of all others, to compare validation rows with a reserve.
_MIN_ROWS_NEAR = 5
# Owners with negative values: beyond noise, and within noise.
BELOW_ZERO, PERHAPS_BELOW_ZERO = "below zero", "perhaps below zero"
# Findings that stop no payout.
NOTES = (NOT_CHECKED, PERHAPS_BELOW_ZERO)
RowValues = Mapping[str, Floats]
# Splits of the rows into halves: few, because there may be many owners.
N_SPLITS = 5
# Columns with at least this association count as copies.
_MAX_ALIKE = 0.95
_MIN_ROWS = 10
_FEW_LEVELS = 50


@dataclass(frozen=True)
class OwnerFinding:
    """A problem to resolve before money is paid; it names no rows and no cells.

    Parameters
    ----------
    kind : str
        "repeated rows" (within an owner), "copied rows" (between owners), "leaked rows" (of the
        validation set), "too good" (nearer to validation rows than to a reserve), "copied columns",
        "one identity", "below zero", "within noise", "better without"; notes that stop no payout
        are "perhaps below zero" and "not checked".
    owners : tuple of str
        Owners concerned.
    figure : float
        The size of the problem: a share of rows, an association, an area under the curve, a value,
        a total, a change of the score or a number of rows, depending on ``kind``.
    sentence : str
    stake : float or None, default=None
        Value of the first owner's rows that are copies, if single cells were valued.
    count : int or None, default=None
        Number of rows of the first owner that are copies, or of pairs of columns.

    See Also
    --------
    check_owners

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
    stake: float | None = None
    count: int | None = None


def check_owners(
    owners: Owners,
    valuation: Valuation | None = None,
    *,
    model: Model | None = None,
    y: VectorLike | None = None,
    X_val: TableLike | None = None,
    y_val: VectorLike | None = None,
    scoring: Scoring = None,
    reserve: tuple[TableLike, VectorLike] | None = None,
) -> list[OwnerFinding]:
    """Look for problems that make a split unfair.

    Copies are paid under every value that is symmetric and efficient, so they must be found before
    the split: rows of one owner that are copies of each other, of another owner's rows or of
    validation rows, exact or with small changes, and columns with the same information. Less than
    1% of honest pairs of owners are reported for copied rows.

    With a valuation, the checks also report owners with negative values and a total that is not
    above 0 beyond noise. If blocks were the players, they report pairs of owners whose rows cannot
    be distinguished: an owner under two names is paid for both.

    With a reserve, the checks report owners whose rows are nearer to validation rows than to rows
    of the reserve, more often than chance explains: someone who changed validation rows only
    slightly, and a few of them. At most 1% of tables of honest owners have such a finding.

    With a model, the checks report owners whose cells make the model worse.
    :func:`~cellworth.findings.compare_models` compares the table with one in which the owner's
    cells are shuffled within their columns. This takes 22 trainings for each owner, 20 of them on
    half of the rows.

    Parameters
    ----------
    owners : Owners
    valuation : Valuation, default=None
        If it was just fitted, its validation rows are known; if it was loaded, their hashes are,
        by which equal rows are found.
    model : classifier or regressor, default=None
        Needs ``y``, ``X_val`` and ``y_val`` as well.
    y : array-like of shape (n_rows,), default=None
        Labels of the owners' table.
    X_val : table, default=None
        Validation rows, none of the table's own; they are compared with the owners' rows.
    y_val : array-like, default=None
        Their labels, to score the model.
    scoring : str or callable, default=None
        As in :func:`~cellworth.findings.compare_models`; None means accuracy or R squared.
    reserve : tuple of a table and its labels, default=None
        Rows that were drawn together with the validation rows and that no owner can know, the more
        the better. Needs ``y``, ``X_val`` and ``y_val`` as well.

    Returns
    -------
    list of OwnerFinding
        Empty if there are none.

    See Also
    --------
    split_revenue, share_copies

    Examples
    --------
    >>> from cellworth import Owners
    >>> from cellworth.payouts import check_owners
    >>> X = [[i % 7, i % 5, i * i % 11] for i in range(30)]
    >>> owners = Owners(X + X).assign("ann", rows=slice(0, 30)).assign("bob", rows=slice(30, 60))
    >>> for finding in check_owners(owners):
    ...     print(finding.sentence.split(", ")[0])
    100.0% of the rows of ann have a twin among those of bob
    """
    check_owners_type(owners, empty_ok=True)
    valued = None
    if valuation is not None:
        check_valuation(valuation)
        check_same_table(owners, valuation)
        valued = OwnerValues(valuation, owners.project(valuation.blocks))
    data: dict[str, Any] = {"y": y, "X_val": X_val, "y_val": y_val}
    check_model_arguments(model, data, scoring, reserve)
    findings = run_checks(owners, valued, data, reserve)
    if model is not None:
        compared = compare_without_each_owner(owners, model, **data, scoring=scoring)
        findings += _check_harmful_owners(compared)
    return findings


def run_checks(
    owners: Owners,
    valued: OwnerValues | None,
    data: Mapping[str, Any],
    reserve: tuple[TableLike, VectorLike] | None = None,
) -> list[OwnerFinding]:
    """Run all checks that need no model."""
    valuation = None if valued is None else valued.valuation
    validation = _find_validation_rows(owners, valuation, data["X_val"])
    findings = _check_cells(owners, valuation, validation)
    if valued is not None:
        held_out = _was_held_out(valued.valuation)
        if not isinstance(validation, Table) and owners.sees_cells and held_out:
            findings.append(_report_leaks_not_checked(owners, known=validation is not None))
        findings += _check_negative_values(valued)
        findings += _check_total(valued)
    if reserve is not None:
        findings += _check_reserve(owners, valuation, data, reserve)
    return findings


def _find_validation_rows(
    owners: Owners, valuation: Valuation | None, X_val: TableLike | None
) -> Table | HashedRows | None:
    """Return the given validation rows, or those of the valuation: hashes if it was loaded."""
    if not owners.sees_cells:
        return None
    rows = None if valuation is None else valuation.held_out
    if X_val is not None:
        rows = Table.from_data(owners.features(X_val), called="X_val")
    return rows.align_to(owners.table, called="X_val") if isinstance(rows, Table) else rows


def _was_held_out(valuation: Valuation) -> bool:
    """Return whether a table was scored on validation rows apart from it."""
    return valuation.scores is not None and valuation.scores.n_folds == 1


def _check_cells(
    owners: Owners, valuation: Valuation | None, validation: Table | HashedRows | None
) -> list[OwnerFinding]:
    if not owners.sees_cells:
        return [_report_not_checked(owners)]
    cells = Cells(owners.table, *([validation] if isinstance(validation, Table) else []))
    search = TwinSearch(cells, len(owners.names))
    held = {name: owners.cells_of(name) for name in owners.names}
    row_values = _sum_own_rows(held, valuation)
    distinct = dict(held)
    findings = list(_check_repeated_rows(distinct, search, row_values))
    if owners.delivered is None:
        findings += _check_copied_rows(distinct, search, row_values)
    else:
        findings += _check_delivered_rows(owners, row_values)
    findings += _check_copied_columns(held, cells)
    if validation is not None and held:
        n_rows, seen = _find_leak_search(owners, search, validation)
        findings += _check_leaks(held, seen, cells.n_rows + np.arange(n_rows), row_values)
    if valuation is not None and has_joint_rows(valuation):
        findings += _check_identity(held, cells)
    return findings


def _find_leak_search(
    owners: Owners, search: TwinSearch, validation: Table | HashedRows
) -> tuple[int, TwinSearch | EqualSearch]:
    """Return the number of validation rows, and the search that knows them."""
    if isinstance(validation, Table):
        return validation.shape[0], search
    return len(validation), EqualSearch(owners.table, validation)


def _sum_own_rows(held: Mapping[str, Mask], valuation: Valuation | None) -> RowValues:
    """Return the values of each owner's rows, if single cells were valued."""
    if valuation is None or are_players(valuation.blocks):
        return {}
    if valuation.blocks.rows.grouped or valuation.blocks.columns.grouped:
        return {}
    # Who holds a cell together with others gets a part of its value.
    n_owners = np.maximum(np.sum(list(held.values()), axis=0), 1)
    return {
        name: np.where(mine, valuation.values[:, : mine.shape[1]] / n_owners, 0.0).sum(axis=1)
        for name, mine in held.items()
    }


def _report_not_checked(owners: Owners) -> OwnerFinding:
    return OwnerFinding(
        NOT_CHECKED,
        tuple(owners.names),
        float(owners.shape[0]),
        f"the {owners.shape[0]:,} rows were not checked for copies, because the table is sharded; "
        "run check_owners on a part of it in memory.",
    )


def _report_leaks_not_checked(owners: Owners, *, known: bool) -> OwnerFinding:
    """Say that validation rows are not at hand, or only their hashes are known."""
    what = "the rows were not checked for copies of validation rows"
    if known:
        what = "the rows were checked for validation rows that are equal, not for changed ones"
    return OwnerFinding(
        NOT_CHECKED,
        tuple(owners.names),
        0.0,
        f"{what}, because a saved valuation does not hold them; pass X_val as well.",
    )


def check_model_arguments(
    model: Model | None, data: Mapping[str, Any], scoring: Scoring, reserve: Any
) -> None:
    """Check that a model, or a reserve, comes with all that it needs."""
    given = [name for name, part in data.items() if part is not None]
    alone = [name for name in given if name != "X_val"] + ["scoring"] * (scoring is not None)
    if model is None and alone and (reserve is None or scoring is not None):
        name = alone[0] if reserve is None else "scoring"
        raise ValueError(
            f"{name} needs a model; pass model=, y=, X_val= and y_val=, or only X_val."
        )
    for name, part in (("model", model), ("reserve", reserve)):
        if part is not None and len(given) < len(data):
            missing = [one for one in data if one not in given]
            raise ValueError(
                f"{name} needs {join_names(missing)}; pass the labels of the owners' table as y, "
                "and rows to score on as X_val and y_val."
            )
    if reserve is not None and not (isinstance(reserve, tuple) and len(reserve) == 2):
        raise ValueError(
            f"reserve must be a table and its labels, (X, y), got {type(reserve).__name__}."
        )


def _check_reserve(
    owners: Owners,
    valuation: Valuation | None,
    data: Mapping[str, Any],
    reserve: tuple[TableLike, VectorLike],
) -> Iterator[OwnerFinding]:
    """Find owners who are nearer to validation rows than to a reserve, by the rule of Holm."""
    if not owners.sees_cells:
        return
    drawn = {"X_val": data["X_val"], "the table of reserve": reserve[0]}
    tables = [
        Table.from_data(owners.features(X), called=called).align_to(owners.table, called=called)
        for called, X in drawn.items()
    ]
    sizes = [owners.shape[0], *(table.shape[0] for table in tables)]
    labels = _read_labels([data["y"], data["y_val"], reserve[1]], sizes)
    held = {name: owners.cells_of(name) for name in owners.names}
    rows = {
        name: own
        for name, own in _list_own_rows(held).items()
        if _MIN_ROWS_NEAR <= len(own) <= sizes[0] - _MIN_ROWS_NEAR
    }
    near = compare_with_reserve(Cells(owners.table, *tables), labels, rows, sizes[1])
    row_values = _sum_own_rows(held, valuation)
    for n_before, name in enumerate(sorted(near, key=lambda one: near[one].chance)):
        found = near[name]
        if found.chance > _CHANCE_TOO_GOOD / (len(near) - n_before):
            return
        mine = row_values.get(name)
        yield OwnerFinding(
            TOO_GOOD,
            (name,),
            found.share,
            f"{found.share:.1%} of the validation rows, but {found.in_reserve:.1%} of the reserve, "
            f"are unusually near to rows of {name} (by chance with a probability of "
            f"{found.chance:.2g}); if it knew the validation rows, it is paid too much.",
            None if mine is None else float(mine[found.rows].sum()),
            len(found.rows),
        )


def _read_labels(given: Sequence[VectorLike], sizes: Sequence[int]) -> Positions:
    """Return codes of the labels of training, validation and reserve rows."""
    parts = [np.asarray(part).ravel() for part in given]
    for called, part, size in zip(("y", "y_val", "labels of reserve"), parts, sizes, strict=True):
        if len(part) != size:
            raise ValueError(f"{called} must have one label for each row, {size}, got {len(part)}.")
    return np.unique(np.concatenate(parts), return_inverse=True)[1].ravel()


def _check_repeated_rows(
    held: dict[str, Mask], search: TwinSearch, row_values: RowValues
) -> Iterator[OwnerFinding]:
    """Find twins within owners; they are then left out of the cells that owners hold."""
    for names, columns, rows in list(_group_by_columns(held)):
        for twins in find_repeated_rows(search, dict(zip(names, rows, strict=True)), columns):
            yield _report_twins("repeated rows", twins, row_values)
            # Their copies in the table of another owner are looked for once.
            held[twins.owner] = search.drop_repeats(held[twins.owner], columns)


def _check_copied_rows(
    held: Mapping[str, Mask], search: TwinSearch, row_values: RowValues
) -> Iterator[OwnerFinding]:
    for sides, shared in iter_pairs(held, _find_complete_rows):
        found = find_copied_rows(search, sides, shared)
        if found is not None:
            yield _report_twins("copied rows", found, row_values)


def _check_delivered_rows(owners: Owners, row_values: RowValues) -> Iterator[OwnerFinding]:
    """Find rows of another owner among the delivered ones, of which equal ones were merged."""
    delivered, merged = owners.delivered, owners.merged
    assert delivered is not None and merged is not None  # noqa: S101, PT018 (both or none)
    search = TwinSearch(Cells(delivered.table), len(delivered.names))
    held = {}
    for name in delivered.names:
        mine = delivered.cells_of(name)
        own = np.flatnonzero(mine.any(axis=1))
        # Copies of its own rows would make copies of others' look like chance.
        first = own[np.unique(merged[own], return_index=True)[1]]
        held[name] = mine & np.isin(np.arange(len(mine)), first)[:, np.newaxis]
    values = {name: of_rows[merged] for name, of_rows in row_values.items()}
    yield from _check_copied_rows(held, search, values)


def _report_twins(kind: str, twins: Twins, row_values: RowValues) -> OwnerFinding:
    alone = twins.owner == twins.source
    where = "its own rows" if alone else f"those of {twins.source}"
    return OwnerFinding(
        kind,
        (twins.owner,) if alone else (twins.owner, twins.source),
        twins.share,
        f"{twins.share:.1%} of the rows of {twins.owner} have a twin among {where}, "
        f"{_describe_twins(twins)}; copies are paid at the expense of other owners.",
        twins.add_up(row_values.get(twins.owner)),
        twins.count,
    )


def _describe_twins(twins: Twins) -> str:
    columns = "column" if twins.n_columns == 1 else f"{twins.n_columns} columns"
    return (
        f"equal or with small changes in the {columns} that are compared ({twins.equal:.1%} are "
        f"equal; {twins.expected:.1%} have one by chance)"
    )


def _check_leaks(
    held: Mapping[str, Mask],
    search: TwinSearch | EqualSearch,
    validation: Positions,
    row_values: RowValues,
) -> Iterator[OwnerFinding]:
    """Find twins of validation rows: for each owner of rows, or for all owners of columns."""
    columns = np.arange(search.n_columns)
    for name, rows in _list_own_rows(held).items():
        sides = {name: rows, VALIDATION: validation}
        twins = find_copied_rows(search, sides, columns)
        if twins is not None:
            yield _report_leak(twins, tuple(held) if name == ALL else (name,), row_values)


def _list_own_rows(held: Mapping[str, Mask]) -> dict[str, Positions]:
    """Return the rows of each owner who holds some, of which each cell has an owner.

    Columns of all rows may have other owners, who do not choose rows. If no one holds rows, all
    rows are those of all owners together.
    """
    owned = np.any(list(held.values()), axis=0).all(axis=1)
    rows = {name: np.flatnonzero(mine.any(axis=1) & owned) for name, mine in held.items()}
    of_rows = {name: own for name, own in rows.items() if 0 < len(own) < len(owned)}
    return of_rows or {ALL: np.flatnonzero(owned)}


def _report_leak(twins: Twins, concerned: tuple[str, ...], row_values: RowValues) -> OwnerFinding:
    whose = f"rows of {join_names(concerned)}"
    sides = [whose, "validation rows"]
    one, other = sides if twins.source == VALIDATION else sides[::-1]
    return OwnerFinding(
        LEAKED,
        concerned,
        twins.share,
        f"{twins.share:.1%} of the {one} have a twin among the {other}, {_describe_twins(twins)}; "
        "such rows are scored by themselves, so they are paid too much.",
        twins.add_up(row_values.get(twins.owner)),
        twins.count,
    )


def _find_complete_rows(held: Mask, columns: NDArray[np.intp]) -> Mask:
    return np.asarray(held[:, columns].all(axis=1))


def _thin_out(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return at most 20,000 rows, evenly spaced."""
    return rows[:: max(-(-len(rows) // _MAX_ROWS), 1)]


def _check_copied_columns(held: Mapping[str, Mask], cells: Cells) -> Iterator[OwnerFinding]:
    holders = _list_holders(held)
    everyone = {name for name, mine in held.items() if mine.any()}
    found: dict[tuple[str, ...], list[tuple[float, int, int]]] = {}
    rows = _thin_out(np.arange(cells.n_rows))
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
        yield OwnerFinding(
            "copied columns",
            concerned,
            alike,
            f"columns {cells.names[one]!r} and {cells.names[other]!r} ({join_names(concerned)}) "
            f"hold the same information (association {alike:.3f}{more}); a copied column is paid "
            "at the expense of other owners.",
            count=len(pairs),
        )


def _list_holders(held: Mapping[str, Mask]) -> list[tuple[str, ...]]:
    """Return, for each column, the owners who hold cells of it."""
    holds = np.array([mine.any(axis=0) for mine in held.values()])
    names = list(held)
    return [tuple(names[position] for position in np.flatnonzero(column)) for column in holds.T]


def _group_by_columns(
    held: Mapping[str, Mask],
) -> Iterator[tuple[list[str], Positions, list[Positions]]]:
    """Yield owners of the same columns, these columns, and the rows that are complete in them."""
    alike: dict[bytes, list[str]] = {}
    for name, mine in held.items():
        alike.setdefault(mine.any(axis=0).tobytes(), []).append(name)
    for names in alike.values():
        columns = np.flatnonzero(held[names[0]].any(axis=0))
        if len(columns):
            complete = (_find_complete_rows(held[name], columns) for name in names)
            yield names, columns, [np.flatnonzero(rows) for rows in complete]


def _check_identity(held: Mapping[str, Mask], cells: Cells) -> Iterator[OwnerFinding]:
    """Find pairs of owners of the same columns whose rows cannot be distinguished."""
    for names, columns, complete in _group_by_columns(held):
        rows = [_thin_out(some) for some in complete]
        enough = [i for i, some in enumerate(rows) if len(some) >= _MIN_ROWS_SEPARABLE]
        separability = _compute_separability(cells.numbers[:, columns], [rows[i] for i in enough])
        for (i, one), (j, other) in combinations(enumerate(enough), 2):
            if separability[i, j] <= _estimate_chance_area(len(rows[one]), len(rows[other])):
                yield OwnerFinding(
                    "one identity",
                    (names[one], names[other]),
                    float(separability[i, j]),
                    f"rows of {names[one]} and {names[other]} cannot be distinguished (area under "
                    f"the curve {separability[i, j]:.2f}); if they are one party, it is paid "
                    "under both names.",
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
    return 0.5 + max(_MIN_SEPARABLE, 2.0 * float(np.sqrt((1 / n_one + 1 / n_other) / 12)))


def _check_negative_values(valued: OwnerValues) -> Iterator[OwnerFinding]:
    errors = valued.errors.together
    for (name, value), error in zip(valued.by_name.items(), errors, strict=True):
        if value < 0:
            perhaps = bool(value + 2.0 * error >= 0)
            sure = "within noise" if perhaps else "by more than two standard errors"
            sure = "its error is not known" if np.isnan(error) else sure
            yield OwnerFinding(
                PERHAPS_BELOW_ZERO if perhaps else BELOW_ZERO,
                (name,),
                value,
                f"the cells of {name} have a negative value, {value:.4f} ({sure}): on average over "
                "coalitions, the model is better without them.",
            )


def _check_total(valued: OwnerValues) -> Iterator[OwnerFinding]:
    """Find a total of the owners' values that is not above 0 beyond noise."""
    total, error = _sum_with_error(valued)
    # An unknown error (NaN) gives no finding.
    if total <= WIDTH_95 * error + estimate_rounding(valued.valuation):
        low, high = total - WIDTH_95 * error, total + WIDTH_95 * error
        what = "is below 0" if high < 0 else "cannot be distinguished from 0"
        yield OwnerFinding(
            WITHIN_NOISE,
            valued.holdings.names,
            total,
            f"the total value of the owners' cells, {total:.4g} (95% interval {low:.4g} to "
            f"{high:.4g}), {what}; shares of it are noise.",
        )


def _sum_with_error(valued: OwnerValues) -> tuple[float, float]:
    """Return the sum of the owners' values with its error; that of all cells if not observed."""
    errors = valued.errors
    if not errors.observed:
        return valued.valuation.total, valued.valuation.total_error
    return float(sum(valued.sums[0])), float(np.sqrt(np.mean(errors.drawn.sum(axis=1) ** 2)))


def _check_harmful_owners(compared: Iterable[tuple[str, Comparison]]) -> Iterator[OwnerFinding]:
    for name, found in compared:
        low, high = found.interval
        if low > 0:
            yield OwnerFinding(
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
            shuffled = _shuffle_cells(table, mine).native
            yield (
                name,
                compare_models(
                    model, table.native, y, X_repaired=shuffled, X_test=X_val, y_test=y_val,
                    scoring=scoring, n_repeats=N_SPLITS, progress=False,
                ),
            )  # fmt: skip


def _shuffle_cells(table: Table, mine: Mask) -> Table:
    """Permute the marked cells within their columns."""
    # The same draw for the same cells, for any other owners.
    rng = np.random.default_rng(0)
    origins = np.tile(np.arange(table.shape[0])[:, None], table.shape[1])
    for position in np.flatnonzero(mine.any(axis=0)):
        rows = np.flatnonzero(mine[:, position])
        origins[rows, position] = rng.permutation(rows)
    return take_cells(table, origins)


def find_copied_columns(
    numbers: Floats, known: Mask, categorical: Mask, columns: Positions
) -> Iterator[tuple[int, int, float]]:
    """Yield pairs of columns with the same information, with their association."""
    if len(numbers) < _MIN_ROWS:
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
        if alike >= _MAX_ALIKE:
            yield one, other, alike


def _find_comparable(known: Mask) -> Mask:
    """Return which columns share enough known rows: half of those of the sparser column."""
    counts = known.astype(np.float64)
    both = counts.T @ counts
    fewer = np.minimum.outer(np.diag(both), np.diag(both))
    return np.asarray((both >= _MIN_ROWS) & (both >= fewer / 2))


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
