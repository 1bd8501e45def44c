"""Checks across columns: dependencies, repeated rows, leaks, constant and id-like columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Integers, Mask, Positions
from cellworth.data.equal_rows import find_first_equal
from cellworth.data.text import format_count, format_number, list_first, preview
from cellworth.findings.finding import Action, Finding, FindingKind
from cellworth.findings.levels import ColumnLevels, draw_rows, hash_cells, hash_rows
from cellworth.findings.number_checks import are_names
from cellworth.findings.text_checks import simplify_text

_MIN_IDS, _NAMED = 20, 5
_SHARE_OF_IDS = 0.99
_NOTHING: Positions = np.zeros(0, dtype=np.intp)
# Rows from which dependencies are guessed; they are then counted on all rows.
_ROWS_TRIED = 20_000
_PAIRS_TRIED, _MIN_PAIRS, _MIN_AGREEMENT = 500, 20, 0.75
_MAX_VIOLATIONS = 0.08
# At least this share of rows must be in groups of several rows.
_MIN_COVERED = 0.5
_MIN_OTHERS = 2
# Share of the other rows of a group that must agree.
_AGREEMENT = 0.75
# A dependency must miss so much less often than the most frequent level of the column does.
_MIN_LIFT = 3.0
# Cells that the most frequent level would miss and a key does not.
_MIN_DETERMINED = 20
_MIN_LEVELS = 3
# Columns in which near copies agree least by chance, which tell them from coincidence.
_N_TELLING, _N_MOST_TELLING = 8, 3
_MIN_COLUMNS = 3
# Near copies must be this many times as many as chance makes, and in at most this share of rows.
_TIMES_CHANCE, _MAX_NEAR = 20.0, 0.2


def check_columns(columns: Sequence[ColumnLevels]) -> Iterator[Finding]:
    """Yield columns that tell a model nothing, or name rows; one finding for all of a kind."""
    empty = [column for column in columns if column.n_known == 0 and not column.strays]
    constant = [
        column for column in columns if len(column.levels) == 1 and column.n_known == column.n_rows
    ]
    ids = [column for column in columns if is_id(column)]
    yield from _describe_columns("empty column", empty, "no value in any row", 0.0)
    yield from _describe_columns("constant column", constant, "the same content in all rows", 0.0)
    yield from _describe_columns("id column", ids, "another content in every row", 0.2)


def _describe_columns(
    kind: FindingKind, columns: Sequence[ColumnLevels], what: str, false_rate: float
) -> Iterator[Finding]:
    if columns:
        names = tuple(column.name for column in columns)
        listed = list_first(names, _NAMED)
        has, column = ("has", "the column") if len(names) == 1 else ("have", "the columns")
        action = Action("drop columns", text=f"drop {column} before you train a model")
        yield Finding(kind, names, _NOTHING, f"{listed} {has} {what}.", action, false_rate)


def is_id(column: ColumnLevels) -> bool:
    """Return whether contents are all different, and are strings or integers."""
    if column.n_known < _MIN_IDS or len(column.levels) < _SHARE_OF_IDS * column.n_known:
        return False
    if column.kind == "text":
        return True
    return are_names(column)


def is_name(column: ColumnLevels) -> bool:
    """Return whether contents name rows or things, so that none is more usual than another."""
    return is_id(column) or are_names(column)


def find_repeated_rows(columns: Sequence[ColumnLevels]) -> Iterator[Finding]:
    """Yield rows that repeat an earlier one, id-like columns left out."""
    used = [column for column in columns if not is_id(column)]
    if not used or columns[0].n_rows < 2:
        return
    copies = np.flatnonzero(find_first_equal(hash_rows(used)) != np.arange(columns[0].n_rows))
    if len(copies):
        expected = _expect_copies(used)
        without = [column.name for column in columns if is_id(column)]
        but = f", {preview(without)} left out" if without else ""
        yield Finding(
            "repeated rows", tuple(column.name for column in used), copies,
            f"{format_count(len(copies), 'row repeats', 'rows repeat')} an earlier row{but}.",
            Action("drop rows", text="drop the copies, unless they are separate observations"),
            expected / (expected + 0.2 * len(copies)),
        )  # fmt: skip


def _expect_copies(columns: Sequence[ColumnLevels]) -> float:
    """Return how many rows chance would repeat if the columns were independent, at least."""
    n_rows = columns[0].n_rows
    logarithm = sum(float(np.log(_chance_of_agreement(column))) for column in columns)
    return float(min(n_rows, np.exp(min(logarithm + 2 * np.log(n_rows), 50.0)) / 2))


def _chance_of_agreement(column: ColumnLevels) -> float:
    """Return the probability that two cells of a column are equal."""
    shares = column.counts / column.n_rows
    missing = 1.0 - column.n_known / column.n_rows
    return float((shares**2).sum() + missing**2)


def find_near_copies(columns: Sequence[ColumnLevels]) -> Iterator[Finding]:
    """Yield rows that repeat an earlier one but for one cell, or for spelling and rounding."""
    used = [column for column in columns if not is_id(column)]
    if len(used) < _MIN_COLUMNS:
        return
    found = {used[j].name: rows for j, rows in RowSums(used).find_pairs().items()}
    if found:
        names, sizes = tuple(found), [len(rows) for rows in found.values()]
        yield Finding(
            "near copies", names, np.concatenate(list(found.values())),
            f"{format_count(sum(sizes), 'row repeats', 'rows repeat')} an earlier row but for a "
            f"cell of {preview(names)}.",
            Action("check", text="check whether one of both is a wrong copy"), 0.3,
            positions=np.repeat(np.arange(len(sizes)), sizes),
        )  # fmt: skip
    simple = [_simplify_levels(column) for column in used]
    is_same = all(len(a.levels) == len(b.levels) for a, b in zip(used, simple, strict=True))
    rows = _NOTHING if is_same else RowSums(used, simple).find_later_rows(())
    if len(rows):
        yield Finding(
            "near copies", tuple(column.name for column in used), rows,
            f"{format_count(len(rows), 'row repeats', 'rows repeat')} an earlier row but for "
            "spelling or rounding.",
            Action("drop rows", text="drop the copies, unless they are separate observations"),
            0.2,
        )  # fmt: skip


def _simplify_levels(column: ColumnLevels) -> ColumnLevels:
    """Return a column whose levels are equal if they differ in case, blanks or rounding only."""
    if column.kind == "text":
        levels = np.array([simplify_text(text) for text in column.strings], dtype=object)
    elif column.kind == "number" and np.any(column.levels != np.floor(column.levels)):
        # Three digits of the largest number.
        largest = float(np.abs(column.levels).max())
        levels = np.round(column.levels, 2 - int(np.floor(np.log10(largest))))
    else:
        return column
    own, codes = np.unique(levels, return_inverse=True)
    counts = np.bincount(codes, column.counts, minlength=len(own)).astype(np.int64)
    of_rows = np.append(codes, MISSING)[column.codes].astype(np.int32)
    return replace(column, codes=of_rows, levels=own, counts=counts)


class RowSums:
    """Hashes of distinct rows, of which columns can be left out, and how many agree by chance.

    If ``validation`` is given, only pairs of a row and a validation row count.
    """

    def __init__(
        self,
        columns: Sequence[ColumnLevels],
        compared: Sequence[ColumnLevels] | None = None,
        validation: Sequence[ColumnLevels] | None = None,
    ) -> None:
        self._sides = [compared or columns, *([] if validation is None else [validation])]
        totals = np.concatenate([hash_rows(side) for side in (columns, *self._sides[1:])])
        self._rows = np.sort(np.unique(totals, return_index=True)[1])
        self._n_own = columns[0].n_rows
        self._is_own: Mask = self._rows < self._n_own
        self._total = self._hash() if compared else totals[self._rows]
        self._n_columns = len(columns)
        self._counts: dict[tuple[int, ...], float] = {}

    def find_pairs(self) -> dict[int, Positions]:
        """Return for each column the later rows of pairs that differ in it alone.

        Columns in which chance makes such pairs are left out.
        """
        found = {j: self.find_later_rows((j,)) for j in range(self._n_columns)}
        return {j: rows for j, rows in found.items() if len(rows)}

    def find_later_rows(self, left_out: tuple[int, ...]) -> Positions:
        """Return rows, or validation rows, that agree with an earlier one; none if by chance."""
        n_pairs = self._count(left_out)
        if n_pairs == 0:
            return _NOTHING
        hashes = self._without(left_out)
        first = find_first_equal(hashes)
        later: Mask = first != np.arange(len(hashes))
        if len(self._sides) > 1:
            # The first one is a row of the table if there is any.
            later = later & ~self._is_own & self._is_own[first]
        if later.sum() > max(_MAX_NEAR * len(hashes), 1):
            return _NOTHING
        rows = self._rows[later]
        by_chance = any(
            n_pairs < _TIMES_CHANCE * expected for expected in self._expect_pairs(left_out, rows)
        )
        return _NOTHING if by_chance else rows

    def _expect_pairs(self, left_out: tuple[int, ...], rows: Positions) -> Iterator[float]:
        """Yield how many pairs chance makes, from pairs that differ in one more column.

        By chance, that column would agree in the share of them that the contents of ``rows`` have
        in the table.
        """
        chances = self._measure_chances(rows)
        others = [int(i) for i in np.argsort(chances, kind="stable") if i not in left_out]
        for rank, other in enumerate(others[:_N_TELLING]):
            alone = self._count((other,)) if left_out else 0.0
            both = self._count((*left_out, other)) - self._count(left_out) - alone
            chance = min(chances[other], 1 - 1e-9)
            # One more for the most telling ones: none in this table need not be none in others.
            yield (both + (rank < _N_MOST_TELLING)) * chance / (1 - chance)

    def _measure_chances(self, rows: Positions) -> list[float]:
        """Return for each column how large a share of all rows has the contents of some rows."""
        chances, first = [], self._n_own if len(self._sides) > 1 else 0
        for position in range(self._n_columns):
            # Later rows are those of the last table.
            column = self._sides[-1][position]
            known = column.counts / column.n_rows
            shares = np.append(known, 1.0 - known.sum())
            chances.append(float(shares[column.codes[rows - first]].mean()))
        return chances

    def _count(self, left_out: tuple[int, ...]) -> float:
        """Count pairs of rows that agree in all other columns."""
        key = tuple(sorted(left_out))
        if key not in self._counts:
            hashes = self._without(key)
            n_pairs = _count_pairs(hashes)
            if len(self._sides) > 1:
                n_pairs -= _count_pairs(hashes[self._is_own]) + _count_pairs(hashes[~self._is_own])
            self._counts[key] = n_pairs
        return self._counts[key]

    def _without(self, left_out: tuple[int, ...]) -> NDArray[np.uint64]:
        hashes = self._total
        for position in left_out:
            cells = [hash_cells(side[position], position) for side in self._sides]
            hashes = hashes - np.concatenate(cells)[self._rows]
        return hashes

    def _hash(self) -> NDArray[np.uint64]:
        return np.concatenate([hash_rows(side) for side in self._sides])[self._rows]


def _count_pairs(hashes: NDArray[np.uint64]) -> float:
    ordered = np.sort(hashes)
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(np.append(starts, len(ordered))).astype(np.float64)
    return float((sizes * (sizes - 1)).sum() / 2)


def find_shared_rows(
    columns: Sequence[ColumnLevels],
    validation: Sequence[ColumnLevels],
    labels: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> Iterator[Finding]:
    """Yield rows of X that are also validation rows; labels are those of both tables."""
    pairs = [(a, b) for a, b in zip(columns, validation, strict=True) if not is_id(a)]
    if not pairs:
        return
    ours, theirs = (hash_rows([pair[side] for pair in pairs]) for side in (0, 1))
    rows = np.flatnonzero(np.isin(ours, theirs))
    shared = np.flatnonzero(np.isin(theirs, ours))
    own = [pair[0] for pair in pairs]
    names = tuple(column.name for column in own)
    if len(shared):
        expected = _expect_copies(own) * 2 * len(theirs) / max(len(ours), 1)
        but = (
            "" if labels is None else _describe_contradictions(ours, theirs[shared], labels, shared)
        )
        yield Finding(
            "validation rows in X", names, rows,
            f"{len(shared):,} of {len(theirs):,} validation rows are also in X{but}.",
            Action("drop rows", text="drop them from X, or the scores are too good"),
            expected / (expected + 0.2 * len(shared)),
        )  # fmt: skip


def find_nearly_shared_rows(
    columns: Sequence[ColumnLevels], validation: Sequence[ColumnLevels]
) -> Iterator[Finding]:
    """Yield validation rows that are rows of X but for one cell."""
    pairs = [(a, b) for a, b in zip(columns, validation, strict=True) if not is_id(a)]
    if len(pairs) < _MIN_COLUMNS:
        return
    near = RowSums([pair[0] for pair in pairs], validation=[pair[1] for pair in pairs]).find_pairs()
    if near:
        n_near = len(np.unique(np.concatenate(list(near.values()))))
        names = tuple(pair[0].name for pair in pairs)
        yield Finding(
            "validation rows in X", names, _NOTHING,
            f"{n_near:,} of {validation[0].n_rows:,} validation rows are also in X but for one "
            f"cell ({preview([names[j] for j in near])}).",
            Action("check", text="check whether they are copies; then the scores are too good"),
            0.3,
        )  # fmt: skip


def _describe_contradictions(
    ours: NDArray[np.uint64],
    theirs: NDArray[np.uint64],
    labels: tuple[NDArray[Any], NDArray[Any]],
    shared: Positions,
) -> str:
    """Say how many shared validation rows have a label that no equal row of X has."""
    values, codes = np.unique(np.concatenate([labels[0], labels[1][shared]]), return_inverse=True)
    cells = np.concatenate([ours, theirs])
    both = cells * np.uint64(len(values)) + codes.astype(np.uint64)
    n_other = int((~np.isin(both[len(ours) :], both[: len(ours)])).sum())
    return f", {n_other:,} of them with another label" if n_other else ""


def find_violations(columns: Sequence[ColumnLevels]) -> Iterator[Finding]:
    """Yield the violations of the best dependency for each column."""
    n_rows = columns[0].n_rows
    tried = draw_rows(n_rows, _ROWS_TRIED)
    candidates = _find_candidates(columns, tried)
    strict: list[Dependency] = []
    for column, keys in zip(columns, candidates, strict=True):
        if len(column.levels) < _MIN_LEVELS or column.n_known < 0.3 * n_rows:
            continue
        found = [Dependency.of(key, column, tried) for key in keys]
        usable = [each for each in found if each is not None and each.is_strict]
        if usable:
            best = min(usable, key=lambda each: (round(each.violation_rate, 3), -each.n_covered))
            exact = Dependency.of(best.key, column, np.arange(n_rows))
            if exact is not None and exact.is_strict and len(exact.violations):
                strict.append(exact)
    for one in strict:
        if not any(_explains(other, one) for other in strict):
            yield one.describe()


def _find_candidates(columns: Sequence[ColumnLevels], rows: Positions) -> list[list[ColumnLevels]]:
    """Return for each column the keys that may determine it in some rows.

    If rows with the same key have different contents, it does not.
    """
    codes = np.stack([column.codes[rows] for column in columns], axis=1)
    found: list[list[ColumnLevels]] = [[] for _ in columns]
    for position, key in enumerate(columns):
        if not _can_determine(key):
            continue
        own = codes[:, position]
        order = np.argsort(own, kind="stable")
        same = np.flatnonzero((own[order[1:]] == own[order[:-1]]) & (own[order[1:]] != MISSING))
        if len(same) < _MIN_PAIRS:
            continue
        same = same[:: max(len(same) // _PAIRS_TRIED, 1)]
        one, other = codes[order[same]], codes[order[same + 1]]
        known = (one != MISSING) & (other != MISSING)
        agree = ((one == other) & known).sum(axis=0) >= _MIN_AGREEMENT * known.sum(axis=0)
        agree[position] = False
        for column in np.flatnonzero(agree).tolist():
            found[column].append(key)
    return found


def _explains(other: Dependency, one: Dependency) -> bool:
    """Return whether the opposite dependency has the same violations, or more."""
    if other.key is not one.column or other.column is not one.key:
        return False
    if len(other.violations) == len(one.violations) and other.key.name > one.key.name:
        return False
    return bool(np.isin(one.violations, other.violations).all())


def _can_determine(column: ColumnLevels) -> bool:
    """Return whether most rows share their level with some others, and not with most."""
    counts = column.counts
    covered = counts[counts > _MIN_OTHERS].sum()
    return len(counts) >= _MIN_LEVELS and covered >= _MIN_COVERED * column.n_rows


@dataclass(frozen=True, eq=False)
class Dependency:
    """How far one column (the key) determines another one."""

    key: ColumnLevels
    column: ColumnLevels
    n_covered: int  # Cells in groups of several rows
    violation_rate: float
    base_rate: float  # Share of cells that the most frequent level misses
    violations: Positions
    expected: Integers  # Level that the group of each violation has

    @classmethod
    def of(cls, key: ColumnLevels, column: ColumnLevels, rows: Positions) -> Dependency | None:
        """Count on some rows; None if too few rows have a group."""
        groups, levels = key.codes[rows].astype(np.int64), column.codes[rows].astype(np.int64)
        usable = (groups != MISSING) & (levels != MISSING)
        n_levels = len(column.levels)
        pairs, counts = np.unique(groups[usable] * n_levels + levels[usable], return_counts=True)
        if len(pairs) == 0:
            return None
        sizes = np.bincount(groups[usable], minlength=len(key.levels))
        own_group = pairs // n_levels
        # The most frequent level of each group.
        order = np.lexsort((pairs, -counts, own_group))
        first = order[np.concatenate([[True], np.diff(own_group[order]) > 0])]
        best, best_count = np.full((2, len(key.levels)), -1, dtype=np.int64)
        best[own_group[first]], best_count[own_group[first]] = (
            pairs[first] % n_levels,
            counts[first],
        )
        group = groups[usable]
        others = sizes[group] - 1
        agrees = levels[usable] == best[group]
        votes = best_count[group] - agrees
        covered = others >= _MIN_OTHERS
        n_covered = int(covered.sum())
        if n_covered < _MIN_COVERED * usable.sum() or n_covered < 20:
            return None
        wrong: Mask = covered & ~agrees & (votes >= _AGREEMENT * others)
        missed = float((covered & ~agrees).sum()) / n_covered
        base = 1.0 - float(column.counts.max()) / column.n_known
        where = rows[np.flatnonzero(usable)[wrong]]
        return cls(key, column, n_covered, missed, base, where, best[group[wrong]])

    @property
    def is_strict(self) -> bool:
        """Whether violations are few, in themselves and beside the most frequent level."""
        few = self.violation_rate <= _MAX_VIOLATIONS
        n_determined = (self.base_rate - self.violation_rate) * self.n_covered
        is_better = self.violation_rate * _MIN_LIFT <= self.base_rate
        return few and is_better and n_determined >= _MIN_DETERMINED

    def describe(self) -> Finding:
        """Return the finding."""
        key, column = self.key.name, self.column.name
        row, level = int(self.violations[0]), int(self.expected[0])
        here = _show(self.column, int(self.column.codes[row]))
        there = _show(self.key, int(self.key.codes[row]))
        n = len(self.violations)
        replacements = [self.column.levels[each] for each in self.expected.tolist()]
        cells = format_count(n, "cell differs", "cells differ")
        return Finding(
            "dependency", (column,), self.violations,
            f"{key} determines {column} in {1 - self.violation_rate:.1%} of cells; {cells}, such "
            f"as {here} where {key} {there} has {_show(self.column, level)}.",
            Action("replace", replacements, f"replace them with what their {key} has"),
            min(0.9, 0.02 + 3.0 * self.violation_rate),
        )  # fmt: skip


def _show(column: ColumnLevels, level: int) -> str:
    content = column.levels[level]
    if isinstance(content, str):
        return repr(content)
    # Names have no separators.
    is_name = column.kind == "number" and content == int(content)
    return str(int(content)) if is_name else format_number(float(content), column.kind)
