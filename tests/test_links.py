"""Links between pages of the repository lead somewhere, without a look at the network."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *sorted(page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts),
]
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
CODE = re.compile(r"^ *(```+|~~~+).*?^ *\1\s*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
ELSEWHERE = ("http://", "https://", "mailto:")


def links(text):
    found = LINK.findall(CODE.sub("", text))
    return [link for link in found if not link.startswith(ELSEWHERE)]


def anchors(text):
    """Of headings, as GitHub and MyST make them."""
    headings = re.findall(
        r"^#+ +(.*?)\s*$", re.sub(r"(?ms)^ *```.*?^ *```", "", text), re.MULTILINE
    )
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def complaint(page, link):
    """What is wrong with a link, as a sentence; None if nothing is."""
    path, _, anchor = link.partition("#")
    target = (page.parent / path) if path else page
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
    text = (
        "[a](other.md) ![b](b.png) [`c`](other.md#one-thing-two) [d](other.md#no-heading) "
        '[e](https://example.org) `[f](f.md)` [![g](g.png)](other.md "title")\n\n'
        "```\n[h](h.md)\n```\n"
    )
    page = tmp_path / "page.md"
    page.write_text(text)
    wrong = {link for link in links(text) if complaint(page, link)}
    assert wrong == {"b.png", "other.md#no-heading"}
    assert len(links(text)) == 5
