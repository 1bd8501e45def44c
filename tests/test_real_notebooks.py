"""The view of a valuation in real notebooks; needs the dependency group "browser"."""

import importlib
import os
import re

import pytest
from sklearn.datasets import load_wine

from cellworth import KNNValuer

pytestmark = [
    pytest.mark.browser,
    # Of the notebooks themselves.
    pytest.mark.filterwarnings("default"),
]


def import_required(name):
    """Import what a test needs; it may be missing, but not where it is promised."""
    if os.environ.get("REQUIRE_BROWSER"):
        return importlib.import_module(name)
    return pytest.importorskip(name)


CODE = """
from sklearn.datasets import load_wine
from cellworth import KNNValuer
X, y = load_wine(return_X_y=True)
KNNValuer(5).fit(X[:, :3], y).valuation_
"""


@pytest.fixture(scope="module")
def valuation():
    X, y = load_wine(return_X_y=True)
    return KNNValuer(5).fit(X[:, :3], y).valuation_


def test_jupyter_shows_the_view_and_no_complaint(valuation):
    nbformat, nbclient = import_required("nbformat"), import_required("nbclient")
    cell = nbformat.v4.new_code_cell(CODE)
    notebook = nbformat.v4.new_notebook(cells=[cell])
    nbclient.NotebookClient(notebook, kernel_name="python3").execute()
    (shown,) = [output for output in cell.outputs if output.output_type == "execute_result"]
    # The time that the kernel took is its own.
    views = shown.data["text/html"], valuation._repr_html_()
    assert len({re.sub(r"[\d.]+ s\b", "", view) for view in views}) == 1
    printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    assert "Warning" not in printed


def test_marimo_shows_the_view(valuation):
    assert import_required("marimo").as_html(valuation).text == valuation._repr_html_()
