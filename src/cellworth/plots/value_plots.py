"""Plots of values: bars, waterfalls and beeswarms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from cellworth.data.arguments import Floats, check_count
from cellworth.data.blocks import LABEL, some
from cellworth.data.tables import Table, TableLike
from cellworth.diagnostics.cells import check_valuation
from cellworth.diagnostics.explain import Explanation
from cellworth.knn.columns import NumericColumn, read_column
from cellworth.payouts.payout import Payout
from cellworth.plots.style import (
    GRAY,
    NEGATIVE,
    PALE_GRAY,
    POSITIVE,
    SCORE_UNITS,
    SMALL,
    Axes,
    check_attributes,
    compute_size,
    format_labels,
    format_signed,
    get_axes,
    hide_frame,
    measure_axes,
    name_lines,
    sequential,
    text_of,
    with_minus,
    write_lines,
)
from cellworth.sampling.moments import WIDTH_95, combine_errors
from cellworth.valuation.valuation import Valuation

_THICKNESS = 0.7
# With more brackets side by side, they could not be distinguished.
_MOST_LANES = 5
_LANE = 8.0
_WHISKER: dict[str, Any] = {
    "ecolor": "black",
    "elinewidth": 1.0,
    "capsize": 2.5,
    "fmt": "none",
    "zorder": 3,
}
_DIAMETER = 3.6
_WIDEST = 0.42
# Multiples modulo 1 are evenly distributed, without randomness.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class _Part(NamedTuple):
    name: str
    value: float
    error: float


def waterfall(explanation: Explanation, *, max_bars: int = 12, ax: Axes | None = None) -> Axes:
    """Draw the value of a row or column as the sum of the values of its cells.

    Each bar begins where the one above it ends. Whiskers are 95% intervals, from the errors that
    are known. The bar for several cells together has none, because their errors are dependent.

    Parameters
    ----------
    explanation : Explanation
        What :func:`~cellworth.explain_row` or :func:`~cellworth.explain_column` returns.
    max_bars : int, default=12
        The largest cells get a bar each, and all others one together.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth.games import TableGame
    >>> from cellworth import explain_row, value_game
    >>> from cellworth.plots import waterfall
    >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
    >>> ax = waterfall(explain_row(value_game(game, (2, 2)), 0), ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['0', '1', 'row 0']
    """
    check_attributes(
        explanation,
        "explanation",
        ("label", "value", "sampling_se", "parts", "side"),
        "give what explain_row or explain_column returns.",
    )
    parts, n_unvisited = _list_parts(explanation.parts, check_count(max_bars, "max_bars"))
    total = _Part(
        f"{explanation.side} {text_of(explanation.label)}",
        float(explanation.value),
        float(combine_errors(explanation.sampling_se, getattr(explanation, "validation_se", None))),
    )
    ax = get_axes(ax, compute_size(len(parts) + 2))
    _draw_steps(ax, parts, total)
    shown = [*parts, total]
    note = f"\n{n_unvisited:,} cells were not sampled" if n_unvisited else ""
    ax.set_xlabel(f"value ({SCORE_UNITS}){note}", size=SMALL)
    write_lines(ax, [part.name for part in shown], format_signed(part.value for part in shown))
    return ax


def _list_parts(listing: Any, most: int) -> tuple[list[_Part], int]:
    """Return the parts, largest first and the rest as one, and the number without a value."""
    names = format_labels(
        listing.labels["column" if "column" in listing.labels else "row"].tolist()
    )
    errors = combine_errors(listing.sampling_se, getattr(listing, "validation_se", None))
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


def _draw_steps(ax: Axes, parts: Sequence[_Part], total: _Part) -> None:
    values = np.array([part.value for part in parts] + [total.value])
    starts = np.concatenate([[0.0], np.cumsum(values[:-1])])
    starts[-1] = 0.0
    errors = np.array([part.error for part in (*parts, total)])
    _draw_bars(ax, values, starts, np.column_stack([values, values]) + _compute_whiskers(errors))
    ax.axhline(len(parts) - 0.5, color=GRAY, linewidth=0.8, linestyle=":")
    ends = starts[:-1] + values[:-1]
    ax.vlines(
        ends, np.arange(len(ends)), np.arange(1, len(ends) + 1), color=GRAY, linewidth=0.7, zorder=1
    )


def _compute_whiskers(errors: Floats) -> Floats:
    """Return the ends of 95% intervals around zero; NaN without a known error above 0."""
    reach = np.where(errors > 0, WIDTH_95 * errors, np.nan)
    return np.column_stack([-reach, reach])


def _draw_bars(ax: Axes, values: Floats, starts: Floats, intervals: Floats) -> None:
    """Draw bars from their starts, with whiskers for known intervals."""
    hide_frame(ax)
    ax.tick_params(axis="x", labelsize=SMALL)
    # Otherwise bars would end at the frame.
    ax.use_sticky_edges = False
    lines = np.arange(len(values))
    colors = [NEGATIVE if value < 0 else POSITIVE for value in values]
    ax.barh(lines, values, left=starts, height=_THICKNESS, color=colors, zorder=2)
    known = ~np.isnan(intervals).any(axis=1) & ~np.isnan(values)
    if known.any():
        reach = np.abs(intervals[known] - values[known, np.newaxis]).T
        ends = starts[known] + values[known]
        ax.errorbar(ends, lines[known], xerr=reach, **_WHISKER)
    ax.axvline(0.0, color="black", linewidth=0.8, zorder=4)


def owners(payout: Payout, *, ax: Axes | None = None) -> Axes:
    """Draw each owner's value with its interval, highest first, and each owner's amount.

    Brackets mark owners whose order is undecided. If there are too many, a note gives the number
    of such pairs.

    Parameters
    ----------
    payout : Payout
        What :func:`~cellworth.payouts.split_revenue` returns.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import split_revenue
    >>> from cellworth.plots import owners
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> held = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=held).valuation_
    >>> ax = owners(split_revenue(valuation, held, amount="100.00"), ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['ann', 'bob']
    """
    check_attributes(
        payout,
        "payout",
        ("owners", "values", "intervals", "amounts", "shares", "currency", "undecided"),
        "give what split_revenue returns.",
    )
    values = np.asarray(payout.values, dtype=np.float64)
    order = np.argsort(-values, kind="stable")
    ax = get_axes(ax, compute_size(len(order) + 2))
    intervals = np.asarray(payout.intervals, dtype=np.float64).reshape(-1, 2)[order]
    _draw_bars(ax, values[order], np.zeros(len(order)), intervals)
    names = [payout.owners[position] for position in order.tolist()]
    groups = group_undecided(names, payout.undecided)
    lanes = _assign_lanes(groups)
    few = max(lanes, default=0) < _MOST_LANES
    away = _draw_brackets(ax, groups, lanes) if few else 0.0
    note = "\nbrackets mark owners whose order is undecided" if away else ""
    if not few:
        n_pairs = len(names) * (len(names) - 1) // 2
        note = f"\nthe order of {len(payout.undecided):,} of {n_pairs:,} pairs is undecided"
    ax.set_xlabel(f"value ({SCORE_UNITS}){note}", size=SMALL)
    amounts = [_format_amount(payout, position) for position in order.tolist()]
    write_lines(ax, format_labels(names), amounts, away=away)
    return ax


def _format_amount(payout: Any, position: int) -> str:
    currency = f" {payout.currency}" if payout.currency else ""
    share = round(100 * float(payout.shares[position]), 1) + 0.0
    return text_of(with_minus(f"{payout.amounts[position]:,}{currency} ({share:.1f}%)"), 60)


def group_undecided(
    names: Sequence[str], pairs: Sequence[tuple[str, str]]
) -> list[tuple[int, ...]]:
    """Return the largest groups of consecutive owners in undecided order, and other such pairs."""
    position = {name: i for i, name in enumerate(names)}
    undecided = {tuple(sorted((position[one], position[other]))) for one, other in pairs}
    groups: list[tuple[int, ...]] = []
    for first in range(len(names)):
        end = first + 1
        while end < len(names) and all((i, end) in undecided for i in range(first, end)):
            end += 1
        if end > first + 1 and not (groups and groups[-1][-1] >= end - 1):
            groups.append(tuple(range(first, end)))
    grouped = {pair for group in groups for pair in combinations(group, 2)}
    return sorted(groups + list(undecided - grouped))


def _assign_lanes(groups: Sequence[tuple[int, ...]]) -> list[int]:
    """Return a lane for each bracket, so that no two overlap."""
    lanes: list[int] = []
    ends: list[int] = []
    for group in groups:
        lane = next((i for i, end in enumerate(ends) if end < group[0]), len(ends))
        ends[lane : lane + 1] = [group[-1]]
        lanes.append(lane)
    return lanes


def _draw_brackets(ax: Axes, groups: Sequence[tuple[int, ...]], lanes: Sequence[int]) -> float:
    """Draw a bracket with a tooth at each member of a group; return their width in points."""
    step = _LANE / measure_axes(ax)[0]
    for group, lane in zip(groups, lanes, strict=True):
        right = 1.0 + step * (lane + 1)
        across, down = [], []
        for line in group:
            across += [right, right - 0.4 * step, right]
            down += [line] * 3
        ax.plot(
            across,
            down,
            color=GRAY,
            linewidth=1.2,
            transform=ax.get_yaxis_transform(),
            clip_on=False,
        )
    return _LANE * (max(lanes) + 1) + 2.0 if lanes else 0.0


def beeswarm(
    valuation: Valuation,
    *,
    X: TableLike | None = None,
    max_points: int = 2_000,
    max_columns: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Draw one point per cell at its value, one line per column, highest value on top.

    Points of similar value are stacked. Nothing is random: the picture is the same each time.

    Parameters
    ----------
    valuation : Valuation
    X : table of shape (n_rows, n_columns), default=None
        The table that was valued. It colors points by content: numbers and dates by their rank
        within the column; strings, categories and missing values in gray.
    max_points : int, default=2000
        Columns with more cells show this many, evenly by rank, including lowest and highest.
    max_columns : int, default=20
        Wider tables show the columns whose values are largest in absolute value.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth.plots import beeswarm
    >>> from cellworth.valuers import RandomValuer
    >>> X = [[0.0, "red"], [1.0, "blue"], [3.0, "red"]]
    >>> valuation = RandomValuer(random_state=0).fit(X, ["no", "yes", "no"]).valuation_
    >>> valuation.columns().values.round(2)
    array([1.31, 1.06])
    >>> ax = beeswarm(valuation, X=X, ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['x0', 'x1']
    """
    check_valuation(valuation)
    contents = None if X is None else _rank_contents(X, valuation)
    positions = _choose_columns(valuation, check_count(max_columns, "max_columns"))
    chosen = [
        _choose_evenly(valuation.values[:, position], check_count(max_points, "max_points"))
        for position in positions
    ]
    # The label of a color bar needs some height.
    ax = get_axes(
        ax, compute_size(len(positions) + 2 if contents is None else max(len(positions) + 2, 6))
    )
    swarm = _make_swarm(valuation.values, positions, chosen, *measure_axes(ax))
    _draw_points(
        ax, swarm, None if contents is None else _choose_ranks(contents, positions, chosen)
    )
    names = format_labels(valuation.column_labels.tolist())
    name_lines(ax, [names[position] for position in positions])
    ax.set_xlabel(_make_title(valuation, len(positions), chosen), size=SMALL)
    ax.tick_params(axis="x", labelsize=SMALL)
    return ax


def _rank_contents(X: TableLike, valuation: Valuation) -> list[Floats | None]:
    """Return the rank of every cell within its column; None for columns without numbers."""
    if valuation.blocks.rows.grouped or valuation.blocks.columns.grouped:
        raise ValueError(
            "X must be None for a valuation of groups, whose blocks have many cells; leave X out."
        )
    table = Table.from_data(X, called="X")
    n_rows = valuation.shape[0]
    if table.shape[0] != n_rows or _has_other_ids(table, valuation):
        raise ValueError(
            f"X must have the {n_rows} rows of the valuation in their order, got "
            f"{table.shape[0]} rows; give the table that was valued."
        )
    # If labels were valued, all names are strings.
    labels = [str(label) for label in valuation.column_labels.tolist()]
    named = table.backend is not None
    names = [str(name) for name in table.names.tolist()] if named else labels[: table.shape[1]]
    lacking = [label for label in labels if label not in names and label != LABEL]
    if lacking:
        raise ValueError(
            f"X must have the columns of the valuation, got a table without {some(lacking)}; give "
            "the table that was valued."
        )
    return [_rank_column(table, names.index(label)) if label in names else None for label in labels]


def _has_other_ids(table: Table, valuation: Valuation) -> bool:
    # Only pandas has row ids.
    return table.backend == "pandas" and table.row_ids.tolist() != valuation.row_labels.tolist()


def _rank_column(table: Table, position: int) -> Floats | None:
    """Return ranks from 0 to 1, NaN for missing values; None for a column without numbers."""
    column = read_column(position, [table], None, None)
    if not isinstance(column, NumericColumn):
        return None
    ranks = rankdata(column.cells[0], nan_policy="omit")
    lowest, highest = np.nanmin(ranks, initial=np.inf), np.nanmax(ranks, initial=-np.inf)
    scaled: Floats = (ranks - lowest) / (highest - lowest) if highest > lowest else 0.5 + 0 * ranks
    return scaled


def _choose_columns(valuation: Valuation, most: int) -> list[int]:
    """Return the columns of largest absolute value, highest first, those without a value last."""
    values = valuation.columns().values
    largest = np.argsort(-np.abs(values), kind="stable")[:most]
    order = np.sort(largest)
    falling: list[int] = order[np.argsort(-values[order], kind="stable")].tolist()
    return falling


def _choose_evenly(values: Floats, most: int) -> NDArray[np.intp]:
    """Return at most this many rows of a column, lowest value first, evenly by rank."""
    order = np.argsort(values, kind="stable")
    order = order[: len(order) - int(np.isnan(values).sum())]
    if len(order) <= most:
        return order
    return order[np.linspace(0, len(order) - 1, most).round().astype(np.intp)]


@dataclass(frozen=True, eq=False)
class _Swarm:
    """Points of all columns: values on the x axis, lines on the y axis."""

    values: Floats
    lines: Floats


def _make_swarm(
    values: Floats,
    positions: list[int],
    chosen: list[NDArray[np.intp]],
    width: float,
    height: float,
) -> _Swarm:
    """Stack points of similar value, as far as a line has room."""
    along = [values[rows, position] for rows, position in zip(chosen, positions, strict=True)]
    everything = np.concatenate(along)
    if len(everything) == 0:
        return _Swarm(everything, everything)
    ends = float(everything.min()), float(everything.max())
    crowds = [_count_neighbors(line, ends, max(int(width / _DIAMETER), 1)) for line in along]
    per_point = _DIAMETER * len(positions) / height
    most = max(float(crowd.max(initial=1.0)) for crowd in crowds)
    half = min(per_point / 2.0, _WIDEST / max(most - 1.0, 1e-9))
    across = [i + half * _compute_offsets(crowd) for i, crowd in enumerate(crowds)]
    return _Swarm(everything, np.concatenate(across))


def _count_neighbors(line: Floats, ends: tuple[float, float], n_bins: int) -> Floats:
    """Return the smoothed number of points near each value, at least 1."""
    if ends[0] == ends[1]:
        return np.full(len(line), float(len(line)))
    counts, edges = np.histogram(line, bins=n_bins, range=ends)
    smooth = np.convolve(counts, [0.25, 0.5, 0.25], mode="same")
    return np.maximum(np.interp(line, (edges[1:] + edges[:-1]) / 2, smooth), 1.0)


def _compute_offsets(crowd: Floats) -> Floats:
    ranks = np.arange(len(crowd))
    return (crowd - 1.0) * (2.0 * ((0.5 + ranks * _GOLDEN) % 1.0) - 1.0)


def _choose_ranks(
    contents: list[Floats | None], positions: list[int], chosen: list[NDArray[np.intp]]
) -> Floats:
    """Return the ranks of the drawn cells, NaN for those without."""
    parts = [
        np.full(len(rows), np.nan) if (ranks := contents[position]) is None else ranks[rows]
        for rows, position in zip(chosen, positions, strict=True)
    ]
    return np.concatenate(parts)


def _draw_points(ax: Axes, swarm: _Swarm, ranks: Floats | None) -> None:
    hide_frame(ax)
    ax.axvline(0.0, color=GRAY, linewidth=0.8, zorder=1)
    dots: dict[str, Any] = {"s": _DIAMETER**2, "linewidths": 0, "rasterized": True, "zorder": 2}
    if ranks is None:
        ax.scatter(swarm.values, swarm.lines, color=POSITIVE, alpha=0.8, **dots)
        return
    ranked = ~np.isnan(ranks)
    ax.scatter(swarm.values[~ranked], swarm.lines[~ranked], color=PALE_GRAY, **dots)
    if not ranked.any():
        return
    points = ax.scatter(
        swarm.values[ranked],
        swarm.lines[ranked],
        c=ranks[ranked],
        cmap=sequential(),
        vmin=0.0,
        vmax=1.0,
        **dots,
    )
    bar = ax.figure.colorbar(points, ax=ax, pad=0.02, aspect=30)
    bar.set_ticks([0.0, 1.0], labels=["low", "high"])
    note = "" if ranked.all() else "\ngray: category or missing value"
    bar.set_label(f"content of the cell\n(rank within its column){note}", size=SMALL)
    bar.ax.tick_params(labelsize=SMALL, length=0)
    bar.outline.set_visible(False)


def _make_title(valuation: Valuation, n_drawn: int, chosen: list[NDArray[np.intp]]) -> str:
    n_rows, n_columns = valuation.shape
    notes = []
    most = max(len(rows) for rows in chosen)
    if n_unvisited := int(np.isnan(valuation.values).sum()):
        notes.append(f"{n_unvisited:,} cells were not sampled")
    if most < np.count_nonzero(~np.isnan(valuation.values), axis=0).max():
        notes.append(f"{most:,} of {n_rows:,} cells per column, evenly by rank")
    if n_drawn < n_columns:
        notes.append(f"{n_drawn:,} of {n_columns:,} columns, those of largest absolute value")
    return "\n".join([f"value of a cell ({SCORE_UNITS})", *notes])
