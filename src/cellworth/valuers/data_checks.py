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
from cellworth.data.blocks import is_missing, some
from cellworth.data.problem import Problem
from cellworth.data.tables import Table
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

# Rows that tell whether a column alone predicts the target, and the fewest that can.
_LEAK_ROWS = 5000
_FEWEST_ROWS = 50
_FEWEST_OTHERS = 20
# A column alone may miss so many of the rows that the best constant guess misses.
_MISSED = 0.02
_MISSED_BY_NAME = 0.2
# Part of the variance of ranks that the nearest value must explain.
_EXPLAINED = 0.995
# A row that is so unlikely to come twice by chance is a copy.
_CHANCE = 0.05
_RAREST = 3
_SHARE_OF_COPIES = 0.02
_FEWEST_COPIES = 5
# A handful of rows that are scored by themselves is an example, not a mistake.
_FEWEST_VALIDATION_ROWS = 20
_SIGMAS = 4.0
_FREQUENCY_ROWS = 100_000
_MOST_COPIES_CHECKED = 2000
# Integers of more values than this are seldom classes.
_MOST_PLAIN_CLASSES = 10
_ROWS_PER_CLASS = 5
_NAMED = 5
_FIX_NUMBERS = "convert to numbers, with missing values (--missing) for the rest"


class DataWarning(UserWarning):
    """Data that can be valued, but perhaps not as it was meant; every message says what to do.

    Examples
    --------
    >>> import warnings
    >>> from cellworth import DataWarning
    >>> warnings.simplefilter("error", DataWarning)  # Refuse such data.
    >>> warnings.simplefilter("ignore", DataWarning)  # Or be silent, if all is as it should be.
    """


@dataclass(frozen=True)
class Ways:
    """How a user of this valuer puts things right, in words.

    Parameters
    ----------
    column_types : bool
        Whether there is a parameter ``column_types``.
    named : frozenset of str
        Columns whose kind the user has named.
    to_classes, to_numbers : str or None
        What makes classes or numbers of y; None where the model has settled it.
    """

    column_types: bool = False
    named: frozenset[str] = frozenset()
    to_classes: str | None = None
    to_numbers: str | None = None


class Cells(NamedTuple):
    """Cells of one column, of training rows and of validation rows, fold by fold.

    Equal cells are equal numbers: floats where ``ordered``, else codes. Missing
    cells are NaN or -1.
    """

    ordered: bool
    rows: NDArray[Any]
    validation: list[NDArray[Any]]

    def codes(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Integers that are equal where cells of these training rows are."""
        return self._codes(self.rows[rows])

    def all_codes(self) -> list[NDArray[np.int64]]:
        """The same for all training rows, and for the validation rows of each fold."""
        return [self._codes(side) for side in (self.rows, *self.validation)]

    def _codes(self, side: NDArray[Any]) -> NDArray[np.int64]:
        if not self.ordered:
            return side.astype(np.int64)
        # Adding 0.0 turns -0.0 into 0.0; every NaN becomes the same one.
        return np.where(np.isnan(side), np.nan, side + 0.0).view(np.int64)

    def has_value(self) -> NDArray[np.bool_]:
        """Which training rows have a value."""
        known: NDArray[np.bool_] = ~np.isnan(self.rows) if self.ordered else self.rows != MISSING
        return known


def warn_of_data(
    problem: Problem, cells: Sequence[Cells], columns: ColumnTable, ways: Ways
) -> None:
    """Warn of everything that is likely to be a mistake; each kind of it once."""
    if ways.to_classes is not None:
        are_classes = problem.classes is not None
        warn(target_warning(*_count_labels(problem.target), are_classes=are_classes, ways=ways))
    warn(text_warning(columns, ways, problem.table))
    warn(dates_warning(columns, ways))
    for message in leak_warnings(problem, cells):
        warn(message)
    warn(copies_warning(problem, cells))


def warn(message: str | None) -> None:
    """Say a sentence, if there is one."""
    if message is not None:
        warnings.warn(message, DataWarning, stacklevel=2)


def text_warning(columns: ColumnTable, ways: Ways, table: Table | None = None) -> str | None:
    """Name the columns of numbers that are held as text."""
    names = [name for name in columns.columns_with_note(NUMBERS_AS_TEXT) if name not in ways.named]
    if not names:
        return None
    counts = {name: _find_note(columns, name, NUMBERS_AS_TEXT) for name in names}
    parts = [f"{name!r} ({counts[name]} cells{_odd_one(table, name)})" for name in names[:_NAMED]]
    return _sentence(parts, len(names), "numbers", _FIX_NUMBERS, ways)


def dates_warning(columns: ColumnTable, ways: Ways) -> str | None:
    """Name the columns of dates that are held as text."""
    names = [name for name in columns.columns_with_note(DATES_AS_TEXT) if name not in ways.named]
    if not names:
        return None
    parts = [f"{name!r} ({_find_note(columns, name, DATES_AS_TEXT)} cells)" for name in names]
    return _sentence(parts[:_NAMED], len(names), "dates", "parse the dates", ways)


def _sentence(parts: list[str], count: int, what: str, action: str, ways: Ways) -> str:
    more = f" and {count - len(parts)} more" if count > len(parts) else ""
    column, holds = ("column", "holds") if count == 1 else ("columns", "hold")
    are = "is taken for a category" if count == 1 else "are taken for categories"
    if not ways.column_types:
        are = "go to the model as text" if count > 1 else "goes to the model as text"
    instead = ""
    if ways.column_types:
        name = parts[0].partition(" (")[0]
        instead = (
            f", or pass column_types={{{name}: 'categorical'}} (--categorical) if that is meant"
        )
    return f"{column} {', '.join(parts)}{more} {holds} {what} as text and {are}; {action}{instead}."


def _find_note(columns: ColumnTable, name: str, note: str) -> str:
    own = next(own for own in columns[name].notes if own.startswith(note))
    return own.partition(" (")[2].removesuffix(")")


def _odd_one(table: Table | None, name: str) -> str:
    """Name the first cell that is no number and no missing-value marker; else the marker."""
    if table is None:
        return ""
    names = [str(own) for own in table.names.tolist()]
    cells = table.column(names.index(name)).tolist()
    odd = [
        (row, cell) for row, cell in enumerate(cells) if isinstance(cell, str) and _is_odd(cell)
    ][:1]
    marks = [(row, cell) for row, cell in enumerate(cells) if is_missing_mark(cell)][:1]
    return "".join(
        f"; row {table.row_ids.tolist()[row]} has {cell!r}" for row, cell in odd or marks
    )


def _is_odd(cell: str) -> bool:
    return not is_missing_mark(cell) and not reads_as_number(cell)


def _count_labels(target: NDArray[Any]) -> tuple[NDArray[Any], Integers]:
    labels, counts = np.unique(target, return_counts=True)
    return labels, counts


def target_warning(
    labels: NDArray[Any], counts: Integers, *, are_classes: bool, ways: Ways
) -> str | None:
    """Say how integers were taken, where they may as well be the other task."""
    if labels.dtype.kind not in "iuf" or not np.all(labels == np.floor(labels)):
        return None
    n_values, n_rows = len(labels), int(counts.sum())
    if are_classes:
        few_each = n_values > _MOST_PLAIN_CLASSES // 2 and n_rows < _ROWS_PER_CLASS * n_values
        many = n_values > _MOST_PLAIN_CLASSES and not _are_numbered(labels, counts)
        if not few_each and not many:
            return None
        return (
            f"y holds {n_values} different integers ({_range(labels)}) and is taken for "
            f"classes; if it is a quantity, pass {ways.to_numbers}, and if these are classes, "
            f"{ways.to_classes}."
        )
    if not _are_numbered(labels, counts):
        return None
    return (
        f"y holds the {n_values} integers {_range(labels)}, each of them often, and is taken "
        f"for a quantity; if these are classes, pass {ways.to_classes}, and if it is a quantity, "
        f"{ways.to_numbers}."
    )


def _are_numbered(labels: NDArray[Any], counts: Integers) -> bool:
    """Whether numbers look like those of classes: 0, 1, 2, ... without a hole, none rare."""
    consecutive = np.array_equal(labels, np.arange(len(labels)) + labels[0]) and labels[0] in (0, 1)
    enough = counts.min() >= max(_ROWS_PER_CLASS, 0.2 * counts.mean())
    return bool(consecutive and enough)


def _range(labels: NDArray[Any]) -> str:
    return f"{labels[0]:g} to {labels[-1]:g}"


@dataclass(frozen=True)
class _Single:
    """How well one column alone tells the target: share missed, by it and by the best guess."""

    name: str
    missed: float
    by_guess: float
    n_rows: int


def leak_warnings(problem: Problem, cells: Sequence[Cells]) -> Iterator[str]:
    """Name columns that hold the target, and columns that alone predict it."""
    names = [str(name) for name in problem.table.names.tolist()]
    singles = list(_singles(problem, cells, names))
    found = [single for single in singles if _tells(single, problem)]
    same = {single.name: _is_target(problem, cells[names.index(single.name)]) for single in found}
    # A table's own column is called like y wherever y was made from it and from others, too.
    named = {
        single.name
        for single in singles
        if single.name == problem.target_name and single.missed <= _MISSED_BY_NAME * single.by_guess
    }
    holding = [name for name in names if same.get(name) or name in named]
    if holding:
        column, are, drop = (
            ("column", "is", "it") if len(holding) == 1 else ("columns", "are", "them")
        )
        why = "equal to y up to recoding" if same.get(holding[0]) else "called like y"
        yield (
            f"the target is in X: {column} {some(holding)} {are} {why}; values would be about the "
            f"target itself, so drop {drop} from X."
        )
    leaking = [single for single in found if single.name not in holding]
    if leaking:
        parts = [_format_leak(single, problem) for single in leaking[:_NAMED]]
        more = f" and {len(leaking) - _NAMED} more" if len(leaking) > _NAMED else ""
        column = "column" if len(leaking) == 1 else "columns"
        yield (
            f"{column} {', '.join(parts)}{more} alone predicts the target almost without error; "
            "if that is known only once the target is, drop it from X."
        )


def _format_leak(single: _Single, problem: Problem) -> str:
    if problem.classes is None:
        return f"{single.name!r} ({1 - single.missed:.2%} of the variance of ranks)"
    return f"{single.name!r} ({1 - single.missed:.1%} right, best guess {1 - single.by_guess:.1%})"


def _tells(single: _Single, problem: Problem) -> bool:
    if single.n_rows < _FEWEST_ROWS:
        return False
    if problem.classes is None:
        return single.missed <= 1 - _EXPLAINED
    enough = single.by_guess * single.n_rows >= _FEWEST_OTHERS
    return enough and single.missed <= _MISSED * single.by_guess


def _singles(problem: Problem, cells: Sequence[Cells], names: list[str]) -> Iterator[_Single]:
    n_rows = len(problem.target)
    if n_rows < _FEWEST_ROWS:
        return
    rows = np.arange(n_rows)
    if n_rows > _LEAK_ROWS:
        rows = np.sort(np.random.default_rng(0).choice(n_rows, _LEAK_ROWS, replace=False))
    # Copies of a row would tell each other's labels by any of their cells.
    rows = rows[np.unique(_hash_rows([own.codes(rows) for own in cells]), return_index=True)[1]]
    labels, codes = np.unique(problem.target[rows], return_inverse=True)
    if len(labels) < 2 or len(rows) < _FEWEST_ROWS:
        return
    for name, own in zip(names, cells, strict=True):
        if problem.classes is None:
            missed, guess = _measure_missed_variance(own, rows, codes), 1.0
        else:
            guess = 1 - float(np.bincount(codes).max()) / len(codes)
            missed = _measure_missed_labels(own, rows, codes, len(labels))
        yield _Single(name, missed, guess, len(rows))


def _groups(own: Cells, rows: Integers) -> tuple[Floats, Integers]:
    """Distinct cells of some rows, a missing value among them, and which each row has."""
    values, groups = np.unique(own.rows[rows], return_inverse=True)
    return values.astype(np.float64), groups


def _nearest_groups(values: Floats) -> Integers:
    """The nearest other value of each value; a missing value is far from all."""
    n = len(values)
    if n == 1:
        return np.zeros(1, dtype=np.int64)
    steps = np.diff(values)
    steps = np.where(np.isnan(steps), np.inf, steps)
    left, right = np.concatenate([[np.inf], steps]), np.concatenate([steps, [np.inf]])
    return np.where(left <= right, np.arange(n) - 1, np.arange(n) + 1).clip(0, n - 1)


def _measure_missed_labels(own: Cells, rows: Integers, codes: Integers, n_labels: int) -> float:
    """Share of rows whose label the others of the same, or else of the nearest, cell miss."""
    values, groups = _groups(own, rows)
    if len(values) == 1:
        return 1.0
    counts = np.bincount(groups * n_labels + codes, minlength=len(values) * n_labels)
    counts = counts.reshape(len(values), n_labels)
    others = counts[groups]
    others[np.arange(len(rows)), codes] -= 1
    alone = others.sum(axis=1) == 0
    if own.ordered:
        others[alone] = counts[_nearest_groups(values)[groups[alone]]]
    else:
        # A category that comes once tells nothing; then all rows are asked.
        others[alone] = counts.sum(axis=0)
    right = others[np.arange(len(rows)), codes]
    others[np.arange(len(rows)), codes] = -1
    return float(np.mean(right <= others.max(axis=1)))


def _measure_missed_variance(own: Cells, rows: Integers, codes: Integers) -> float:
    """Part of the variance of ranks that others of the same or the nearest cell leave."""
    values, groups = _groups(own, rows)
    if len(values) == 1:
        return 1.0
    ends = np.cumsum(np.bincount(codes))
    ranks = (ends - (np.bincount(codes) - 1) / 2)[codes]
    sums, sizes = np.bincount(groups, ranks), np.bincount(groups)
    single = sizes[groups] == 1
    others = (sums[groups] - ranks) / np.maximum(sizes[groups] - 1, 1)
    if own.ordered:
        near = _nearest_groups(values)[groups]
        others[single] = (sums / sizes)[near[single]]
    else:
        others[single] = ranks.mean()
    return float(np.mean((others - ranks) ** 2) / np.var(ranks))


def _is_target(problem: Problem, own: Cells) -> bool:
    """Whether a column is the target, one to one, on all rows."""
    known = own.has_value()
    if not known.all():
        return False
    pairs = np.unique(own.rows)
    labels, codes = np.unique(problem.target, return_inverse=True)
    if len(pairs) != len(labels):
        return False
    groups = np.searchsorted(pairs, own.rows)
    firsts = np.full(len(pairs), -1)
    firsts[groups] = codes
    one_to_one = len(np.unique(firsts)) == len(pairs) and bool((firsts[groups] == codes).all())
    # Of a numeric target any column of different numbers is one to one; it must keep the order.
    return one_to_one and (problem.classes is not None or abs(_monotone(firsts)) == 1)


def _monotone(order: Integers) -> int:
    steps = np.diff(order)
    return 1 if (steps > 0).all() else -1 if (steps < 0).all() else 0


def copies_warning(problem: Problem, cells: Sequence[Cells]) -> str | None:
    """Warn if more validation rows have a copy among the training rows than chance explains."""
    found = _Copies.of(problem, [own.all_codes() for own in cells])
    few = max(_SHARE_OF_COPIES * len(found.copied), _FEWEST_COPIES)
    if found.size < _FEWEST_VALIDATION_ROWS or found.copied.sum() < few:
        return None
    held_out = len(problem.folds) == 1
    if not (held_out and found.beyond_repeats()) and not found.beyond_chance():
        return None
    if held_out:
        return _format_held_out(found, problem)
    return _format_folds(found) if problem.folds else _format_out_of_bag(found)


@dataclass(frozen=True, eq=False)
class _Copies:
    """Which validation rows are among the training rows.

    Parameters
    ----------
    sides : list of list of array
        Codes of cells: column by column, of the training rows and of each fold.
    codes : array
        Which row is which: training rows, and after them the validation rows of all folds.
    times : array
        How often each row comes among the training rows.
    n_rows : int
        Training rows.
    copied : array of bool
        Which validation rows have a copy; without folds each row is scored by the others.
    """

    sides: list[list[Integers]]
    codes: Integers
    times: Integers
    n_rows: int
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
        for fold, own in zip(problem.folds, validation, strict=True):
            seen = np.zeros(len(times), dtype=bool)
            seen[codes[:n_rows][fold.may_train]] = True
            copied.append(seen[codes[start : start + len(own)]])
            start += len(own)
        return cls(sides, codes, times, n_rows, np.concatenate(copied))

    @property
    def size(self) -> int:
        """Training rows or validation rows, whichever are fewer."""
        return min(self.n_rows, len(self.copied))

    @property
    def n_distinct(self) -> int:
        """Different training rows."""
        return int(np.count_nonzero(self.times))

    def beyond_repeats(self) -> bool:
        """Whether more validation rows are repeated than rows repeat among the training rows."""
        share = float(np.mean(self.times[self.codes[: self.n_rows]] > 1))
        expected = share * len(self.copied)
        margin = _SIGMAS * np.sqrt(expected * (1 - share) + 1)
        excess = float(self.copied.sum()) - expected
        return bool(excess > max(_SHARE_OF_COPIES * len(self.copied), margin))

    def beyond_chance(self) -> bool:
        """Whether rows repeat that chance would not repeat, and not only a few of them.

        Rows of a table with few different values, such as grades from 1 to 10, come twice by
        nature. A row is a copy if its three rarest cells would hardly meet again by chance.
        """
        draw = np.random.default_rng(0)
        start = len(self.codes) - len(self.copied)
        positions = start + np.flatnonzero(self.copied)
        few = len(positions) <= _MOST_COPIES_CHECKED
        looked = positions if few else draw.choice(positions, _MOST_COPIES_CHECKED, replace=False)
        among = np.arange(self.n_rows)
        if self.n_rows > _FREQUENCY_ROWS:
            among = draw.choice(self.n_rows, _FREQUENCY_ROWS, replace=False)
        alike = _times(self.codes[among], self.codes[looked])
        shares = []
        for side in self.sides:
            everyone = np.concatenate(side)
            others = _times(everyone[among], everyone[looked]) - alike
            shares.append((others + 1) / (len(among) - alike + 1))
        rarest = np.sort(np.array(shares), axis=0)[:_RAREST]
        unlikely = self.n_rows * rarest.prod(axis=0) < _CHANCE
        share = float(unlikely.mean()) * len(positions) / len(self.copied)
        return share >= _SHARE_OF_COPIES


def _format_held_out(found: _Copies, problem: Problem) -> str:
    n_alike = _n_with_label(problem, found.codes, found.copied)
    return (
        f"{found.copied.sum():,} of {len(found.copied):,} rows of X_val are in X as well, the same "
        f"in every column ({n_alike:,} of them with the same label): such rows are scored by "
        "themselves, so that their values come out too high; drop them from X or from X_val, or "
        "leave X_val out, for cross-validation."
    )


def _format_folds(found: _Copies) -> str:
    return (
        f"{found.copied.sum():,} of {len(found.copied):,} rows have a copy in another fold "
        f"({found.n_distinct:,} of {found.n_rows:,} rows are different): copies score each other, "
        "so that their values come out too high; drop duplicate rows, or keep copies together with "
        "groups= and cv=GroupKFold()."
    )


def _format_out_of_bag(found: _Copies) -> str:
    return (
        f"{found.copied.sum():,} of {found.n_rows:,} rows have a copy in X ({found.n_distinct:,} "
        "are different): trees that did not see a row saw its copy, so that its values come out "
        "too high; drop duplicate rows."
    )


def _hash_rows(columns: list[Integers]) -> NDArray[np.uint64]:
    """One number for each row, equal where all cells are."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for codes in columns:
        mixed += codes.view(np.uint64)
        mixed *= np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _times(among: Integers, wanted: Integers) -> Integers:
    """How often each wanted number comes."""
    ordered = np.sort(among)
    left, right = (np.searchsorted(ordered, wanted, side) for side in ("left", "right"))
    return np.asarray(right - left, dtype=np.int64)


def _n_with_label(problem: Problem, codes: Integers, copied: Mask) -> int:
    (fold,) = problem.folds
    labels = np.unique(np.concatenate([problem.target, fold.target]), return_inverse=True)[1]
    both = codes * (int(labels.max()) + 1) + labels
    n_rows = len(problem.target)
    return int(np.isin(both[n_rows:][copied], both[:n_rows]).sum())


def cells_of(problem: Problem, distances: Distances | None = None) -> list[Cells]:
    """Read all columns of a problem; those that distances have read already are taken from them."""
    tables = [problem.table, *(fold.table for fold in problem.folds)]
    read: list[Cells] = []
    for position in range(problem.table.shape[1]):
        found = None if distances is None else _read_measured(distances, position)
        read.append(found or _raw([table.column(position) for table in tables]))
    return read


def _read_measured(distances: Distances, position: int) -> Cells | None:
    """Cells as distances hold them; None where codes of rows and of queries are not the same."""
    part, at = distances.scales.where(position)
    if part == "coded":
        return None
    rows, *validation = (getattr(side, part)[at] for side in (distances.rows, *distances.queries))
    return Cells(part == "numbers", rows, validation)


def _raw(sides: list[NDArray[Any]]) -> Cells:
    codes_of_types = {side.dtype.kind for side in sides}
    if codes_of_types <= set("iufb"):
        rows, *validation = (side.astype(np.float64) for side in sides)
        return Cells(True, rows, validation)
    if codes_of_types <= set("Mm") and len(codes_of_types) == 1:
        rows, *validation = (_microseconds(side) for side in sides)
        return Cells(True, rows, validation)
    codes: dict[Any, int] = {}
    coded = [_encode(side, codes) for side in sides]
    return Cells(False, coded[0], coded[1:])


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
    """What columns are by their type and cells, where a model says what is made of them."""
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


def column_table(
    table: Table, cells: Sequence[Cells], plays: Sequence[tuple[ReadAs, str]]
) -> ColumnTable:
    """Count the training rows' cells of all columns, and note what is unusual."""
    return ColumnTable(
        tuple(
            _info(table, position, own, *play)
            for position, (own, play) in enumerate(zip(cells, plays, strict=True))
        )
    )


def _info(table: Table, position: int, own: Cells, read_as: ReadAs, distance: str) -> ColumnInfo:
    known = own.rows[own.has_value()]
    missing = len(own.rows) - len(known)
    notes: tuple[str, ...] = ()
    if own.ordered:
        distinct = len(np.unique(known))
        is_integer = read_as in ("number", "category") and _are_integers(
            table, position, known, missing
        )
    else:
        counts = np.bincount(known) if len(known) else np.zeros(0, dtype=np.int64)
        distinct, is_integer = int(np.count_nonzero(counts)), True
        named = isinstance(table.dtype(position), nw.Categorical | nw.Enum)
        notes = notes_on_values(*_values(table.column(position), own.rows, counts), named=named)
    notes = (
        *notes_on_size(distinct, len(known), missing, integral=is_integer and not notes),
        *notes,
    )
    return ColumnInfo(
        str(table.names.tolist()[position]), read_as, missing, distinct, False, distance, notes
    )


def _values(
    raw: NDArray[Any], codes: NDArray[Any], counts: NDArray[np.int64]
) -> tuple[list[Any], list[int]]:
    """Distinct cells, and how often each came."""
    own, firsts = np.unique(codes, return_index=True)
    firsts = firsts[own != MISSING]
    return raw[firsts].tolist(), counts[own[own != MISSING]].tolist()


def _are_integers(table: Table, position: int, known: NDArray[np.float64], missing: int) -> bool:
    """Return whether numbers are integers by type, or would be without missing values."""
    dtype = table.dtype(position)
    if dtype is not None and dtype.is_integer():
        return True
    if isinstance(table.data, np.ndarray) and table.data.dtype.kind in "iu":
        return True
    return missing > 0 and bool((known == np.floor(known)).all())
