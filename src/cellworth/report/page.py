"""Render a report: one HTML page that loads nothing and that tables cannot inject code into."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from cellworth.certainty import WIDTH_95
from cellworth.report.formatting import (
    Unit,
    isolated_parts,
    moment,
    number,
    percentage,
    rounded,
    shortened,
    sort_value,
    visible,
)

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
    >>> from cellworth import TableGame, report, value_game
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

    def place(value: float) -> float:
        return round(_WIDTH * (value - low) / span, 2)

    return [_bar(line, place) for line in columns]


def _bar(line: Mapping[str, Any], place: Any) -> dict[str, float | None]:
    zero, value = place(0.0), line["value"]
    if value is None:
        return {"zero": zero, "start": zero, "width": 0.0, "low": None, "high": None}
    reach = WIDTH_95 * (line["error"] or 0.0)
    return {
        "zero": zero,
        "start": min(zero, place(value)),
        "width": round(abs(place(value) - zero), 2),
        "low": place(value - reach) if reach else None,
        "high": place(value + reach) if reach else None,
    }


def score_bar(figures: Mapping[str, Any]) -> dict[str, float] | None:
    """Parts of a bar for baseline and cells; None unless both add to a score."""
    score, unearned = figures["score"], figures["unearned"]
    if score is None or unearned is None or not 0 <= unearned <= score or score == 0:
        return None
    return {"unearned": round(_WIDTH * unearned / score, 2), "width": _WIDTH}


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
