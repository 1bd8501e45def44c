"""The gate before money: what to look at before anybody is paid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.applications.shares import owner_errors, owner_values
from cellworth.blocks import Mask
from cellworth.neighbours.columns import GAP, CategoricalColumn, CodedColumn, read_column
from cellworth.owners import Owners, listed_names
from cellworth.tables import Table
from cellworth.valuation import Valuation

Floats = NDArray[np.float64]

# Rows are twins where every number is within this share of its column's spread, and all else equal.
_NEAR = 0.02
# Twins beyond what chance brings, as the share within one owner shows it.
_MOST_TWINS = 0.02
# Columns that tell as much about each other are copies.
_MOST_ALIKE = 0.95
# Rows that are told apart no better than this may be one party's.
_LEAST_TOLD_APART = 0.55
_MOST_ROWS = 20_000
_FEW_LEVELS = 50
_FAR = 1e9
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Finding:
    """One thing to look at before money is paid; it names no rows and no cells.

    Parameters
    ----------
    kind : str
        "copied rows", "copied columns", "one identity" or "below zero".
    owners : tuple of str
        Whom it concerns.
    figure : float
        How much: a share of rows, an association, an area under the curve, a value.
    sentence : str
    """

    kind: str
    owners: tuple[str, ...]
    figure: float
    sentence: str


def check_owners(owners: Owners, valuation: Valuation | None = None) -> list[Finding]:
    """Look for what makes a split unfair whatever the values are.

    Copies gain under every value that is symmetric and efficient, so they must be found before
    anything is valued: rows of one owner that are (nearly) those of another, columns that tell the
    same. With a valuation, owners whose cells are worth less than nothing are named as well; and
    where whole blocks were the players, pairs of owners whose rows cannot be told apart, because
    one who comes under two names is paid nearly twice there.

    Parameters
    ----------
    owners : Owners
    valuation : Valuation, default=None

    Returns
    -------
    list of Finding
        Empty where nothing was found.
    """
    cells = _Cells(owners.table)
    findings = [*_copied_rows(owners, cells), *_copied_columns(owners, cells)]
    if valuation is not None:
        findings += _below_zero(owners, valuation)
        if valuation.blocks.rows.grouped:
            findings += _one_identity(owners, cells)
    return findings


class _Cells:
    """Columns of a table as numbers: quantities in units of their spread, categories as codes."""

    def __init__(self, table: Table) -> None:
        read = [read_column(place, [table], None, "robust") for place in range(table.shape[1])]
        self.categorical = np.array([isinstance(c, CategoricalColumn | CodedColumn) for c in read])
        self.numbers = np.column_stack([_as_numbers(column) for column in read])

    def of(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
        """Cells of some rows, categories so far apart that different ones are never near."""
        scale = np.where(self.categorical[columns], _FAR, 1.0)
        return np.asarray(self.numbers[np.ix_(rows, columns)] * scale)


def _as_numbers(column: Any) -> Floats:
    cells = column.cells[0].astype(np.float64)
    if isinstance(column, CategoricalColumn | CodedColumn):
        return np.asarray(cells)
    scaled = cells * np.sqrt(column.weight)
    # A gap is like a gap and like nothing else.
    return np.where(np.isnan(cells), GAP * _FAR, scaled)


def _copied_rows(owners: Owners, cells: _Cells) -> Iterator[Finding]:
    held = {name: owners.cells_of(name) for name in owners.names}
    for one, other in combinations(owners.names, 2):
        columns = np.flatnonzero(held[one].any(axis=0) & held[other].any(axis=0))
        if len(columns) == 0:
            continue
        both = (_whole_rows(held[name], columns) for name in (one, other))
        rows = [np.flatnonzero(mine) for mine in _apart(*both)]
        if min(map(len, rows)) < 2:
            continue
        # The one with fewer rows is the one who may have copied.
        (few, copier), (many, source) = sorted(
            zip(rows, (one, other), strict=True), key=lambda side: len(side[0])
        )
        share, usual = _share_of_twins(cells, few, many, columns)
        if share > usual + max(_MOST_TWINS, 3.0 * np.sqrt(usual * (1.0 - usual) / len(few))):
            yield Finding(
                "copied rows",
                (copier, source),
                share,
                f"{share:.1%} of the rows of {copier} are copies, or nearly, of rows of {source} "
                f"in the {len(columns)} columns that both hold (within one owner {usual:.1%} have "
                "such a twin); copies gain at the cost of the others.",
            )


def _whole_rows(held: Mask, columns: NDArray[np.intp]) -> Mask:
    return np.asarray(held[:, columns].all(axis=1))


def _apart(one: Mask, other: Mask) -> tuple[Mask, Mask]:
    """Rows of each owner alone; a row that both hold is no copy."""
    return one & ~other, other & ~one


def _share_of_twins(
    cells: _Cells, few: NDArray[np.intp], many: NDArray[np.intp], columns: NDArray[np.intp]
) -> tuple[float, float]:
    """Share of rows that have a twin with the other owner, and how many have one at home."""
    from scipy.spatial import KDTree

    few, many = _some(few), _some(many)
    a, b = cells.of(few, columns), cells.of(many, columns)
    # Equal numbers of rows to find a twin among: more rows, more chances.
    home = KDTree(a), KDTree(b)
    across = home[1].query(a, p=np.inf, distance_upper_bound=_NEAR)[0] <= _NEAR
    at_home = [
        np.mean(tree.query(side, k=[2], p=np.inf, distance_upper_bound=_NEAR)[0] <= _NEAR)
        for tree, side in zip(home, (a, b), strict=True)
    ]
    return float(np.mean(across)), float(max(at_home))


def _some(rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """At most some thousand of many rows, evenly."""
    return rows[:: -(-len(rows) // _MOST_ROWS)]


def _copied_columns(owners: Owners, cells: _Cells) -> Iterator[Finding]:
    rows = _some(np.arange(owners.shape[0]))
    if len(rows) < 10:
        return
    names = owners.table.names.tolist()
    holders = [
        tuple(name for name in owners.names if owners.cells_of(name)[:, place].any())
        for place in range(len(names))
    ]
    numbers = cells.numbers[rows]
    for one, other in combinations(range(len(names)), 2):
        concerned = tuple(dict.fromkeys(holders[one] + holders[other]))
        if not holders[one] or not holders[other]:
            continue
        alike = _alikeness(numbers[:, one], numbers[:, other], cells.categorical[[one, other]])
        if alike >= _MOST_ALIKE:
            yield Finding(
                "copied columns",
                concerned,
                alike,
                f"columns {names[one]!r} and {names[other]!r} ({listed_names(concerned)}) tell the "
                f"same (association {alike:.3f}); a copied column gains at the cost of the others.",
            )


def _alikeness(one: Floats, other: Floats, categorical: Mask) -> float:
    """How much two columns tell about each other: 1 where one is the other in other words."""
    if categorical.any():
        few = all(len(np.unique(side)) <= _FEW_LEVELS for side in (one, other))
        return _shared_information(one, other) if few else 0.0
    from scipy.stats import rankdata

    ranks = np.array([rankdata(one), rankdata(other)])
    if (ranks.std(axis=1) == 0).any():
        return 0.0
    return float(abs(np.corrcoef(ranks)[0, 1]))


def _shared_information(one: Floats, other: Floats) -> float:
    from sklearn.metrics import normalized_mutual_info_score

    codes = [np.unique(side, return_inverse=True)[1].ravel() for side in (one, other)]
    # Two constants tell the same, and nothing.
    if min(code.max() for code in codes) == 0:
        return 0.0
    return float(normalized_mutual_info_score(*codes, average_method="max"))


def _one_identity(owners: Owners, cells: _Cells) -> Iterator[Finding]:
    held = {name: owners.cells_of(name) for name in owners.names}
    for one, other in combinations(owners.names, 2):
        columns = np.flatnonzero(held[one].any(axis=0))
        if not np.array_equal(columns, np.flatnonzero(held[other].any(axis=0))):
            continue
        rows = [np.flatnonzero(_whole_rows(held[name], columns)) for name in (one, other)]
        if min(map(len, rows)) < 20:
            continue
        told = _told_apart(cells.numbers[:, columns], _some(rows[0]), _some(rows[1]))
        if told <= _LEAST_TOLD_APART:
            yield Finding(
                "one identity",
                (one, other),
                told,
                f"rows of {one} and {other} cannot be told apart (area under the curve "
                f"{told:.2f}); if they are one party, a game of blocks pays it nearly twice.",
            )


def _told_apart(numbers: Floats, one: NDArray[np.intp], other: NDArray[np.intp]) -> float:
    """Area under the curve of a classifier that tells whose row it is, cross-validated."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.model_selection import cross_val_score

    X = numbers[np.concatenate([one, other])]
    y = np.repeat([0, 1], [len(one), len(other)])
    model = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    return float(np.mean(cross_val_score(model, X, y, cv=3, scoring="roc_auc")))


def _below_zero(owners: Owners, valuation: Valuation) -> Iterator[Finding]:
    holdings = owners.on(valuation.blocks)
    errors = owner_errors(valuation, holdings).together
    values = [float(exact) for exact in owner_values(valuation, holdings)[0]]
    nothing = _ROUNDING * max(map(abs, values))
    for name, value, error in zip(holdings.names, values, errors, strict=True):
        if value < -nothing:
            sure = "surely" if value + 2.0 * error < 0 else "perhaps by chance"
            yield Finding(
                "below zero",
                (name,),
                value,
                f"the cells of {name} are worth {value:.4f} ({sure}): the model is better without "
                "them.",
            )
