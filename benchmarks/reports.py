"""Measure the time to make and open a report of the Census, and its size.

    python benchmarks/reports.py --picture report.png

Needs Chromium on the path and playwright. The valuation is short (20 validation rows, three
passes), which changes neither size nor speed of its report.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from cellworth import KNNValuer, report
from cellworth.data import fetch_adult

HOVER = """async () => {
    const canvas = document.getElementById('canvas'), tip = document.getElementById('tip');
    const box = canvas.getBoundingClientRect(), shown = [], painted = [];
    for (let i = 0; i < 40; i++) {
        const began = performance.now();
        canvas.dispatchEvent(new PointerEvent('pointermove', {
            clientX: box.left + 130 + 17 * i, clientY: box.top + 150 + 11 * i, bubbles: true,
        }));
        tip.getBoundingClientRect();
        shown.push(performance.now() - began);
        await new Promise(requestAnimationFrame);
        painted.push(performance.now() - began);
    }
    return [shown, painted];
}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="folder of the tables")
    parser.add_argument("--picture", type=Path)
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        make(asked.data, path)
        look(path, asked.picture)


def make(data: Path | None, path: Path) -> None:
    train, test = (pd.read_csv(fetch_adult(side, folder=data)) for side in ("train", "test"))
    validation = test.sample(20, random_state=0)
    X, y = train.drop(columns="income"), train["income"]
    valuation = (
        KNNValuer(n_passes=3, random_state=0)
        .fit(X, y, X_val=validation.drop(columns="income"), y_val=validation["income"])
        .valuation_
    )
    began = time.perf_counter()
    summary = report.summarize(valuation, X, y, title="Census income")
    print(f"summarize        {time.perf_counter() - began:6.1f} s")
    began = time.perf_counter()
    path.write_text(report.render(summary), encoding="utf-8")
    print(f"render           {time.perf_counter() - began:6.1f} s")
    print(f"size             {path.stat().st_size / 1e6:6.2f} MB")


def look(path: Path, picture: Path | None) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page(viewport={"width": 1280, "height": 960})
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-map=ready]")
        ready = page.evaluate("performance.now()")
        paints = page.evaluate("performance.getEntriesByType('paint').map((e) => e.startTime)")
        page.locator("#canvas").scroll_into_view_if_needed()
        shown, painted = page.evaluate(HOVER)
        print(f"first paint      {max(paints):6.0f} ms")
        print(f"heat map ready   {ready:6.0f} ms")
        print(f"hover, shown     {statistics.median(shown):6.1f} ms, at most {max(shown):.1f}")
        print(f"hover, painted   {statistics.median(painted):6.1f} ms, at most {max(painted):.1f}")
        if picture:
            page.locator("#worst .find").first.click()
            page.evaluate("document.getElementById('map').scrollIntoView({behavior: 'instant'})")
            page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main()
