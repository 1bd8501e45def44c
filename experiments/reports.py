"""Measure the size of a report of the Census, and the time to make, open and use it.

Needs Chromium on the path and playwright. The valuation is short (20 validation rows, three
passes), which changes neither size nor speed of its report.
"""

from __future__ import annotations

import shutil
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pandas as pd

from cellworth import KNNValuer, Runtime, report
from experiments.frame import Row, Tables
from experiments.tables import find

QUICK = {"rows": 500}
HOVER = """async () => {
    const canvas = document.getElementById('canvas'), tip = document.getElementById('tip');
    const box = canvas.getBoundingClientRect(), shown = [];
    for (let i = 0; i < 40; i++) {
        const began = performance.now();
        canvas.dispatchEvent(new PointerEvent('pointermove', {
            clientX: box.left + 130 + 17 * i, clientY: box.top + 150 + 11 * i, bubbles: true,
        }));
        tip.getBoundingClientRect();
        shown.push(performance.now() - began);
        await new Promise(requestAnimationFrame);
    }
    return shown;
}"""


def run(data: Path, rows: int = 32_561) -> Tables:
    """Return the size and the times."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        return {"report": [make(data, rows, path) | open_page(path)]}


def make(data: Path, n_rows: int, path: Path) -> Row:
    """Write the report of the first rows; return its size and the time that it took."""
    train, test = (pd.read_csv(find(f"adult_{side}", data)) for side in ("train", "test"))
    validation = test.sample(20, random_state=0)
    X, y = train.drop(columns="income")[:n_rows], train["income"][:n_rows]
    valuer = KNNValuer(n_passes=3, random_state=0, runtime=Runtime(progress=False))
    valuer.fit(X, y, X_val=validation.drop(columns="income"), y_val=validation["income"])
    began = time.process_time()
    summary = report.summarize(valuer.valuation_, X, y, title="Census income")
    path.write_text(report.render(summary), encoding="utf-8")
    return {
        "cells": X.size,
        "MB": path.stat().st_size / 1e6,
        "CPU seconds to make": time.process_time() - began,
    }


def open_page(path: Path) -> Row:
    """Open a report in a browser; return milliseconds until it can be seen and used."""
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
        shown = page.evaluate(HOVER)
        browser.close()
    return {
        "first paint, ms": max(paints),
        "heat map, ms": ready,
        "cell under the pointer, ms": statistics.median(shown),
    }
