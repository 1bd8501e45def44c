"""The documentation is built from a clean copy, without warnings; its links hold; it fits screens.

Pages are looked at in Chromium where AXE is the path of axe.min.js (npm install axe-core).
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from itertools import product
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
BUILT_BY_SPHINX = shutil.ignore_patterns("_build", "gallery", "api", "sg_*", "__pycache__")

# The first test waits for the whole build.
pytestmark = [pytest.mark.docs, pytest.mark.slow, pytest.mark.timeout(1800)]
if not os.environ.get("REQUIRE_DOCS") and importlib.util.find_spec("sphinx_gallery") is None:
    pytest.skip("the dependency group docs is not installed", allow_module_level=True)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built pages."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("docs", "examples"):
        shutil.copytree(ROOT / name, folder / name, ignore=BUILT_BY_SPHINX)
    for name in ("CHANGELOG.md", "README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    html = folder / "html"
    done = subprocess.run(  # noqa: S603 (this interpreter, our own pages)
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html",
         folder / "docs", html],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return html


class Seen(HTMLParser):
    """Links and anchors of a page."""

    def __init__(self):
        super().__init__()
        self.links, self.anchors = set(), {""}

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self.links |= {given[name] for name in ("href", "src") if given.get(name)}


def seen(page):
    found = Seen()
    found.feed(page.read_text())
    return found


def holds(page, link, pages):
    if link.scheme or link.netloc:
        return True
    target = (page.parent / unquote(link.path)).resolve() if link.path else page
    known = target not in pages or unquote(link.fragment) in pages[target].anchors
    return target.exists() and known


def test_every_link_between_pages_holds(site):
    written = (page for page in site.glob("**/*.html") if "_static" not in page.parts)
    pages = {page: seen(page) for page in sorted(written)}
    assert len(pages) > 90
    broken = {
        (page.name, link)
        for page, found in pages.items()
        for link in found.links
        if not holds(page, urlsplit(link), pages)
    }
    assert broken == set()


def test_llms_txt_names_every_page_with_a_line(site):
    listing = (site / "llms.txt").read_text()
    assert listing.startswith("# cellworth\n\n> What is wrong with a table")
    written = [*ROOT.glob("docs/*/*.md"), *ROOT.glob("examples/plot_*.py")]
    for page in written:
        if page.stem != "index" and "_build" not in page.parts:
            assert f"{page.stem}.html): " in listing
    assert "[KNNValuer](reference/api/cellworth.KNNValuer.html): Value all cells" in listing
    links = [line.split("](")[1].split(")")[0] for line in listing.splitlines() if line[:2] == "- "]
    assert all((site / link).is_file() for link in links)
    assert len(links) > 80


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


PAGES = (
    "index",
    *(f"guide/{page.stem}" for page in sorted(ROOT.glob("docs/guide/[!i]*.md"))),
    "guide/install",
    "evidence/index",
    "gallery/plot_audit",
    "reference/api/cellworth.KNNValuer",
)


@pytest.mark.skipif("AXE" not in os.environ, reason="AXE names no axe.min.js")
@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_screens_and_axe_finds_nothing_serious(site, browser, name):
    for width, scheme in product((1280, 390), ("light", "dark")):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page = context.new_page()
        page.goto((site / f"{name}.html").as_uri())
        assert page.evaluate("document.scrollingElement.scrollWidth") <= width
        page.evaluate(Path(os.environ["AXE"]).read_text(encoding="utf-8"))
        found = page.evaluate("axe.run().then((result) => result.violations)")
        serious = {
            (one["id"], one["nodes"][0]["html"])
            for one in found
            if one["impact"] in ("serious", "critical")
        }
        assert serious == set()
        context.close()
