"""Render the HTML pages of reports, audits and payouts, and format their figures."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from cellworth.data.column import is_missing
from cellworth.data.io import to_path, write_atomically
from cellworth.data.text import NUMBER, format_timestamp, shorten, visible_text, with_minus
from cellworth.sampling.moments import WIDTH_95

_SCRIPTS = (
    "unpacking.js", "colors.js", "cells.js", "marks.js", "painting.js", "heatmap.js",
    "interaction.js", "tables.js", "page.js",
)  # fmt: skip
_STYLES = ("style.css",)
# Of a drawing; the page scales it.
_WIDTH = 1000.0
_NAMES = {0: "", -3: "thousandths", -6: "millionths", -9: "billionths", -12: "trillionths"}
# Half of the last decimal that is shown.
_NEARLY_ZERO = Decimal("0.0005")
_MAX_NUMBER, _MAX_TEXT = 9, 80


def render(summary: Mapping[str, Any]) -> str:
    """Return the HTML page of what :func:`~cellworth.report.summarize` returns.

    Parameters
    ----------
    summary : mapping

    Returns
    -------
    str
        A complete page. Its Content-Security-Policy allows only its own scripts and styles, by
        their hashes.

    See Also
    --------
    summarize, save

    Examples
    --------
    >>> from cellworth.games import TableGame
    >>> from cellworth import report, value_game
    >>> valuation = value_game(TableGame([[0.0, 0.0], [0.0, 3.0]]), (1, 1))
    >>> page = report.render(report.summarize(valuation, None, title="<b>"))
    >>> print(page[page.index("<h1>") : page.index("</h1>")])
    <h1><bdi>&lt;b&gt;</bdi>
    """
    unit = Unit.fitting(summary["figures"]["size"])
    more = {
        "data": _mark_safe(_make_data(summary, unit)),
        "unit": unit,
        "bars": draw_column_bars(summary["columns"]),
        "change_bars": draw_column_bars((summary["changes"] or {"columns": ()})["columns"]),
        "provenance_text": json.dumps(summary["provenance"], indent=2, sort_keys=True),
    }
    return fill_template("report.html.j2", {**summary, **more}, _read_files(_SCRIPTS))


def fill_template(template: str, summary: Mapping[str, Any], script: str = "") -> str:
    """Return an HTML page; that of an audit, a payout or a statement needs no script."""
    style, found = _read_files(_STYLES), _make_environment().get_template(template)
    more = {"policy": _make_policy(script, style)}
    more |= {"script": _mark_safe(script), "style": _mark_safe(style)}
    page: str = found.render({**summary, **more})
    return page


@dataclass(frozen=True)
class Page:
    """A page of HTML: a file for any browser, which notebooks show in a frame of its own."""

    html: str
    height: int = 720

    def __repr__(self) -> str:
        return f"<page of {len(self.html):,} characters; a notebook shows it>"

    def _repr_html_(self) -> str:
        # The page has scripts; in its frame they cannot reach the notebook.
        return (
            f'<iframe srcdoc="{html.escape(self.html)}" title="Report" sandbox="allow-scripts" '
            f'style="width:100%;height:{self.height}px;border:0"></iframe>'
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the page to one HTML file; an existing one is replaced."""
        with write_atomically(to_path(path, "path")) as file:
            file.write(self.html.encode())


@dataclass(frozen=True)
class Unit:
    """Unit of the values of cells and rows: ten to a power that is a multiple of three."""

    power: int

    @classmethod
    def fitting(cls, size: float) -> Unit:
        """Return the unit in which ``size`` has one to three digits before the point."""
        if not size > 0:
            return cls(0)
        return cls(min(3 * math.floor(math.log10(size) / 3), 0))

    @property
    def name(self) -> str:
        """Name of the unit, empty for units of the score."""
        return _NAMES.get(self.power, f"10^{self.power}")

    def value(self, number: float | None) -> str:
        """Format a value with its sign and three digits."""
        return self._digits(number, 3, sign="+")

    def error(self, number: float | None) -> str:
        """Format an error with two digits."""
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


def _make_data(summary: Mapping[str, Any], unit: Unit) -> str:
    """Return the data for the scripts, as JSON that cannot end its element."""
    plain = {
        "values_hash": summary["values_hash"],
        "power": unit.power,
        "unit": unit.name,
        "of_cells": summary["of_cells"],
        "heatmap": summary["heatmap"],
    }
    text = json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _make_policy(script: str, style: str) -> str:
    scripts = f"script-src {_hash_source(script)}; " if script else ""
    return (
        f"default-src 'none'; {scripts}style-src {_hash_source(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash_source(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _read_files(names: tuple[str, ...]) -> str:
    folder = files("cellworth.report") / "templates"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def _make_environment() -> Any:
    # Loaded by the first page: start-up of commands counts.
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cellworth.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percentage": percentage, "timestamp": timestamp}
    environment.filters |= {"shorten": shorten, "sort_value": sort_value}
    environment.filters |= {"start_upper": start_upper, "fixed": format_fixed}
    return environment


def _mark_safe(text: str) -> Any:
    from markupsafe import Markup

    # Only our own files, and JSON without HTML characters.
    return Markup(text)  # noqa: S704


def draw_column_bars(columns: Sequence[Mapping[str, Any]]) -> list[dict[str, float | None]]:
    """Return the bars of columns, with whiskers of 1.96 standard errors."""
    lines = []
    for line in columns:
        value, reach = line["value"], WIDTH_95 * (line["error"] or 0.0)
        known = value is not None and reach > 0
        ends = (value - reach, value + reach) if known else (None, None)
        lines.append({"value": value, "low": ends[0], "high": ends[1]})
    return draw_bars(lines)


def draw_bars(lines: Sequence[Mapping[str, Any]]) -> list[dict[str, float | None]]:
    """Return where the bar and the whisker of each line begin and end, on one scale."""
    ends = [line[key] for line in lines for key in ("value", "low", "high")]
    known: list[float] = [0.0, *(end for end in ends if end is not None)]
    low, high = min(known), max(known)
    span = high - low or 1.0

    def position(value: float) -> float:
        return round(_WIDTH * (value - low) / span, 2)

    bars, zero = [], position(0.0)
    for line in lines:
        value = zero if line["value"] is None else position(line["value"])
        whisker = None not in (line["low"], line["high"])
        bars.append(
            {
                "zero": zero,
                "start": min(zero, value),
                "width": round(abs(value - zero), 2),
                "low": position(line["low"]) if whisker else None,
                "high": position(line["high"]) if whisker else None,
            }
        )
    return bars


def number(value: float | None, digits: int = 4) -> str:
    """Format a figure of the whole table with this many significant digits."""
    if value is None:
        return "unknown"
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e6:
        return with_minus(f"{value:.2e}")
    decimals = max(digits - 1 - math.floor(math.log10(abs(value))), 0)
    return with_minus(f"{value:,.{decimals}f}")


def count_decimals(values: Iterable[float | None], digits: int = 4) -> int:
    """Return the decimals with which the largest of some values has this many digits."""
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    return max(digits - 1 - math.floor(math.log10(largest)), 0) if largest > 0 else 1


def format_fixed(value: float | None, decimals: int) -> str:
    """Format a figure with this many decimals, so that figures of one table can be compared."""
    if value is None:
        return "unknown"
    text = f"{value:,.{decimals}f}"
    return with_minus(text if any(digit in text for digit in "123456789") else text.lstrip("-"))


def percentage(share: float | None) -> str:
    """Format a share in percent."""
    if share is None:
        return "unknown"
    percent = 100 * share
    if 0 < percent < 0.1:
        return "under 0.1%"
    return f"{percent:.1f}%"


def timestamp(created: str) -> str:
    """Format an ISO timestamp for readers."""
    try:
        when = datetime.fromisoformat(created)
    except ValueError:
        return created
    return f"{when.day} {when:%B %Y, %H:%M} UTC"


def sort_value(text: str | None) -> str | None:
    """Return the sort key of a number, "" for a missing value, None for other text."""
    if not text:
        return ""
    return text if re.fullmatch(NUMBER, text) else None


def start_upper(sentence: str) -> str:
    """Return a sentence with a capital letter at its start."""
    return sentence[:1].upper() + sentence[1:]


def visible(content: Any) -> Any:
    """Return the text of a template expression with hidden characters as pictures."""
    if not isinstance(content, str) or hasattr(content, "__html__"):
        return content
    return visible_text(content, keep="\n\t")


def text_of(content: Any) -> str:
    """Format a label or a row id, so that it can be read back."""
    if is_missing(content):
        return ""
    if isinstance(content, np.generic):
        content = content.item()
    if isinstance(content, datetime) and content.time() == datetime.min.time():
        content = content.date()
    return content.isoformat() if isinstance(content, date) else str(content)


def cell_text(content: Any) -> str:
    """Format the content of a cell: six digits of long numbers, the start of long text."""
    if is_missing(content):
        return ""
    if isinstance(content, np.generic):
        content = content.item()
    if isinstance(content, float):
        text = f"{content:.15g}"
        return text if len(text) <= _MAX_NUMBER else f"{content:.6g}"
    # Only a missing value is empty.
    text = format_timestamp(content) if isinstance(content, datetime) else text_of(content) or "''"
    return shorten(text, _MAX_TEXT)
