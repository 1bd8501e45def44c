"""Checks across columns: dependencies, repeated rows, leaks, columns that are constant or ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Integers, Mask, Positions
from cellworth.data.equal_rows import find_first_equal, mix_bits
from cellworth.data.text import format_count, format_number, list_first, preview
from cellworth.findings.finding import NO_ROWS, Action, Finding, FindingKind
from cellworth.findings.levels import ColumnLevels, draw_rows, hash_rows
from cellworth.findings.number_checks import NAMES, are_names
from cellworth.valuation.column_info import DATE_PATTERN

_MIN_IDS, _NAMED = 20, 5
_TEXTS_READ, _LONGEST_NAME = 200, 60
_SHARE_OF_IDS = 0.99
# Rows from which dependencies are guessed; they are then counted on all rows.
_ROWS_TRIED = 20_000
_PAIRS_TRIED, _MIN_PAIRS, _MIN_AGREEMENT = 500, 20, 0.75
_MAX_VIOLATIONS = 0.08
# At least this share of rows must be in groups of several rows.
_MIN_COVERED = 0.5
_MIN_OTHERS = 4
# Share of the other rows of a group that must agree.
_AGREEMENT = 0.75
# An accident puts one content into a group at most so often, and most violations are accidents.
_MAX_REPEATED, _MIN_ACCIDENTS = 2, 0.5
# A dependency must miss so much less often than the most frequent level of the column does.
_MIN_LIFT = 3.0
# Cells that the most frequent level would miss and a key does not.
_MIN_DETERMINED = 20
_MIN_LEVELS = 3
# If columns that name rows are left out, more repeated rows than this are of different things.
_MAX_REPEATED_THINGS = 0.05
_MIN_ROWS, _N_TELLING = 5, 5
# If chance makes this share of the copies, it may as well have made all.
_BY_CHANCE = 0.15
# Share of the cells of a copy that must hold something.
_MIN_KNOWN = 0.5


def check_columns(columns: Sequence[ColumnLevels]) -> Iterator[Finding]:
    """Yield columns that tell a model nothing, or name rows; one finding for all of a kind."""
    empty = [
        column
        for column in columns
        if column.n_known == 0 and column.n_rows >= _MIN_ROWS and not column.strays
    ]
    constant = [
        column
        for column in columns
        if len(column.levels) == 1 and column.n_known == column.n_rows >= _MIN_ROWS
    ]
    ids = [column for column in columns if is_id(column) and not _holds_sentences(column)]
    yield from _describe_columns("empty column", empty, "no value in any row", 0.0)
    yield from _describe_columns("constant column", constant, "the same content in all rows", 0.0)
    yield from _describe_columns("id column", ids, "another content in nearly every row", 0.2)


def _describe_columns(
    kind: FindingKind, columns: Sequence[ColumnLevels], what: str, doubt: float
) -> Iterator[Finding]:
    if columns:
        names = tuple(column.name for column in columns)
        listed = list_first(names, _NAMED)
        has, column = ("has", "the column") if len(names) == 1 else ("have", "the columns")
        action = Action("drop columns", text=f"drop {column} before you train a model")
        yield Finding(kind, names, NO_ROWS, f"{listed} {has} {what}.", action, doubt)


def _holds_sentences(column: ColumnLevels) -> bool:
    """Return whether contents are text to read, or times: a model may use them."""
    if column.kind != "text":
        return False
    texts = column.strings[:_TEXTS_READ]
    are_dates = all(DATE_PATTERN.fullmatch(text) for text in texts)
    return are_dates or bool(np.median([len(text) for text in texts]) > _LONGEST_NAME)


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


def find_repeated_rows(
    columns: Sequence[ColumnLevels], label: ColumnLevels | None = None
) -> Iterator[Finding]:
    """Yield rows that repeat an earlier one with its label, columns that name rows left out."""
    used = [column for column in columns if not is_id(column)]
    if not used or columns[0].n_rows < 2:
        return
    compared = used if label is None else [*used, label]
    hashes = hash_rows(compared)
    n_known = np.sum([column.find_known() for column in used], axis=0)
    # Rows that hold nothing are equal, and no copies.
    is_full = n_known >= _MIN_KNOWN * len(used)
    copies = np.flatnonzero((find_first_equal(hashes) != np.arange(len(hashes))) & is_full)
    without = [column.name for column in columns if is_id(column)]
    are_things = bool(without) and len(copies) > _MAX_REPEATED_THINGS * len(hashes)
    if len(copies) and not are_things:
        expected = _expect_repeated(compared, len(copies))
        but = f", {preview(without)} left out" if without else ""
        yield Finding(
            "repeated rows", tuple(column.name for column in used), copies,
            f"{format_count(len(copies), 'row repeats', 'rows repeat')} an earlier row{but}.",
            Action("drop rows", text="drop the copies, unless they are separate observations"),
            expected / (expected + _BY_CHANCE * len(copies)),
        )  # fmt: skip


def _expect_repeated(columns: Sequence[ColumnLevels], n_copies: int) -> float:
    """Return how many rows chance repeats, from pairs of rows that are equal but for two columns.

    By chance, such a pair agrees in both as often as any two rows agree in the one that agrees
    less, because one may follow from the other. Most is expected by some two of the columns that
    agree least.
    """
    if len(columns) == 1:
        return _expect_copies(columns)
    cells = [mix_bits(c.level_hashes, j)[c.codes] for j, c in enumerate(columns)]
    rows = np.sum(cells, axis=0)
    n_equal, expected = _count_pairs(rows), 0.0
    # Pairs that agree in a column, without the copies themselves.
    agree = [_count_pairs(own) - n_equal for own in cells]
    n_pairs = len(rows) * (len(rows) - 1) // 2
    for one, other in combinations(np.argsort(agree)[:_N_TELLING].tolist(), 2):
        but_two = _count_pairs(rows - cells[one] - cells[other]) - n_equal
        expected = max(expected, but_two * min(agree[one], agree[other]) / n_pairs)
    return expected / n_equal * n_copies


def _count_pairs(hashes: NDArray[np.uint64]) -> int:
    """Return how many pairs of rows are equal."""
    counts = np.unique(hashes, return_counts=True)[1].astype(np.int64)
    return int((counts * (counts - 1) // 2).sum())


def _expect_copies(columns: Sequence[ColumnLevels]) -> float:
    """Return how many rows chance would repeat if the columns were independent, at least."""
    n_rows, logarithm = columns[0].n_rows, 0.0
    for column in columns:
        shares = np.append(column.counts, n_rows - column.n_known) / n_rows
        # The probability that two cells are equal.
        logarithm += float(np.log((shares**2).sum()))
    return float(min(n_rows, np.exp(min(logarithm + 2 * np.log(n_rows), 50.0)) / 2))


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
        but = ""
        if labels is not None:
            own_labels = np.concatenate([labels[0], labels[1][shared]])
            names_of_labels, codes = np.unique(own_labels, return_inverse=True)
            cells = np.concatenate([ours, theirs[shared]])
            both = cells * np.uint64(len(names_of_labels)) + codes.astype(np.uint64)
            # Their label is that of no equal row of X.
            n_other = int((~np.isin(both[len(ours) :], both[: len(ours)])).sum())
            but = f", {n_other:,} of them with another label" if n_other else ""
        yield Finding(
            "validation rows in X", names, rows,
            f"{len(shared):,} of {len(theirs):,} validation rows are also in X{but}.",
            Action("drop rows", text="drop them from X, or the scores are too good"),
            expected / (expected + 0.2 * len(shared)),
        )  # fmt: skip


def find_violations(columns: Sequence[ColumnLevels]) -> Iterator[Finding]:
    """Yield the violations of the best dependency for each column."""
    n_rows = columns[0].n_rows
    tried = draw_rows(n_rows, _ROWS_TRIED)
    candidates = _find_candidates(columns, tried)
    strict: list[Dependency] = []
    for column, keys in zip(columns, candidates, strict=True):
        if len(column.levels) < _MIN_LEVELS or column.n_known < 0.3 * n_rows:
            continue
        found = [Dependency(key, column, tried) for key in keys]
        found = [each for each in found if each.is_strict]
        if found:
            best = min(found, key=lambda each: (round(each.violation_rate, 3), -each.n_covered))
            exact = Dependency(best.key, column, np.arange(n_rows))
            if exact.is_strict and len(exact.violations):
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
            levels = columns[column].levels
            # Names or integers: measurements only happen to be equal.
            if columns[column].kind == "text" or np.all(levels == np.floor(levels)):
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
    """Return whether contents are names, and most rows share theirs with some others."""
    counts = column.counts
    covered = counts[counts > _MIN_OTHERS].sum()
    is_name = column.kind == "text" or are_names(column) or NAMES.search(column.name) is not None
    return bool(is_name and len(counts) >= _MIN_LEVELS and covered >= _MIN_COVERED * column.n_rows)


class Dependency:
    """How far one column (the key) determines another one, counted on some rows."""

    def __init__(self, key: ColumnLevels, column: ColumnLevels, rows: Positions) -> None:
        self.key = key
        self.column = column
        usable = rows[(key.codes[rows] != MISSING) & (column.codes[rows] != MISSING)]
        group, level = key.codes[usable].astype(np.int64), column.codes[usable].astype(np.int64)
        n_levels = len(column.levels)
        pairs, pair_of_row, counts = np.unique(
            group * n_levels + level, return_inverse=True, return_counts=True
        )
        own_group = pairs // n_levels
        # The most frequent level of each group comes last, and stays.
        order = np.lexsort((-pairs, counts, own_group))
        best, best_count = np.full((2, len(key.levels)), -1, dtype=np.int64)
        best[own_group[order]] = pairs[order] % n_levels
        best_count[own_group[order]] = counts[order]
        others = np.bincount(group, minlength=len(key.levels))[group] - 1
        covered = others >= _MIN_OTHERS
        differs: Mask = covered & (level != best[group])
        wrong = differs & (best_count[group] >= _AGREEMENT * others)
        # What is there more often is a second content, and no accident.
        accidents = wrong & (counts[pair_of_row.reshape(-1)] <= _MAX_REPEATED)
        # Cells in groups of several rows.
        self.n_covered: int = int(covered.sum())
        n_differ = int(differs.sum())
        self.violation_rate: float = n_differ / max(self.n_covered, 1)
        # Share of cells that the most frequent level misses.
        base_rate = 1.0 - float(column.counts.max()) / column.n_known
        # Violations are few, in themselves and beside the most frequent level.
        self.is_strict: bool = (
            self.n_covered >= _MIN_COVERED * len(usable)
            and self.violation_rate <= _MAX_VIOLATIONS
            and self.violation_rate * _MIN_LIFT <= base_rate
            and (base_rate - self.violation_rate) * self.n_covered >= _MIN_DETERMINED
        )
        self.share_of_accidents: float = int(accidents.sum()) / max(n_differ, 1)
        # Rows, and the level that the group of each has.
        self.violations: Positions = usable[accidents]
        self.expected: Integers = best[group[accidents]]

    def describe(self) -> Finding:
        """Return the finding."""
        key, column = self.key.name, self.column.name
        row, level = int(self.violations[0]), int(self.expected[0])
        here = _show(self.column, int(self.column.codes[row]))
        there = _show(self.key, int(self.key.codes[row]))
        replacements = [self.column.levels[each] for each in self.expected.tolist()]
        cells = format_count(len(self.violations), "cell differs", "cells differ")
        doubt = min(0.5, 0.02 + 3.0 * self.violation_rate)
        return Finding(
            "dependency", (column,), self.violations,
            f"{key} determines {column} in {1 - self.violation_rate:.1%} of cells; {cells}, such "
            f"as {here} where {key} {there} has {_show(self.column, level)}.",
            Action("replace", replacements, f"replace them with what their {key} has"),
            doubt if self.share_of_accidents >= _MIN_ACCIDENTS else 0.6,
        )  # fmt: skip


def _show(column: ColumnLevels, level: int) -> str:
    content = column.levels[level]
    if isinstance(content, str):
        return repr(content)
    # Names have no separators.
    is_name = column.kind == "number" and content == int(content)
    return str(int(content)) if is_name else format_number(float(content), column.kind)
