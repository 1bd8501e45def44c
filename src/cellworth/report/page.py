"""The HTML page of a report, and how figures are formatted."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from cellworth.data.blocks import is_missing
from cellworth.diagnostics.suspects import format_timestamp
from cellworth.plots.style import with_minus
from cellworth.sampling.moments import WIDTH_95
from cellworth.valuation.values import visible_text

_SCRIPTS = (
    "unpacking.js",
    "colours.js",
    "cells.js",
    "marks.js",
    "painting.js",
    "heatmap.js",
    "hands.js",
    "tables.js",
    "page.js",
)
_STYLES = ("style.css",)
# Lengths within a drawing; the page scales it.
_WIDTH, _HEIGHT = 1000.0, 300.0
_NAMES = {0: "", -3: "thousandths", -6: "millionths", -9: "billionths", -12: "trillionths"}
# Below half of the last decimal that is worth reading.
_NEARLY_ZERO = Decimal("0.0005")
_LONGEST_NAME = 60
_LONGEST_NUMBER, _LONGEST_TEXT = 9, 80
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", re.IGNORECASE)
_ISOLATED = re.compile("\u2068([^\u2069]*)\u2069")


def render(summary: Mapping[str, Any]) -> str:
    """Make an HTML page of what :func:`cellworth.report.summarize` gives.

    Parameters
    ----------
    summary : mapping

    Returns
    -------
    str
        A whole page. Its policy (Content-Security-Policy) allows the scripts and styles that it
        came with, by their hashes, and no others.

    Examples
    --------
    >>> from cellworth.games import TableGame
    >>> from cellworth import report, value_game
    >>> valuation = value_game(TableGame([[0.0, 0.0], [0.0, 3.0]]), (1, 1))
    >>> page = report.render(report.summarize(valuation, None, title="<b>"))
    >>> print(page[page.index("<h1>") : page.index("</h1>")])
    <h1>&lt;b&gt;
    """
    script, style = _joined(_SCRIPTS), _joined(_STYLES)
    unit = Unit.fitting(summary["figures"]["size"])
    page = _environment().get_template("report.html.j2")
    text: str = page.render(
        summary,
        policy=_policy(script, style),
        script=_markup(script),
        style=_markup(style),
        data=_markup(_data(summary, unit)),
        unit=unit,
        bars=column_bars(summary["columns"]),
        curve=error_curve(summary["rounds"]),
        score=score_bar(summary["figures"]),
        provenance_text=json.dumps(summary["provenance"], indent=2, sort_keys=True),
    )
    return text


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


def _data(summary: Mapping[str, Any], unit: Unit) -> str:
    """What the page's script reads, as JSON that cannot end its element."""
    plain = {
        "fingerprint": summary["fingerprint"],
        "power": unit.power,
        "unit": unit.name,
        "of_cells": summary["of_cells"],
        "listed": _listed(summary),
        "heatmap": summary["heatmap"],
    }
    text = json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _listed(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Cells of the lists, by the ids of their tables; row ids are whole, where pages cut them."""
    if summary["cells"] is None:
        return {}
    has_errors = summary["heatmap"]["error"] is not None
    lists = {"worst": summary["cells"]["cells"], "lowest-rows": summary["rows"]}
    return {
        name: [_line(line, has_errors=has_errors) for line in lines]
        for name, lines in lists.items()
    }


def _line(line: Mapping[str, Any], *, has_errors: bool) -> dict[str, Any]:
    """What a mark keeps of a cell: the same, with as many digits, as from the heat map."""
    kept = {key: line[key] for key in ("row", "place", "column", "cell")}
    error = rounded(line["error"], 2) if has_errors else None
    return kept | {"worth": rounded(line["worth"], 3), "error": error}


def _policy(script: str, style: str) -> str:
    return (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


@cache
def _joined(names: tuple[str, ...]) -> str:
    folder = files("cellworth.report") / "templates"
    return "\n".join((folder / name).read_text(encoding="utf-8") for name in names)


@cache
def _environment() -> Any:
    try:
        import jinja2
    except ImportError as error:
        raise ImportError("reports need Jinja2; pip install 'cellworth[report]'.") from error
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cellworth.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"number": number, "percentage": percentage, "moment": moment}
    environment.filters |= {"shortened": shortened, "sort_value": sort_value}
    environment.filters["isolated_parts"] = isolated_parts
    return environment


def _markup(text: str) -> Any:
    from markupsafe import Markup

    # Our own files, and JSON without characters that HTML could read.
    return Markup(text)  # noqa: S704


def column_bars(columns: Sequence[Mapping[str, Any]]) -> list[dict[str, float | None]]:
    """Where each column's bar and whisker begin and end, on one scale with zero inside."""
    ends = [0.0]
    for line in columns:
        reach = WIDTH_95 * (line["error"] or 0.0)
        if line["value"] is not None:
            ends += [line["value"] - reach, line["value"] + reach]
    low, high = min(ends), max(ends)
    span = high - low or 1.0

    def position(value: float) -> float:
        return round(_WIDTH * (value - low) / span, 2)

    return [_bar(line, position) for line in columns]


def _bar(line: Mapping[str, Any], position: Any) -> dict[str, float | None]:
    zero, value = position(0.0), line["value"]
    if value is None:
        return {"zero": zero, "start": zero, "width": 0.0, "low": None, "high": None}
    reach = WIDTH_95 * (line["error"] or 0.0)
    return {
        "zero": zero,
        "start": min(zero, position(value)),
        "width": round(abs(position(value) - zero), 2),
        "low": position(value - reach) if reach else None,
        "high": position(value + reach) if reach else None,
    }


def score_bar(figures: Mapping[str, Any]) -> dict[str, float] | None:
    """Parts of a bar for baseline and cells; None unless both add to a score."""
    score, baseline = figures["score"], figures["baseline"]
    if score is None or baseline is None or not 0 <= baseline <= score or score == 0:
        return None
    return {"baseline": round(_WIDTH * baseline / score, 2), "width": _WIDTH}


def error_curve(rounds: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Points of a curve of errors over tasks, both logarithmic; None for fewer than two."""
    known = [(line["tasks"], line["error"]) for line in rounds if line["error"] and line["tasks"]]
    if len(known) < 2 or known[0][0] == known[-1][0]:
        return None
    tasks = [math.log10(task) for task, _ in known]
    errors = [math.log10(error) for _, error in known]
    low, high = min(errors), max(errors)
    # At least a fifth of a decade, so that noise does not look like news.
    span = max(high - low, 0.2)
    points = [
        (
            round(_WIDTH * (task - tasks[0]) / (tasks[-1] - tasks[0]), 1),
            round(_HEIGHT * (high - error) / span, 1),
        )
        for task, error in zip(tasks, errors, strict=True)
    ]
    return {
        "points": points,
        "first": {"tasks": known[0][0], "error": known[0][1]},
        "last": {"tasks": known[-1][0], "error": known[-1][1]},
    }


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
    return [(part, position % 2 == 1) for position, part in enumerate(parts) if part]


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
