"""Plots: each takes the axes to draw on, or makes a figure, and returns the axes.

Matplotlib is loaded when the first is drawn. Figures of your own have room for names if they are
made with ``layout="constrained"``.
"""

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
