"""Subject: the valuation and the table that a report is about, checked once."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import LABEL, is_missing
from cellworth.diagnostics.cells import (
    CellValues,
    check_cells,
    check_valuation,
    drop_group_column,
)
from cellworth.diagnostics.suspects import format_timestamp
from cellworth.problem import read_target
from cellworth.tables import Table
from cellworth.valuation import Valuation

_LONGEST_NUMBER, _LONGEST_TEXT = 9, 80


@dataclass(frozen=True, eq=False)
class Subject:
    """What a report is about.

    Parameters
    ----------
    valuation : Valuation
    table : Table or None
        The table that was valued, without a column that only named groups of rows.
    target : array of shape (n_rows of the table,) or None
        Labels of its rows.
    classes : list of str
        What labels there are, as text; empty where they are numbers or not known.
    """

    valuation: Valuation
    table: Table | None
    target: NDArray[Any] | None
    classes: list[str]

    @classmethod
    def of(cls, valuation: Valuation, X: Any, y: Any) -> Subject:
        """Check that the table is the one that was valued."""
        check_valuation(valuation)
        if X is None:
            if y is not None:
                raise ValueError("y came without X; give the table too, or neither.")
            return cls(valuation, None, None, [])
        table = drop_group_column(Table.of(X, called="X"), valuation)
        # Refuses other rows and columns.
        CellValues.of(valuation, table)
        check_cells(valuation, table)
        if y is None:
            return cls(valuation, table, None, [])
        target, classes = read_target(y, table)
        texts = [] if classes is None else [text_of(label) for label in classes.tolist()]
        return cls(valuation, table, target, texts)

    @property
    def of_cells(self) -> bool:
        """Whether every block is a single cell."""
        sides = self.valuation.blocks.rows, self.valuation.blocks.columns
        return all(not side.grouped or len(side.codes) == len(side) for side in sides)

    @property
    def kind_of_ids(self) -> str:
        """What row ids are: "number", "date" or "text"; a CSV file does not say so."""
        kind = self.valuation.blocks.rows.some_labels(slice(1)).dtype.kind
        return {"O": "text", "M": "date"}.get(kind, "number")

    def label_codes(self) -> NDArray[np.int_] | None:
        """Place of each row's label in ``classes``; None where rows or labels are no singles."""
        if self.target is None or not self.classes or not self.of_cells:
            return None
        return np.unique(self.target, return_inverse=True)[1].ravel()

    def column(self, place: int) -> NDArray[Any] | None:
        """What stands in the cells of one column of the valuation, where it is a single column."""
        if self.table is None or not self.of_cells:
            return None
        label = self.valuation.column_labels.tolist()[place]
        names = self.table.names.tolist()
        if label == LABEL and label not in names:
            return self.target
        found = names.index(label) if label in names else [str(n) for n in names].index(str(label))
        return self.table.column(found)


def text_of(content: Any) -> str:
    """Write a label or a row id as text, so that it can be read back."""
    if is_missing(content):
        return ""
    if isinstance(content, np.generic):
        content = content.item()
    if isinstance(content, datetime) and content.time() == datetime.min.time():
        content = content.date()
    return content.isoformat() if isinstance(content, date) else str(content)


def cell_text(content: Any) -> str:
    """Write what stands in a cell: six digits of long numbers, the beginning of long text."""
    if is_missing(content):
        return ""
    if isinstance(content, np.generic):
        content = content.item()
    if isinstance(content, float):
        text = f"{content:.15g}"
        return text if len(text) <= _LONGEST_NUMBER else f"{content:.6g}"
    # Only a gap is empty.
    text = format_timestamp(content) if isinstance(content, datetime) else text_of(content) or "''"
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 1]}…"
