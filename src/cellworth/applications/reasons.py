"""Why a cell is suspicious, in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Suspect:
    """A cell and what is known about it.

    Parameters
    ----------
    column : str
        Name of its column.
    is_number : bool
        Whether the column holds numbers or dates rather than categories.
    cell, typical : object
        What stands there, and what rows like it have; None is a gap.
    is_alone : bool
        Whether no other row has its label, so that nothing is typical.
    label : object
        Class of its row, or its target.
    has_class : bool
        Whether labels are classes.
    n_cells, as_rare, as_misfit : int
        Cells of the column; how many are as rare for their label, how many fit as badly.
    """

    column: str
    is_number: bool
    cell: Any
    typical: Any
    is_alone: bool
    label: Any
    has_class: bool
    n_cells: int
    as_rare: int
    as_misfit: int

    def why_unlikely(self) -> str:
        """Say how few cells of the column are as unlikely."""
        label = "label" if self.has_class else "target"
        rare, misfit = f"no other is as rare for its {label}", "no other fits its row as badly"
        if self.as_rare > 1:
            rare = f"{self.as_rare:,} are as rare for their {label}"
        if self.as_misfit > 1:
            misfit = f"{self.as_misfit:,} fit their row as badly"
        cells = f"of {self.n_cells:,} cells of {self.column}"
        return f"{self._compared()}; {cells}, {rare} and {misfit}."

    def why_low(self, below: float) -> str:
        """Say how far its worth is below the median, in standard deviations."""
        there = "in rows with its label" if self.has_class else "in rows with a like target"
        return (
            f"{self._compared()}; its worth is {below:.1f} standard deviations below the median "
            f"of {self.column} {there}."
        )

    def _compared(self) -> str:
        here = f"{self.column} is {_shown(self.cell)}"
        label = f"{'label' if self.has_class else 'target'} {_shown(self.label)}"
        if self.is_alone:
            return f"{here}, and no other row has the {label}"
        like = f"rows like it ({'' if self.has_class else 'near '}{label})"
        if self.typical == self.cell:
            return f"{here}, as in {like}"
        about = "about " if self.is_number and self.typical is not None else ""
        return f"{here} where {like} have {about}{_shown(self.typical)}"


def _shown(content: Any) -> str:
    if content is None:
        return "a gap"
    if isinstance(content, float):
        return f"{content:.6g}"
    return repr(content) if isinstance(content, str) else str(content)
