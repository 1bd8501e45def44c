"""plots.waterfall and plots.owners: bars with error intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from cellworth.certainty import WIDTH_95, both_errors
from cellworth.counts import Floats, checked_count
from cellworth.plots.style import (
    GREY,
    NEGATIVE,
    POSITIVE,
    SCORE_UNITS,
    SMALL,
    Axes,
    axes_for,
    plain_frame,
    points_across,
    refuse_other,
    signed,
    size_for,
    text_of,
    texts_of,
    with_minus,
    write_lines,
)

_THICKNESS = 0.7
# Brackets side by side that can still be told apart.
_MOST_LANES = 5
_LANE = 8.0
_WHISKER: dict[str, Any] = {
    "ecolor": "black",
    "elinewidth": 1.0,
    "capsize": 2.5,
    "fmt": "none",
    "zorder": 3,
}


class _Part(NamedTuple):
    name: str
    value: float
    error: float


def waterfall(explanation: Any, *, max_bars: int = 12, ax: Axes | None = None) -> Axes:
    """Draw how the value of a row or column comes about, part by part, from zero to the whole.

    Each bar begins where the one above it ends. Whiskers are 95 % intervals of the parts and of
    the whole, from the errors that are known; parts depend on each other, so that what several of
    them are together has no whisker.

    Parameters
    ----------
    explanation : object
        With ``label``, ``value`` and ``standard_error`` of a row or column, ``validation_error``
        where that is known, ``side`` (which of the two), and ``parts`` (a ValueList of its cells).
    max_bars : int, default=12
        The largest parts get a bar each, and all others one together.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth import TableGame, explain_row, value_game
    >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
    >>> ax = waterfall(explain_row(value_game(game, (2, 2)), 0), ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['0', '1', 'row 0']
    """
    refuse_other(
        explanation,
        "explanation",
        ("label", "value", "standard_error", "parts", "side"),
        "give the explanation of a row or a column.",
    )
    parts, n_unvisited = _parts(explanation.parts, checked_count(max_bars, "max_bars"))
    whole = _Part(
        f"{explanation.side} {text_of(explanation.label)}",
        float(explanation.value),
        _error_of_whole(explanation),
    )
    ax = axes_for(ax, size_for(len(parts) + 2))
    _draw_steps(ax, parts, whole)
    shown = [*parts, whole]
    note = f"\n{n_unvisited:,} cells were not visited" if n_unvisited else ""
    ax.set_xlabel(f"value ({SCORE_UNITS}){note}", size=SMALL)
    write_lines(ax, [part.name for part in shown], signed(part.value for part in shown))
    return ax


def _error_of_whole(explanation: Any) -> float:
    validation = getattr(explanation, "validation_error", None)
    known = None if validation is None else np.array([validation])
    return float(both_errors(np.array([explanation.standard_error]), known)[0])


def _parts(listing: Any, most: int) -> tuple[list[_Part], int]:
    """Parts by falling size, the smallest of many in one, and how many have no value."""
    names = texts_of(listing.labels["column" if "column" in listing.labels else "row"].tolist())
    errors = both_errors(listing.standard_errors, getattr(listing, "validation_errors", None))
    order = np.argsort(-np.abs(listing.values), kind="stable")
    order = order[~np.isnan(listing.values[order])]
    n_shown = len(order) if len(order) <= most else most - 1
    parts = [
        _Part(names[i], float(listing.values[i]), float(errors[i]))
        for i in order[:n_shown].tolist()
    ]
    if rest := order[n_shown:].tolist():
        parts.append(_Part(f"other {len(rest):,}", float(listing.values[rest].sum()), math.nan))
    return parts, len(names) - len(order)


def _draw_steps(ax: Axes, parts: Sequence[_Part], whole: _Part) -> None:
    values = np.array([part.value for part in parts] + [whole.value])
    starts = np.concatenate([[0.0], np.cumsum(values[:-1])])
    starts[-1] = 0.0
    errors = np.array([part.error for part in (*parts, whole)])
    _draw_bars(ax, values, starts, np.column_stack([values, values]) + _whiskers(errors))
    # The whole is of another kind than its parts.
    ax.axhline(len(parts) - 0.5, color=GREY, linewidth=0.8, linestyle=":")
    ends = starts[:-1] + values[:-1]
    ax.vlines(
        ends, np.arange(len(ends)), np.arange(1, len(ends) + 1), color=GREY, linewidth=0.7, zorder=1
    )


def _whiskers(errors: Floats) -> Floats:
    """Ends of 95 % intervals around zero; NaN where the error is not known or there is none."""
    reach = np.where(errors > 0, WIDTH_95 * errors, np.nan)
    return np.column_stack([-reach, reach])


def _draw_bars(ax: Axes, values: Floats, starts: Floats, intervals: Floats) -> None:
    """Draw bars from their starts, with whiskers where intervals of the values are known."""
    plain_frame(ax)
    ax.tick_params(axis="x", labelsize=SMALL)
    # Bars would else end at the very frame.
    ax.use_sticky_edges = False
    lines = np.arange(len(values))
    colours = [NEGATIVE if value < 0 else POSITIVE for value in values]
    ax.barh(lines, values, left=starts, height=_THICKNESS, color=colours, zorder=2)
    known = ~np.isnan(intervals).any(axis=1) & ~np.isnan(values)
    if known.any():
        reach = np.abs(intervals[known] - values[known, np.newaxis]).T
        ends = starts[known] + values[known]
        ax.errorbar(ends, lines[known], xerr=reach, **_WHISKER)
    ax.axvline(0.0, color="black", linewidth=0.8, zorder=4)


def owners(payout: Any, *, ax: Axes | None = None) -> Axes:
    """Draw each owner's value with its interval, by falling value, and what each gets.

    Brackets point at owners whose order among each other is undecided; where these would be too
    many to read, the number of such pairs is told instead.

    Parameters
    ----------
    payout : object
        With ``owners`` (list of str), ``values``, ``intervals`` (array of shape (n_owners, 2)),
        ``amounts`` (list of Decimal), ``shares`` (list of float), ``currency`` (str or None) and
        ``undecided`` (list of pairs of owners).
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth import KNNValuer, Owners, split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> held = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=held).valuation_
    >>> ax = owners(split_revenue(valuation, held, amount="100.00"), ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['ann', 'bob']
    """
    refuse_other(
        payout,
        "payout",
        ("owners", "values", "intervals", "amounts", "shares", "currency", "undecided"),
        "give a payout among owners.",
    )
    values = np.asarray(payout.values, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    ax = axes_for(ax, size_for(len(order) + 2))
    intervals = np.asarray(payout.intervals, dtype=np.float64).reshape(-1, 2)[order]
    _draw_bars(ax, values[order], np.zeros(len(order)), intervals)
    names = [payout.owners[place] for place in order.tolist()]
    groups = undecided_groups(names, payout.undecided)
    lanes = _lanes(groups)
    few = max(lanes, default=0) < _MOST_LANES
    away = _draw_brackets(ax, groups, lanes) if few else 0.0
    note = "\nbrackets point at owners whose order is undecided" if away else ""
    if not few:
        n_pairs = len(names) * (len(names) - 1) // 2
        note = f"\nthe order of {len(payout.undecided):,} of {n_pairs:,} pairs is undecided"
    ax.set_xlabel(f"value ({SCORE_UNITS}){note}", size=SMALL)
    amounts = [_amount(payout, place) for place in order.tolist()]
    write_lines(ax, texts_of(names), amounts, away=away)
    return ax


def _amount(payout: Any, place: int) -> str:
    currency = f" {payout.currency}" if payout.currency else ""
    share = round(100 * float(payout.shares[place]), 1) + 0.0
    return text_of(with_minus(f"{payout.amounts[place]:,}{currency} ({share:.1f} %)"), 60)


def undecided_groups(
    names: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[tuple[int, ...]]:
    """Places of neighbours that are all undecided among each other, and of pairs in no such group.

    Groups that lie within others are left out.
    """
    place = {name: i for i, name in enumerate(names)}
    undecided = {tuple(sorted((place[one], place[other]))) for one, other in pairs}
    groups: list[tuple[int, ...]] = []
    for first in range(len(names)):
        end = first + 1
        while end < len(names) and all((i, end) in undecided for i in range(first, end)):
            end += 1
        if end > first + 1 and not (groups and groups[-1][-1] >= end - 1):
            groups.append(tuple(range(first, end)))
    told = {pair for group in groups for pair in combinations(group, 2)}
    return sorted(groups + list(undecided - told))


def _lanes(groups: Sequence[tuple[int, ...]]) -> list[int]:
    """How far out each bracket must be drawn, so that no two meet."""
    lanes: list[int] = []
    ends: list[int] = []
    for group in groups:
        lane = next((i for i, end in enumerate(ends) if end < group[0]), len(ends))
        ends[lane : lane + 1] = [group[-1]]
        lanes.append(lane)
    return lanes


def _draw_brackets(ax: Axes, groups: Sequence[tuple[int, ...]], lanes: Sequence[int]) -> float:
    """Draw a bracket beside each group; return the points that all of them take.

    Its teeth are at the members: it may pass by others.
    """
    step = _LANE / points_across(ax)[0]
    for group, lane in zip(groups, lanes, strict=True):
        right = 1.0 + step * (lane + 1)
        across, down = [], []
        for line in group:
            across += [right, right - 0.4 * step, right]
            down += [line] * 3
        ax.plot(
            across,
            down,
            color=GREY,
            linewidth=1.2,
            transform=ax.get_yaxis_transform(),
            clip_on=False,
        )
    return _LANE * (max(lanes) + 1) + 2.0 if lanes else 0.0
