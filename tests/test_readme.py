"""The README, and the pages that show how things are done, as printed."""

from pathlib import Path

import pytest

import readme

ROOT = Path(__file__).parents[1]


def test_the_readme_prints_what_it_shows():
    assert readme.run(ROOT / "README.md") == 7


@pytest.mark.parametrize(
    ("page", "n_blocks"),
    [pytest.param("long-runs", 5, marks=pytest.mark.slow), ("shared-folder", 2)],
)
def test_a_page_of_how_to_prints_what_it_shows(page, n_blocks):
    assert readme.run(ROOT / "docs" / "how-to" / f"{page}.md") == n_blocks


@pytest.mark.parametrize(("page", "n_blocks"), [("owners", 2)])
def test_a_page_of_explanation_prints_what_it_shows(page, n_blocks):
    assert readme.run(ROOT / "docs" / "explanation" / f"{page}.md") == n_blocks


def test_a_page_that_shows_something_else_is_found_out(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n")
    with pytest.raises(AssertionError, match="but this came\n2"):
        readme.run(page)
