"""HTML for notebooks: plain elements that read well even where styles are taken away.

There is no script, and nothing but text comes from a table: all of it is escaped. Some viewers drop
every style, so colour never says anything that text and shape do not say too.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence

import numpy as np

from cellworth.text import visible_text

# Blue and orange as in plots, in shades that can be read on white and on black.
_COLOURS = {"█": "#3d8fc9", "░": "#e07b39"}
_LONGEST_BAR = 24
_LONGEST_TEXT = 40


def view(*parts: str) -> str:
    """One element that holds all parts."""
    return f"<div>{''.join(parts)}</div>"


def heading(text: str) -> str:
    """A line in bold."""
    return f"<p><strong>{_escape(text)}</strong></p>"


def paragraph(text: str) -> str:
    """A line of text."""
    return f"<p>{_escape(text)}</p>"


def table(columns: Mapping[str, Sequence[object]], *, bars: str | None = None) -> str:
    """A table with names above; ``bars`` names a column that holds what :func:`bars` made."""
    sides = ["right" if _are_numbers(entries) else "left" for entries in columns.values()]
    names = [name.replace("_", " ") for name in columns]
    head = _line("th", [_escape(name) for name in names], sides)
    entries = [map(_bar if key == bars else _short, column) for key, column in columns.items()]
    body = "".join(_line("td", line, sides) for line in zip(*entries, strict=True))
    return f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"


def bars(numbers: Sequence[float]) -> list[str]:
    """Bars of block characters, full ones for positive and pale ones for negative numbers."""
    sizes = np.nan_to_num(np.abs(np.asarray(numbers, dtype=np.float64)))
    largest = float(sizes.max(initial=0.0)) or 1.0
    lengths = np.ceil(sizes / largest * _LONGEST_BAR).astype(int)
    return [("░" if number < 0 else "█") * n for number, n in zip(numbers, lengths, strict=True)]


def _are_numbers(entries: Sequence[object]) -> bool:
    try:
        return all(isinstance(float(str(entry)), float) for entry in entries)
    except ValueError:
        return False


def _line(element: str, entries: Sequence[str], sides: Sequence[str]) -> str:
    # Jupyter's own style outweighs the attribute, and GitHub drops styles: say it twice.
    cells = (
        f'<{element} align="{side}" style="text-align: {side}">{entry}</{element}>'
        for entry, side in zip(entries, sides, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _bar(entry: object) -> str:
    colour = _COLOURS.get(str(entry)[:1], "inherit")
    # Read out, a bar is noise: its number stands beside it.
    return f'<span aria-hidden="true" style="color: {colour}">{entry}</span>'


def _short(entry: object) -> str:
    text = " ".join(str(entry).split())
    return _escape(text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…")


def _escape(text: str) -> str:
    return html.escape(visible_text(text))
