"""What a notebook shows: the figures of the valuation, in HTML that nothing can break out of."""

import html
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine

from cellworth import KNNValuer, report
from cellworth.findings import measure_interactions
from cellworth.games import TableGame
from cellworth.payouts import Verdict
from cellworth.sampling.moments import WIDTH_95, Signs

X, y = load_wine(return_X_y=True, as_frame=True)


DATA = X.iloc[::2, :5], y[::2]


@pytest.fixture(scope="module")
def valuation():
    return KNNValuer(5).fit(*DATA).valuation_


class Page(HTMLParser):
    """Elements, attributes and text of a piece of HTML."""

    def __init__(self, html):
        super().__init__()
        self.elements, self.attributes, self.texts, self.open = [], set(), [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, element, attributes):
        self.elements.append(element)
        self.attributes |= {name for name, _ in attributes}
        self.open.append(element)

    def handle_endtag(self, element):
        assert self.open.pop() == element

    def handle_data(self, text):
        self.texts.append(text)


PLAIN = {"div", "p", "strong", "table", "thead", "tbody", "tr", "th", "td", "span"}


def test_a_valuation_shows_totals_columns_and_lowest_blocks(valuation):
    page = Page(valuation._repr_html_())
    text = "\n".join(page.texts)
    assert f"score: {valuation.score:.4g} neighbor agreement (K = 5); baseline" in text
    assert f"accuracy: {valuation.scores.accuracy:.4g} by majority vote" in text
    signs = valuation.sign_counts()
    assert (
        f"{signs.undecided:,} ({signs.undecided / signs.total:.1%}) cannot be distinguished" in text
    )
    assert all(name in page.texts for name in X.columns[:5])
    assert page.elements.count("tr") == (5 + 1) + (10 + 1)


def test_the_view_is_plain_elements_without_script(valuation):
    page = Page(valuation._repr_html_())
    assert set(page.elements) <= PLAIN
    assert page.attributes == {"align", "aria-hidden", "style"}


HOSTILE = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</td></table>", "a\nb"]


def test_hostile_names_are_text_and_nothing_else():
    table = pd.DataFrame(np.arange(24.0).reshape(6, 4), columns=HOSTILE)
    table.index = ["<b>", "'", "&amp;", "`", "{{7*7}}", "\u202e"]
    labels = ["<i>", "x", "<i>", "x", "<i>", "x"]
    valuation = KNNValuer(1).fit(table, labels, X_val=table, y_val=labels).valuation_
    page = Page(valuation._repr_html_())
    assert set(page.elements) <= PLAIN
    assert "onerror" not in page.attributes
    assert HOSTILE[0] in page.texts


# What can be told from zero -------------------------------------------------------------------


def test_signs_count_intervals_that_leave_zero_out():
    values = np.array([[-3.0, -1.0, 0.0], [1.0, 3.0, np.nan], [0.0, 1.0, -1.0]])
    errors = np.array([[1.0, 1.0, 1.0], [1.0, 1.0, 1.0], [0.0, 0.0, np.nan]])
    assert Signs.of(values, errors) == Signs(negative=1, undecided=4, positive=2, unknown=2)
    assert Signs.of(values, errors).total == 9


def test_signs_of_a_valuation_are_those_of_its_cells(valuation):
    reach = WIDTH_95 * np.hypot(valuation.sampling_se, valuation.validation_se)
    signs = valuation.sign_counts()
    assert signs.negative == np.sum(valuation.values < -reach)
    assert signs.positive == np.sum(valuation.values > reach)
    assert signs.total == valuation.values.size


# Pieces ---------------------------------------------------------------------------------------


def test_a_notebook_shows_the_report_in_a_frame_that_cannot_reach_the_notebook(valuation):
    shown = valuation.show(*DATA, height=500)
    frame = re.fullmatch(r'<iframe srcdoc="([^"]*)" (.*)></iframe>', shown._repr_html_(), re.S)
    page = html.unescape(frame[1])
    assert page == report.render(report.summarize(valuation, *DATA))
    assert 'sandbox="allow-scripts"' in frame[2]
    assert "height:500px" in frame[2]
    assert repr(shown) == f"<page of {len(page):,} characters; a notebook shows it>"


@pytest.mark.parametrize(
    ("result", "texts"),
    [
        (Verdict(("files",), "amount of ann should be 75."), ["no: amount of ann should be 75."]),
        (measure_interactions(TableGame([[0, 0], [0, 1], [0, 1], [0, 1]])), ["0, 1", "-1.0000"]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_every_result_has_a_view_of_plain_elements(result, texts):
    page = Page(result._repr_html_())
    assert set(page.elements) <= PLAIN
    assert set(texts) <= set(page.texts)
