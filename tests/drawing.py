"""What tests of plots share: valuations made by hand, and what can be seen in a drawn figure."""

from itertools import combinations

import numpy as np

from cellworth import Valuation
from cellworth.data.blocks import Blocks
from cellworth.sampling import Moments
from cellworth.sampling.moments import Tally, widening
from cellworth.valuation.provenance import Provenance, Session


def without_sums(blocks):
    """Append NaN as sums of rows and columns."""
    return np.pad(blocks, [(0, 1), (0, 1)], constant_values=np.nan)


def valuation_of(values, *, errors=None, validation=None, rows=None, columns=None, **groups):
    """A Valuation with these values, and with these errors where they are known."""
    values = np.asarray(values, dtype=float)
    n_rows, n_columns = values.shape
    blocks = Blocks.cut(
        np.arange(n_rows) if rows is None else rows,
        [f"x{j}" for j in range(n_columns)] if columns is None else columns,
        **groups,
    )
    seen = Moments.of(without_sums(values))
    if errors is not None:
        # Two observations stand behind each value, and errors of so few are widened.
        told = np.broadcast_to(errors, values.shape).astype(float) / widening(2)
        seen = Moments.of_variances(2 * seen.count, seen.mean, without_sums(told) ** 2)
    if validation is not None:
        validation = without_sums(np.broadcast_to(validation, values.shape).astype(float))
    provenance = Provenance.now({}, {"name": "by hand"}, Session(0, 1), Tally(), 0.0)
    return Valuation(blocks, seen, np.nan, "none", "estimated", provenance, validation=validation)


def normal(n_rows, n_columns, seed=0):
    return np.random.default_rng(seed).normal(size=(n_rows, n_columns))


def draw(ax):
    """Draw the whole figure and return it."""
    figure = ax.figure
    figure.canvas.draw()
    return figure


def tick_texts(axis):
    texts = axis.get_ticklabels() + axis.get_ticklabels(minor=True)
    return [text for text in texts if text.get_text() and text.get_visible()]


def tick_names(axis):
    return [text.get_text() for text in tick_texts(axis)]


def overlapping(texts):
    """Pairs of texts that share more than the edge of a pixel."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts]
    return [
        (one, other)
        for (one, a), (other, b) in combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 1 and min(a.y1, b.y1) - max(a.y0, b.y0) > 1
    ]


def assert_readable(ax):
    """No two labels of an axis, and no two texts beside it, overlap; nothing leaves the figure."""
    figure = draw(ax)
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            assert overlapping(tick_texts(axis)) == []
        assert overlapping(axes.texts) == []
    inches, seen = figure.get_size_inches(), figure.get_tightbbox()
    assert seen.x0 > -0.01
    assert seen.y0 > -0.01
    assert seen.x1 < inches[0] + 0.01
    assert seen.y1 < inches[1] + 0.01
