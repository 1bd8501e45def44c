"""plots.beeswarm: values of cells by column, colored by their content."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from cellworth.blocks import LABEL, some
from cellworth.counts import Floats, checked_count
from cellworth.neighbours.columns import NumericColumn, read_column
from cellworth.plots.heatmap_plot import refuse_what_is_no_valuation
from cellworth.plots.style import (
    GREY,
    PALE_GREY,
    POSITIVE,
    SCORE_UNITS,
    SMALL,
    Axes,
    axes_for,
    name_lines,
    plain_frame,
    points_across,
    sequential,
    size_for,
    texts_of,
)
from cellworth.tables import Table
from cellworth.valuation import Valuation

_DIAMETER = 3.6
_WIDEST = 0.42
# Multiples of it fall evenly into every interval, without any randomness.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def beeswarm(
    valuation: Valuation,
    *,
    X: Any = None,
    max_points: int = 2_000,
    max_columns: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Draw one point per cell at its value, one line per column, the most valuable on top.

    Points are spread upwards and downwards by how many have about the same value. The picture is
    the same each time: nothing in it is random.

    Parameters
    ----------
    valuation : Valuation
    X : table of shape (n_rows, n_columns), default=None
        The table that was valued. Points are then coloured by what stands in the cell: numbers and
        dates by their rank within the column, text, categories and gaps in grey.
    max_points : int, default=2000
        Of columns with more cells, so many are drawn, evenly by rank, lowest and highest included.
    max_columns : int, default=20
        Of wider tables, the columns whose values are largest, be they positive or negative.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth import RandomValuer
    >>> X = [[0.0, "red"], [1.0, "blue"], [3.0, "red"]]
    >>> valuation = RandomValuer(random_state=0).fit(X, ["no", "yes", "no"]).valuation_
    >>> valuation.columns().values.round(2)
    array([1.31, 1.06])
    >>> ax = beeswarm(valuation, X=X, ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['x0', 'x1']
    """
    refuse_what_is_no_valuation(valuation)
    contents = None if X is None else _contents(X, valuation)
    places = _drawn_columns(valuation, checked_count(max_columns, "max_columns"))
    chosen = [
        _evenly(valuation.values[:, place], checked_count(max_points, "max_points"))
        for place in places
    ]
    # The text beside a colour bar takes some height.
    ax = axes_for(ax, size_for(len(places) + 2 if contents is None else max(len(places) + 2, 6)))
    swarm = _swarm(valuation.values, places, chosen, *points_across(ax))
    _draw(ax, swarm, None if contents is None else _colours(contents, places, chosen))
    names = texts_of(valuation.column_labels.tolist())
    name_lines(ax, [names[place] for place in places])
    ax.set_xlabel(_title(valuation, len(places), chosen), size=SMALL)
    ax.tick_params(axis="x", labelsize=SMALL)
    return ax


def _contents(X: Any, valuation: Valuation) -> list[Floats | None]:
    """Rank of every cell within its column, None for columns that are no numbers."""
    if valuation.blocks.rows.grouped or valuation.blocks.columns.grouped:
        raise ValueError(
            "X came with a valuation of groups, whose blocks hold many cells each; leave X out."
        )
    table = Table.of(X, called="X")
    n_rows = valuation.shape[0]
    if table.shape[0] != n_rows or _has_other_ids(table, valuation):
        raise ValueError(
            f"X has {table.shape[0]} rows that are not the {n_rows} rows of the valuation, in "
            "their order; give the table that was valued."
        )
    # Where labels were valued, all names are text.
    labels = [str(label) for label in valuation.column_labels.tolist()]
    named = table.backend is not None
    names = [str(name) for name in table.names.tolist()] if named else labels[: table.shape[1]]
    lacking = [label for label in labels if label not in names and label != LABEL]
    if lacking:
        raise ValueError(
            f"X lacks the columns {some(lacking)} of the valuation; give the table that was valued."
        )
    return [_ranks(table, names.index(label)) if label in names else None for label in labels]


def _has_other_ids(table: Table, valuation: Valuation) -> bool:
    # Tables of other libraries have no ids of their own.
    return table.backend == "pandas" and table.row_ids.tolist() != valuation.row_labels.tolist()


def _ranks(table: Table, place: int) -> Floats | None:
    """Ranks from 0 to 1 that ties share, NaN for gaps; None for a column that is no numbers."""
    column = read_column(place, [table], None, None)
    if not isinstance(column, NumericColumn):
        return None
    ranks = rankdata(column.cells[0], nan_policy="omit")
    lowest, highest = np.nanmin(ranks, initial=np.inf), np.nanmax(ranks, initial=-np.inf)
    scaled: Floats = (ranks - lowest) / (highest - lowest) if highest > lowest else 0.5 + 0 * ranks
    return scaled


def _drawn_columns(valuation: Valuation, most: int) -> list[int]:
    """Places of the columns of largest size, by falling value; those without a value come last."""
    values = valuation.columns().values
    largest = np.argsort(-np.abs(values), kind="stable")[:most]
    order = np.sort(largest)
    falling: list[int] = order[np.argsort(-values[order], kind="stable")].tolist()
    return falling


def _evenly(values: Floats, most: int) -> NDArray[np.intp]:
    """Rows of a column's cells by rising value; of many, some that are evenly spread by rank."""
    order = np.argsort(values, kind="stable")
    order = order[: len(order) - int(np.isnan(values).sum())]
    if len(order) <= most:
        return order
    return order[np.linspace(0, len(order) - 1, most).round().astype(np.intp)]


@dataclass(frozen=True, eq=False)
class _Swarm:
    """Points of all columns: where they stand along and across the axis."""

    values: Floats
    lines: Floats


def _swarm(
    values: Floats,
    places: list[int],
    chosen: list[NDArray[np.intp]],
    width: float,
    height: float,
) -> _Swarm:
    """Lay points of about the same value one above the other, as far as a line has room."""
    along = [values[rows, place] for rows, place in zip(chosen, places, strict=True)]
    everything = np.concatenate(along)
    if len(everything) == 0:
        return _Swarm(everything, everything)
    ends = float(everything.min()), float(everything.max())
    crowds = [_crowd(line, ends, max(int(width / _DIAMETER), 1)) for line in along]
    per_point = _DIAMETER * len(places) / height
    most = max(float(crowd.max(initial=1.0)) for crowd in crowds)
    half = min(per_point / 2.0, _WIDEST / max(most - 1.0, 1e-9))
    across = [i + half * _offsets(crowd) for i, crowd in enumerate(crowds)]
    return _Swarm(everything, np.concatenate(across))


def _crowd(line: Floats, ends: tuple[float, float], n_bins: int) -> Floats:
    """How many points have about the value of each; smooth along the line, at least 1."""
    if ends[0] == ends[1]:
        return np.full(len(line), float(len(line)))
    counts, edges = np.histogram(line, bins=n_bins, range=ends)
    smooth = np.convolve(counts, [0.25, 0.5, 0.25], mode="same")
    return np.maximum(np.interp(line, (edges[1:] + edges[:-1]) / 2, smooth), 1.0)


def _offsets(crowd: Floats) -> Floats:
    ranks = np.arange(len(crowd))
    return (crowd - 1.0) * (2.0 * ((0.5 + ranks * _GOLDEN) % 1.0) - 1.0)


def _colours(
    contents: list[Floats | None], places: list[int], chosen: list[NDArray[np.intp]]
) -> Floats:
    """Ranks of the drawn cells, NaN for what has none."""
    parts = [
        np.full(len(rows), np.nan) if (ranks := contents[place]) is None else ranks[rows]
        for rows, place in zip(chosen, places, strict=True)
    ]
    return np.concatenate(parts)


def _draw(ax: Axes, swarm: _Swarm, ranks: Floats | None) -> None:
    plain_frame(ax)
    ax.axvline(0.0, color=GREY, linewidth=0.8, zorder=1)
    dots: dict[str, Any] = {"s": _DIAMETER**2, "linewidths": 0, "rasterized": True, "zorder": 2}
    if ranks is None:
        ax.scatter(swarm.values, swarm.lines, color=POSITIVE, alpha=0.8, **dots)
        return
    ranked = ~np.isnan(ranks)
    ax.scatter(swarm.values[~ranked], swarm.lines[~ranked], color=PALE_GREY, **dots)
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
    bar.set_label(f"what stands in the cell\n(rank within its column){note}", size=SMALL)
    bar.ax.tick_params(labelsize=SMALL, length=0)
    bar.outline.set_visible(False)


def _title(valuation: Valuation, n_drawn: int, chosen: list[NDArray[np.intp]]) -> str:
    n_rows, n_columns = valuation.shape
    notes = []
    most = max(len(rows) for rows in chosen)
    if n_unvisited := int(np.isnan(valuation.values).sum()):
        notes.append(f"{n_unvisited:,} cells were not visited")
    if most < np.count_nonzero(~np.isnan(valuation.values), axis=0).max():
        notes.append(f"{most:,} of {n_rows:,} cells per column, evenly by rank")
    if n_drawn < n_columns:
        notes.append(f"{n_drawn:,} of {n_columns:,} columns, those of largest value")
    return "\n".join([f"value of a cell ({SCORE_UNITS})", *notes])
