"""Reports in a real browser: quick, quiet, safe, to be used by mouse and by keyboard.

Tests are skipped where Chromium or playwright is missing, unless the environment variable
REQUIRE_BROWSER is set. AXE is the path of axe.min.js (npm install axe-core); tests of accessibility
need it.
"""

import csv
import io
import os
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cellworth import KNNValuer, look, report
from cellworth.payouts import Policy, split_revenue
from cellworth.report.page import visible
from report_tables import DATA, census, flowers, hostile, quirks

pytestmark = pytest.mark.browser

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
AXE = os.environ.get("AXE", "")


def needed(thing, why):
    """Skip without it, or fail where browsers are required."""
    if thing:
        return thing
    if os.environ.get("REQUIRE_BROWSER"):
        pytest.fail(why)
    return pytest.skip(why)


@pytest.fixture(scope="module")
def browser():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        needed(None, "playwright is not installed; pip install --group browser")
    path = needed(shutil.which("chromium"), "there is no chromium on the path")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        started.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reports")
    valuation, X, y = flowers()
    report.save(valuation, folder / "flowers.html", X, y, title="Flowers")
    valuation, X, y, owners = hostile()
    report.save(valuation, folder / "hostile.html", X, y, owners=owners)
    valuation, X, y = quirks()
    report.save(valuation, folder / "quirks.html", X, y, k=150)
    valuation, X, y = flowers()
    twins = X.set_axis(["twin"] * 24)
    fitted = KNNValuer(n_neighbors=3).fit(twins, y, cv=3)
    report.save(fitted.valuation_, folder / "twins.html", twins, y)
    valuation, X, y, owners = hostile()
    report.save(valuation, folder / "owners.html", X, y, owners=owners, cells=False)
    look(X, y, owners=owners, on_audit=None).save(folder / "look.html")
    payout = split_revenue(valuation, owners, amount="1000.00", policy=Policy(game="cells"))
    report.write_payout(payout, folder / "payout.html", digest="0123456789abcdef" * 4)
    statement = payout.statement(owners.names[1])
    report.write_statement(statement, folder / "statement.html", digest="0123456789abcdef" * 4)
    return folder


@pytest.fixture(scope="module")
def census_file(tmp_path_factory):
    needed(DATA.is_dir(), f"the data sets are not in {DATA}")
    path = tmp_path_factory.mktemp("reports") / "census.html"
    valuation, X, y, owners = census()
    report.save(valuation, path, X, y, owners=owners, title="Census")
    return path


@pytest.fixture
def open_page(browser):
    """Open a file and wait for its heat map; complaints of the browser fail the test."""
    complaints, opened = [], []

    def open_file(path, *, with_map=True, **settings):
        context = browser.new_context(viewport={"width": 1280, "height": 900}, **settings)
        page = context.new_page()
        opened.append(context)
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: complaints.extend(elsewhere(request.url)))
        page.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.log(e.blockedURI))"
        )
        page.goto(Path(path).as_uri())
        if with_map:
            page.wait_for_selector("html[data-map=ready]")
        return page

    yield open_file
    for context in opened:
        context.close()
    assert complaints == []


def elsewhere(url):
    return [] if url.startswith(("file:", "blob:", "data:")) else [f"asked for {url}"]


def shown_rows(page):
    return page.evaluate("Array.from(map.rows, (row) => map.cells.ids[row])")


def shown_columns(page):
    return page.evaluate("map.columns.map((j) => map.cells.plain.columns[j])")


def test_the_tip_says_what_python_says(open_page, census_file):
    valuation, X, y, _ = census()
    page = open_page(census_file)
    power = page.evaluate("PAGE.power")
    for row, column in [(0, 0), (31_000, 13), (77, 2), (4_070, 9)]:
        cell = page.evaluate("([row, column]) => map.cells.describe(row, column)", [row, column])
        expected = f"{valuation.values[row, column]:.2e}"
        text = cell["value"].split(" ")[0].replace("\N{MINUS SIGN}", "-").replace(",", "")
        assert f"{float(text) * 10.0**power:.2e}" == expected
        assert cell["cell"] == str(X.iloc[row, column])
        assert cell["label"] == y.iloc[row]


def test_sorting_and_filters_give_what_python_gives(open_page, census_file):
    valuation, _, y, _ = census()
    page = open_page(census_file)
    order = np.argsort(valuation.rows().values, kind="stable")
    assert shown_rows(page) == [str(row) for row in order]
    page.select_option("#row-order", "highest")
    assert shown_rows(page) == [str(row) for row in order[::-1]]
    page.select_option("#row-order", "table")
    page.select_option("#only-class", label=">50K")
    assert shown_rows(page) == [str(row) for row in np.flatnonzero(y == ">50K")]
    page.fill("#only-rows", "312")
    rich = [str(row) for row in np.flatnonzero(y == ">50K")]
    assert shown_rows(page) == [row for row in rich if "312" in row]
    page.select_option("#column-order", "highest")
    best = valuation.columns().highest(14).labels["column"].tolist()
    assert shown_columns(page) == best
    page.select_option("#only-owner", label="registry")
    held = {"age", "sex", "race", "native_country"}
    assert shown_columns(page) == [name for name in best if name in held]
    page.select_option("#only-owner", label="no owner")
    assert shown_columns(page) == [name for name in best if name not in held]
    page.fill("#only-rows", "no such row")
    assert shown_rows(page) == []


def test_a_pixel_of_many_rows_shows_the_cell_furthest_from_zero(open_page, census_file):
    valuation = census()[0]
    page = open_page(census_file)
    page.select_option("#row-order", "table")
    winners, high = page.evaluate("[Array.from(map.winners), Math.round(map.height * map.ratio)]")
    winners = np.array(winners).reshape(high, 14)
    edges = np.floor(np.arange(high + 1) * (len(valuation.values) / high)).astype(int)
    for line in (0, high // 3, high - 1):
        rows = np.arange(edges[line], edges[line + 1])
        sizes = np.abs(valuation.values[rows])
        # Codes have three digits, so that near ties may go either way.
        assert (sizes[winners[line] - rows[0], np.arange(14)] >= 0.994 * sizes.max(axis=0)).all()


def test_the_keyboard_is_enough(open_page, files):
    page = open_page(files / "flowers.html")
    page.select_option("#row-order", "table")
    page.focus("#canvas")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "+", "+", "2"):
        page.keyboard.press(key)
    assert page.inner_text("#status").startswith("row 002, column leaf, content ")
    assert page.inner_text("#marks-count") == "1 cell marked: 1 wrong."
    assert page.evaluate("map.view.bottom - map.view.top") == 6
    page.keyboard.press("u")
    assert page.inner_text("#marks-count") == "No cell is marked yet."
    page.keyboard.press("0")
    page.keyboard.press("End")
    page.keyboard.press("PageDown")
    assert page.inner_text("#status").startswith("row 022, column seen, content 2024-03-23")


def test_rows_that_share_an_id_have_marks_of_their_own(open_page, files):
    page = open_page(files / "twins.html")
    page.select_option("#row-order", "table")
    positions = page.eval_on_selector_all(
        "#lowest-cells tbody tr",
        "all => all.map(({dataset}) => [Number(dataset.position), dataset.column])",
    )
    page.select_option("#lowest-cells tbody tr:nth-child(1) select.mark", "wrong")
    marked = page.eval_on_selector_all(
        "#lowest-cells select.mark", "all => all.map((s) => s.value)"
    )
    assert marked == ["wrong"] + [""] * (len(positions) - 1)
    twin = next(i for i, (_, column) in enumerate(positions) if i and column == positions[0][1])
    page.click("text=Show all")
    page.click(f"#lowest-cells tbody tr:nth-child({twin + 1}) .find")
    assert page.evaluate("map.cells.positions[map.rows[map.cursor.y]]") == positions[twin][0]
    page.keyboard.press("3")
    assert page.inner_text("#marks-count") == "2 cells marked: 1 wrong, 1 right."
    page.reload()
    page.wait_for_selector("html[data-map=ready]")
    assert page.inner_text("#marks-count") == "2 cells marked: 1 wrong, 1 right."
    page.click("#marked button >> nth=0")
    assert page.inner_text("#marks-count") == "1 cell marked: 1 right."


def test_the_script_shows_hidden_characters_as_the_page_itself_does(open_page, files):
    page = open_page(files / "flowers.html")
    every = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    # Browsers and Python may know different versions of Unicode.
    known = [c for c in every if unicodedata.category(c) != "Cn"]
    shown = page.evaluate("texts => texts.map(visible)", known)
    differ = [c for c, s in zip(known, shown, strict=True) if s != visible(c)]
    assert differ == []
    assert page.evaluate(r"visible('\ud83d') === '\ufffd'")


def exported(page):
    with page.expect_download() as waiting:
        page.click("#export")
    return Path(waiting.value.path()).read_bytes().decode("utf-8-sig")


def test_exported_marks_name_cells_of_the_table(open_page, files):
    _, X, _ = flowers()
    page = open_page(files / "flowers.html")
    page.select_option("#lowest-cells tbody tr:nth-child(1) select.mark", "wrong")
    page.select_option("#lowest-cells tbody tr:nth-child(2) select.mark", "right")
    page.click("#lowest-cells tbody tr:nth-child(3) .find")
    page.click("#chosen >> text=wrong")
    cells = pd.read_csv(io.StringIO(exported(page)), dtype={"row": str})
    assert cells["mark"].tolist() == ["wrong", "right", "wrong"]
    listed = [(line.row, line.column) for line in cells.itertuples()]
    assert all(row in X.index and column in X.columns for row, column in listed)


def test_the_lines_on_the_page_read_marks_of_ids_and_names_like_formulas(
    open_page, files, tmp_path
):
    _, X, _ = quirks()
    page = open_page(files / "quirks.html")
    page.select_option("#row-order", "table")
    page.focus("#canvas")
    for _ in range(5):
        page.keyboard.press("2")
        page.keyboard.press("ArrowDown")
    (tmp_path / "marks.csv").write_text(exported(page), encoding="utf-8")
    lines = page.locator("#marks .help code").all_inner_texts()
    here = {"pandas": pd, "X": X.copy()}
    for line in lines:
        exec(line.replace("marks.csv", str(tmp_path / "marks.csv")), here)  # noqa: S102 (the page's own)
    emptied = here["X"].isna() & ~X.isna()
    assert emptied["=sum"].tolist() == [True] * 5 + [False] * 25
    assert emptied.to_numpy().sum() == 5


def test_exported_text_is_quoted_and_runs_in_no_spreadsheet(open_page, files):
    page = open_page(files / "hostile.html")
    page.click("text=Show all")
    for select in page.locator("#lowest-cells select.mark").all():
        select.select_option("wrong")
    text = exported(page)
    lines = list(csv.reader(io.StringIO(text, newline="")))
    assert {len(line) for line in lines} == {7}
    texts = [field for line in lines for field in line if not is_number(field)]
    assert not [field for field in texts if field.lstrip().startswith(("=", "+", "-", "@"))]
    assert any(field.startswith("'=HYPERLINK") for field in texts)


def is_number(field):
    try:
        float(field)
    except ValueError:
        return False
    return True


def test_a_hostile_table_injects_nothing(open_page, files):
    page = open_page(files / "hostile.html")
    page.focus("#canvas")
    for _ in range(15):
        page.keyboard.press("1")
        page.keyboard.press("ArrowDown")
    page.locator("#canvas").scroll_into_view_if_needed()
    box = page.locator("#canvas").bounding_box()
    for step in range(10):
        page.mouse.move(box["x"] + 130 + 60 * step, box["y"] + box["height"] * 0.9 - 8 * step)
    assert page.inner_text("#marks-count") == "15 cells marked: 15 reviewed."
    assert page.evaluate("window.injected") is None
    assert page.locator("img, iframe, object, embed, link, a[href^=javascript]").count() == 0


def test_findings_are_shown_by_kind_and_by_text(open_page, files):
    page = open_page(files / "look.html")
    kinds = page.locator("#findings tbody th").all_inner_texts()
    shown = page.locator("#findings tbody tr:visible")
    assert len(kinds) == shown.count() > 1
    page.select_option("#which-findings select", kinds[0])
    assert shown.count() == kinds.count(kinds[0]) < len(kinds)
    assert page.inner_text("#which-findings output").startswith(f"{shown.count()} of ")
    page.fill("#which-findings input", "no such text")
    assert shown.count() == 0


def test_a_row_is_found_by_its_id_at_its_lowest_cell(open_page, files):
    valuation, X, _ = flowers()
    page = open_page(files / "flowers.html")
    page.fill("#find-row input", "017")
    page.keyboard.press("Enter")
    lowest = X.columns[valuation.values[17].argmin()]
    assert page.inner_text("#status").startswith(f"row 017, column {lowest}, ")
    page.fill("#find-row input", "99")
    page.keyboard.press("Enter")
    assert page.inner_text("#find-row output") == "No row of the heat map has the id 99."


def test_the_code_of_a_chapter_is_copied(open_page, files):
    page = open_page(files / "look.html", permissions=["clipboard-read", "clipboard-write"])
    page.click("#wrong summary")
    page.click("#wrong .copy")
    page.wait_for_function("document.querySelector('#wrong [role=status]').textContent")
    assert page.evaluate("navigator.clipboard.readText()") == page.inner_text("#wrong-code")
    assert "found = audit(X, y)" in page.inner_text("#wrong-code")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing_serious_in_a_look_and_nothing_is_too_wide(
    open_page, files, scheme, width
):
    source = needed(AXE and Path(AXE).read_text(encoding="utf-8"), "AXE names no axe.min.js")
    page = open_page(files / "look.html", color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.click("#wrong summary")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.evaluate(source)
    found = page.evaluate("axe.run().then((result) => result.violations)")
    assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] != "minor"] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_axe_finds_nothing_serious(open_page, files, scheme, width):
    source = needed(AXE and Path(AXE).read_text(encoding="utf-8"), "AXE names no axe.min.js")
    page = open_page(files / "flowers.html", color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.click("#lowest-cells tbody tr:nth-child(1) .find")
    page.keyboard.press("2")
    page.click("text=As JSON")
    page.evaluate(source)
    found = page.evaluate("axe.run().then((result) => result.violations)")
    serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] != "minor"]
    assert serious == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["payout", "statement"])
def test_axe_finds_nothing_serious_in_the_pages_of_a_payout(open_page, files, name, scheme, width):
    source = needed(AXE and Path(AXE).read_text(encoding="utf-8"), "AXE names no axe.min.js")
    page = open_page(files / f"{name}.html", with_map=False, color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.evaluate(source)
    found = page.evaluate("axe.run().then((result) => result.violations)")
    serious = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] != "minor"]
    assert serious == []
