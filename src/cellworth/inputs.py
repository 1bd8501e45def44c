"""What columns are: cells as arrays in which equal cells are equal, and what strikes in them."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import is_missing
from cellworth.column_info import (
    ALL_MISSING,
    CONSTANT,
    DATES_AS_TEXT,
    ID_LIKE,
    MIXED,
    NUMBERS_AS_TEXT,
    ColumnInfo,
    ColumnTable,
    TakenFor,
)
from cellworth.counts import GAP
from cellworth.neighbours.columns import common_kind
from cellworth.neighbours.distances import Distances, Rulers
from cellworth.problem import Problem
from cellworth.tables import Table

# Fewer values than this are different by chance.
_FEWEST_IDS = 20
_SHARE_OF_IDS = 0.9
_SHARE_OF_NUMBERS = 0.9
# Whole numbers of so few different values, or of one length, are codes rather than quantities.
_MOST_CODES = 10
_SHORTEST_CODE = 5
_MOST_UNITS = 4
_FIRST_LOOK = 1000
_DAY = 86_400e6

# What people write where a value is missing; none of it tells anything of a cell.
_GAP_MARKS = {"", "?", "-", "--", ".", "n/a", "na", "nan", "null", "#n/a", "<na>", "(null)"}
_DIGITS = (
    r"\d{1,3}(?:[,'\u00a0\u202f ]\d{3})+(?:\.\d*)?"  # 1,234,567.8
    r"|\d{1,3}(?:\.\d{3})+,\d+"  # 1.234,5
    r"|\d+,\d+"  # 12,5
    r"|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
)
_NUMBER = re.compile(
    rf"\s*[$€£]?\s*[+-]?\s*[$€£]?(?P<digits>{_DIGITS})\s*(?P<unit>[%€$£]|[^\W\d_]{{1,12}}\.?)?\s*"
)
_DATE = re.compile(
    r"\s*(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))"
    r"(?:[T ]+\d{1,2}:\d{2}.*)?\s*"
)


class Cells(NamedTuple):
    """Cells of one column, of training rows and of judged rows, fold by fold.

    Equal cells are equal numbers: floats with NaN for gaps where ``ordered``, else codes with -1.
    """

    ordered: bool
    rows: NDArray[Any]
    judged: list[NDArray[Any]]

    def codes(self, rows: NDArray[Any]) -> NDArray[np.int64]:
        """Whole numbers that are equal where cells of these training rows are."""
        return self._codes(self.rows[rows])

    def all_codes(self) -> list[NDArray[np.int64]]:
        """The same for all training rows, and for the judged rows of each fold."""
        return [self._codes(side) for side in (self.rows, *self.judged)]

    def _codes(self, side: NDArray[Any]) -> NDArray[np.int64]:
        if not self.ordered:
            return side.astype(np.int64)
        # Adding 0.0 turns -0.0 into 0.0; every NaN becomes the same one.
        return np.where(np.isnan(side), np.nan, side + 0.0).view(np.int64)

    def known(self) -> NDArray[np.bool_]:
        """Which training rows have a value."""
        known: NDArray[np.bool_] = ~np.isnan(self.rows) if self.ordered else self.rows != GAP
        return known


def cells_of(problem: Problem, distances: Distances | None = None) -> list[Cells]:
    """Read all columns of a problem; those that distances have read already are taken from them."""
    tables = [problem.table, *(fold.table for fold in problem.folds)]
    read: list[Cells] = []
    for place in range(problem.table.shape[1]):
        found = None if distances is None else _measured(distances, place)
        read.append(found or _raw([table.column(place) for table in tables]))
    return read


def _measured(distances: Distances, place: int) -> Cells | None:
    """Cells as distances hold them; None where codes of rows and of queries are not the same."""
    part, at = distances.rulers.where(place)
    if part == "coded":
        return None
    rows, *judged = (getattr(side, part)[at] for side in (distances.rows, *distances.queries))
    return Cells(part == "numbers", rows, judged)


def _raw(sides: list[NDArray[Any]]) -> Cells:
    kinds = {side.dtype.kind for side in sides}
    if kinds <= set("iufb"):
        rows, *judged = (side.astype(np.float64) for side in sides)
        return Cells(True, rows, judged)
    if kinds <= set("Mm") and len(kinds) == 1:
        rows, *judged = (_microseconds(side) for side in sides)
        return Cells(True, rows, judged)
    codes: dict[Any, int] = {}
    coded = [_coded(side, codes) for side in sides]
    return Cells(False, coded[0], coded[1:])


def _microseconds(times: NDArray[Any]) -> NDArray[np.float64]:
    micros = times.astype(f"{times.dtype.kind}8[us]").view(np.int64).astype(np.float64)
    return np.where(np.isnat(times), np.nan, micros)


def _coded(cells: NDArray[Any], codes: dict[Any, int]) -> NDArray[np.int64]:
    listed = (_hashable(cell) for cell in cells.tolist())
    return np.array(
        [GAP if is_missing(cell) else codes.setdefault(cell, len(codes)) for cell in listed],
        dtype=np.int64,
    )


def _hashable(cell: Any) -> Any:
    try:
        hash(cell)
    except TypeError:
        return repr(cell)
    return cell


def played(distances: Distances, table: Table) -> list[tuple[TakenFor, str]]:
    """What nearest neighbours take each column for, and what two of its cells count."""
    return [
        _played(distances.rulers, place, lambda place=place: table.column(place))  # type: ignore[misc]
        for place in range(table.shape[1])
    ]


def _played(rulers: Rulers, place: int, cells: Callable[[], NDArray[Any]]) -> tuple[TakenFor, str]:
    part, at = rulers.where(place)
    if part == "coded":
        return "own distance", "your function"
    if part == "categories":
        return "category", f"0 or {rulers.mismatch(at):.3g}"
    taken_for = quantity_of(cells())
    return taken_for, distance_in_words(rulers.spread(at), taken_for)


def distance_in_words(spread: float, taken_for: TakenFor) -> str:
    """What two numbers, dates or durations count, whose column has this spread."""
    if not spread:
        return "0"
    if taken_for == "number":
        return "difference²" if spread == 1 else f"(difference / {spread:.3g})²"
    return f"(difference / {spread / _DAY:.3g} days)²"


def guessed(table: Table) -> list[tuple[TakenFor, str]]:
    """What columns are by their type and cells, where a model says what is made of them."""
    found: list[tuple[TakenFor, str]] = []
    for place, name in enumerate(table.names.tolist()):
        cells = table.column(place)
        try:
            kind = common_kind([table.dtype(place)], [cells], name)
        except TypeError:
            found.append(("not known", ""))
            continue
        found.append(("category" if kind == "categorical" else quantity_of(cells), ""))
    return found


def quantity_of(cells: NDArray[Any]) -> TakenFor:
    """Whether numbers are numbers, dates or durations."""
    if cells.dtype.kind in "Mm":
        return "date" if cells.dtype.kind == "M" else "duration"
    if cells.dtype.kind == "O":
        known = next((cell for cell in cells.tolist() if not is_missing(cell)), None)
        if isinstance(known, datetime.date):
            return "date"
        if isinstance(known, datetime.timedelta):
            return "duration"
    return "number"


def column_table(
    table: Table, cells: Sequence[Cells], plays: Sequence[tuple[TakenFor, str]]
) -> ColumnTable:
    """Count the training rows' cells of all columns, and note what strikes."""
    return ColumnTable(
        tuple(
            _info(table, place, own, *play)
            for place, (own, play) in enumerate(zip(cells, plays, strict=True))
        )
    )


def _info(table: Table, place: int, own: Cells, taken_for: TakenFor, distance: str) -> ColumnInfo:
    known = own.rows[own.known()]
    missing = len(own.rows) - len(known)
    notes: tuple[str, ...] = ()
    if own.ordered:
        distinct = len(np.unique(known))
        whole = taken_for in ("number", "category") and _are_whole(table, place, known, missing)
    else:
        counts = np.bincount(known) if len(known) else np.zeros(0, dtype=np.int64)
        distinct, whole = int(np.count_nonzero(counts)), True
        named = isinstance(table.dtype(place), nw.Categorical | nw.Enum)
        notes = notes_on_values(*_values(table.column(place), own.rows, counts), named=named)
    notes = (*notes_on_size(distinct, len(known), missing, whole=whole and not notes), *notes)
    return ColumnInfo(
        str(table.names.tolist()[place]), taken_for, missing, distinct, False, distance, notes
    )


def _values(
    raw: NDArray[Any], codes: NDArray[Any], counts: NDArray[np.int64]
) -> tuple[list[Any], list[int]]:
    """Distinct cells, and how often each came."""
    own, firsts = np.unique(codes, return_index=True)
    firsts = firsts[own != GAP]
    return raw[firsts].tolist(), counts[own[own != GAP]].tolist()


def _are_whole(table: Table, place: int, known: NDArray[np.float64], missing: int) -> bool:
    """Whether numbers are whole by their type, or would be but for gaps."""
    dtype = table.dtype(place)
    if dtype is not None and dtype.is_integer():
        return True
    if isinstance(table.data, np.ndarray) and table.data.dtype.kind in "iu":
        return True
    return missing > 0 and bool((known == np.floor(known)).all())


def notes_on_size(
    distinct: int, known: int, missing: int, *, whole: bool, at_least: bool = False
) -> tuple[str, ...]:
    """What the number of different values tells; ``whole`` for text and for whole numbers."""
    if known == 0:
        return (ALL_MISSING,)
    if distinct == 1:
        return (CONSTANT if missing == 0 else f"{CONSTANT} (but for gaps)",)
    many = known >= _FEWEST_IDS and distinct >= _SHARE_OF_IDS * known
    return (ID_LIKE,) if whole and many and not at_least else ()


def notes_on_values(
    values: Sequence[Any], counts: Sequence[int], *, named: bool = False
) -> tuple[str, ...]:
    """What different cells of a column of text or objects have in common.

    Where its type has ``named`` them categories, text that reads as numbers is meant so.
    """
    look = TextLook.of(values, counts)
    notes = []
    if look.n_texts and not named and look.is_numbers:
        notes.append(f"{NUMBERS_AS_TEXT} ({look.numbers:,} of {look.known:,})")
    elif look.n_texts and not named and look.is_dates:
        notes.append(f"{DATES_AS_TEXT} ({look.dates:,} of {look.known:,})")
    if look.n_types > 1:
        notes.append(MIXED)
    notes += [f"{mark!r} {count:,} times" for mark, count in look.marks]
    return tuple(notes)


@dataclass(frozen=True)
class TextLook:
    """What cells of text look like.

    Parameters
    ----------
    known : int
        Cells that are not missing.
    numbers, dates : int
        How many of them are numbers, or read as such; how many read as dates.
    marks : tuple of (str, int)
        What stands for a gap, and how often.
    n_texts : int
        Different cells that are text.
    n_types : int
        How many of text, numbers, truth values and other objects there are.
    are_codes : bool
        Whether the numbers are names: zeros in front, few of them, or all of one length.
    """

    known: int
    numbers: int
    dates: int
    marks: tuple[tuple[str, int], ...]
    n_texts: int
    n_types: int
    are_codes: bool

    @property
    def is_numbers(self) -> bool:
        """Whether the column was meant to hold numbers."""
        told = self.known - sum(count for _, count in self.marks)
        return 0 < _SHARE_OF_NUMBERS * told <= self.numbers and not self.are_codes

    @property
    def is_dates(self) -> bool:
        """Whether the column was meant to hold dates."""
        told = self.known - sum(count for _, count in self.marks)
        return 0 < _SHARE_OF_NUMBERS * told <= self.dates

    @classmethod
    def of(cls, values: Sequence[Any], counts: Sequence[int]) -> TextLook:
        """Look at different cells; ``counts`` tells how often each came."""
        pairs = list(zip(values, counts, strict=True))
        types = {_type_of(value) for value in values}
        texts = [(value, count) for value, count in pairs if isinstance(value, str)]
        marks = tuple(pair for pair in texts if pair[0].strip().lower() in _GAP_MARKS)
        told = [pair for pair in texts if pair[0].strip().lower() not in _GAP_MARKS]
        numeric = sum(count for value, count in pairs if _type_of(value) == "number")
        known = sum(counts)
        dates = _matching(_DATE.fullmatch, told)
        found = [] if dates else _matching(_NUMBER.fullmatch, told)
        read = [(match, count) for match, count in found if match is not None]
        return cls(
            known,
            numeric + sum(count for _, count in read),
            sum(count for match, count in dates if match is not None),
            marks,
            len(texts),
            len(types),
            _are_codes(read, known) and numeric == 0,
        )


def reads_as_number(cell: Any) -> bool:
    """Tell whether a cell is a number, or text that reads as one."""
    return _type_of(cell) == "number" or (isinstance(cell, str) and bool(_NUMBER.fullmatch(cell)))


def is_gap_mark(cell: Any) -> bool:
    """Tell whether a cell is text that people write where a value is missing."""
    return isinstance(cell, str) and cell.strip().lower() in _GAP_MARKS


def _matching(
    match: Callable[[str], re.Match[str] | None], texts: list[tuple[str, int]]
) -> list[tuple[re.Match[str] | None, int]]:
    """Matches of all texts; none at all where the first ones show that few would match."""
    first = [(match(text), count) for text, count in texts[:_FIRST_LOOK]]
    if 2 * sum(found is not None for found, _ in first) < len(first):
        return []
    return first + [(match(text), count) for text, count in texts[_FIRST_LOOK:]]


def _are_codes(read: list[tuple[re.Match[str], int]], known: int) -> bool:
    """Tell whether numbers are names: zeros in front, few, of one length or all different."""
    digits = [match["digits"] for match, _ in read]
    units = {(match["unit"] or "").lower().rstrip(".") for match, _ in read} - {""}
    if len(units) > _MOST_UNITS or any(_has_zero_in_front(text) for text in digits):
        return True
    if units or not all(text.isdigit() for text in digits):
        return False
    lengths = {len(text) for text in digits}
    of_one_length = len(lengths) == 1 and min(lengths) >= _SHORTEST_CODE
    all_differ = known >= _FEWEST_IDS and len(digits) >= _SHARE_OF_IDS * known
    return len(digits) <= _MOST_CODES or of_one_length or all_differ


def _has_zero_in_front(digits: str) -> bool:
    return len(digits) > 1 and digits[0] == "0" and digits.isdigit()


def _type_of(cell: Any) -> str:
    if isinstance(cell, str):
        return "text"
    if isinstance(cell, bool | np.bool_):
        return "truth"
    # Whatever float() takes that is no text: whole numbers, floats, decimals, fractions.
    return "number" if hasattr(cell, "__float__") else "other"
