"""Single columns of a table and of a reference compared, and copies.

The p-values hold for ties and for few rows: they compare the two tables on sets of rows that are
computed from both tables together, without knowing which row is in which table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc, kolmogorov
from scipy.stats import chi2, hypergeom

from cellworth.data.arguments import MISSING, Floats, Integers, Mask, Positions
from cellworth.data.column import Column
from cellworth.data.equal_rows import find_first_equal
from cellworth.data.problem import read_target
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.data.text import format_number, shorten
from cellworth.findings.finding import NO_ROWS, Action, Finding, FindingKind
from cellworth.findings.levels import ColumnLevels, hash_rows
from cellworth.findings.table_checks import is_id

# Rows of each table that scores and the classifier use.
ROWS_DRAWN = 20_000
# So near to each other that one of them is mostly cells that the reference does not have.
_TAILS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05)
_RARE = (1, 3, 10, 30)
_MIN_OF_A_LEVEL, _MAX_LEVELS = 8, 200
_MIN_EXPECTED = 5.0
MIN_P = 1e-300
# Rows of a set are listed if it is at least this many times as frequent as in the reference.
_CLEAR = 5.0
_MAX_BINS = 10


@dataclass(frozen=True, eq=False)
class Check:
    """A comparison with the reference: its p-value, and the finding if it is an alarm."""

    about: str  # One finding is made of all alarms about the same thing
    weight: float
    p_value: float
    finding: Finding


@dataclass(frozen=True, eq=False)
class BothTables:
    """The rows of a table, then those of its reference, with levels that both share."""

    columns: list[ColumnLevels]
    label: ColumnLevels | None
    target: NDArray[Any] | None
    classes: NDArray[Any] | None
    is_new: Mask

    @classmethod
    def of(
        cls, table: Table, y: VectorLike | None, X_ref: TableLike, y_ref: VectorLike | None
    ) -> BothTables:
        """Read both tables."""
        other = table.align(X_ref, called="reference")
        columns = [
            ColumnLevels.of(_join(table.read(at), other.read(at))) for at in range(table.shape[1])
        ]
        is_new = np.arange(table.shape[0] + other.shape[0]) < table.shape[0]
        label, target, classes = None, None, None
        if y is not None and y_ref is not None:
            (new, in_new), (old, in_old) = read_target(y, table), read_target(y_ref, other)
            joined = _join(Column("the label", new), Column("the label", old))
            target, label = joined.cells, ColumnLevels.of(joined)
            is_measured = in_new is None or in_old is None
            if not is_measured or target.dtype.kind != "f":
                target, classes = label.codes, np.unique(label.codes)
        return cls(columns, label, target, classes, is_new)

    @cached_property
    def every_column(self) -> list[ColumnLevels]:
        """The columns, then the label if there is one."""
        return self.columns if self.label is None else [*self.columns, self.label]

    @cached_property
    def n_new(self) -> int:
        """Number of rows of the table."""
        return int(self.is_new.sum())

    @cached_property
    def n_ref(self) -> int:
        """Number of rows of the reference."""
        return len(self.is_new) - self.n_new

    def draw(self) -> BothTables:
        """Draw rows of both tables, in an order that does not depend on the order of rows."""
        order = np.lexsort((self.is_new, hash_rows(self.every_column)))
        order = order[np.random.default_rng(0).permutation(len(order))]
        sides = [order[self.is_new[order] == side][:ROWS_DRAWN] for side in (True, False)]
        chosen = order[np.isin(order, np.concatenate(sides))]
        return BothTables(
            [_take(column, chosen) for column in self.columns],
            None if self.label is None else _take(self.label, chosen),
            None if self.target is None else self.target[chosen],
            self.classes, self.is_new[chosen],
        )  # fmt: skip

    def test_sets(
        self, inside: Integers, inside_new: Integers, among: Mask | None = None
    ) -> Floats:
        """Return two-sided p-values for sets of so many rows, of which so many are new.

        They are exact if the sets, and the rows among which they are, do not depend on which rows
        are new.
        """
        n = len(self.is_new) if among is None else int(among.sum())
        n_new = self.n_new if among is None else int((among & self.is_new).sum())
        above = hypergeom.sf(inside_new - 1, n, inside, n_new)
        below = hypergeom.cdf(inside_new, n, inside, n_new)
        return np.asarray(np.clip(2.0 * np.minimum(above, below), MIN_P, 1.0))

    def test_set(self, mask: Mask, among: Mask | None = None) -> float:
        """Return the two-sided p-value for the number of new rows in a set."""
        counts = np.array([mask.sum()]), np.array([(mask & self.is_new).sum()])
        return float(self.test_sets(*counts, among)[0])

    def shares(self, mask: Mask) -> tuple[float, float]:
        """Return the share of a set in the table and in the reference."""
        return float(mask[self.is_new].mean()), float(mask[~self.is_new].mean())


def _join(new: Column, old: Column) -> Column:
    cells = [new.cells, old.cells]
    if new.kind != old.kind:
        # NumPy would convert numbers to strings.
        cells = [side.astype(object) for side in cells]
    return replace(new, cells=np.concatenate(cells))


def _take(column: ColumnLevels, rows: Positions) -> ColumnLevels:
    codes = column.codes[rows]
    counts = np.bincount(codes[codes >= 0], minlength=len(column.levels)).astype(np.int64)
    used = counts > 0
    ranks = np.append(np.cumsum(used) - 1, MISSING).astype(np.int32)
    found = replace(column, codes=ranks[codes], levels=column.levels[used], counts=counts[used])
    return found if found.integers is None else replace(found, integers=found.integers[used])


# Columns and their types


def compare_schemas(table: Table, other: Table) -> Iterator[Finding]:
    """Yield columns that only one table has, and those of numbers in one and text in the other."""
    new, old = table.names.tolist(), other.names.tolist()
    for name in old:
        if name not in new:
            sentence = f"The column {name} of the reference is missing."
            yield _make_certain((), sentence, "add it, or drop it from the reference")
    for name in new:
        if name not in old:
            sentence = f"The reference has no column {name}."
            yield _make_certain((str(name),), sentence, "drop it, or add it to the reference")
    for name in new:
        if name in old:
            here, there = table.read(new.index(name)), other.read(old.index(name))
            yield from _compare_kinds(here, there)


def _compare_kinds(here: Column, there: Column) -> Iterator[Finding]:
    """Yield that a column of numbers was one of text, or the other way round."""
    if here.is_quantity == there.is_quantity:
        return
    new, old = ColumnLevels.of(here), ColumnLevels.of(there)
    if min(new.n_known, old.n_known) and (new.kind == "text") != (old.kind == "text"):
        shown = f"text such as {_show(new, 0)}" if new.kind == "text" else f"{new.kind}s"
        were = "text" if old.kind == "text" else f"{old.kind}s"
        sentence = f"{new.name} holds {shown}; in the reference, {were}."
        yield _make_certain((new.name,), sentence, "convert it")


def _make_certain(columns: tuple[str, ...], sentence: str, action: str) -> Finding:
    return Finding("schema", columns, NO_ROWS, sentence, Action("check", text=action), 0.0)


# Single columns


def compare_column(both: BothTables, column: ColumnLevels, weight: float) -> Iterator[Check]:
    """Yield the checks of one column: missing values, its distribution, levels, tails."""
    missing = column.codes == MISSING
    new = np.bincount(column.codes[both.is_new & ~missing], minlength=len(column.levels))
    here, there = both.shares(missing)
    are_missing = make_finding(
        "missing values", column,
        f"{column.name} is missing in {here:.2%} of rows; in the reference, in {there:.2%}.",
        _list_rows(both, missing), "find out why they are missing",
    )  # fmt: skip
    found = [
        (f"{column.name}: missing", both.test_set(missing), are_missing),
        (column.name, *_compare_distributions(column, new)),
        (column.name, *_compare_levels(both, column, new)),
        (column.name, *_compare_rare(both, column)),
    ]
    if column.kind != "text":
        found.append((column.name, *_compare_tails(both, column)))
    for about, p_value, finding in found:
        yield Check(about, weight / len(found), p_value, finding)


def make_finding(
    kind: FindingKind, column: ColumnLevels | None, sentence: str, rows: Positions = NO_ROWS,
    action: str = "find out what changed, or take a new reference",
) -> Finding:  # fmt: skip
    """Return a finding about a column, or about the label."""
    columns = () if column is None or column.name == "the label" else (column.name,)
    if column is not None and not columns:
        kind = "label drift"
    text = sentence[:1].upper() + sentence[1:] if not columns else sentence
    return Finding(kind, columns, rows, text, Action("check", text=action), 1.0)


def _list_rows(both: BothTables, mask: Mask) -> Positions:
    """Return the new rows of a set that the reference hardly has."""
    here, there = both.shares(mask)
    return np.flatnonzero(mask & both.is_new) if here >= _CLEAR * there else NO_ROWS


def _compare_distributions(column: ColumnLevels, new: Integers) -> tuple[float, Finding]:
    """Compare all contents: Kolmogorov-Smirnov for numbers, chi-square for categories."""
    old = column.counts - new
    if min(new.sum(), old.sum()) == 0:
        return 1.0, make_finding("drift", column, "")
    is_text, here, there = column.kind == "text", new / new.sum(), old / old.sum()
    p_value = compute_counts_p_value(new, old) if is_text else compute_order_p_value(new, old)
    most, level = int(new.argmax()), int(np.abs(here - there).argmax())
    is_constant = here[most] == 1 and (old > 0).sum() > 1
    if is_constant:
        sentence = (
            f"{column.name} is {_show(column, most)} in every row; in the reference, in "
            f"{there[most]:.1%}."
        )
    elif is_text:
        sentence = (
            f"{_show(column, level)} is {here[level]:.1%} of {column.name}; in the reference, "
            f"{there[level]:.1%}."
        )
    else:
        middles = [np.searchsorted(np.cumsum(side), 0.5 * side.sum()) for side in (new, old)]
        shown = [_show(column, int(level)) for level in middles]
        away = float(np.abs(np.cumsum(here - there)).max())
        sentence = (
            f"{column.name} has another distribution: median {shown[0]}, in the reference "
            f"{shown[1]}; the shares below a number differ by up to {away:.1%}."
        )
    kind: FindingKind = "constant column" if is_constant else "drift"
    return p_value, make_finding(kind, column, sentence)


def compute_order_p_value(new: NDArray[Any], old: NDArray[Any]) -> float:
    """Return the p-value of Kolmogorov and Smirnov for counts of ascending levels.

    The limiting distribution for numbers without ties is an upper limit with ties.
    """
    n_new, n_old = new.sum(), old.sum()
    distance = np.abs(np.cumsum(new / n_new - old / n_old)).max()
    p_value = kolmogorov(distance * np.sqrt(n_new * n_old / (n_new + n_old)))
    return float(np.clip(p_value, MIN_P, 1.0))


def compute_counts_p_value(new: NDArray[Any], old: NDArray[Any]) -> float:
    """Return the chi-square p-value for counts of levels, the rare ones taken together."""
    total = (new + old).astype(np.float64)
    share = min(new.sum(), old.sum()) / max(total.sum(), 1.0)
    rare = total * share < _MIN_EXPECTED
    sides = [np.append(side[~rare], side[rare].sum()).astype(np.float64) for side in (new, old)]
    total = sides[0] + sides[1]
    kept = total * share >= _MIN_EXPECTED
    if kept.sum() < 2:
        return 1.0
    sides, total = [side[kept] for side in sides], total[kept]
    expected = [total * side.sum() / total.sum() for side in sides]
    statistic = sum(
        float(((side - mean) ** 2 / mean).sum()) for side, mean in zip(sides, expected, strict=True)
    )
    return float(np.clip(chi2.sf(statistic, int(kept.sum()) - 1), MIN_P, 1.0))


def _show(column: ColumnLevels, level: int) -> str:
    content = column.levels[level]
    if not isinstance(content, str):
        return format_number(float(content), column.kind)
    return repr(shorten(content, 40))


def _compare_levels(both: BothTables, column: ColumnLevels, new: Integers) -> tuple[float, Finding]:
    """Compare the frequency of single contents."""
    tried = np.argsort(-column.counts, kind="stable")[:_MAX_LEVELS]
    tried = tried[column.counts[tried] >= _MIN_OF_A_LEVEL]
    if len(tried) == 0:
        return 1.0, make_finding("drift", column, "")
    p_values = both.test_sets(column.counts[tried], new[tried], column.codes != MISSING)
    level = int(tried[p_values.argmin()])
    p_value = min(1.0, float(p_values.min()) * len(tried))
    mask = column.codes == level
    here, there = both.shares(mask)
    if there == 0:
        sentence = (
            f"{_show(column, level)} in {new[level]:,} cells of {column.name} is in none of "
            f"{both.n_ref:,} reference rows."
        )
        rows = np.flatnonzero(mask & both.is_new)
        return p_value, make_finding("new content", column, sentence, rows, "check or correct them")
    sentence = (
        f"{_show(column, level)} is {here:.2%} of {column.name}; in the reference, {there:.2%}."
    )
    return p_value, make_finding("drift", column, sentence, _list_rows(both, mask))


def _compare_rare(both: BothTables, column: ColumnLevels) -> tuple[float, Finding]:
    """Ask whether more cells have contents that are rare in both tables together."""
    best, finding = 1.0, make_finding("new content", column, "")
    for most in _RARE:
        mask = np.append(column.counts <= most, False)[column.codes]
        p_value = both.test_set(mask, column.codes != MISSING)
        here, there = both.shares(mask)
        if p_value < best and here > there:
            best = p_value
            have = "no other row has" if most == 1 else f"at most {most} rows of both tables have"
            sentence = (
                f"{here:.2%} of cells of {column.name} have a content that {have}; in the "
                f"reference, {there:.2%}."
            )
            finding = make_finding("new content", column, sentence, _list_rows(both, mask))
    return min(1.0, best * len(_RARE)), finding


def _compare_tails(both: BothTables, column: ColumnLevels) -> tuple[float, Finding]:
    """Compare the number of the smallest and of the largest numbers."""
    best, finding = 1.0, make_finding("drift", column, "")
    ends, known = np.cumsum(column.counts), column.codes != MISSING
    for share in _TAILS:
        low = int(np.searchsorted(ends, share * column.n_known, side="right"))
        high = int(np.searchsorted(ends, (1 - share) * column.n_known, side="left")) + 1
        for first, last in ((0, low), (high, len(ends))):
            mask = (column.codes >= first) & (column.codes < last)
            p_value = both.test_set(mask, known) if first < last else 1.0
            if p_value < best:
                best = p_value
                edge = format_number(column.levels[first or last - 1], column.kind)
                here, there = both.shares(mask)
                finding = make_finding(
                    "drift", column,
                    f"{here:.2%} of rows have {column.name} of at {'least' if first else 'most'} "
                    f"{edge}; in the reference, {there:.2%}.",
                    _list_rows(both, mask), "check the unit, and correct them",
                )  # fmt: skip
    return min(1.0, best * 2 * len(_TAILS)), finding


# Copies, and a column with the label


def compare_copies(both: BothTables, weight: float) -> Check:
    """Compare the number of copies with that in random shares of all rows, which is Poisson."""
    used = [column for column in both.columns if not is_id(column)]
    hashes = hash_rows(used) if used else np.arange(len(both.is_new))
    copies = np.flatnonzero(find_first_equal(hashes[both.is_new]) != np.arange(both.n_new))
    sizes = np.unique(hashes, return_counts=True)[1]
    mean, variance = expect_copies(sizes[sizes > 1], both.n_new / len(both.is_new))
    unit = max(1.0, variance / max(mean, 1e-9))
    p_value = float(gammainc(len(copies) / unit, mean / unit)) if len(copies) else 1.0
    finding = Finding(
        "repeated rows", tuple(column.name for column in used), copies,
        f"{len(copies):,} rows repeat an earlier row; {mean:,.0f} would if rows were distributed "
        "at random between table and reference.",
        Action("drop rows", text="drop the copies"), 1.0,
    )  # fmt: skip
    return Check("copies", weight, max(p_value, MIN_P), finding)


def expect_copies(sizes: Integers, share: float) -> tuple[float, float]:
    """Return mean and variance of the copies in a share of rows, for groups of equal rows."""
    none = (1.0 - share) ** sizes
    rows = sizes * share
    means = rows - 1.0 + none
    squares = rows * (1.0 - share) + (rows - 1.0) ** 2 - none
    return float(means.sum()), float((squares - means**2).sum())


def compare_pair(
    both: BothTables, column: ColumnLevels, label: ColumnLevels, weight: float
) -> Check:
    """Compare how contents and labels occur together."""
    bins, labels = _bin(column), _bin(label)
    n_labels = int(labels.max()) + 1
    cells = bins * n_labels + labels
    new, old = (np.bincount(cells[both.is_new == s], minlength=cells.max() + 1) for s in (1, 0))
    p_value = compute_counts_p_value(new, old)
    if both.classes is None or len(both.classes) < 2:
        sentence = f"{column.name} and the label go together otherwise than in the reference."
        finding = make_finding("label drift", column, sentence)
        return Check(f"{column.name}: label", weight, p_value, finding)
    counts = [np.append(side, np.zeros(-len(side) % n_labels)) for side in (new, old)]
    here, there = (side.reshape(-1, n_labels).max(axis=1).sum() / side.sum() for side in counts)
    is_leak = 1 - here < 0.5 * (1 - there)
    sentence = f"{column.name} alone predicts {here:.1%} of labels; in the reference, {there:.1%}."
    action = (
        "drop it if it is known only once the label is" if is_leak else "check cells and labels"
    )
    finding = make_finding("leak" if is_leak else "label drift", column, sentence, action=action)
    return Check(f"{column.name}: label", weight, p_value, finding)


def _bin(column: ColumnLevels) -> Integers:
    """Return bins: intervals of numbers, frequent levels and the rest, and missing values."""
    if len(column.levels) == 0:
        return np.zeros(column.n_rows, dtype=np.int64)
    if len(column.levels) <= _MAX_BINS:
        bins = np.arange(len(column.levels))
    elif column.kind == "text":
        ranks = np.argsort(np.argsort(-column.counts, kind="stable"), kind="stable")
        bins = np.minimum(ranks, _MAX_BINS - 1)
    else:
        bins = (np.cumsum(column.counts) - 1) * _MAX_BINS // column.n_known
    return np.append(bins, bins.max() + 1).astype(np.int64)[column.codes]
