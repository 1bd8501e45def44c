"""Links between pages lead somewhere, without a look at the network; no page is too long."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
URLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["urls"]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts),
    *sorted(ROOT.glob(".github/**/*.md")),
]
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\[([^\]\n]+)\]: +(\S+)$", re.MULTILINE)
# Text in brackets, then a label in brackets: without one, the text is the label.
REFERENCE = re.compile(r"(?<![\]!\w])\[([^\]\[]+)\](?:\[([^\]]+)\])?+(?!\()")
CODE = re.compile(r"^ *(```+|~~~+).*?^ *\1\s*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
# What is looked at, not read: blocks, tables, commands.
NOT_PROSE = re.compile(r"(?ms)^ *(```+|~~~+|:::+).*?^ *\1\s*$|<!--.*?-->|^\|[^\n]*$|^    [^\n]*$")
MAX_WORDS = 1500
ELSEWHERE = ("http://", "https://", "mailto:")


def links(text):
    text = CODE.sub("", text)
    return LINK.findall(text) + [link for _, link in DEFINITION.findall(text)]


def anchors(text):
    """Of headings, as GitHub and MyST make them."""
    headings = re.findall(
        r"^#+ +(.*?)\s*$", re.sub(r"(?ms)^ *```.*?^ *```", "", text), re.MULTILINE
    )
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def find(page, path):
    """The file that a link leads to; None for a link to elsewhere."""
    for kind in ("blob", "raw", "tree"):
        if path.startswith(start := f"{URLS['Source']}/{kind}/main/"):
            return ROOT / path.removeprefix(start)
    if path.startswith(URLS["Documentation"]):
        name = path.removeprefix(URLS["Documentation"]).removesuffix(".html") or "index"
        sources = [ROOT / "docs" / f"{name}{suffix}" for suffix in (".md", ".rst")]
        sources.append(ROOT / "examples" / f"{name.removeprefix('gallery/')}.py")
        return next((source for source in sources if source.exists()), sources[0])
    if path.startswith(ELSEWHERE):
        return None
    return (page.parent / path) if path else page


def complaint(page, link):
    """What is wrong with a link, as a sentence; None if nothing is."""
    path, _, anchor = link.partition("#")
    target = find(page, path)
    if target is None:
        return None
    if not target.exists():
        return f"{page.name} links to {link}, which is not there"
    if anchor and anchor not in anchors(target.read_text()):
        return f"{page.name} links to {link}, but {target.name} has no such heading"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings_that_are_there(page):
    complaints = [complaint(page, link) for link in links(page.read_text())]
    assert [said for said in complaints if said] == []


def test_links_are_found(tmp_path):
    other = tmp_path / "other.md"
    other.write_text("# One `thing`, two\n\n```\n# No heading\n```\n")
    source, documentation = URLS["Source"], URLS["Documentation"]
    text = (
        "[a](other.md) ![b](b.png) [`c`](other.md#one-thing-two) [d](other.md#no-heading) "
        '[e](https://example.org) `[f](f.md)` [![g](g.png)](other.md "title")\n\n'
        "```\n[h](h.md)\n```\n\n"
        f"[i]({source}/blob/main/README.md) [j]({source}/blob/main/nowhere.md)\n\n"
        f"[k]: {documentation}how-to/audit.html\n[l]: {documentation}how-to/nowhere.html\n"
    )
    page = tmp_path / "page.md"
    page.write_text(text)
    wrong = {link for link in links(text) if complaint(page, link)}
    nowhere = {f"{source}/blob/main/nowhere.md", f"{documentation}how-to/nowhere.html"}
    assert wrong == {"b.png", "other.md#no-heading", *nowhere}
    assert len(links(text)) == 10


def test_the_readme_has_only_links_that_work_on_the_package_index():
    text = CODE.sub("", (ROOT / "README.md").read_text())
    assert [link for link in links(text) if not link.startswith("https://")] == []
    used = {
        (label or shown).lower() for shown, label in REFERENCE.findall(DEFINITION.sub("", text))
    }
    assert used == {label.lower() for label, _ in DEFINITION.findall(text)}


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent.parent.name == "docs"],
    ids=lambda page: page.name,
)
def test_a_page_answers_one_question(page):
    n_words = len(NOT_PROSE.sub("", page.read_text()).split())
    assert n_words <= MAX_WORDS, f"{page.name} has {n_words} words: split it"
