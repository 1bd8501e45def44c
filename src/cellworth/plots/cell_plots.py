"""Plots of single cells: what they hold and what they are worth."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from cellworth.data.arguments import MISSING, Codes, Floats, check_count
from cellworth.data.tables import Table, TableLike
from cellworth.findings.cells import check_rows, check_valuation, match_names
from cellworth.knn.distances import read_column
from cellworth.plots.figure_style import (
    GRAY,
    LINES,
    PALE_GRAY,
    POSITIVE,
    SCORE_UNITS,
    SMALL,
    Axes,
    compute_size,
    fit_title,
    format_labels,
    get_axes,
    hide_frame,
    lay_out,
    measure_axes,
    name_columns,
    name_lines,
    sequential,
    text_of,
    thin_numbers,
    write_title,
)
from cellworth.plots.value_plots import choose_largest
from cellworth.valuation.valuation import Valuation

_DIAMETER = 3.6
_DOTS: dict[str, Any] = {"s": _DIAMETER**2, "linewidths": 0, "rasterized": True, "zorder": 2}
_WIDEST = 0.42
_MAX_CATEGORIES = 12
_MEANING = "content: number low to high,\ncategory rare to frequent"
# Multiples modulo 1 are evenly distributed, without randomness.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


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
        within the column, categories from rare to frequent, missing values in gray.
    max_points : int, default=2000
        Columns with more cells show this many, evenly by rank, including lowest and highest.
    max_columns : int, default=20
        Wider tables show the columns whose values are largest in absolute value.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    scatter, bar

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth.plots import beeswarm
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, "red"], [1.0, "blue"], [3.0, "red"]], ["no", "yes", "no"]
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    >>> ax = beeswarm(valuation, X=X, ax=Figure().subplots())
    >>> sorted(tick.get_text() for tick in ax.get_yticklabels())
    ['x0', 'x1']
    """
    check_valuation(valuation)
    positions = choose_largest(valuation.columns().values, check_count(max_columns, "max_columns"))
    chosen = [
        _choose_evenly(valuation.values[:, position], check_count(max_points, "max_points"))
        for position in positions
    ]
    ranks, n_lines = None, len(positions) + 2
    if X is not None:
        ranks = _rank_contents(X, valuation, positions, chosen)
        # The label of a color bar needs some height.
        n_lines = max(n_lines, 6)
    ax = get_axes(ax, compute_size(n_lines))
    along, lines = _stack_points(valuation.values, positions, chosen, *measure_axes(ax))
    _draw_points(ax, along, lines, ranks, _MEANING)
    ax.axvline(0.0, color=GRAY, linewidth=0.8, zorder=1)
    names = format_labels(valuation.column_labels.tolist())
    name_lines(ax, [names[position] for position in positions])
    ax.set_xlabel(_describe_points(valuation, len(positions), chosen), size=SMALL)
    ax.tick_params(axis="x", labelsize=SMALL)
    write_title(ax, "Values of the cells of each column")
    lay_out(ax)
    thin_numbers(ax)
    fit_title(ax)
    return ax


def scatter(
    valuation: Valuation,
    X: TableLike,
    column: Hashable,
    *,
    color: Hashable | None = None,
    max_points: int = 2_000,
    ax: Axes | None = None,
) -> Axes:
    """Draw the cells of one column: what each holds against what it is worth.

    Parameters
    ----------
    valuation : Valuation
    X : table of shape (n_rows, n_columns)
        The table that was valued.
    column : label
        The column's name. Of more than 12 categories the rarest are drawn together as others.
    color : label, default=None
        Name of another column, whose content colors the points: numbers by rank, frequent
        categories by a legend, missing values and other categories in gray.
    max_points : int, default=2000
        Longer columns show this many cells, evenly by rank of value.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    beeswarm

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth.plots import scatter
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, "red"], [1.0, "blue"], [3.0, "red"]], ["no", "yes", "no"]
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    >>> ax = scatter(valuation, X, "x1", color="x0", ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_xticklabels()]
    ['red', 'blue']
    """
    check_valuation(valuation)
    table, positions = _find_cells(X, valuation)
    at = valuation.blocks.columns.position(column, what="column")
    values = valuation.values[:, at]
    rows = _choose_evenly(values, check_count(max_points, "max_points"))
    ax = get_axes(ax, (6.0, 4.0))
    across, names = _locate_cells(table, _only_cells(positions[at], column))
    if color is None:
        _draw_points(ax, across[rows], values[rows], None, "")
    else:
        other = valuation.blocks.columns.position(color, what="column")
        held, levels = _locate_cells(table, _only_cells(positions[other], color))
        if levels:
            codes = held[rows].round()
            _draw_levels(ax, across[rows], values[rows], codes, names=levels, title=text_of(color))
        else:
            ranks, meaning = _rank_cells(held)[rows], f"{text_of(color)} (rank)"
            _draw_points(ax, across[rows], values[rows], ranks, meaning)
    ax.axhline(0.0, color=GRAY, linewidth=0.8, zorder=1)
    ax.set_xlabel(text_of(column), size=SMALL)
    ax.set_ylabel(f"value of a cell ({SCORE_UNITS})", size=SMALL)
    ax.tick_params(labelsize=SMALL)
    write_title(ax, f"What cells of {text_of(column)} hold and are worth")
    lay_out(ax)
    if names:
        # Names are upright if the axes, which a color bar made narrower, leave too little room.
        name_columns(ax, names)
    fit_title(ax)
    return ax


def _only_cells(position: int | None, column: Any) -> int:
    if position is None:
        raise ValueError(f"column must be one of X, got {column!r}, which holds the labels.")
    return position


def _locate_cells(table: Table, position: int) -> tuple[Floats, list[str]]:
    """Return the positions of cells on an axis, and the names of categories.

    Cells of one category are drawn side by side, those of rare categories together at the end;
    missing values are NaN.
    """
    cells = _read(table, position)
    if cells.dtype.kind != "i":
        return cells.astype(np.float64), []
    counts = np.bincount(cells[cells != MISSING], minlength=1)
    order = np.argsort(-counts, kind="stable")
    held = table.column(position)
    first = {code: i for i, code in reversed(list(enumerate(cells.tolist())))}
    shown = [code for code in order.tolist()[:_MAX_CATEGORIES] if code in first]
    names = format_labels([held[first[code]] for code in shown])
    if len(counts) > _MAX_CATEGORIES:
        names[-1] = f"{len(counts) - _MAX_CATEGORIES + 1:,} others"
    lines = np.empty(len(counts))
    lines[order] = np.minimum(np.arange(len(counts)), _MAX_CATEGORIES - 1)
    offsets = 0.5 * (((np.arange(len(cells)) * _GOLDEN) % 1.0) - 0.5)
    return np.where(cells == MISSING, np.nan, lines[cells] + offsets), names


def _draw_levels(
    ax: Axes, across: Floats, along: Floats, codes: Floats, *, names: list[str], title: str
) -> None:
    """Draw points in the colors of their categories, with a legend; others are gray."""
    hide_frame(ax)
    shown = min(len(names), len(LINES))
    rest = ~(codes < shown)
    if rest.any():
        ax.scatter(across[rest], along[rest], color=PALE_GRAY, label="other or missing", **_DOTS)
    for code in range(shown):
        mine = codes == code
        ax.scatter(across[mine], along[mine], color=LINES[code], label=names[code], **_DOTS)
    ax.legend(
        title=title, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False,
        fontsize=SMALL, title_fontsize=SMALL, markerscale=1.5,
    )  # fmt: skip


def _rank_contents(
    X: TableLike, valuation: Valuation, positions: list[int], chosen: list[NDArray[np.intp]]
) -> Floats:
    """Return the ranks of the drawn cells within their columns; NaN for labels."""
    table, found = _find_cells(X, valuation)
    ranks = []
    for rows, position in zip(chosen, positions, strict=True):
        at = found[position]
        own = np.full(len(rows), np.nan) if at is None else _rank_cells(_read(table, at))[rows]
        ranks.append(own)
    return np.concatenate(ranks)


def _find_cells(X: TableLike, valuation: Valuation) -> tuple[Table, list[int | None]]:
    """Return the table that was valued, and where it has each column; None for the labels."""
    if valuation.blocks.rows.grouped or valuation.blocks.columns.grouped:
        raise ValueError(
            "X must be None for a valuation of groups, whose blocks have many cells; leave X out."
        )
    table = Table.from_data(X, called="X")
    check_rows(valuation, table)
    names, wanted = match_names(valuation, table)
    positions: list[int | None] = [names.index(name) for name in wanted]
    return table, positions + [None] * (valuation.shape[1] - len(wanted))


def _read(table: Table, position: int) -> Floats | Codes:
    """Return the numbers of a column, or the codes of its categories."""
    cells: Floats | Codes = read_column(position, [table], None, None).cells[0]
    return cells


def _rank_cells(cells: Floats | Codes) -> Floats:
    """Return ranks from 0 to 1: of numbers, or of how frequent categories are; NaN if missing."""
    if cells.dtype.kind == "i":
        counts = np.bincount(cells[cells != MISSING], minlength=1)
        # Categories that are equally frequent differ by the order in which they are first seen.
        rising = np.argsort(np.argsort(counts, kind="stable"), kind="stable")
        ranks = np.where(cells == MISSING, np.nan, rising[cells])
    else:
        ranks = rankdata(cells, nan_policy="omit")
    lowest, highest = np.nanmin(ranks, initial=np.inf), np.nanmax(ranks, initial=-np.inf)
    scaled: Floats = (ranks - lowest) / (highest - lowest) if highest > lowest else 0.5 + 0 * ranks
    return scaled


def _choose_evenly(values: Floats, most: int) -> NDArray[np.intp]:
    """Return at most this many rows of a column, lowest value first, evenly by rank."""
    order = np.argsort(values, kind="stable")
    order = order[: len(order) - int(np.isnan(values).sum())]
    if len(order) <= most:
        return order
    return order[np.linspace(0, len(order) - 1, most).round().astype(np.intp)]


def _stack_points(
    values: Floats,
    positions: list[int],
    chosen: list[NDArray[np.intp]],
    width: float,
    height: float,
) -> tuple[Floats, Floats]:
    """Return values and lines of points; those of similar value are stacked if a line has room."""
    along = [values[rows, position] for rows, position in zip(chosen, positions, strict=True)]
    everything = np.concatenate(along)
    if len(everything) == 0:
        return everything, everything
    ends = float(everything.min()), float(everything.max())
    crowds = [_count_neighbors(line, ends, max(int(width / _DIAMETER), 1)) for line in along]
    per_point = _DIAMETER * len(positions) / height
    most = max(float(crowd.max(initial=1.0)) for crowd in crowds)
    half = min(per_point / 2.0, _WIDEST / max(most - 1.0, 1e-9))
    lines = []
    for i, crowd in enumerate(crowds):
        offsets = 2.0 * ((0.5 + np.arange(len(crowd)) * _GOLDEN) % 1.0) - 1.0
        lines.append(i + half * ((crowd - 1.0) * offsets))
    return everything, np.concatenate(lines)


def _count_neighbors(line: Floats, ends: tuple[float, float], n_bins: int) -> Floats:
    """Return the smoothed number of points near each value, at least 1."""
    if ends[0] == ends[1]:
        return np.full(len(line), float(len(line)))
    counts, edges = np.histogram(line, bins=n_bins, range=ends)
    smooth = np.convolve(counts, [0.25, 0.5, 0.25], mode="same")
    return np.maximum(np.interp(line, (edges[1:] + edges[:-1]) / 2, smooth), 1.0)


def _draw_points(
    ax: Axes, across: Floats, along: Floats, ranks: Floats | None, meaning: str
) -> None:
    """Draw points, colored by rank."""
    hide_frame(ax)
    if ranks is None:
        ax.scatter(across, along, color=POSITIVE, alpha=0.8, **_DOTS)
        return
    ranked = ~np.isnan(ranks)
    ax.scatter(across[~ranked], along[~ranked], color=PALE_GRAY, **_DOTS)
    if not ranked.any():
        return
    shown = across[ranked], along[ranked]
    points = ax.scatter(*shown, c=ranks[ranked], cmap=sequential(ax), vmin=0.0, vmax=1.0, **_DOTS)
    bar = ax.figure.colorbar(points, ax=ax, pad=0.02, aspect=30)
    bar.set_ticks([0.0, 1.0], labels=["low", "high"])
    note = "" if ranked.all() else ";\ngray: missing"
    bar.set_label(f"{meaning}{note}", size=SMALL)
    bar.ax.tick_params(labelsize=SMALL, length=0)
    bar.outline.set_visible(False)


def _describe_points(valuation: Valuation, n_drawn: int, chosen: list[NDArray[np.intp]]) -> str:
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
