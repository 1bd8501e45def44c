"""Plots: each draws on the given axes, or on those of a new figure, and returns them.

Matplotlib is loaded by the first plot. Create your own figures with ``layout="constrained"``, so
that names fit.

Examples
--------
>>> from matplotlib.figure import Figure
>>> from cellworth import KNNValuer, plots
>>> X, y = [[0.0, 5.0], [1.0, 4.0]], ["no", "yes"]
>>> valuer = KNNValuer(1).fit(X, y, X_val=X, y_val=y)
>>> left, right = Figure(layout="constrained").subplots(1, 2)
>>> plots.heatmap(valuer.valuation_, ax=left) is left
True
"""

from cellworth.plots.cell_plots import beeswarm, scatter
from cellworth.plots.figure_style import style
from cellworth.plots.heatmap_plot import heatmap
from cellworth.plots.value_plots import bar, compare, owners, waterfall

__all__ = [
    "bar",
    "beeswarm",
    "compare",
    "heatmap",
    "owners",
    "scatter",
    "style",
    "waterfall",
]
