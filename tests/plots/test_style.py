import matplotlib
import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from cellworth import plots
from cellworth.plots.figure_style import (
    NEGATIVE,
    POSITIVE,
    diverging,
    fit_title,
    format_labels,
    lay_out,
    write_title,
)
from drawing import valuation_of

# From linear red, green and blue to what the long, middle and short cones see, and how those who
# lack one of them see instead (Viénot, Brettel and Mollon 1999).
TO_CONES = np.array(
    [[17.8824, 43.5161, 4.11935], [3.45565, 27.1554, 3.86714], [0.0299566, 0.184309, 1.46709]]
)
LACKING = {
    "protanopia": np.array([[0, 2.02344, -2.52581], [0, 1, 0], [0, 0, 1]]),
    "deuteranopia": np.array([[1, 0, 0], [0.494207, 0, 1.24827], [0, 0, 1]]),
}


def seen_by(kind, color):
    """Linear red, green and blue as people with this color blindness see them."""
    linear = np.array(to_rgba(color)[:3]) ** 2.2
    return np.linalg.inv(TO_CONES) @ LACKING[kind] @ TO_CONES @ linear


def distance(kind, one, other):
    ends = [np.clip(seen_by(kind, color), 0, 1) ** (1 / 2.2) for color in (one, other)]
    return np.linalg.norm(ends[0] - ends[1])


@pytest.mark.parametrize("kind", LACKING)
def test_signs_can_be_distinguished_without_red_or_green_cones(kind):
    for size in (0.4, 0.6, 0.8):
        below, above = diverging()(0.5 - size / 2), diverging()(0.5 + size / 2)
        assert distance(kind, below, above) > 0.35
    assert distance(kind, NEGATIVE, POSITIVE) > 0.5
    # The check itself can fail: these two are the ones that are confused.
    assert distance(kind, "#b05a1e", "#6b7a1e") < 0.35


def test_colors_get_darker_evenly_on_both_sides_of_zero():
    lightness = diverging()(np.linspace(0, 1, 101))[:, :3] @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(lightness[:51]) > 0).all()
    assert (np.diff(lightness[50:]) < 0).all()
    np.testing.assert_allclose(lightness[:50], lightness[:50:-1], atol=0.12)


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (["ab", 3.50, 7], ["ab", "3.5", "7"]),
        (["two\nlines", "a\tb"], ["two lines", "a b"]),
        (["abcdefghijklmnop"], ["abcdef…nop"]),
        (["x-1-is-quite-long", "x-2-is-quite-long"], ["x-1-is…ong", "x-2-is…ong"]),
        (["a-row-#1-is-quite-long", "a-row-#2-is-quite-long"], ["a-row-#1…", "a-row-#2…"]),
        (["quite-long-is-1-it", "quite-long-is-2-it"], ["quite-l…1…", "quite-l…2…"]),
        (["same-same-same", "same-same-same"], ["same-s…ame"] * 2),
    ],
)
def test_texts_are_short_and_differ_where_labels_do(labels, texts):
    assert format_labels(labels, 10) == texts


def test_whiskers_have_the_color_of_text_so_that_a_dark_style_shows_them():
    with pyplot.style.context("dark_background"):
        ax = plots.bar(valuation_of([[1.0, 2.0]]).columns())
        assert to_rgba(ax.lines[-1].get_color()) == to_rgba("white")


def test_the_style_holds_within_its_context_alone():
    before = dict(matplotlib.rcParams)
    with plots.style(dark=True):
        assert matplotlib.rcParams["savefig.dpi"] == 200
        assert matplotlib.rcParams["figure.facecolor"] == "#14171b"
        assert matplotlib.rcParams["text.color"] == "#e9e7e2"
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(("width", "size"), [(7.0, 11.0), (1.5, None), (0.5, 0.0)])
def test_a_title_fits_its_figure_or_is_left_out(width, size):
    ax = Figure(figsize=(width, 3.0)).subplots()
    write_title(ax, "How the values changed")
    lay_out(ax)
    fit_title(ax)
    title = ax._left_title
    if size is None:
        assert 6.0 <= title.get_fontsize() < 11.0
    else:
        assert title.get_fontsize() * bool(ax.get_title(loc="left")) == size
