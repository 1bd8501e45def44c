"""What tests/lint.py finds in pages and in docstrings; CI runs it over all of them."""

import pytest

import lint
import words


def test_links_are_found(tmp_path):
    other = tmp_path / "other.md"
    other.write_text("# One `thing`, two\n\n```\n# No heading\n```\n")
    source, documentation = lint.URLS["Source"], lint.URLS["Documentation"]
    text = (
        "[a](other.md) ![b](b.png) [`c`](other.md#one-thing-two) [d](other.md#no-heading) "
        '[e](https://example.org) `[f](f.md)` [![g](g.png)](other.md "title")\n\n'
        "```\n[h](h.md)\n```\n\n"
        f"[i]({source}/blob/main/README.md) [j]({source}/blob/main/nowhere.md)\n\n"
        f"[k]: {documentation}guide/audit.html\n[l]: {documentation}guide/nowhere.html\n"
    )
    page = tmp_path / "page.md"
    page.write_text(text)
    wrong = {link for link in lint.links(text) if list(lint.check_link(page, link))}
    nowhere = {f"{source}/blob/main/nowhere.md", f"{documentation}guide/nowhere.html"}
    assert wrong == {"b.png", "other.md#no-heading", *nowhere}
    assert len(lint.links(text)) == 10


@pytest.mark.parametrize(
    ("row", "is_figure"),
    [("| x | .91 |", True), ("| x | 446 |", True), ("| x | +3 ± 1 |", True),
     ("| x | 12 MB |", True), ("| .91 | yes |", False), ("| x | `0.5` |", False),
     ("| x | K = 5 |", False)],
)  # fmt: skip
def test_a_figure_is_told_from_words_and_code(row, is_figure):
    table = f"| a | b |\n|---|---|\n{row}\n"
    assert lint.find_tables_of_figures(table) == (["a, b"] if is_figure else [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("An errand.", "text 'errand'"),
        ("gap = 1", "name gap"),
        ("def drawn_cells(): ...", "a verb"),
    ],
)
def test_old_words_are_found(text, said, tmp_path, monkeypatch):
    monkeypatch.setattr(words, "ROOT", tmp_path)
    path = tmp_path / ("page.md" if said.startswith("text") else "module.py")
    path.write_text(text)
    assert said in next(words.offences(path))


def test_a_figure_that_no_result_fills_in_is_found(tmp_path, monkeypatch):
    text = "It takes 3 s, <!-- figure: made a > b > c -->4 s<!-- --> or `5 s`."
    assert lint.FIGURE.findall(lint.NO_FIGURES.sub("", lint.typed_by_hand(text))) == ["3 s"]
