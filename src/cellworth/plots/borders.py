"""Borders between owners on a heat map, and their names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellworth.plots.style import (
    SMALL,
    SMALLEST,
    Axes,
    points_across,
    settle,
    text_width,
    texts_of,
)

Codes = NDArray[np.int_]

_WIDEST_LINE = 1.4


class Border(NamedTuple):
    """A line from one corner of a cell to another, and how many lines run beside it at most."""

    start: tuple[float, float]
    end: tuple[float, float]
    n_parallels: int


class Rectangle(NamedTuple):
    """Cells from top to bottom (not included) and from left to right (not included)."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def n_cells(self) -> int:
        """How many cells are in it."""
        return (self.bottom - self.top) * (self.right - self.left)


def draw_owners(ax: Axes, codes: Codes, names: Sequence[str]) -> None:
    """Draw lines between cells of different owners and write the names that fit."""
    from matplotlib.collections import LineCollection

    lines = list(borders(codes))
    widths = [_line_width(line, ax, codes.shape) for line in lines]
    # The white one below keeps a line visible on dark colours.
    for colour, times in (("white", 2.4), ("black", 1.0)):
        ax.add_collection(
            LineCollection(
                [(line.start, line.end) for line in lines],
                colors=colour,
                linewidths=[times * width for width in widths],
                capstyle="projecting",
            ),
            autolim=False,
        )
    settle(ax)
    texts = texts_of(names)
    for code, rectangle in largest_rectangles(codes).items():
        if code >= 0:
            _write(ax, rectangle, texts[code], codes.shape)


def _line_width(line: Border, ax: Axes, shape: tuple[int, ...]) -> float:
    """Thinner where owners change often, so that lines never hide the cells."""
    width, height = points_across(ax)
    upright = line.start[0] == line.end[0]
    return min(_WIDEST_LINE, 0.1 * (width if upright else height) / (line.n_parallels + 1))


def borders(codes: Codes) -> Iterator[Border]:
    """Lines between cells of different owners, as long as they run straight on."""
    across, down = codes[:, 1:] != codes[:, :-1], codes[1:] != codes[:-1]
    for i, j in np.argwhere(_begins(across)).tolist():
        n = _length(across[i:, j])
        yield Border((j + 0.5, i - 0.5), (j + 0.5, i + n - 0.5), _most(across[i : i + n]))
    for j, i in np.argwhere(_begins(down.T)).tolist():
        n = _length(down[i, j:])
        yield Border((j - 0.5, i + 0.5), (j + n - 0.5, i + 0.5), _most(down.T[j : j + n]))


def _most(apart: NDArray[np.bool_]) -> int:
    return int(np.count_nonzero(apart, axis=1).max())


def _begins(apart: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a line begins here: there is one, and none in the entry above."""
    begins = apart.copy()
    begins[1:] &= ~apart[:-1]
    return begins


def _length(apart: NDArray[np.bool_]) -> int:
    return len(apart) if apart.all() else int(np.argmin(apart))


def largest_rectangles(codes: Codes) -> dict[int, Rectangle]:
    """Each owner's rectangle of most cells; of equals the first from the top."""
    best: dict[int, Rectangle] = {}
    heights = np.zeros(codes.shape[1], dtype=int)
    for i, owners in enumerate(codes):
        same = owners == codes[i - 1] if i else np.zeros(len(owners), dtype=bool)
        heights = np.where(same, heights + 1, 1)
        for code, found in _ending_here(i, owners.tolist(), heights.tolist()):
            if code not in best or found.n_cells > best[code].n_cells:
                best[code] = found
    return best


def _ending_here(
    row: int, owners: list[int], heights: list[int]
) -> Iterator[tuple[int, Rectangle]]:
    """Rectangles whose last row this is and that cannot be widened."""
    # Left ends and heights of rectangles that may still get wider, the highest last.
    open_ones: list[tuple[int, int]] = []
    for j in range(len(owners) + 1):
        goes_on = 0 < j < len(owners) and owners[j] == owners[j - 1]
        height, left = heights[j] if j < len(owners) else 0, j
        while open_ones and (not goes_on or open_ones[-1][1] >= height):
            left, tall = open_ones.pop()
            yield owners[j - 1], Rectangle(row + 1 - tall, row + 1, left, j)
        open_ones.append((left if goes_on else j, height))


def _write(ax: Axes, rectangle: Rectangle, name: str, shape: tuple[int, ...]) -> None:
    """Write a name where it fits: lying, else upright, else not at all."""
    width, height = points_across(ax)
    room = (
        width * (rectangle.right - rectangle.left) / shape[1],
        height * (rectangle.bottom - rectangle.top) / shape[0],
    )
    need = text_width([name], SMALL) + 0.8 * SMALL, 1.9 * SMALL
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
