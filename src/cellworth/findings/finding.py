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
    "missing code",
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
    "odd cell",
    "wrong label",
    "repeated rows",
    "near copies",
    "validation rows in X",
    "leak",
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
    columns : tuple of str
        Columns that it concerns.
    rows : array
        Positions of all rows that it concerns; empty for a finding about columns as a whole.
    sentence : str
        What was found.
    action : Action
        What to do about it.
    false_rate : float
        Estimated probability that a cell of it is right; for a difference from a reference, its
        p-value, corrected for all comparisons.
    positions : array, optional
        For each row, which of the columns its cell is in; None means all columns.
    value : float, optional
        What its cells are worth to the model; None without a valuation.

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

    kind: FindingKind
    columns: tuple[str, ...]
    rows: Positions
    sentence: str
    action: Action
    false_rate: float
    positions: Positions | None = None
    value: float | None = None

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(np.unique(self.rows))

    @property
    def advice(self) -> str:
        """What to do, how certain it is, and what the cells are worth."""
        amount = "" if self.value is None else f"; the cells are worth {self.value:.4g}"
        text = self.action.text[:1].upper() + self.action.text[1:]
        return f"{text} ({1 - self.false_rate:.0%} certain{amount})."

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
