"""Why a cell is suspicious, in one sentence."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_LONGEST = 60
# Unicode's isolates keep the direction of what stands between them.
_ISOLATE, _END = "\u2068", "\u2069"
_LEFTWARD = {"R", "AL", "RLE", "RLO", "RLI"}


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
    nearest : object
        The nearest other content of the column, where that is far away; else None.
    is_alone : bool
        Whether no other row has its label, so that nothing is typical.
    label : object
        Class of its row, or its target.
    has_class : bool
        Whether labels are classes.
    n_others, as_rare, as_misfit : int
        Other cells of the column; how many of them are as rare for their label, or fit as badly.
    """

    column: str
    is_number: bool
    cell: Any
    typical: Any
    nearest: Any
    is_alone: bool
    label: Any
    has_class: bool
    n_others: int
    as_rare: int
    as_misfit: int

    def why_unlikely(self) -> str:
        """Say how few cells of the column are as unlikely."""
        if self.n_others == 0:
            return f"{self._compared()}; there is no other cell of {self._name} to compare it with."
        label = "label" if self.has_class else "target"
        rare = _counted(self.as_rare, ("is as rare", "are as rare"), " or rarer")
        whose = "its" if self.as_rare < 2 else "their"
        fits = ("fits its row as badly", "fit their row as badly")
        misfit = _counted(self.as_misfit, fits, " or worse")
        others = f"{self.n_others:,} other cell{'s' if self.n_others > 1 else ''} of {self._name}"
        apart = "" if self.nearest is None else f"; the nearest of them is {shown(self.nearest)}"
        return (
            f"{self._compared()}; of the {others}, {rare} for {whose} {label} and {misfit}{apart}."
        )

    def why_low(self, below: float) -> str:
        """Say how far its worth is from the median, in standard deviations."""
        there = "in rows with its label" if self.has_class else "in rows with a like target"
        side = "below" if below >= 0 else "above"
        away = f"{abs(below):.1f} standard deviations {side}" if below else "no lower than"
        return f"{self._compared()}; its worth is {away} the median of {self._name} {there}."

    @property
    def _name(self) -> str:
        return isolated(shortened(self.column))

    def _compared(self) -> str:
        here = f"{self._name} is {shown(self.cell)}"
        label = f"{'label' if self.has_class else 'target'} {shown(self.label)}"
        if self.is_alone:
            return f"{here}, and no other row has the {label}"
        like = f"rows like it ({'' if self.has_class else 'near '}{label})"
        if self.typical == self.cell:
            return f"{here}, as in {like}"
        about = "about " if self.is_number and self.typical is not None else ""
        return f"{here} where {like} have {about}{shown(self.typical)}"


def _counted(n: int, verbs: tuple[str, str], beyond: str) -> str:
    """Say how many do something, or go beyond it."""
    if n == 0:
        return f"none {verbs[0]}"
    return f"{n:,} {verbs[n > 1]}{beyond}"


def shown(content: Any) -> str:
    """Show the content of a cell in a sentence: the beginning of long text, dates without 00:00."""
    if content is None:
        return "a gap"
    if isinstance(content, float):
        return f"{content:.6g}"
    if isinstance(content, str):
        return isolated(repr(shortened(content)))
    return isolated(
        shortened(date_text(content) if isinstance(content, datetime) else str(content))
    )


def date_text(moment: datetime) -> str:
    """Write a moment; one that is midnight sharp is a date."""
    is_date = moment.time() == datetime.min.time()
    return moment.date().isoformat() if is_date else str(moment)


def shortened(text: str) -> str:
    """Leave out the end of long text."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def isolated(text: str) -> str:
    """Keep text that runs from right to left from turning the sentence around it."""
    turns = any(unicodedata.bidirectional(character) in _LEFTWARD for character in text)
    return f"{_ISOLATE}{text}{_END}" if turns else text
