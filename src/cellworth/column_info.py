"""ColumnTable: the detected type of each raw column, with counts and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from cellworth.listing import frame, table_lines
from cellworth.notebook import table, view

TakenFor = Literal["number", "category", "date", "duration", "own distance", "not known"]

# Notes for which the summary lists columns, in this order.
CONSTANT, ALL_MISSING, ID_LIKE = "constant", "all missing", "id-like"
NUMBERS_AS_TEXT, DATES_AS_TEXT, MIXED = "numbers as text", "dates as text", "mixed"
_NAMED = (ID_LIKE, NUMBERS_AS_TEXT, DATES_AS_TEXT, MIXED, CONSTANT, ALL_MISSING)
_PLURALS = {
    "number": "numbers",
    "category": "categories",
    "date": "dates",
    "duration": "durations",
    "own distance": "with a distance of their own",
    "not known": "of other types",
}
_NAMES_SHOWN = 3
_LEFT = ("column", "taken for", "distance", "note")
_LINES_SHOWN = 60


@dataclass(frozen=True)
class ColumnInfo:
    """The detected type of one raw column, with counts and notes.

    Parameters
    ----------
    name : str
    taken_for : {"number", "category", "date", "duration", "own distance", "not known"}
    missing : int
        Training rows without a value.
    distinct : int
        Distinct values in the training rows, without missing ones.
    at_least : bool
        Whether ``distinct`` is a lower bound, as for a table in shards.
    distance : str
        Squared distance of two cells of this column; empty if a model is valued.
    notes : tuple of str
        What to check: "constant", "all missing", "id-like", "numbers as text", "dates as
        text", "mixed"; some with a count behind them.
    """

    name: str
    taken_for: TakenFor
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

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X = [[0.0, "red"], [1.0, "red"], [9.0, "blue"], [8.0, None]]
    >>> valuer = KNNValuer(1).fit(X, [0, 0, 1, 1], X_val=X, y_val=[0, 0, 1, 1])
    >>> valuer.columns_
    column  taken for  missing  distinct  distance
    x0      number           0         4  (difference / 5.56)²
    x1      category         1         2  0 or 4.5
    >>> valuer.columns_["x1"].missing
    1
    """

    columns: tuple[ColumnInfo, ...]

    def __len__(self) -> int:
        """Return the number of columns."""
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

    def noted(self, note: str) -> list[str]:
        """Return the names of the columns that have a note."""
        return [column.name for column in self.columns if column.has(note)]

    @property
    def summary(self) -> str:
        """One line: the number of columns of each type, and the names of those with notes."""
        counts = Counter(column.taken_for for column in self.columns)
        parts = [_counted(counts[kind], kind) for kind in get_args(TakenFor) if counts[kind]]
        named = [
            f"{len(names)} {note}: {_some(names)}" for note in _NAMED if (names := self.noted(note))
        ]
        return "; ".join([", ".join(parts), *named])

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of ``"pandas"``, ``"polars"`` or ``"pyarrow"``."""
        plain = [{**asdict(column), "notes": "; ".join(column.notes)} for column in self.columns]
        return frame({name: [line[name] for line in plain] for name in plain[0]}, backend)

    def to_plain(self) -> list[dict[str, Any]]:
        """Return lists, numbers and strings, ready for JSON."""
        return [{**asdict(column), "notes": list(column.notes)} for column in self.columns]

    @classmethod
    def from_plain(cls, plain: list[Mapping[str, Any]]) -> ColumnTable:
        """Create a ColumnTable from the output of :meth:`to_plain`."""
        read = []
        for entry in plain:
            if entry["taken_for"] not in get_args(TakenFor):
                raise ValueError(f"a column is taken for {entry['taken_for']!r}")
            read.append(
                ColumnInfo(
                    str(entry["name"]),
                    entry["taken_for"],
                    int(entry["missing"]),
                    int(entry["distinct"]),
                    bool(entry["at_least"]),
                    str(entry["distance"]),
                    tuple(map(str, entry["notes"])),
                )
            )
        return cls(tuple(read))

    def __repr__(self) -> str:
        """Return a table for the terminal."""
        shown = self._shown()
        left = len(self) - _LINES_SHOWN
        more = [f"... and {left:,} more"] if left > 0 else []
        return "\n".join([*table_lines(shown, _LEFT), *more])

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        return view(table(self._shown()))

    def _shown(self) -> dict[str, list[str]]:
        """Return the printed columns; empty ones are left out."""
        shown = self.columns[:_LINES_SHOWN]
        parts: dict[str, list[str]] = {
            "column": [column.name for column in shown],
            "taken for": [str(column.taken_for) for column in shown],
            "missing": [f"{column.missing:,}" for column in shown],
            "distinct": [f"{column.distinct:,}{'+' * column.at_least}" for column in shown],
            "distance": [column.distance for column in shown],
            "note": ["; ".join(column.notes) for column in shown],
        }
        return {name: texts for name, texts in parts.items() if any(texts)}


def _counted(count: int, kind: TakenFor) -> str:
    single = count == 1 and kind in ("number", "category", "date", "duration")
    return f"{count:,} {kind if single else _PLURALS[kind]}"


def _some(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
