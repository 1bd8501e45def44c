"""How plots look: colours, sizes and texts, in one place."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib import axes, axis, colors

    Axes = axes.Axes
    Axis = axis.Axis
    Colormap = colors.Colormap
else:
    # Hints can be read at run time, where matplotlib need not be installed.
    Axes = Axis = Colormap = Any

Floats = NDArray[np.float64]

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
NORMAL_95 = 1.96

_WIDTH = 7.0
_LEAST_HEIGHT, _MOST_HEIGHT = 2.4, 12.0
_MARGINS, _PER_LINE = 1.3, 0.28
_LONGEST_TEXT = 28
_MOST_DECIMALS = 6


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

    anchors = ["#5c2800", NEGATIVE, "#f2b98f", ZERO, "#90c3e3", POSITIVE, "#00304d"]
    return LinearSegmentedColormap.from_list("cellworth", anchors)


@cache
def sequential() -> Colormap:
    """Viridis without its yellow end, which cannot be seen on white."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["viridis"](np.linspace(0, 0.9, 256)))


def text_of(label: Any, longest: int = _LONGEST_TEXT) -> str:
    """Write a label on one line, its middle left out where it is long."""
    if isinstance(label, datetime) and label.time() == datetime.min.time():
        label = label.date()
    text = " ".join((f"{label:g}" if isinstance(label, float) else str(label)).split())
    if len(text) > longest:
        head = (longest - 1) * 2 // 3
        text = f"{text[:head]}…{text[len(text) - (longest - 1 - head) :]}"
    # Else two dollars in a name would be read as a formula.
    return text.replace("$", r"\$")


def signed(numbers: Iterable[float]) -> list[str]:
    """Numbers with their signs, and decimals that show three digits of the largest."""
    numbers = list(numbers)
    decimals = decimals_for(numbers)
    return [_minus(_rounded(number, decimals, "+")) for number in numbers]


def unsigned(number: float, decimals: int) -> str:
    """Write a number with so many decimals."""
    return _minus(_rounded(number, decimals, ""))


def decimals_for(numbers: Iterable[float]) -> int:
    """Decimals that show three digits of the largest number."""
    largest = max((abs(number) for number in numbers if math.isfinite(number)), default=0.0)
    return max(2 - math.floor(math.log10(largest)), 0) if largest > 0 else 0


def _rounded(number: float, decimals: int, sign: str) -> str:
    if decimals > _MOST_DECIMALS:
        return f"{number:{sign}.2e}"
    # Adding 0.0 keeps rounded-off numbers from reading -0.00.
    number = round(number, decimals) + 0.0
    return f"{number:{sign if number else ''},.{decimals}f}"


def _minus(text: str) -> str:
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


def size_of_lines(ax: Axes, n_lines: int) -> float:
    """Font size at which this many lines of text fit into the height of the axes."""
    return float(min(SMALL, points_across(ax)[1] / max(n_lines, 1) / 1.3))


def name_lines(ax: Axes, names: Sequence[str], *, size: float = SMALL) -> None:
    """Write names beside the places 0, 1, 2, ... of the y axis, the first on top."""
    _name_places(ax.yaxis, names, size, room=1.25 * size)
    ax.set_ylim(len(names) - 0.5, -0.5)


def name_columns(ax: Axes, names: Sequence[str], *, size: float = SMALL) -> None:
    """Write names below the places 0, 1, 2, ... of the x axis, upright where they are long."""
    widest = text_width(names, size) + size
    upright = widest > points_across(ax)[0] / len(names)
    _name_places(ax.xaxis, names, size, room=1.25 * size if upright else widest)
    ax.tick_params(axis="x", labelrotation=90 if upright else 0)
    ax.set_xlim(-0.5, len(names) - 0.5)


def _name_places(axis: Axis, names: Sequence[str], size: float, *, room: float) -> None:
    from matplotlib.ticker import FuncFormatter

    from cellworth.plots.ticks import ThinnedLocator

    def name(place: float, _: Any = None) -> str:
        return names[round(place)] if 0 <= round(place) < len(names) else ""

    axis.set_major_locator(ThinnedLocator(len(names), room))
    axis.set_major_formatter(FuncFormatter(name))
    axis.set_tick_params(labelsize=size, length=0 if len(names) < 2 else 3)


def plain_frame(ax: Axes) -> None:
    """Take away what frames nothing."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(False)


def refuse_other(given: Any, called: str, attributes: Sequence[str], advice: str) -> None:
    """Refuse what lacks the attributes that are drawn."""
    if not all(hasattr(given, name) for name in attributes):
        raise TypeError(f"{called} is of type {type(given).__name__}; {advice}")
