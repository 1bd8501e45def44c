"""One style for all plots: colors, labels, axes and ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from posixpath import commonprefix
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import Locator

if TYPE_CHECKING:
    from matplotlib import axes, axis, colors

    Axes = axes.Axes
    Axis = axis.Axis
    Colormap = colors.Colormap
else:
    # Hints can be read at run time, where matplotlib need not be installed.
    Axes = Axis = Colormap = Any


# Orange and blue of Okabe and Ito's palette, which people with any colour blindness tell apart.
NEGATIVE, POSITIVE = "#d55e00", "#0072b2"
ZERO = "#f7f7f7"
# Different in lightness as well, for prints without colours.
LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
DASHES = ("-", (0, (5, 1.5)), (0, (3, 1, 1, 1)), (0, (1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY, PALE_GREY = "0.45", "0.75"
SMALL, SMALLEST = 9.0, 6.0

SCORE_UNITS = "units of the score"

_WIDTH = 7.0
_LEAST_HEIGHT, _MOST_HEIGHT = 1.6, 12.0
_MARGINS, _PER_LINE = 0.9, 0.28
_LINE_HEIGHT = 1.25
_LONGEST_TEXT = 28
_MOST_DECIMALS = 6
# So many colours have one in the middle, which is that of zero.
_ODD = 257


def axes_for(ax: Any, size: tuple[float, float]) -> Axes:
    """Return the axes that were given, or new ones in a figure of this size in inches."""
    try:
        from matplotlib.axes import Axes as AnyAxes
    except ImportError as error:
        raise ImportError("plots need matplotlib; pip install 'cellworth[plots]'.") from error
    if ax is None:
        from matplotlib import pyplot

        return pyplot.subplots(figsize=size, layout="constrained")[1]
    if not isinstance(ax, AnyAxes):
        raise TypeError(
            f"ax is of type {type(ax).__name__}; give matplotlib axes, or None for a new figure."
        )
    return ax


def size_for(n_lines: int) -> tuple[float, float]:
    """Size in inches of a figure with this many lines of text one above the other."""
    return _WIDTH, float(np.clip(_MARGINS + _PER_LINE * n_lines, _LEAST_HEIGHT, _MOST_HEIGHT))


@cache
def diverging() -> Colormap:
    """Colours from orange through nearly white to blue, as dark on either side."""
    from matplotlib.colors import LinearSegmentedColormap

    anchors = ["#662b00", NEGATIVE, "#f2b98f", ZERO, "#90c3e3", POSITIVE, "#00385e"]
    return LinearSegmentedColormap.from_list("cellworth", anchors, N=_ODD)


@cache
def sequential() -> Colormap:
    """Viridis without its yellow end, which cannot be seen on white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"](np.linspace(0, 0.9, 256)))


def text_of(label: Any, longest: int = _LONGEST_TEXT) -> str:
    """Write a label on one line, its middle left out where it is long."""
    return _escaped(_shortened(_on_one_line(label), longest))


def texts_of(labels: Iterable[Any], longest: int = _LONGEST_TEXT) -> list[str]:
    """Write labels so that different ones stay different, where long ones can be told apart."""
    texts = [_on_one_line(label) for label in labels]
    short = [_shortened(text, longest) for text in texts]
    if len(set(short)) < len(set(texts)):
        # What they differ in was cut off: leave out what they share instead.
        head = len(commonprefix(texts))
        tail = len(commonprefix([text[head:][::-1] for text in texts]))
        cores = [text[head : len(text) - tail] for text in texts]
        room = max(longest - 2 - max(map(len, cores)), longest // 3)
        start = texts[0][:head] if head <= room else texts[0][:room] + "…"
        short = [_shortened(f"{start}{core}{'…' if tail else ''}", longest) for core in cores]
    return [_escaped(text) for text in short]


def _on_one_line(label: Any) -> str:
    if isinstance(label, datetime) and label.time() == datetime.min.time():
        label = label.date()
    return " ".join((f"{label:g}" if isinstance(label, float) else str(label)).split())


def _shortened(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    head = (longest - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (longest - 1 - head) :]}"


def _escaped(text: str) -> str:
    # Else two dollars in a name would be read as a formula.
    return text.replace("$", r"\$")


def signed(numbers: Iterable[float]) -> list[str]:
    """Numbers with their signs, and decimals that show three digits of the largest."""
    numbers = list(numbers)
    decimals = _decimals_for(numbers)
    return [_signed(number, decimals) for number in numbers]


def _decimals_for(numbers: Iterable[float]) -> int:
    """Decimals that show three digits of the largest number."""
    largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    return max(2 - math.floor(math.log10(largest)), 0) if largest > 0 else 0


def _signed(number: float, decimals: int) -> str:
    if math.isnan(number):
        return "unknown"
    if decimals > _MOST_DECIMALS:
        return with_minus(f"{number:+.2e}")
    # Adding 0.0 keeps rounded-off numbers from reading -0.00.
    number = round(number, decimals) + 0.0
    return with_minus(f"{number:{'+' if number else ''},.{decimals}f}")


def with_minus(text: str) -> str:
    """Write minus signs as axes do."""
    return text.replace("-", "\N{MINUS SIGN}")


def text_width(texts: Iterable[str], size: float) -> float:
    """Width of the widest text, in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font, paths = FontProperties(size=size), TextToPath()
    plain = (text.replace(r"\$", "$") for text in texts)
    return max(
        (paths.get_text_width_height_descent(text, font, ismath=False)[0] for text in plain),
        default=0.0,
    )


def points_across(ax: Axes) -> tuple[float, float]:
    """Width and height of the axes, in points."""
    box, points_per_pixel = ax.bbox, 72.0 / ax.figure.dpi
    return box.width * points_per_pixel, box.height * points_per_pixel


def settle(ax: Axes) -> None:
    """Lay out the figure, so that the axes have the size that they will be drawn in."""
    ax.figure.canvas.figure.draw_without_rendering()


def write_lines(ax: Axes, names: Sequence[str], texts: Sequence[str], *, away: float = 0.0) -> None:
    """Write names to the left and texts to the right of the axes, smaller where they are many.

    The texts stand this many points away from the axes.
    """
    name_lines(ax, names)
    ax.tick_params(axis="y", length=0)
    beside = [
        ax.annotate(
            text,
            (1.0, line),
            xycoords=ax.get_yaxis_transform(),
            xytext=(4.0 + away, 0.0),
            textcoords="offset points",
            ha="left",
            va="center",
            size=SMALL,
            annotation_clip=False,
        )
        for line, text in enumerate(texts)
    ]
    settle(ax)
    # A little less than there is room for, so that rounding never takes a name away.
    size = min(SMALL, 0.97 * points_across(ax)[1] / len(names) / _LINE_HEIGHT)
    if size < SMALL:
        name_lines(ax, names, size=size)
        for text in beside:
            text.set_fontsize(size)


def name_lines(ax: Axes, names: Sequence[str], *, size: float = SMALL) -> None:
    """Write names beside the places 0, 1, 2, ... of the y axis, the first on top."""
    _name_places(ax.yaxis, names, size, room=_LINE_HEIGHT * size)
    ax.set_ylim(len(names) - 0.5, -0.5)


def name_columns(ax: Axes, names: Sequence[str], *, size: float = SMALL) -> None:
    """Write names below the places 0, 1, 2, ... of the x axis, upright where they are long."""
    widest = text_width(names, size) + size
    upright = widest > points_across(ax)[0] / len(names)
    _name_places(ax.xaxis, names, size, room=_LINE_HEIGHT * size if upright else widest)
    ax.tick_params(axis="x", labelrotation=90 if upright else 0)
    ax.set_xlim(-0.5, len(names) - 0.5)


def _name_places(axis: Axis, names: Sequence[str], size: float, *, room: float) -> None:
    from matplotlib.ticker import FuncFormatter

    from cellworth.plots.style import ThinnedLocator

    def name(position: float, _: Any = None) -> str:
        return names[round(position)] if 0 <= round(position) < len(names) else ""

    axis.set_major_locator(ThinnedLocator(len(names), room))
    axis.set_major_formatter(FuncFormatter(name))
    axis.set_tick_params(labelsize=size)


def plain_frame(ax: Axes) -> None:
    """Take away what frames nothing."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(False)


def check_same(given: Any, called: str, attributes: Sequence[str], advice: str) -> None:
    """Refuse what lacks the attributes that are drawn."""
    if not all(hasattr(given, name) for name in attributes):
        raise TypeError(f"{called} is of type {type(given).__name__}; {advice}")


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
        positions = np.arange(0, self.n_cached, _round_step(self.room / max(spacing, 1e-9)))
        return positions[(positions >= vmin) & (positions <= vmax)]


def _round_step(least: float) -> int:
    """Smallest of 1, 2, 5, 10, 20, 50, ... that is at least this."""
    size: int = 10 ** max(math.floor(math.log10(max(least, 1.0))), 0)
    return next(size * step for step in (1, 2, 5, 10) if size * step >= least)
