"""Ticks of named places: as many as fit, whatever size the figure gets."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from matplotlib.ticker import Locator


class ThinnedLocator(Locator):
    """Places 0, 1, 2, ..., or every second, fifth, tenth, ... of them.

    Parameters
    ----------
    n_cached : int
    room : float
        What a label needs along the axis, in points.
    """

    def __init__(self, n_cached: int, room: float) -> None:
        self.n_cached = n_cached
        self.room = room

    def __call__(self) -> Any:
        """Places that get a tick, decided when the figure is drawn."""
        axis: Any = self.axis
        low, high = sorted(axis.get_view_interval())
        return self.tick_values(low, high)

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Places between two ends that get a tick."""
        axis: Any = self.axis
        pixels = axis.axes.bbox.width if axis.axis_name == "x" else axis.axes.bbox.height
        points = pixels * 72.0 / axis.axes.figure.dpi
        spacing = points / max(vmax - vmin, 1e-9)
        places = np.arange(0, self.n_cached, _round_step(self.room / max(spacing, 1e-9)))
        return places[(places >= vmin) & (places <= vmax)]


def _round_step(least: float) -> int:
    """Smallest of 1, 2, 5, 10, 20, 50, ... that is at least this."""
    size: int = 10 ** max(math.floor(math.log10(max(least, 1.0))), 0)
    return next(size * step for step in (1, 2, 5, 10) if size * step >= least)
