"""plots.heatmap: values of cells as colors, with the borders of owners."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, check_count
from cellworth.data.blocks import Axis
from cellworth.data.owners import Owners, check_owners
from cellworth.findings.cells import check_valuation
from cellworth.plots.figure_style import (
    GRAY,
    PALE_GRAY,
    SCORE_UNITS,
    SMALL,
    SMALLEST,
    ZERO,
    Axes,
    color_signs,
    diverging,
    fit_title,
    format_labels,
    format_signed,
    get_axes,
    lay_out,
    measure_axes,
    measure_width,
    name_columns,
    name_lines,
    write_legend_above,
    write_title,
)
from cellworth.valuation.valuation import Valuation

# A value this many errors from zero has its full color.
_CERTAIN = 2.0
_MIN_OPACITY = 0.15
_INCHES_PER_LETTER = 0.07
_ROUNDING = 1e-12
UNOWNED, MIXED = -1, -2
Order = Literal["table", "value"]
_MAX_NUMBERS = 400
# Points; smaller axes have no sums.
_SIZE_OF_SUMS, _MIN_ROOM = 32.0, 100.0
_THICKNESS = 0.8
# Of red, green and blue, as eyes see them.
_BRIGHTNESS = np.array([0.299, 0.587, 0.114])

_ROWS_AT_ONCE = 65_536
_MAX_END = 14
Codes = NDArray[np.int_]
# From corner to corner.
Line = tuple[tuple[float, float], tuple[float, float]]

_WIDEST_LINE = 1.4


def heatmap(
    valuation: Valuation,
    *,
    owners: Owners | None = None,
    uncertainty: bool = True,
    order: Order = "table",
    sums: bool = True,
    max_rows: int = 300,
    ax: Axes | None = None,
) -> Axes:
    """Draw the value of every cell: blue above zero, orange below, hatched if it was not sampled.

    Colors are centered at zero. The 1% of cells farthest from zero share the darkest color, which
    the pointed ends of the color bar show. Values are also written where cells have room.

    Parameters
    ----------
    valuation : Valuation
    owners : Owners, default=None
        Owners of the cells. Lines separate cells of different owners. Each name is written into
        its owner's largest rectangle, if it fits.
    uncertainty : bool, default=True
        Draw values within two errors of zero paler. The error combines sampling and validation
        error. For a mean of rows it is the mean of their errors, an upper bound. Values without a
        known error keep their color.
    order : {"table", "value"}, default="table"
        "value": rows from the highest value at the top to the lowest, columns from left to right.
        Bins of rows are ordered as a whole. ``seaborn.clustermap(valuation.values)`` draws similar
        rows and columns side by side.
    sums : bool, default=True
        Draw the values of columns as bars above, and those of rows as bars on the right.
    max_rows : int, default=300
        Tables with more rows are drawn in bins. A bin shows the mean of its sampled rows, and
        belongs to the owner of at least two thirds of it.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    bar, waterfall, cellworth.report.save

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth.plots import heatmap
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 5.0], [1.0, 4.0]], ["no", "yes"]
    >>> valuer = KNNValuer(1).fit(X, y, X_val=X, y_val=y)
    >>> ax = heatmap(valuer.valuation_, ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_xticklabels()]
    ['x0', 'x1']
    """
    check_valuation(valuation)
    owned = None if owners is None else _find_owners(owners, valuation)
    grid = ValueGrid.from_valuation(valuation, check_count(max_rows, "max_rows"))
    codes = None if owned is None else grid.owners(owned[1])
    if order != "table":
        rows, columns = grid.find_order(order)
        grid = grid.take(rows, columns)
        codes = None if codes is None else codes[np.ix_(rows, columns)]
    ax = get_axes(ax, _compute_figure_size(grid))
    limit = _compute_limit(grid.values, valuation)
    pales = uncertainty and bool((grid.errors > 0).any())
    colors = _paint(grid, limit, pales=pales)
    ax.imshow(colors, aspect="auto", interpolation="nearest")
    ax.grid(False)
    _add_color_bar(ax, grid.values, limit, pales=pales)
    name_columns(ax, grid.column_names)
    name_lines(ax, grid.row_names)
    row = "row group" if valuation.blocks.rows.grouped else "row"
    bins = f"{row}s (mean of {grid.rows_per_bin:,} {row}s each)"
    ax.set_ylabel(row if grid.rows_per_bin == 1 else bins, size=SMALL)
    lay_out(ax)
    above = _draw_sums(ax, grid) if sums and min(measure_axes(ax)) > _MIN_ROOM else 0.0
    unvisited = np.isnan(grid.values)
    _show_unvisited(ax, unvisited, above)
    thing = "block" if valuation.blocks.rows.grouped or valuation.blocks.columns.grouped else "cell"
    write_title(ax, f"Value of each {thing}", above=above + 2.0 * SMALL * unvisited.any())
    fit_title(ax)
    if owned is None or codes is None:
        _write_values(ax, grid.values, colors)
    else:
        draw_owners(ax, codes, owned[0])
    return ax


def _draw_sums(ax: Axes, grid: ValueGrid) -> float:
    """Draw the sums of columns above the cells, those of rows beside; return the height."""
    known = np.nan_to_num(grid.values)
    width, height = measure_axes(ax)
    size, pad = _SIZE_OF_SUMS, 3.0
    above = ax.inset_axes((0.0, 1.0 + pad / height, 1.0, (size - pad) / height), sharex=ax)
    beside = ax.inset_axes((1.0 + pad / width, 0.0, (size - pad) / width, 1.0), sharey=ax)
    columns, rows = known.sum(axis=0), known.sum(axis=1) * grid.rows_per_bin
    across, down = np.arange(len(columns)), np.arange(len(rows))
    above.bar(across, columns, width=_THICKNESS, color=color_signs(columns))
    beside.barh(down, rows, height=_THICKNESS, color=color_signs(rows))
    above.axhline(0.0, color=GRAY, linewidth=0.6)
    beside.axvline(0.0, color=GRAY, linewidth=0.6)
    for inset in (above, beside):
        inset.set_axis_off()
    return size


def _write_values(ax: Axes, values: Floats, colors: Floats) -> None:
    """Write the values into their cells, if all of them fit."""
    if values.size > _MAX_NUMBERS:
        return
    texts = format_signed(values.ravel().tolist())
    lay_out(ax)
    width, height = measure_axes(ax)
    room = (measure_width(texts, SMALL) / 0.9, 1.4 * SMALL)
    scale = min(width / values.shape[1] / room[0], height / values.shape[0] / room[1], 1.0)
    if scale * SMALL < SMALLEST:
        return
    for (i, j), text in zip(np.ndindex(values.shape), texts, strict=True):
        if not np.isnan(values[i, j]):
            color = "white" if colors[i, j, :3] @ _BRIGHTNESS < 0.5 else "black"
            ax.text(j, i, text, size=scale * SMALL, color=color, ha="center", va="center")


def _find_owners(owners: Any, valuation: Valuation) -> tuple[list[str], NDArray[np.int_]]:
    """Return the names of owners and of groups of co-owners, and the index of each block's."""
    holdings = check_owners(owners).project(valuation.blocks)
    names = [
        " + ".join(holdings.names[position] for position in np.flatnonzero(line))
        for line in holdings.claims
    ]
    is_unowned = holdings.claims.sum(axis=1) == 0
    return names, np.where(is_unowned[holdings.codes()], UNOWNED, holdings.codes())


def _compute_figure_size(grid: ValueGrid) -> tuple[float, float]:
    n_rows, n_columns = grid.values.shape
    width = np.clip(3.2 + 0.32 * n_columns, 5.0, 11.4)
    # Rotated names take some of the height.
    names = _INCHES_PER_LETTER * max(map(len, grid.column_names))
    height = np.clip(1.8 + 0.24 * n_rows, 3.0, 5.6) + names
    return float(width), float(height)


def _compute_limit(values: Floats, valuation: Valuation) -> float:
    """Return the size of value with the darkest color; at most 1% of cells exceed it."""
    sizes = np.abs(values[~np.isnan(values)])
    if not sizes.any():
        return 1.0
    usual = float(np.quantile(sizes, 0.99, method="higher"))
    # Rounding errors must not look like values.
    score = np.nansum(np.abs([valuation.expected_total, valuation.baseline]))
    return max(usual if usual > 0 else float(sizes.max()), float(_ROUNDING * score))


def _paint(grid: ValueGrid, limit: float, *, pales: bool) -> Floats:
    """Return the colors of all cells, shape (n_bins, n_columns, 4); transparent without a value."""
    from matplotlib.colors import to_rgba

    unvisited = np.isnan(grid.values)
    positions = np.where(unvisited, 0.5, 0.5 + grid.values / (2.0 * limit))
    colors = np.array(diverging()(positions))
    if pales:
        with np.errstate(divide="ignore", invalid="ignore"):
            certainty = np.abs(grid.values) / grid.errors / _CERTAIN
        # Values without an error, or with an error of 0, keep their color.
        certainty = np.where(grid.errors > 0, certainty, 1.0)
        opacity = np.clip(np.nan_to_num(certainty, nan=1.0), _MIN_OPACITY, 1.0)[..., np.newaxis]
        # Mixed, not transparent: the hatching behind must not shine through.
        colors = opacity * colors + (1.0 - opacity) * np.array(to_rgba(ZERO))
    colors[unvisited] = 0.0
    return colors


def _add_color_bar(ax: Axes, values: Floats, limit: float, *, pales: bool) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    beyond = bool((np.abs(np.nan_to_num(values)) > limit).any())
    colors = ScalarMappable(Normalize(-limit, limit), diverging())
    bar = ax.figure.colorbar(colors, ax=ax, extend="both" if beyond else "neither", pad=0.02)
    note = "\npale: within two errors of zero" if pales else ""
    bar.set_label(f"value ({SCORE_UNITS}){note}", size=SMALL)
    bar.ax.tick_params(labelsize=SMALL)
    bar.outline.set_visible(False)


def _show_unvisited(ax: Axes, unvisited: NDArray[np.bool_], above: float) -> None:
    from matplotlib.patches import Patch

    if not unvisited.any():
        return
    hatched: Any = {"fc": "white", "ec": PALE_GRAY, "hatch": "////", "linewidth": 0.0}
    ax.patch.set(**hatched)
    patch = Patch(**hatched, label="not sampled")
    write_legend_above(ax, handles=[patch], borderaxespad=0.2 + above / SMALL)


@dataclass(frozen=True, eq=False)
class ValueGrid:
    """Mean values of bins of rows, and their errors; shape (n_bins, n_columns)."""

    # Mean over the sampled rows; NaN without any.
    values: Floats
    # Mean of the errors, an upper bound on the error of the mean; NaN if no error is known.
    errors: Floats
    # The last bin may have fewer.
    rows_per_bin: int
    row_names: list[str]
    column_names: list[str]

    @classmethod
    def from_valuation(cls, valuation: Valuation, most_rows: int) -> ValueGrid:
        """Bin the rows of a valuation into at most ``most_rows`` bins."""
        rows_per_bin = -(-valuation.shape[0] // most_rows)
        values, errors = [], []
        rows_at_once = _ROWS_AT_ONCE // rows_per_bin * rows_per_bin or rows_per_bin
        for chunk in valuation.iter_rows(rows_at_once):
            values.append(_average_bins(chunk.values, rows_per_bin))
            errors.append(_average_bins(chunk.errors, rows_per_bin))
        return cls(
            np.vstack(values),
            np.vstack(errors),
            rows_per_bin,
            _name_bins(valuation.blocks.rows, rows_per_bin),
            format_labels(valuation.column_labels.tolist()),
        )

    def find_order(self, order: Order) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the order of bins, and that of columns: highest sum first."""
        if order != "value":
            raise ValueError(f'order must be "table" or "value", got {order!r}.')
        known = np.nan_to_num(self.values)
        return (
            np.argsort(-known.sum(axis=1), kind="stable"),
            np.argsort(-known.sum(axis=0), kind="stable"),
        )

    def take(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> ValueGrid:
        """Return these bins and columns, in this order."""
        chosen = np.ix_(rows, columns)
        return ValueGrid(
            self.values[chosen],
            self.errors[chosen],
            self.rows_per_bin,
            [self.row_names[i] for i in rows],
            [self.column_names[j] for j in columns],
        )

    def owners(self, codes: NDArray[np.int_]) -> NDArray[np.int_]:
        """Return the owner of at least two thirds of each bin, or MIXED."""
        found = []
        for start in range(0, len(codes), self.rows_per_bin):
            own = codes[start : start + self.rows_per_bin]
            # An owner of more than half of the rows is in the middle of the sorted codes.
            candidates = np.sort(own, axis=0)[len(own) // 2]
            prevail = (own == candidates).sum(axis=0) * 3 >= 2 * len(own)
            found.append(np.where(prevail, candidates, MIXED))
        return np.vstack(found)


def _average_bins(cells: Floats, rows_per_bin: int) -> Floats:
    if rows_per_bin == 1:
        return cells
    starts = np.arange(0, len(cells), rows_per_bin)
    known = ~np.isnan(cells)
    counts = np.add.reduceat(known.astype(np.int64), starts, axis=0)
    sums = np.add.reduceat(np.where(known, cells, 0.0), starts, axis=0)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _name_bins(rows: Axis, rows_per_bin: int) -> list[str]:
    """Name bins by their first and last row."""
    if rows_per_bin == 1:
        return format_labels(rows.labels.tolist())
    starts = range(0, len(rows), rows_per_bin)
    lasts = [min(start + rows_per_bin, len(rows)) - 1 for start in starts]
    named = rows.some_labels(np.array([*starts, *lasts]))
    ends = format_labels(named.tolist(), _MAX_END)
    dash = "\N{EN DASH}" if all(text.isdigit() for text in ends) else " \N{EN DASH} "
    return [first + dash + last for first, last in zip(ends, ends[len(starts) :], strict=False)]


class Rectangle(NamedTuple):
    """Cells from top to bottom and from left to right; bottom and right are excluded."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def n_cells(self) -> int:
        """Number of cells."""
        return (self.bottom - self.top) * (self.right - self.left)


def draw_owners(ax: Axes, codes: Codes, names: Sequence[str]) -> None:
    """Draw lines between cells of different owners, and write the names that fit."""
    from matplotlib.collections import LineCollection

    width, height = measure_axes(ax)
    borders = [*zip(find_borders(codes), (width, height), strict=True)]
    # A wider white line below keeps the black one visible on dark colors.
    for color, times in (("white", 2.4), ("black", 1.0)):
        for (lines, n_parallels), room in borders:
            # Lines get thinner with the number of parallels, so that they hide no cells.
            thickness = times * min(_WIDEST_LINE, 0.1 * room / (n_parallels + 1))
            drawn = LineCollection(lines, colors=color, linewidths=thickness, capstyle="projecting")
            ax.add_collection(drawn, autolim=False)
    lay_out(ax)
    texts = format_labels(names)
    for code, rectangle in find_largest_rectangles(codes).items():
        if code >= 0:
            _write_name(ax, rectangle, texts[code], codes.shape)


def find_borders(codes: Codes) -> Iterator[tuple[list[Line], int]]:
    """Yield the sides of cells beside another owner, upright ones first.

    With them comes the largest number of parallels in a row or column of cells.
    """
    beside, below = codes[:, 1:] != codes[:, :-1], codes[1:] != codes[:-1]
    upright = [((j + 0.5, i - 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(beside).tolist()]
    level = [((j - 0.5, i + 0.5), (j + 0.5, i + 0.5)) for i, j in np.argwhere(below).tolist()]
    yield upright, int(beside.sum(axis=1).max())
    yield level, int(below.sum(axis=0).max())


def find_largest_rectangles(codes: Codes) -> dict[int, Rectangle]:
    """Return each owner's largest rectangle; of equal ones the topmost."""
    best: dict[int, Rectangle] = {}
    heights = np.zeros(codes.shape[1], dtype=int)
    for i, owners in enumerate(codes):
        same = owners == codes[i - 1] if i else np.zeros(len(owners), dtype=bool)
        heights = np.where(same, heights + 1, 1)
        for code, found in _iter_rectangles(i, owners.tolist(), heights.tolist()):
            if code not in best or found.n_cells > best[code].n_cells:
                best[code] = found
    return best


def _iter_rectangles(
    row: int, owners: list[int], heights: list[int]
) -> Iterator[tuple[int, Rectangle]]:
    """Yield the widest rectangles of one owner that end in this row."""
    # Left ends and heights of rectangles that may still get wider, the highest last.
    growing: list[tuple[int, int]] = []
    for j in range(len(owners) + 1):
        continues = 0 < j < len(owners) and owners[j] == owners[j - 1]
        height, left = heights[j] if j < len(owners) else 0, j
        while growing and (not continues or growing[-1][1] >= height):
            left, tall = growing.pop()
            yield owners[j - 1], Rectangle(row + 1 - tall, row + 1, left, j)
        growing.append((left if continues else j, height))


def _write_name(ax: Axes, rectangle: Rectangle, name: str, shape: tuple[int, ...]) -> None:
    """Write a name horizontally, else vertically, else not at all."""
    width, height = measure_axes(ax)
    room = (
        width * (rectangle.right - rectangle.left) / shape[1],
        height * (rectangle.bottom - rectangle.top) / shape[0],
    )
    need = measure_width([name], SMALL) + 0.8 * SMALL, 1.9 * SMALL
    scales = {0: min(room[0] / need[0], room[1] / need[1], 1.0)}
    scales[90] = min(room[0] / need[1], room[1] / need[0], 1.0)
    angle = 0 if scales[0] >= min(scales[90], 0.9) else 90
    if scales[angle] * SMALL < SMALLEST:
        return
    ax.text(
        (rectangle.left + rectangle.right - 1) / 2,
        (rectangle.top + rectangle.bottom - 1) / 2,
        name,
        rotation=angle,
        size=scales[angle] * SMALL,
        color="black",
        ha="center",
        va="center",
        bbox={"boxstyle": "round,pad=0.2", "facecolor": "white", "alpha": 0.8, "linewidth": 0},
    )
