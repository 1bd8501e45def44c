"""One style for all plots: colors, labels, axes and ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cache
from posixpath import commonprefix
from typing import TYPE_CHECKING, Any

import numpy as np

from cellworth.data.text import format_timestamp, with_minus

if TYPE_CHECKING:
    from matplotlib import axes, axis, colors, ticker

    Axes = axes.Axes
    Axis = axis.Axis
    Colormap = colors.Colormap
    Locator = ticker.Locator
else:
    # Type hints can be evaluated at run time without matplotlib.
    Axes = Axis = Colormap = Locator = Any

# Orange and blue of Okabe and Ito's palette, distinguishable with any color blindness.
NEGATIVE, POSITIVE = "#d55e00", "#0072b2"
ZERO = "#f7f7f7"
# They also differ in lightness, for prints without colors.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
GRAY, PALE_GRAY = "0.45", "0.75"
SMALL, SMALLEST, TITLE = 9.0, 6.0, 11.0
_FONTS = ("Inter", "Source Sans 3", "Helvetica Neue", "Arial", "Liberation Sans", "DejaVu Sans")
# Ink and paper, as in reports.
_LIGHT, _DARK = ("#1b1e23", "#ffffff"), ("#e9e7e2", "#14171b")

SCORE_UNITS = "units of the score"

_WIDTH = 7.0
_MIN_HEIGHT, _MAX_HEIGHT = 1.6, 12.0
_MARGINS, _PER_LINE = 0.9, 0.28
_LINE_HEIGHT = 1.25
_MAX_TEXT = 28
_MAX_DECIMALS = 6
# An odd number has a color in the middle, for zero.
_N_COLORS = 257


def style(*, dark: bool = False) -> AbstractContextManager[None]:
    """Draw figures in the style of the reports: their fonts and colors, twice the resolution.

    All plots of this package, and yours, have it within the context. Saved files have 200 dots
    per inch.

    Parameters
    ----------
    dark : bool, default=False
        Whether figures are light on dark.

    Returns
    -------
    context manager

    See Also
    --------
    heatmap, bar

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth import KNNValuer, plots
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    >>> with plots.style(dark=True):
    ...     ax = plots.bar(valuation.columns(), ax=Figure().subplots())
    >>> ax.xaxis.label.get_color()
    '#e9e7e2'
    """
    _check_matplotlib()
    from matplotlib import font_manager, rc_context
    from matplotlib.rcsetup import cycler

    ink, paper = _DARK if dark else _LIGHT
    known = {font.name for font in font_manager.fontManager.ttflist}
    inked = ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color")
    settings: Any = dict.fromkeys([*inked, "axes.edgecolor"], ink) | {
        "font.family": [name for name in _FONTS if name in known][:1] or ["sans-serif"],
        "axes.titleweight": "bold",
        "axes.titlelocation": "left",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.prop_cycle": cycler(color=LINES if not dark else LINES[:-1]),
        "legend.frameon": False,
        "savefig.dpi": 200,
    }
    papered = ("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor")
    return rc_context(settings | dict.fromkeys(papered, paper))


def write_title(ax: Axes, text: str, *, above: float = 0.0) -> None:
    """Write a title on the left, ``above`` what else is over the axes, in points."""
    ax.set_title(text, loc="left", size=TITLE, pad=6.0 + above)


def fit_title(ax: Axes) -> None:
    """Make a title smaller that is wider than a figure that was laid out, or leave it out."""
    text, points_per_pixel = ax.get_title(loc="left"), 72.0 / ax.figure.dpi
    room = points_per_pixel * (ax.figure.canvas.figure.bbox.width - ax.bbox.x0)
    # Bold letters are wider.
    size = TITLE * room / (1.15 * measure_width([text], TITLE)) if text else TITLE
    if size < TITLE:
        ax.set_title(text if size >= SMALLEST else "", loc="left", size=size)


def _check_matplotlib() -> None:
    try:
        import matplotlib.axes  # noqa: F401
    except ImportError as error:
        raise ImportError("plots need matplotlib; pip install 'cellworth[plots]'.") from error


def get_axes(ax: Any, size: tuple[float, float]) -> Axes:
    """Return the given axes, or those of a new figure of this size in inches."""
    _check_matplotlib()
    from matplotlib.axes import Axes as AnyAxes

    if ax is None:
        from matplotlib import pyplot

        return pyplot.subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, AnyAxes):
        raise TypeError(
            f"ax must be matplotlib axes, or None for a new figure, got {type(ax).__name__}."
        )
    return ax


def compute_size(n_lines: int) -> tuple[float, float]:
    """Return the size in inches of a figure with this many lines of text."""
    return _WIDTH, float(np.clip(_MARGINS + _PER_LINE * n_lines, _MIN_HEIGHT, _MAX_HEIGHT))


@cache
def diverging() -> Colormap:
    """Return a color map from orange through nearly white to blue, equally dark at both ends."""
    from matplotlib.colors import LinearSegmentedColormap

    anchors = ["#662b00", NEGATIVE, "#f2b98f", ZERO, "#90c3e3", POSITIVE, "#00385e"]
    return LinearSegmentedColormap.from_list("cellworth", anchors, N=_N_COLORS)


def sequential(ax: Axes) -> Colormap:
    """Return viridis without its yellow end, or on dark axes without its purple end."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap, to_rgb

    is_dark = sum(to_rgb(text_color(ax))) > 1.5
    ends = (0.35, 1.0) if is_dark else (0.0, 0.9)
    return ListedColormap(colormaps["viridis"](np.linspace(*ends, 256)))


def text_of(label: Any, longest: int = _MAX_TEXT) -> str:
    """Format a label on one line; the middle of a long one is left out."""
    return _escape(_shorten(_on_one_line(label), longest))


def format_labels(labels: Iterable[Any], longest: int = _MAX_TEXT) -> list[str]:
    """Format labels, and keep different ones different if possible."""
    texts = [_on_one_line(label) for label in labels]
    short = [_shorten(text, longest) for text in texts]
    if len(set(short)) < len(set(texts)):
        # The differing part was cut off: leave out the common part instead.
        head = len(commonprefix(texts))
        tail = len(commonprefix([text[head:][::-1] for text in texts]))
        cores = [text[head : len(text) - tail] for text in texts]
        room = max(longest - 2 - max(map(len, cores)), longest // 3)
        start = texts[0][:head] if head <= room else texts[0][:room] + "…"
        short = [_shorten(f"{start}{core}{'…' if tail else ''}", longest) for core in cores]
    return [_escape(text) for text in short]


def _on_one_line(label: Any) -> str:
    if isinstance(label, datetime):
        label = format_timestamp(label)
    return " ".join((f"{label:g}" if isinstance(label, float) else str(label)).split())


def _shorten(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    head = (longest - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (longest - 1 - head) :]}"


def _escape(text: str) -> str:
    # Two dollar signs would otherwise start a formula.
    return text.replace("$", r"\$")


def format_signed(numbers: Iterable[float]) -> list[str]:
    """Format numbers with their signs, and three significant digits of the largest."""
    numbers = list(numbers)
    largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    decimals = max(2 - math.floor(math.log10(largest)), 0) if largest > 0 else 0
    return [_format_signed(number, decimals) for number in numbers]


def _format_signed(number: float, decimals: int) -> str:
    if math.isnan(number):
        return "unknown"
    if decimals > _MAX_DECIMALS:
        return with_minus(f"{number:+.2e}")
    # Adding 0.0 turns -0.0 into 0.0.
    number = round(number, decimals) + 0.0
    return with_minus(f"{number:{'+' if number else ''},.{decimals}f}")


def measure_width(texts: Iterable[str], size: float) -> float:
    """Return the width of the widest text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font, paths = FontProperties(size=size), TextToPath()
    plain = (text.replace(r"\$", "$") for text in texts)
    return max(
        (paths.get_text_width_height_descent(text, font, ismath=False)[0] for text in plain),
        default=0.0,
    )


def measure_axes(ax: Axes) -> tuple[float, float]:
    """Return width and height of the axes, in points."""
    box, points_per_pixel = ax.bbox, 72.0 / ax.figure.dpi
    return box.width * points_per_pixel, box.height * points_per_pixel


def lay_out(ax: Axes) -> None:
    """Lay out the figure, so that the axes get their final size."""
    ax.figure.canvas.figure.draw_without_rendering()


def write_lines(ax: Axes, names: Sequence[str], texts: Sequence[str]) -> None:
    """Write names to the left of the axes and texts to the right of them."""
    name_lines(ax, names)
    ax.tick_params(axis="y", length=0)
    beside = [
        ax.annotate(
            text,
            (1.0, line),
            xycoords=ax.get_yaxis_transform(),
            xytext=(4.0, 0.0),
            textcoords="offset points",
            ha="left",
            va="center",
            size=SMALL,
            annotation_clip=False,
        )
        for line, text in enumerate(texts)
    ]
    lay_out(ax)
    # Slightly less than fits, so that rounding drops no name.
    size = min(SMALL, 0.97 * measure_axes(ax)[1] / len(names) / _LINE_HEIGHT)
    if size < SMALL:
        name_lines(ax, names, size=size)
        for text in beside:
            text.set_fontsize(size)
    thin_numbers(ax)
    fit_title(ax)


def thin_numbers(ax: Axes) -> None:
    """Let narrow axes have so few numbers below them that they do not overlap."""
    ax.locator_params(axis="x", nbins=int(np.clip(measure_axes(ax)[0] / (5.0 * SMALL), 1, 5)))


def name_lines(ax: Axes, names: Sequence[str], *, size: float = SMALL) -> None:
    """Write names at 0, 1, 2, ... of the y axis, the first on top."""
    _name_ticks(ax.yaxis, names, size, room=_LINE_HEIGHT * size)
    ax.set_ylim(len(names) - 0.5, -0.5)


def name_columns(ax: Axes, names: Sequence[str], *, size: float = SMALL) -> None:
    """Write names at 0, 1, 2, ... of the x axis, rotated if they are long."""
    widest = measure_width(names, size) + size
    upright = widest > measure_axes(ax)[0] / len(names)
    _name_ticks(ax.xaxis, names, size, room=_LINE_HEIGHT * size if upright else widest)
    ax.tick_params(axis="x", labelrotation=90 if upright else 0)
    ax.set_xlim(-0.5, len(names) - 0.5)


def _name_ticks(axis: Axis, names: Sequence[str], size: float, *, room: float) -> None:
    from matplotlib.ticker import FuncFormatter

    def name(position: float, _: Any = None) -> str:
        return names[round(position)] if 0 <= round(position) < len(names) else ""

    axis.set_major_locator(_locator_class()(len(names), room))
    axis.set_major_formatter(FuncFormatter(name))
    axis.set_tick_params(labelsize=size)


def color_signs(values: Iterable[float]) -> list[str]:
    """Return a color for each value: orange below zero, blue otherwise."""
    return [NEGATIVE if value < 0 else POSITIVE for value in values]


def write_legend_above(ax: Axes, **settings: Any) -> None:
    """Write a legend on the left, above the axes."""
    above: Any = {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0)}
    ax.legend(frameon=False, fontsize=SMALL, **above, **settings)


def text_color(ax: Axes) -> Any:
    """Return the color of text on these axes: light in a dark style."""
    return ax.xaxis.label.get_color()


def hide_frame(ax: Axes) -> None:
    """Hide the upper and right spine and the grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(False)


def check_type(given: Any, kind: type, called: str, advice: str) -> None:
    """Raise TypeError unless an object is of the type that is drawn."""
    if not isinstance(given, kind):
        raise TypeError(f"{called} must be of type {kind.__name__}, got {given!r:.80}; {advice}")


@cache
def _locator_class() -> Any:
    # Within a function, because this module must import without matplotlib.
    from matplotlib.ticker import Locator as AnyLocator

    class ThinnedLocator(AnyLocator):
        """Ticks at every first, second, fifth, ... position, as far as labels have room."""

        def __init__(self, n_positions: int, room: float) -> None:
            self.n_positions = n_positions
            # What a label needs along the axis, in points.
            self.room = room

        def __call__(self) -> Any:
            """Return the ticks in view; called whenever the figure is drawn."""
            axis: Any = self.axis
            return self.tick_values(*sorted(axis.get_view_interval()))

        def tick_values(self, vmin: float, vmax: float) -> Any:
            """Return the ticks between two ends."""
            axis: Any = self.axis
            points = measure_axes(axis.axes)[0 if axis.axis_name == "x" else 1]
            spacing = points / max(vmax - vmin, 1e-9)
            least = max(self.room / max(spacing, 1e-9), 1.0)
            # The smallest of 1, 2, 5, 10, 20, 50, ... that is not below.
            size: int = 10 ** math.floor(math.log10(least))
            step = next(size * times for times in (1, 2, 5, 10) if size * times >= least)
            positions = np.arange(0, self.n_positions, step)
            return positions[(positions >= vmin) & (positions <= vmax)]

    return ThinnedLocator
