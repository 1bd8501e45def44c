"""Small drawings of a report, as numbers for inline SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cellworth.certainty import WIDTH_95

# Lengths within a drawing; the page scales it.
_WIDTH, _HEIGHT = 1000.0, 300.0


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
