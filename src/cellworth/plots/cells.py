"""The heat map: every cell's value as a colour."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import checked_count
from cellworth.owners import Owners
from cellworth.plots.borders import draw_owners
from cellworth.plots.grids import NOBODY, Grid
from cellworth.plots.style import (
    PALE_GREY,
    SCORE_UNITS,
    SMALL,
    ZERO,
    Axes,
    Floats,
    axes_for,
    diverging,
    name_columns,
    name_lines,
)
from cellworth.valuation import Valuation

# From this many errors away from zero a value has its full colour, at zero errors this opacity.
_CERTAIN = 2.0
_LEAST_OPACITY = 0.15
_INCHES_PER_LETTER = 0.07
_ROUNDING = 1e-12


def heatmap(
    valuation: Valuation,
    *,
    owners: Any = None,
    uncertainty: bool = True,
    max_rows: int = 300,
    ax: Axes | None = None,
) -> Axes:
    """Draw every cell's value: blue above zero, orange below, hatched where it was not visited.

    Colours are centred at zero. Beyond the 99 % of cells nearest to zero they do not get darker,
    which the colour bar shows by its pointed ends.

    Parameters
    ----------
    valuation : Valuation
    owners : Owners, default=None
        Who holds which cells (or any object with ``names`` and ``codes``, an index into names for
        each cell, -1 for nobody). Lines are drawn between cells of different owners, and each name
        into its owner's largest rectangle, where it fits.
    uncertainty : bool, default=True
        Whether values below two errors from zero are paler. The error joins standard and
        validation error; that of a mean of rows is taken as the mean of their errors, which it
        cannot exceed. Values whose error is not known are not paled.
    max_rows : int, default=300
        Tables with more rows are drawn in bins of rows: each is the mean of those visited, and
        belongs to the owner of at least two thirds of it.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth import RandomValuer
    >>> valuer = RandomValuer(random_state=0).fit([[0.0, 5.0], [1.0, 4.0]], ["no", "yes"])
    >>> ax = heatmap(valuer.valuation_, ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_xticklabels()]
    ['x0', 'x1']
    """
    refuse_what_is_no_valuation(valuation)
    held = None if owners is None else _held(owners, valuation)
    grid = Grid.of(valuation, checked_count(max_rows, "max_rows"))
    ax = axes_for(ax, _figure_size(grid))
    limit = _limit(grid.values, valuation)
    pales = uncertainty and bool((grid.errors > 0).any())
    ax.imshow(
        _painted(grid, limit, pales=pales),
        aspect="auto",
        interpolation="nearest",
    )
    ax.grid(False)
    _add_colour_bar(ax, grid.values, limit, pales=pales)
    name_columns(ax, grid.column_names)
    name_lines(ax, grid.row_names)
    ax.set_ylabel(_row_title(valuation, grid.rows_per_bin), size=SMALL)
    _show_unvisited(ax, np.isnan(grid.values))
    if held is not None:
        names, codes = held
        draw_owners(ax, grid.owners(codes), names)
    return ax


def refuse_what_is_no_valuation(valuation: Any) -> None:
    """Refuse anything but a Valuation, with a sentence."""
    if not isinstance(valuation, Valuation):
        raise TypeError(
            f"valuation is of type {type(valuation).__name__}; give a Valuation, such as "
            "valuer.valuation_ of a fitted valuer."
        )


def _held(owners: Any, valuation: Valuation) -> tuple[list[str], NDArray[np.int_]]:
    """Names of owners, and of those who share cells, and which of them holds each block."""
    if not isinstance(owners, Owners):
        codes = _checked_codes(owners, valuation.shape)
        return list(owners.names), codes
    holdings = owners.on(valuation.blocks)
    names = [
        " + ".join(holdings.names[place] for place in np.flatnonzero(line))
        for line in holdings.claims
    ]
    nobody = holdings.claims.sum(axis=1) == 0
    return names, np.where(nobody[holdings.codes()], NOBODY, holdings.codes())


def _checked_codes(owners: Any, shape: tuple[int, int]) -> NDArray[np.int_]:
    if not hasattr(owners, "names") or not hasattr(owners, "codes"):
        raise TypeError(
            f"owners is of type {type(owners).__name__}; give an object with names, and with codes "
            "that say which of them holds each cell."
        )
    codes, n_names = np.asarray(owners.codes), len(owners.names)
    if codes.shape != shape or codes.dtype.kind not in "iu":
        raise ValueError(
            f"owners.codes has shape {codes.shape} and type {codes.dtype}, but the valuation has "
            f"{shape[0]} x {shape[1]} cells; give one whole number for each."
        )
    if codes.min() < -1 or codes.max() >= n_names:
        raise ValueError(
            f"owners.codes runs from {codes.min()} to {codes.max()} but there are {n_names} names; "
            "give an index into names, or -1 for nobody."
        )
    return codes.astype(np.int_)


def _figure_size(grid: Grid) -> tuple[float, float]:
    n_rows, n_columns = grid.values.shape
    width = np.clip(2.8 + 0.32 * n_columns, 4.6, 11.0)
    # Names that stand upright take some of the height.
    names = _INCHES_PER_LETTER * max(map(len, grid.column_names))
    height = np.clip(1.0 + 0.24 * n_rows, 2.2, 4.8) + names
    return float(width), float(height)


def _limit(values: Floats, valuation: Valuation) -> float:
    """Return the size of the values that are darkest; beyond it is at most one cell in 100."""
    sizes = np.abs(values[~np.isnan(values)])
    if not sizes.any():
        return 1.0
    usual = float(np.quantile(sizes, 0.99, method="higher"))
    # What is left by rounding must not look like a value.
    score = np.nansum(np.abs([valuation.expected_total, valuation.unearned]))
    return max(usual if usual > 0 else float(sizes.max()), float(_ROUNDING * score))


def _painted(grid: Grid, limit: float, *, pales: bool) -> Floats:
    """Colours of all cells, shape (n_bins, n_columns, 4); see-through where there is no value."""
    from matplotlib.colors import to_rgba

    unvisited = np.isnan(grid.values)
    places = np.where(unvisited, 0.5, 0.5 + grid.values / (2.0 * limit))
    colours = np.array(diverging()(places))
    if pales:
        # Mixed rather than see-through: the hatches of unvisited cells must not shine through.
        opacity = _opacity(grid)[..., np.newaxis]
        colours = opacity * colours + (1.0 - opacity) * np.array(to_rgba(ZERO))
    colours[unvisited] = 0.0
    return colours


def _opacity(grid: Grid) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        certainty = np.abs(grid.values) / grid.errors / _CERTAIN
    # Without an error, or with one of 0, nothing is in doubt.
    certainty = np.where(grid.errors > 0, certainty, 1.0)
    return np.clip(np.nan_to_num(certainty, nan=1.0), _LEAST_OPACITY, 1.0)


def _add_colour_bar(ax: Axes, values: Floats, limit: float, *, pales: bool) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    beyond = bool((np.abs(np.nan_to_num(values)) > limit).any())
    colours = ScalarMappable(Normalize(-limit, limit), diverging())
    bar = ax.figure.colorbar(colours, ax=ax, extend="both" if beyond else "neither", pad=0.02)
    note = "\npale: below two errors from zero" if pales else ""
    bar.set_label(f"value ({SCORE_UNITS}){note}", size=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    bar.outline.set_visible(False)


def _row_title(valuation: Valuation, rows_per_bin: int) -> str:
    thing = "row group" if valuation.blocks.rows.grouped else "row"
    return thing if rows_per_bin == 1 else f"{thing}s (mean of {rows_per_bin:,} {thing}s each)"


def _show_unvisited(ax: Axes, unvisited: NDArray[np.bool_]) -> None:
    from matplotlib.patches import Patch

    if not unvisited.any():
        return
    hatched: dict[str, Any] = {
        "facecolor": "white",
        "edgecolor": PALE_GREY,
        "hatch": "////",
        "linewidth": 0.0,
    }
    ax.patch.set(**hatched)
    ax.legend(
        handles=[Patch(**hatched, label="not visited")],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        frameon=False,
        borderaxespad=0.2,
        fontsize=SMALL,
    )
