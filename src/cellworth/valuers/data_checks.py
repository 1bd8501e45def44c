"""Checks of data before a run: leaks, copies, numbers stored as strings and the like."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import MISSING, Floats, Integers, Mask
from cellworth.data.blocks import is_missing
from cellworth.data.problem import Problem
from cellworth.data.tables import Table
from cellworth.data.text import preview
from cellworth.knn.columns import infer_column_type
from cellworth.knn.distances import ColumnScales, Distances
from cellworth.valuation.column_info import (
    DATES_AS_TEXT,
    NUMBERS_AS_TEXT,
    ColumnInfo,
    ColumnTable,
    ReadAs,
    distance_in_words,
    is_missing_mark,
    notes_on_size,
    notes_on_values,
    quantity_of,
    reads_as_number,
)

# At most and at least this many rows decide whether a column alone predicts the target.
_LEAK_ROWS = 5000
_MIN_ROWS = 50
_MIN_OTHERS = 20
# Largest error of a leaking column, as a share of the error of the best constant guess.
_MISSED = 0.02
_MISSED_BY_NAME = 0.2
# Smallest share of the variance of ranks that a leaking column explains.
_EXPLAINED = 0.995
# A repeated row is a copy if chance would repeat it with a smaller probability than this.
_CHANCE = 0.05
_RAREST = 3
_SHARE_OF_COPIES = 0.02
_MIN_COPIES = 5
# Fewer rows than this that are scored by themselves are an example, not a mistake.
_MIN_VALIDATION_ROWS = 20
_SIGMAS = 4.0
_FREQUENCY_ROWS = 100_000
_MAX_COPIES_CHECKED = 2000
# More different integers than this are seldom classes.
_MAX_PLAIN_CLASSES = 10
_ROWS_PER_CLASS = 5
_NAMED = 5
_FIX_NUMBERS = "convert to numbers, with missing values (--missing) for the rest"


class DataWarning(UserWarning):
    """Data that can be valued but is probably not as intended; each message says what to do.

    See Also
    --------
    audit

    Examples
    --------
    >>> import warnings
    >>> from cellworth import DataWarning
    >>> warnings.simplefilter("error", DataWarning)  # Reject such data.
    >>> warnings.simplefilter("ignore", DataWarning)  # Or accept it silently.
    """


@dataclass(frozen=True)
class DataAdvice:
    """What a user of a valuer can do about doubtful data."""

    # Whether the valuer has a parameter ``column_types``, and the columns that it names.
    column_types: bool = False
    named: frozenset[str] = frozenset()
    # The argument that makes y classes or numbers; None if the model decides.
    to_classes: str | None = None
    to_numbers: str | None = None


class ColumnCells(NamedTuple):
    """Cells of one column as floats (``ordered``) or codes; missing ones are NaN or -1."""

    ordered: bool
    rows: NDArray[Any]
    # One array for each fold.
    validation: list[NDArray[Any]]

    def codes(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Return integers for some training rows, equal if their cells are equal."""
        return self._codes(self.rows[rows])

    def all_codes(self) -> list[NDArray[np.int64]]:
        """Return such integers for all training rows and for the validation rows of each fold."""
        return [self._codes(side) for side in (self.rows, *self.validation)]

    def _codes(self, side: NDArray[Any]) -> NDArray[np.int64]:
        if not self.ordered:
            return side.astype(np.int64)
        # Adding 0.0 turns -0.0 into 0.0; every NaN becomes the same one.
        return np.where(np.isnan(side), np.nan, side + 0.0).view(np.int64)

    def has_value(self) -> NDArray[np.bool_]:
        """Return a mask of the training rows whose cell is not missing."""
        known: NDArray[np.bool_] = ~np.isnan(self.rows) if self.ordered else self.rows != MISSING
        return known


def warn_of_data(
    problem: Problem, cells: Sequence[ColumnCells], columns: ColumnTable, advice: DataAdvice
) -> None:
    """Warn of each probable mistake in the data."""
    if advice.to_classes is not None:
        labels, counts = np.unique(problem.target, return_counts=True)
        are_classes = problem.classes is not None
        warn(describe_doubtful_target(labels, counts, are_classes=are_classes, advice=advice))
    for message in describe_text_columns(columns, advice, problem.table):
        warn(message)
    for message in describe_leaks(problem, cells):
        warn(message)
    warn(describe_copies(problem, cells))


def warn(message: str | None) -> None:
    """Issue a warning, unless the message is None."""
    if message is not None:
        warnings.warn(message, DataWarning, stacklevel=2)


def describe_text_columns(
    columns: ColumnTable, advice: DataAdvice, table: Table | None = None
) -> Iterator[str]:
    """Describe the columns of numbers, and those of dates, that are stored as strings."""
    for note, what, action, source in (
        (NUMBERS_AS_TEXT, "numbers", _FIX_NUMBERS, table),
        (DATES_AS_TEXT, "dates", "parse the dates", None),
    ):
        names = [name for name in columns.columns_with_note(note) if name not in advice.named]
        parts = [
            f"{name!r} ({_find_note(columns, name, note)} cells{_describe_odd_cell(source, name)})"
            for name in names[:_NAMED]
        ]
        if names:
            yield _format_text_columns(parts, len(names), what, action, advice)


def _format_text_columns(
    parts: list[str], count: int, what: str, action: str, advice: DataAdvice
) -> str:
    more = f" and {count - len(parts)} more" if count > len(parts) else ""
    column, holds = ("column", "holds") if count == 1 else ("columns", "hold")
    if advice.column_types:
        name = parts[0].partition(" (")[0]
        used = "is treated as a category" if count == 1 else "are treated as categories"
        action += f", or pass column_types={{{name}: 'categorical'}} (--categorical) to confirm it"
    else:
        used = "is" if count == 1 else "are"
        used += " passed to the model as text"
    return f"{column} {', '.join(parts)}{more} {holds} {what} as text and {used}; {action}."


def _find_note(columns: ColumnTable, name: str, note: str) -> str:
    found = next(found for found in columns[name].notes if found.startswith(note))
    return found.partition(" (")[2].removesuffix(")")


def _describe_odd_cell(table: Table | None, name: str) -> str:
    """Describe the first cell that is not a number, preferably not a missing-value marker."""
    if table is None:
        return ""
    names = [str(column) for column in table.names.tolist()]
    cells = table.column(names.index(name)).tolist()
    marks = [row for row, cell in enumerate(cells) if is_missing_mark(cell)]
    odd = [
        row
        for row, cell in enumerate(cells)
        if isinstance(cell, str) and not is_missing_mark(cell) and not reads_as_number(cell)
    ]
    return "".join(
        f"; row {table.row_ids.tolist()[row]} has {cells[row]!r}" for row in (odd or marks)[:1]
    )


def describe_doubtful_target(
    labels: NDArray[Any], counts: Integers, *, are_classes: bool, advice: DataAdvice
) -> str | None:
    """Describe how integer labels are treated if they may be the other task."""
    if labels.dtype.kind not in "iuf" or not np.all(labels == np.floor(labels)):
        return None
    n_values, n_rows = len(labels), int(counts.sum())
    if are_classes:
        few_each = n_values > _MAX_PLAIN_CLASSES // 2 and n_rows < _ROWS_PER_CLASS * n_values
        many = n_values > _MAX_PLAIN_CLASSES and not _are_numbered(labels, counts)
        if not few_each and not many:
            return None
        return (
            f"y has {n_values} different integers ({_format_range(labels)}), which are treated as "
            f"classes; if y is a numeric target, pass {advice.to_numbers}, else confirm it with "
            f"{advice.to_classes}."
        )
    if not _are_numbered(labels, counts):
        return None
    return (
        f"y has the {n_values} integers {_format_range(labels)}, each of them often, which are "
        f"treated as a numeric target; if they are classes, pass {advice.to_classes}, else confirm "
        f"it with {advice.to_numbers}."
    )


def _are_numbered(labels: NDArray[Any], counts: Integers) -> bool:
    """Return whether labels look like class numbers: consecutive from 0 or 1, none rare."""
    consecutive = np.array_equal(labels, np.arange(len(labels)) + labels[0]) and labels[0] in (0, 1)
    enough = counts.min() >= max(_ROWS_PER_CLASS, 0.2 * counts.mean())
    return bool(consecutive and enough)


def _format_range(labels: NDArray[Any]) -> str:
    return f"{labels[0]:g} to {labels[-1]:g}"


@dataclass(frozen=True)
class ColumnFit:
    """How well one column alone predicts the target: its error and that of the best constant."""

    name: str
    missed: float
    by_guess: float
    n_rows: int
    of_classes: bool

    @property
    def is_leak(self) -> bool:
        """Whether the column predicts the target almost without error."""
        if not self.of_classes:
            return self.missed <= 1 - _EXPLAINED
        enough = self.by_guess * self.n_rows >= _MIN_OTHERS
        return enough and self.missed <= _MISSED * self.by_guess


def describe_leaks(problem: Problem, cells: Sequence[ColumnCells]) -> Iterator[str]:
    """Describe columns that equal the target, and columns that alone predict it."""
    names = [str(name) for name in problem.table.names.tolist()]
    fits = list(fit_columns(cells, names, problem.target, of_classes=problem.classes is not None))
    found = [fit for fit in fits if fit.is_leak]
    same = {fit.name: _is_target(problem, cells[names.index(fit.name)]) for fit in found}
    # A column named like y need not equal it: y may have been computed from it and from others.
    named = {
        fit.name
        for fit in fits
        if fit.name == problem.target_name and fit.missed <= _MISSED_BY_NAME * fit.by_guess
    }
    holding = [name for name in names if same.get(name) or name in named]
    if holding:
        column, are, drop = (
            ("column", "is", "it") if len(holding) == 1 else ("columns", "are", "them")
        )
        why = "equal to y up to recoding" if same.get(holding[0]) else "named like y"
        yield (
            f"the target is in X: {column} {preview(holding)} {are} {why}; drop {drop} "
            "from X, or the target predicts itself."
        )
    leaking = [fit for fit in found if fit.name not in holding]
    if leaking:
        parts = [_format_leak(fit) for fit in leaking[:_NAMED]]
        more = f" and {len(leaking) - _NAMED} more" if len(leaking) > _NAMED else ""
        column, predicts, it = ("columns", "each predict", "those from X that are")
        if len(leaking) == 1:
            column, predicts, it = ("column", "alone predicts", "it from X if it is")
        yield (
            f"{column} {', '.join(parts)}{more} {predicts} the target almost without error; drop "
            f"{it} known only once the target is."
        )


def _format_leak(fit: ColumnFit) -> str:
    if not fit.of_classes:
        return f"{fit.name!r} ({1 - fit.missed:.2%} of the variance of ranks)"
    return f"{fit.name!r} ({1 - fit.missed:.1%} right, best guess {1 - fit.by_guess:.1%})"


def fit_columns(
    cells: Sequence[ColumnCells], names: Sequence[str], target: NDArray[Any], *, of_classes: bool
) -> Iterator[ColumnFit]:
    """Yield how well each column alone predicts the target, on up to 5,000 distinct rows."""
    n_rows = len(target)
    if n_rows < _MIN_ROWS:
        return
    rows = np.arange(n_rows)
    if n_rows > _LEAK_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(n_rows, _LEAK_ROWS, replace=False))
    # Any column would predict the label of a copied row.
    rows = rows[
        np.unique(_hash_rows([column.codes(rows) for column in cells]), return_index=True)[1]
    ]
    labels, codes = np.unique(target[rows], return_inverse=True)
    if len(labels) < 2 or len(rows) < _MIN_ROWS:
        return
    for name, column in zip(names, cells, strict=True):
        if of_classes:
            guess = 1 - float(np.bincount(codes).max()) / len(codes)
            missed = _measure_missed_labels(column, rows, codes, len(labels))
        else:
            missed, guess = _measure_missed_variance(column, rows, codes), 1.0
        yield ColumnFit(name, missed, guess, len(rows), of_classes)


def _group_cells(column: ColumnCells, rows: Integers) -> tuple[Floats, Integers]:
    """Return the distinct cells of some rows, and which of them each row has."""
    values, groups = np.unique(column.rows[rows], return_inverse=True)
    return values.astype(np.float64), groups


def _find_nearest_values(values: Floats) -> Integers:
    """Return the nearest other value of each value; a missing value is far from all."""
    n = len(values)
    if n == 1:
        return np.zeros(1, dtype=np.int64)
    steps = np.diff(values)
    steps = np.where(np.isnan(steps), np.inf, steps)
    left, right = np.concatenate([[np.inf], steps]), np.concatenate([steps, [np.inf]])
    return np.where(left <= right, np.arange(n) - 1, np.arange(n) + 1).clip(0, n - 1)


def _measure_missed_labels(
    column: ColumnCells, rows: Integers, codes: Integers, n_labels: int
) -> float:
    """Return the share of rows whose label other rows with the same or nearest cell miss."""
    values, groups = _group_cells(column, rows)
    if len(values) == 1:
        return 1.0
    counts = np.bincount(groups * n_labels + codes, minlength=len(values) * n_labels)
    counts = counts.reshape(len(values), n_labels)
    others = counts[groups]
    others[np.arange(len(rows)), codes] -= 1
    alone = others.sum(axis=1) == 0
    if column.ordered:
        others[alone] = counts[_find_nearest_values(values)[groups[alone]]]
    else:
        # A category of a single row predicts nothing, so all rows do.
        others[alone] = counts.sum(axis=0)
    right = others[np.arange(len(rows)), codes]
    others[np.arange(len(rows)), codes] = -1
    return float(np.mean(right <= others.max(axis=1)))


def _measure_missed_variance(column: ColumnCells, rows: Integers, codes: Integers) -> float:
    """Return the share of the variance of ranks that the same or nearest cells do not explain."""
    values, groups = _group_cells(column, rows)
    if len(values) == 1:
        return 1.0
    ends = np.cumsum(np.bincount(codes))
    ranks = (ends - (np.bincount(codes) - 1) / 2)[codes]
    sums, sizes = np.bincount(groups, ranks), np.bincount(groups)
    fit = sizes[groups] == 1
    others = (sums[groups] - ranks) / np.maximum(sizes[groups] - 1, 1)
    if column.ordered:
        near = _find_nearest_values(values)[groups]
        others[fit] = (sums / sizes)[near[fit]]
    else:
        others[fit] = ranks.mean()
    return float(np.mean((others - ranks) ** 2) / np.var(ranks))


def _is_target(problem: Problem, column: ColumnCells) -> bool:
    """Return whether a column equals the target up to recoding, on all rows."""
    known = column.has_value()
    if not known.all():
        return False
    pairs = np.unique(column.rows)
    labels, codes = np.unique(problem.target, return_inverse=True)
    if len(pairs) != len(labels):
        return False
    groups = np.searchsorted(pairs, column.rows)
    firsts = np.full(len(pairs), -1)
    firsts[groups] = codes
    one_to_one = len(np.unique(firsts)) == len(pairs) and bool((firsts[groups] == codes).all())
    # Any column of distinct numbers is one to one with a numeric target: it must be monotone, too.
    steps = np.diff(firsts)
    monotone = bool((steps > 0).all() or (steps < 0).all())
    return one_to_one and (problem.classes is not None or monotone)


def describe_copies(problem: Problem, cells: Sequence[ColumnCells]) -> str | None:
    """Warn if more validation rows have a copy among the training rows than chance explains."""
    found = _Copies.of(problem, [column.all_codes() for column in cells])
    few = max(_SHARE_OF_COPIES * len(found.copied), _MIN_COPIES)
    if found.size < _MIN_VALIDATION_ROWS or found.copied.sum() < few:
        return None
    held_out = len(problem.folds) == 1
    if not (held_out and found.beyond_repeats()) and not found.beyond_chance():
        return None
    if held_out:
        return _describe_held_out_copies(found, problem)
    return _describe_fold_copies(found) if problem.folds else _describe_out_of_bag_copies(found)


@dataclass(frozen=True, eq=False)
class _Copies:
    """Which validation rows are among the training rows."""

    # Codes of cells, column by column: of the training rows, then of each fold.
    sides: list[list[Integers]]
    # The same number for equal rows: of the training rows, then of each fold.
    codes: Integers
    # How often each of these numbers occurs among the training rows.
    times: Integers
    n_rows: int
    # Mask of the validation rows; without folds, of the training rows.
    copied: Mask

    @classmethod
    def of(cls, problem: Problem, sides: list[list[Integers]]) -> _Copies:
        """Compare rows by a hash of their cells."""
        n_sides = len(problem.folds) + 1
        rows, *validation = (
            _hash_rows([side[position] for side in sides]) for position in range(n_sides)
        )
        codes = np.unique(np.concatenate([rows, *validation]), return_inverse=True)[1]
        n_rows, start = len(rows), len(rows)
        times = np.bincount(codes[:n_rows], minlength=int(codes.max()) + 1)
        copied = [] if validation else [times[codes] > 1]
        for fold, column in zip(problem.folds, validation, strict=True):
            seen = np.zeros(len(times), dtype=bool)
            seen[codes[:n_rows][fold.may_train]] = True
            copied.append(seen[codes[start : start + len(column)]])
            start += len(column)
        return cls(sides, codes, times, n_rows, np.concatenate(copied))

    @property
    def size(self) -> int:
        """Number of training rows or validation rows, whichever is smaller."""
        return min(self.n_rows, len(self.copied))

    @property
    def n_distinct(self) -> int:
        """Number of distinct training rows."""
        return int(np.count_nonzero(self.times))

    def beyond_repeats(self) -> bool:
        """Return whether more validation rows have a copy than training rows have."""
        share = float(np.mean(self.times[self.codes[: self.n_rows]] > 1))
        expected = share * len(self.copied)
        margin = _SIGMAS * np.sqrt(expected * (1 - share) + 1)
        excess = float(self.copied.sum()) - expected
        return bool(excess > max(_SHARE_OF_COPIES * len(self.copied), margin))

    def beyond_chance(self) -> bool:
        """Return whether enough of the repeated rows would not be repeated by chance."""
        # Tables with few distinct values, such as grades from 1 to 10, repeat rows by chance. A row
        # is a copy if another row is unlikely to have the same three rarest cells.
        rng = np.random.default_rng(0)
        start = len(self.codes) - len(self.copied)
        positions = start + np.flatnonzero(self.copied)
        checked, among = positions, np.arange(self.n_rows)
        if len(positions) > _MAX_COPIES_CHECKED:
            checked = rng.choice(positions, _MAX_COPIES_CHECKED, replace=False)
        if self.n_rows > _FREQUENCY_ROWS:
            among = rng.choice(self.n_rows, _FREQUENCY_ROWS, replace=False)
        alike = _count_matches(self.codes[among], self.codes[checked])
        shares = []
        for side in self.sides:
            everyone = np.concatenate(side)
            others = _count_matches(everyone[among], everyone[checked]) - alike
            shares.append((others + 1) / (len(among) - alike + 1))
        rarest = np.sort(np.array(shares), axis=0)[:_RAREST]
        unlikely = self.n_rows * rarest.prod(axis=0) < _CHANCE
        share = float(unlikely.mean()) * len(positions) / len(self.copied)
        return share >= _SHARE_OF_COPIES


def _describe_held_out_copies(found: _Copies, problem: Problem) -> str:
    n_alike = _count_same_label(problem, found.codes, found.copied)
    return (
        f"{found.copied.sum():,} of {len(found.copied):,} rows of X_val are also in X "
        f"({n_alike:,} of them with the same label): such rows are scored by themselves, so their "
        "values are too high; drop them from X or from X_val, or leave out X_val to use "
        "cross-validation."
    )


def _describe_fold_copies(found: _Copies) -> str:
    return (
        f"{found.copied.sum():,} of {len(found.copied):,} rows have a copy in another fold "
        f"({found.n_distinct:,} of {found.n_rows:,} rows are distinct): copies score each other, "
        "so their values are too high; drop duplicate rows, or keep copies together with groups= "
        "and cv=GroupKFold()."
    )


def _describe_out_of_bag_copies(found: _Copies) -> str:
    return (
        f"{found.copied.sum():,} of {found.n_rows:,} rows have a copy in X ({found.n_distinct:,} "
        "are distinct): trees that were not trained on a row were trained on its copy, so its "
        "values are too high; drop duplicate rows."
    )


def _hash_rows(columns: list[Integers]) -> NDArray[np.uint64]:
    """Return one number for each row, equal for rows with equal cells."""
    total = np.zeros(len(columns[0]), dtype=np.uint64)
    for position, codes in enumerate(columns):
        total += mix_bits(codes.view(np.uint64), position)
    return total


def mix_bits(cells: NDArray[np.uint64], position: int) -> NDArray[np.uint64]:
    """Return hashes of the cells of a column; their sum over columns is a hash of the row."""
    mixed = cells + np.uint64((position + 1) * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)), dtype=np.uint64)


def _count_matches(among: Integers, wanted: Integers) -> Integers:
    """Count how often each wanted number occurs."""
    ordered = np.sort(among)
    left, right = (np.searchsorted(ordered, wanted, side) for side in ("left", "right"))
    return np.asarray(right - left, dtype=np.int64)


def _count_same_label(problem: Problem, codes: Integers, copied: Mask) -> int:
    (fold,) = problem.folds
    labels = np.unique(np.concatenate([problem.target, fold.target]), return_inverse=True)[1]
    both = codes * (int(labels.max()) + 1) + labels
    n_rows = len(problem.target)
    return int(np.isin(both[n_rows:][copied], both[:n_rows]).sum())


def read_column_cells(problem: Problem, distances: Distances | None = None) -> list[ColumnCells]:
    """Read all columns of a problem, from the distances if these have read them already."""
    tables = [problem.table, *(fold.table for fold in problem.folds)]
    read: list[ColumnCells] = []
    for position in range(problem.table.shape[1]):
        found = None if distances is None else _read_measured(distances, position)
        read.append(found or _read_raw([table.column(position) for table in tables]))
    return read


def _read_measured(distances: Distances, position: int) -> ColumnCells | None:
    """Return cells as the distances have read them; None if rows and queries differ in codes."""
    part, at = distances.scales.where(position)
    if part == "coded":
        return None
    rows, *validation = (getattr(side, part)[at] for side in (distances.rows, *distances.queries))
    return ColumnCells(part == "numbers", rows, validation)


def _read_raw(sides: list[NDArray[Any]]) -> ColumnCells:
    codes_of_types = {side.dtype.kind for side in sides}
    if codes_of_types <= set("iufb"):
        rows, *validation = (side.astype(np.float64) for side in sides)
        return ColumnCells(True, rows, validation)
    if codes_of_types <= set("Mm") and len(codes_of_types) == 1:
        rows, *validation = (_microseconds(side) for side in sides)
        return ColumnCells(True, rows, validation)
    codes: dict[Any, int] = {}
    coded = [_encode(side, codes) for side in sides]
    return ColumnCells(False, coded[0], coded[1:])


def _microseconds(times: NDArray[Any]) -> NDArray[np.float64]:
    micros = times.astype(f"{times.dtype.kind}8[us]").view(np.int64).astype(np.float64)
    return np.where(np.isnat(times), np.nan, micros)


def _encode(cells: NDArray[Any], codes: dict[Any, int]) -> NDArray[np.int64]:
    listed = (_hashable(cell) for cell in cells.tolist())
    return np.array(
        [MISSING if is_missing(cell) else codes.setdefault(cell, len(codes)) for cell in listed],
        dtype=np.int64,
    )


def _hashable(cell: Any) -> Any:
    try:
        hash(cell)
    except TypeError:
        return repr(cell)
    return cell


def describe_distances(distances: Distances, table: Table) -> list[tuple[ReadAs, str]]:
    """Return how nearest neighbors read each column, and the distance of two of its cells."""
    return [
        _describe_distance(distances.scales, position, partial(table.column, position))
        for position in range(table.shape[1])
    ]


def _describe_distance(
    scales: ColumnScales, position: int, cells: Callable[[], NDArray[Any]]
) -> tuple[ReadAs, str]:
    part, at = scales.where(position)
    if part == "coded":
        return "own distance", "your function"
    if part == "categories":
        return "category", f"0 or {scales.mismatch(at):.3g}"
    read_as = quantity_of(cells())
    return read_as, distance_in_words(scales.scale(at), read_as)


def guess_types(table: Table) -> list[tuple[ReadAs, str]]:
    """Guess what columns hold; a model decides what it does with them."""
    found: list[tuple[ReadAs, str]] = []
    for position, name in enumerate(table.names.tolist()):
        cells = table.column(position)
        try:
            kind = infer_column_type([table.dtype(position)], [cells], name)
        except TypeError:
            found.append(("not known", ""))
            continue
        found.append(("category" if kind == "categorical" else quantity_of(cells), ""))
    return found


def describe_columns(
    table: Table, cells: Sequence[ColumnCells], readings: Sequence[tuple[ReadAs, str]]
) -> ColumnTable:
    """Describe the cells of all columns in the training rows, with notes on unusual ones."""
    return ColumnTable(
        tuple(
            _describe_column(table, position, column, *reading)
            for position, (column, reading) in enumerate(zip(cells, readings, strict=True))
        )
    )


def _describe_column(
    table: Table, position: int, column: ColumnCells, read_as: ReadAs, distance: str
) -> ColumnInfo:
    known = column.rows[column.has_value()]
    missing = len(column.rows) - len(known)
    notes: tuple[str, ...] = ()
    if column.ordered:
        distinct = len(np.unique(known))
        is_integer = read_as in ("number", "category") and _are_integers(
            table, position, known, missing
        )
    else:
        counts = np.bincount(known) if len(known) else np.zeros(0, dtype=np.int64)
        distinct, is_integer = int(np.count_nonzero(counts)), True
        named = isinstance(table.dtype(position), nw.Categorical | nw.Enum)
        notes = notes_on_values(
            *_count_values(table.column(position), column.rows, counts), named=named
        )
    notes = (
        *notes_on_size(distinct, len(known), missing, integral=is_integer and not notes),
        *notes,
    )
    return ColumnInfo(
        str(table.names.tolist()[position]), read_as, missing, distinct, False, distance, notes
    )


def _count_values(
    raw: NDArray[Any], codes: NDArray[Any], counts: NDArray[np.int64]
) -> tuple[list[Any], list[int]]:
    """Return the distinct cells and how often each occurs."""
    column, firsts = np.unique(codes, return_index=True)
    firsts = firsts[column != MISSING]
    return raw[firsts].tolist(), counts[column[column != MISSING]].tolist()


def _are_integers(table: Table, position: int, known: NDArray[np.float64], missing: int) -> bool:
    """Return whether numbers are integers by type, or would be without missing values."""
    dtype = table.dtype(position)
    if dtype is not None and dtype.is_integer():
        return True
    if isinstance(table.data, np.ndarray) and table.data.dtype.kind in "iu":
        return True
    return missing > 0 and bool((known == np.floor(known)).all())
