"""How a report writes numbers and texts: three digits, one unit, nothing invisible."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from cellworth.blocks import is_missing
from cellworth.diagnostics.suspects import format_timestamp
from cellworth.plots.style import with_minus
from cellworth.text import visible_text

_NAMES = {0: "", -3: "thousandths", -6: "millionths", -9: "billionths", -12: "trillionths"}
# Below half of the last decimal that is worth reading.
_NEARLY_ZERO = Decimal("0.0005")
_LONGEST_NAME = 60
_LONGEST_NUMBER, _LONGEST_TEXT = 9, 80
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_ISOLATED = re.compile("\u2068([^\u2069]*)\u2069")


@dataclass(frozen=True)
class Unit:
    """What worths of cells and rows are counted in: a power of a thousand.

    Parameters
    ----------
    power : int
        Worths are counted in ten to this power.
    """

    power: int

    @classmethod
    def fitting(cls, size: float) -> Unit:
        """Return the unit in which this size has one to three digits before the point."""
        if not size > 0:
            return cls(0)
        return cls(min(3 * math.floor(math.log10(size) / 3), 0))

    @property
    def name(self) -> str:
        """Its name, empty for whole units of the score."""
        return _NAMES.get(self.power, f"10^{self.power}")

    def worth(self, number: float | None) -> str:
        """Write a worth with its sign and three digits."""
        return self._digits(number, 3, sign="+")

    def error(self, number: float | None) -> str:
        """Write an error with two digits."""
        return self._digits(number, 2, sign="")

    def _digits(self, number: float | None, digits: int, sign: str) -> str:
        if number is None:
            return "unknown"
        if number == 0:
            return "0"
        rounded = Decimal(f"{number:.{digits - 1}e}").scaleb(-self.power)
        if abs(rounded) < _NEARLY_ZERO:
            return "\N{ALMOST EQUAL TO} 0"
        return with_minus(f"{rounded:{sign},f}")


def number(value: float | None, digits: int = 4) -> str:
    """Write a figure of the whole table with some significant digits."""
    if value is None:
        return "unknown"
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return with_minus(f"{value:.2e}")
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return with_minus(f"{value:,.{decimals}f}")


def percentage(share: float | None) -> str:
    """Write a share; small ones keep a digit."""
    if share is None:
        return "unknown"
    percent = 100 * share
    if 0 < percent < 0.1:
        return "under 0.1%"
    return f"{percent:.1f}%"


def moment(created: str) -> str:
    """Write a moment in UTC as people do."""
    try:
        when = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def shortened(text: str) -> str:
    """Leave out the end of a long name."""
    return text if len(text) <= _LONGEST_NAME else f"{text[: _LONGEST_NAME - 1]}…"


def rounded(value: float | None, digits: int) -> float | None:
    """Keep the digits that are shown."""
    return None if value is None else float(f"{value:.{digits - 1}e}")


def sort_value(text: str | None) -> str | None:
    """What a list sorts by: the number itself, nothing for a gap, None where letters decide."""
    if not text:
        return ""
    return text if _NUMBER.fullmatch(text) else None


def isolated_parts(text: str) -> list[tuple[str, bool]]:
    """Cut text where Unicode's isolates are; tell of each part whether it stood between two."""
    parts = _ISOLATED.split(text)
    return [(part, place % 2 == 1) for place, part in enumerate(parts) if part]


def visible(content: Any) -> Any:
    """Return what a page shows of a template's expression: hidden characters as pictures."""
    if not isinstance(content, str) or hasattr(content, "__html__"):
        return content
    return visible_text(content, keep="\n\t")


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
