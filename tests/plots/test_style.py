import matplotlib
import pytest

from cellworth import plots
from cellworth.plots.figure_style import (
    format_labels,
)


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


def test_the_style_holds_within_its_context_alone():
    before = dict(matplotlib.rcParams)
    with plots.style(dark=True):
        assert matplotlib.rcParams["savefig.dpi"] == 200
        assert matplotlib.rcParams["figure.facecolor"] == "#14171b"
        assert matplotlib.rcParams["text.color"] == "#e9e7e2"
    assert dict(matplotlib.rcParams) == before
