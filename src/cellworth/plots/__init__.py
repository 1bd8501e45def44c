"""Plots: each takes the axes to draw on, or makes a figure, and returns the axes."""

from cellworth.plots.bars import owners, waterfall
from cellworth.plots.cells import heatmap
from cellworth.plots.curves import convergence, detection, removal
from cellworth.plots.swarms import beeswarm

__all__ = [
    "beeswarm",
    "convergence",
    "detection",
    "heatmap",
    "owners",
    "removal",
    "waterfall",
]
