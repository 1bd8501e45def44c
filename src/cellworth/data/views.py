"""What results show: text for terminals, HTML for notebooks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cellworth.data.text import NUMBER, escape_html, shorten

# Blue and orange as in plots, in shades that can be read on white and on black.
_POSITIVE, _NEGATIVE = "#3d8fc9", "#e07b39"
_MAX_TEXT = 40
_ON_ONE_LINE = "white-space: nowrap"


@dataclass(frozen=True, eq=False)
class View:
    """What a result shows, in terminals and in notebooks: a title, a table and notes."""

    title: str
    columns: Mapping[str, list[Any]]
    notes: tuple[str, ...] = ()
    # One number per line, which notebooks draw as a bar.
    numbers: ArrayLike = ()
    # Columns of text.
    left: Collection[str] = ()

    def text(self) -> str:
        """Return lines of text."""
        return "\n".join([self.title, *table_lines(self.columns, self.left), *self.notes])

    def html(self) -> str:
        """Return one HTML element."""
        listed = html_table(self.columns, bars=draw_bars(self.numbers), sentences=self.left)
        return view(heading(self.title), listed, *map(paragraph, self.notes))


def table_lines(columns: Mapping[str, list[Any]], left: Collection[str] = ()) -> list[str]:
    """Return the lines of a table for the terminal; columns are right-aligned except ``left``."""
    texts = {name: [name, *map(str, cells)] for name, cells in columns.items()}
    aligned = [
        [(str.ljust if name in left else str.rjust)(cell, max(map(len, cells))) for cell in cells]
        for name, cells in texts.items()
    ]
    return ["  ".join(row).rstrip() for row in zip(*aligned, strict=True)]


def view(*parts: str) -> str:
    """Return one HTML element with all parts."""
    return f'<div style="overflow-x: auto">{"".join(parts)}</div>'


def heading(text: str) -> str:
    """Return an HTML line in bold."""
    return f"<p><strong>{escape_html(text)}</strong></p>"


def paragraph(text: str) -> str:
    """Return an HTML line of text."""
    return f'<p style="margin: 0.4em 0">{escape_html(text)}</p>'


def html_table(
    columns: Mapping[str, Sequence[object]],
    *,
    bars: Sequence[str] = (),
    sentences: Collection[str] = (),
) -> str:
    """Return an HTML table; ``bars`` of :func:`draw_bars` become its last column.

    Long text is cut, except in columns of ``sentences``.
    """
    sides = ["right" if _are_numbers(entries) else "left" for entries in columns.values()]
    widths = ["min-width: 16em" if name in sentences else _ON_ONE_LINE for name in columns]
    head = [escape_html(name) for name in columns]
    entries: list[Any] = [
        list(map(escape_html, map(str if name in sentences else _shorten_entry, column)))
        for name, column in columns.items()
    ]
    if bars:
        head, entries = [*head, ""], [*entries, bars]
        sides, widths = [*sides, "left"], [*widths, _ON_ONE_LINE]
    styles = list(zip(sides, widths, strict=True))
    body = "".join(_line("td", line, styles) for line in zip(*entries, strict=True))
    return f"<table><thead>{_line('th', head, styles)}</thead><tbody>{body}</tbody></table>"


def draw_bars(numbers: ArrayLike) -> list[str]:
    """Return a bar in HTML for each number: blue right of zero, orange left of it."""
    known = np.nan_to_num(np.asarray(numbers, dtype=np.float64))
    lowest, highest = min(float(known.min(initial=0.0)), 0.0), float(known.max(initial=0.0))
    width = highest - lowest or 1.0
    ends = (np.column_stack([np.minimum(known, 0.0), np.abs(known)]) - [lowest, 0.0]) / width
    colors = (_NEGATIVE if number < 0 else _POSITIVE for number in known)
    # Screen readers skip the bar, because its number is beside it.
    return [
        '<div aria-hidden="true" style="position: relative; width: 10em; height: 0.9em">'
        f'<div style="position: absolute; left: {100 * left:.1f}%; width: {100 * length:.1f}%; '
        f'height: 100%; background: {color}"></div></div>'
        for (left, length), color in zip(ends.tolist(), colors, strict=True)
    ]


def _are_numbers(entries: Sequence[object]) -> bool:
    return all(re.fullmatch(rf"{NUMBER}%?|nan", str(entry).replace(",", "")) for entry in entries)


def _line(element: str, entries: Sequence[str], styles: Sequence[tuple[str, str]]) -> str:
    # Jupyter's own style overrides the attribute, and GitHub drops styles: use both.
    cells = (
        f'<{element} align="{side}" style="text-align: {side}; {width}">{entry}</{element}>'
        for entry, (side, width) in zip(entries, styles, strict=True)
    )
    return f"<tr>{''.join(cells)}</tr>"


def _shorten_entry(entry: object) -> str:
    return shorten(" ".join(str(entry).split()), _MAX_TEXT)
