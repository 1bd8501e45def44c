"""Finding: one thing that is wrong with a table, with its cells, a sentence and an action."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from cellworth.data.arguments import Labels, Positions
from cellworth.data.tables import Table

FindingKind = Literal[
    "missing mark",
    "missing code",
    "text among numbers",
    "numbers as text",
    "dates as text",
    "mixed formats",
    "encoding",
    "spelling variant",
    "misspelling",
    "wrong column",
    "scale",
    "outlier",
    "dependency",
    "wrong label",
    "repeated rows",
    "validation rows in X",
    "leak",
    "sorted rows",
    "constant column",
    "empty column",
    "id column",
    "schema",
    "drift",
    "new content",
    "missing values",
    "dependence",
    "label drift",
]
# Of findings about columns as a whole.
NO_ROWS: Positions = np.zeros(0, dtype=np.intp)
ActionKind = Literal["set missing", "replace", "convert", "drop rows", "drop columns", "check"]


@dataclass(frozen=True, eq=False)
class Action:
    """What to do about a finding.

    Parameters
    ----------
    kind : str
        "set missing", "replace", "convert", "drop rows", "drop columns" or "check".
    replacements : mapping or sequence, optional
        A replacement for each content, or for each cell.
    text : str, optional
        What to do, in words.

    See Also
    --------
    Finding

    Examples
    --------
    >>> from cellworth.findings import Action
    >>> Action("replace", {"Germnay": "Germany"}).replacements["Germnay"]
    'Germany'
    """

    kind: ActionKind
    replacements: Mapping[Any, Any] | Sequence[Any] = field(
        default_factory=lambda: MappingProxyType({})
    )
    text: str = ""


@dataclass(frozen=True, eq=False)
class Finding:
    """One thing that is wrong with a table.

    Parameters
    ----------
    kind : str
        One of cellworth's kinds, or any name that a check of your own gives.
    columns : tuple of str
        Columns that it concerns.
    rows : array
        Positions of all rows that it concerns; empty for a finding about columns as a whole.
    sentence : str
        What was found.
    action : Action, optional
        What to do about it.
    doubt : float, default=0
        How doubtful its check is, between 0 and 1. It orders findings of one kind; those above .5
        are unusual and may well be right.
    positions : array, optional
        For each row, which of the columns its cell is in; None means all columns.
    value : float, optional
        What its cells are worth to the model; None without a valuation.
    false_rate : float, optional
        How large a share of findings of this kind was wrong on tables that chose nothing; None if
        that was not measured. For a difference from a reference, its p-value, corrected for all
        comparisons.

    See Also
    --------
    Action, Audit

    Examples
    --------
    >>> import cellworth, pyarrow as pa
    >>> X = pa.table({"city": ["Bonn"] * 30 + ["bonn"], "size": list(range(31))})
    >>> finding = cellworth.audit(X)[0]
    >>> finding.columns, finding.n_rows
    (('city',), 1)
    """

    kind: str
    columns: tuple[str, ...]
    rows: Positions
    sentence: str
    action: Action = Action("check", text="check it")
    doubt: float = 0.0
    positions: Positions | None = None
    value: float | None = None
    false_rate: float | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(np.unique(self.rows))

    @property
    def certainty(self) -> float:
        """1 - ``false_rate``; 0 if that was not measured."""
        return 0.0 if self.false_rate is None else 1.0 - self.false_rate

    @property
    def advice(self) -> str:
        """What to do, how often such findings were right, and what the cells are worth."""
        notes = [] if self.false_rate is None else [f"{self.certainty:.0%} certain"]
        if self.value is not None:
            notes.append(f"the cells are worth {self.value:.4g}")
        text = self.action.text[:1].upper() + self.action.text[1:]
        return f"{text} ({'; '.join(notes)})." if notes else f"{text}."

    def to_dict(self, row_ids: Labels) -> dict[str, Any]:
        """Return plain data, with row ids."""
        return {
            "kind": self.kind,
            "columns": list(self.columns),
            "rows": row_ids[self.rows].tolist(),
            "positions": None if self.positions is None else self.positions.tolist(),
            "finding": self.sentence,
            "action": self.action.kind,
            "advice": self.action.text,
            "false_rate": self.false_rate,
            "value": self.value,
        }

    def cells(self, table: Table) -> tuple[Positions, Positions]:
        """Return the positions of the rows and of the columns of its cells."""
        names = [str(name) for name in table.names.tolist()]
        columns = np.array([names.index(name) for name in self.columns], dtype=np.intp)
        if self.positions is not None:
            return self.rows, columns[self.positions]
        return np.repeat(self.rows, len(columns)), np.tile(columns, len(self.rows))

    def __str__(self) -> str:
        return self.sentence
