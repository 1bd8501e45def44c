"""render: a page with nothing from elsewhere, into which no table can inject anything."""

import base64
import hashlib
import html
import html.parser
import json
import re

import pandas as pd
import pytest

from cellworth import audit, look, report
from cellworth.payouts import Policy, split_revenue
from cellworth.report.page import visible
from report_tables import HOSTILE, flowers, hostile

TAGS = set(
    (  # noqa: SIM905 (words are read more easily)
        "html head meta title style body a header div p span button h1 nav ul li main section h2 "
        "h3 h4 strong svg rect line dl dt dd table thead tbody tfoot tr th td "
        "select option form label input details summary fieldset legend output canvas noscript "
        "bdi br code pre footer script"
    ).split()
)
TIMES = "\N{MULTIPLICATION SIGN}"
VOID = {"meta", "input", "br"}


class Reader(html.parser.HTMLParser):
    """Elements of a page, with their attributes; notes what does not close."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.open, self.texts = [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))


@pytest.fixture(scope="module")
def pages():
    valuation, X, y, owners = hostile()
    summary = report.summarize(valuation, X, y, owners=owners, title=HOSTILE[0])
    return {"plain": report.render(report.summarize(*flowers())), "hostile": report.render(summary)}


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_a_page_has_known_elements_only_and_all_of_them_close(pages, name):
    reader = Reader(pages[name])
    assert {tag for tag, _ in reader.elements} <= TAGS
    assert reader.open == []


def test_a_hostile_table_adds_no_element_and_no_attribute(pages):
    reader = Reader(pages["hostile"])
    names = {name for _, attributes in reader.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name == "style"]
    assert sum(tag == "script" for tag, _ in reader.elements) == 2
    links = [a["href"] for tag, a in reader.elements if "href" in a]
    assert all(link.startswith("#") for link in links)


def test_no_element_loads_anything(pages):
    loading = {"src", "srcset", "action", "data", "poster", "background", "xlink:href"}
    for _, attributes in Reader(pages["hostile"]).elements:
        assert not loading & set(attributes)


def test_hostile_texts_are_there_as_text(pages):
    texts = " ".join(text for tag, text in Reader(pages["hostile"]).texts if tag == "bdi")
    assert "{{ 7 * 7 }}" in texts
    assert "<img src=x onerror=window.injected=1>" in texts
    assert "nul␀bell␇escape␛[31m" in texts
    assert "\u202e" not in texts
    assert "\x00" not in pages["hostile"]


def test_data_cannot_end_its_element(pages):
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', pages["hostile"])
    assert not set("<>&\u2028\u2029") & set(data[1])
    assert HOSTILE[0] in json.loads(data[1])["heatmap"]["columns"]


def test_the_policy_names_the_hashes_of_what_the_page_holds(pages):
    reader = Reader(pages["hostile"])
    policy = next(a["content"] for _, a in reader.elements if "http-equiv" in a)
    for tag in ("script", "style"):
        content = [text for inside, text in reader.texts if inside == tag][-1]
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_characters_that_cannot_be_seen_or_encoded_are_shown():
    assert visible("half \ud83d of a pair") == "half \ufffd of a pair"
    assert visible("a\u202eb") == "a\ufffdb"
    assert visible("plain") == "plain"
    assert visible("a\n\tb\r") == "a\n\tb␍"


@pytest.mark.parametrize("name", ["plain", "hostile"])
def test_the_record_can_be_read_as_json(pages, name):
    reader = Reader(pages[name])
    record = "".join(text for tag, text in reader.texts if tag == "pre")
    valuation = flowers()[0] if name == "plain" else hostile()[0]
    assert json.loads(record)["problem_spec"] == valuation.provenance.problem_spec


@pytest.fixture(scope="module")
def audit_page(tmp_path_factory):
    """The page of an audit of a table whose ids, names and cells are all hostile."""
    path = tmp_path_factory.mktemp("audit") / "audit.html"
    _, X, *_ = hostile()
    X = X.assign(
        **{HOSTILE[1]: [*(f"{name} {i % 2}" for i, name in enumerate(X.index[:-2])), *"??"]}
    )
    X[HOSTILE[0]] = HOSTILE[0]
    report.write_audit(audit(X), path, title=HOSTILE[0])
    return path.read_text(encoding="utf-8")


def test_the_page_of_an_audit_has_known_elements_and_no_script(audit_page):
    reader = Reader(audit_page)
    assert {tag for tag, _ in reader.elements} <= TAGS - {"script"}
    assert reader.open == []
    names = {name for _, attributes in reader.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("style", "src")]
    policy = next(a["content"] for _, a in reader.elements if "http-equiv" in a)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script-src" not in policy


@pytest.fixture(scope="module")
def payout_pages(tmp_path_factory):
    """The pages of a payout of a hostile table to owners with hostile names."""
    folder = tmp_path_factory.mktemp("payout")
    valuation, _, _, owners = hostile()
    payout = split_revenue(valuation, owners, amount="100.00", policy=Policy(game="cells"))
    report.write_payout(payout, folder / "board.html", title=HOSTILE[2], digest=HOSTILE[5])
    report.write_statement(payout.statement(HOSTILE[0]), folder / "owner.html", digest=HOSTILE[5])
    return [(folder / f"{name}.html").read_text(encoding="utf-8") for name in ("board", "owner")]


@pytest.mark.parametrize("position", [0, 1], ids=["board", "owner"])
def test_pages_of_a_payout_have_known_elements_and_show_hostile_names_as_text(
    payout_pages, position
):
    page = payout_pages[position]
    reader = Reader(page)
    assert {tag for tag, _ in reader.elements} <= TAGS - {"script"}
    assert reader.open == []
    names = {name for _, attributes in reader.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("style", "src")]
    policy = next(a["content"] for _, a in reader.elements if "http-equiv" in a)
    assert "script-src" not in policy
    assert HOSTILE[0] in [text for tag, text in reader.texts if tag == "bdi"]
    assert "\u202e" not in page
    assert "\x00" not in page


def test_the_page_of_an_audit_shows_hostile_texts_as_text(audit_page):
    texts = " ".join(text for tag, text in Reader(audit_page).texts if tag == "bdi")
    assert "'?' stands for a missing value in 2 cells of <img src=x onerror" in texts
    assert "\u202e" not in audit_page
    assert "\x00" not in audit_page


def test_the_page_of_an_audit_lists_first_rows_and_counts_the_others(tmp_path):
    X = pd.DataFrame({"age": [20 + 7 * i % 45 for i in range(200)]}, index=range(1000, 1200))
    X["town"] = ["n/a" if i < 25 else "Ulm" if i % 2 else "Jena" for i in range(200)]
    found = audit(X)
    report.write_audit(found, tmp_path / "audit.html")
    page = (tmp_path / "audit.html").read_text(encoding="utf-8")
    (line,) = re.findall(r"<tr>(?:(?!</tr>).)*n/a.*?</tr>", page, re.DOTALL)
    listed = [int(row) for row in re.findall(r'<bdi class="short">(\d+)</bdi>', line)]
    assert listed == list(range(1000, 1010))
    assert "and 15 more" in line
    assert html.unescape(found[0].advice) in html.unescape(line)
    assert f'<p class="lead">One finding in 200 rows {TIMES} 2 columns: missing mark.' in page


def test_a_page_of_hostile_chapters_has_known_elements_and_loads_nothing():
    _, X, y, owners = hostile()
    page = look(X, y, owners=owners, title=HOSTILE[0], on_audit=None).html
    reader = Reader(page)
    assert reader.open == []
    assert {tag for tag, _ in reader.elements} <= TAGS
    assert sum(tag == "script" for tag, _ in reader.elements) == 2
    names = {name for _, attributes in reader.elements for name in attributes}
    assert not [name for name in names if name.startswith("on") or name in ("style", "src")]
    ids = [attributes["id"] for _, attributes in reader.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [a["href"] for tag, a in reader.elements if "href" in a]
    assert {link.removeprefix("#") for link in links} <= set(ids)
