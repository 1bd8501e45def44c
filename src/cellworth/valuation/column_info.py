"""ColumnInfo: how each column was read, and what is unusual about it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from cellworth.data.column import Column
from cellworth.data.text import list_first
from cellworth.data.views import html_table, table_lines, view

# Fewer values may all differ by chance.
_MIN_IDS = 20
_SHARE_OF_IDS = 0.9
# Integers of so few different values, or of one length, are codes rather than quantities.
_MAX_CODES = 10
_SHORTEST_CODE = 5
_MAX_UNITS = 4
_DIGITS = (
    r"\d{1,3}(?:[,'\u00a0\u202f ]\d{3})+(?:\.\d*)?"  # 1,234,567.8
    r"|\d{1,3}(?:\.\d{3})+,\d+"  # 1.234,5
    r"|\d+,\d+"  # 12,5
    r"|\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?"
)
NUMBER_PATTERN = re.compile(
    rf"\s*[$€£]?\s*[+-]?\s*[$€£]?(?P<digits>{_DIGITS})\s*(?P<unit>[%€$£]|[^\W\d_]{{1,12}}\.?)?\s*"
)
DATE_PATTERN = re.compile(
    r"\s*(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.](?:\d{4}|\d{2}))"
    r"(?:[T ]+\d{1,2}:\d{2}.*)?\s*"
)
ReadAs = Literal["number", "category", "date", "duration", "not known"]
# Notes for which the summary lists columns, in this order.
_NOTES = ("nearly all different", "constant", "all missing")
_PLURALS = {
    "number": "numbers",
    "category": "categories",
    "date": "dates",
    "duration": "durations",
    "not known": "of other types",
}
_NAMES_SHOWN = 3
_LEFT = ("column", "read_as", "distance", "note")
_LINES_SHOWN = 60


def name_kind(column: Column) -> ReadAs:
    """Return what a column is said to be read as."""
    if column.kind in ("number", "date", "duration"):
        return column.kind
    return "not known" if column.kind == "other" else "category"


def find_notes(
    distinct: int, known: int, missing: int, *, integral: bool, at_least: bool = False
) -> tuple[str, ...]:
    """Return notes on the number of distinct values; ``integral`` for strings and integers."""
    if known == 0:
        return ("all missing",)
    if distinct == 1:
        return ("constant" if missing == 0 else "constant (except for missing values)",)
    many = known >= _MIN_IDS and distinct >= _SHARE_OF_IDS * known
    return ("nearly all different",) if integral and many and not at_least else ()


def are_codes(found: list[re.Match[str]], known: int) -> bool:
    """Return whether numbers are codes: leading zeros, few, of one length or all different."""
    digits = [match["digits"] for match in found]
    units = {(match["unit"] or "").lower().rstrip(".") for match in found} - {""}
    if len(units) > _MAX_UNITS or any(re.fullmatch(r"0\d+", text) for text in digits):
        return True
    if units or not all(text.isdigit() for text in digits):
        return False
    lengths = {len(text) for text in digits}
    of_one_length = len(lengths) == 1 and min(lengths) >= _SHORTEST_CODE
    all_differ = known >= _MIN_IDS and len(digits) >= _SHARE_OF_IDS * known
    return len(digits) <= _MAX_CODES or of_one_length or all_differ


@dataclass(frozen=True)
class ColumnInfo:
    """The detected type of one raw column, with counts and notes.

    Parameters
    ----------
    name : str
    read_as : {"number", "category", "date", "duration", "not known"}
    missing : int
        Training rows without a value.
    distinct : int
        Distinct values in the training rows, without missing ones.
    at_least : bool
        Whether ``distinct`` is a lower bound, as for a table in shards.
    distance : str
        Squared distance of two cells of this column; empty if a model is valued.
    notes : tuple of str
        What to check: "constant", "all missing" or "nearly all different". What is wrong with the
        cells is for :func:`~cellworth.audit` to say.

    See Also
    --------
    ColumnTable

    Examples
    --------
    >>> import pyarrow as pa
    >>> from cellworth import KNNValuer
    >>> X = pa.table({"age": [39, 50, None], "job": ["cook", "cook", "smith"]})
    >>> info = KNNValuer(1).fit(X, [0, 1, 1], X_val=X, y_val=[0, 1, 1]).valuation_.column_info
    >>> info["age"].read_as, info["age"].missing
    ('number', 1)
    """

    name: str
    read_as: ReadAs
    missing: int
    distinct: int
    at_least: bool = False
    distance: str = ""
    notes: tuple[str, ...] = ()

    def has(self, note: str) -> bool:
        """Return whether the column has a note, with or without a count."""
        return any(own.partition(" (")[0] == note for own in self.notes)


@dataclass(frozen=True)
class ColumnTable:
    """The detected types of all raw columns: prints as a table, indexed by column name.

    Parameters
    ----------
    columns : tuple of ColumnInfo
        In the order of the user's table.

    See Also
    --------
    ColumnInfo

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X = [[0.0, "red"], [1.0, "red"], [9.0, "blue"], [8.0, None]]
    >>> valuer = KNNValuer(1).fit(X, [0, 0, 1, 1], X_val=X, y_val=[0, 0, 1, 1])
    >>> valuer.columns_
    column  read_as   missing  distinct  distance
    x0      number          0         4  (difference / 5.56)²
    x1      category        1         2  0 or 4.5
    >>> valuer.columns_["x1"].missing
    1
    """

    columns: tuple[ColumnInfo, ...]

    def __len__(self) -> int:
        return len(self.columns)

    def __iter__(self) -> Iterator[ColumnInfo]:
        """Iterate over the columns in the order of the table."""
        return iter(self.columns)

    def __getitem__(self, name: Any) -> ColumnInfo:
        """Return the information on a column by name."""
        for column in self.columns:
            if column.name == str(name):
                return column
        raise KeyError(f"there is no column {name!r}; columns are {', '.join(self.names[:5])} ...")

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    @property
    def summary(self) -> str:
        """One line: the number of columns of each type, and the names of those with notes."""
        counts = Counter(column.read_as for column in self.columns)
        parts = []
        for kind in get_args(ReadAs):
            if count := counts[kind]:
                single = count == 1 and kind in ("number", "category", "date", "duration")
                parts.append(f"{count:,} {kind if single else _PLURALS[kind]}")
        named = [
            f"{len(names)} {note}: {list_first(names, _NAMES_SHOWN)}"
            for note in _NOTES
            if (names := [column.name for column in self.columns if column.has(note)])
        ]
        return "; ".join([", ".join(parts), *named])

    def to_plain(self) -> list[dict[str, Any]]:
        """Return lists, numbers and strings, ready for JSON."""
        return [{**asdict(column), "notes": list(column.notes)} for column in self.columns]

    @classmethod
    def from_plain(cls, plain: list[Mapping[str, Any]]) -> ColumnTable:
        """Create a ColumnTable from the output of :meth:`to_plain`."""
        read = []
        for entry in plain:
            if entry["read_as"] not in get_args(ReadAs):
                raise ValueError(f"a column is read as {entry['read_as']!r}")
            read.append(ColumnInfo(**{**entry, "notes": tuple(map(str, entry["notes"]))}))
        return cls(tuple(read))

    def __repr__(self) -> str:
        shown = self._columns_to_print()
        left = len(self) - _LINES_SHOWN
        more = [f"... and {left:,} more"] if left > 0 else []
        return "\n".join([*table_lines(shown, _LEFT), *more])

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return view(html_table(self._columns_to_print()))

    def _columns_to_print(self) -> dict[str, list[str]]:
        """Return the printed columns; empty ones are left out."""
        shown = self.columns[:_LINES_SHOWN]
        parts: dict[str, list[str]] = {
            "column": [column.name for column in shown],
            "read_as": [str(column.read_as) for column in shown],
            "missing": [f"{column.missing:,}" for column in shown],
            "distinct": [f"{column.distinct:,}{'+' * column.at_least}" for column in shown],
            "distance": [column.distance for column in shown],
            "note": ["; ".join(column.notes) for column in shown],
        }
        return {name: texts for name, texts in parts.items() if any(texts)}
