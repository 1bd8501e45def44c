"""Draw the figures of the home page, of two-dimensional-shapley.md and of who does what in a run.

    python docs/images/draw.py

They are saved beside this file. Folders here have the pictures that pages make themselves
(``python tests/pages.py --pictures PAGE``). The home page's table is in the folder CELLWORTH_DATA.
"""

import gzip
import os
import shutil
from collections.abc import Callable
from contextlib import chdir
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from PIL import Image
from sklearn.datasets import load_wine

from cellworth import KNNValuer, Owners, explain_row, payouts, plots, value_game
from cellworth.plots.figure_style import GRAY, NEGATIVE, PALE_GRAY, POSITIVE, ZERO, diverging

HERE = Path(__file__).parent
PALE_BLUE = "#d8e9f5"
_POINTS = {"ha": "center", "va": "center"}


def four_corners() -> Figure:
    """Draw what a block adds: two utilities with it, minus two with half of it."""
    figure = Figure(figsize=(9.0, 2.7), layout="constrained")
    titles = ("h(S+i, F+j)", "h(S, F)", "h(S+i, F)", "h(S, F+j)")
    panels = zip(figure.subplots(1, 4), titles, "++--", (1, 0, 1, 0), (1, 0, 0, 1), strict=True)
    for ax, title, sign, with_row, with_column in panels:
        color = POSITIVE if sign == "+" else NEGATIVE
        _draw_table(ax, 5, 4, lambda i, j: PALE_GRAY if i < 3 and j < 2 else "white")
        for i in range(3 + with_row):
            for j in range(2 + with_column):
                _fill(ax, i, j, color if i == 3 or j == 2 else PALE_GRAY)
        ax.set_title(f"{sign} {title}", color=color, size=13)
        ax.text(-0.75, 1.0, "S", size=12, **_POINTS)
        ax.text(-0.75, 3.0, "i", size=12, style="italic", **_POINTS)
        ax.text(0.5, -0.8, "F", size=12, **_POINTS)
        ax.text(2.0, -0.8, "j", size=12, style="italic", **_POINTS)
        ax.add_patch(Rectangle((1.5, 2.5), 1, 1, fill=False, linewidth=2.2, zorder=5))
    return figure


def one_pair_of_orders() -> Figure:
    """Draw the prefix utilities of the example and their second differences."""
    utility = {
        ("", ""): 0, ("", "a"): 0, ("", "ab"): 0, ("2", ""): 0, ("12", ""): 0,
        ("2", "a"): 4, ("2", "ab"): 8, ("12", "a"): 6, ("12", "ab"): 10,
    }  # fmt: skip
    rows, columns = ("", "2", "12"), ("", "a", "ab")
    grid = np.array([[utility[row, column] for column in columns] for row in rows])
    differences = np.diff(np.diff(grid, axis=0), axis=1)
    figure = Figure(figsize=(7.2, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _write_grid(left, grid, ("no row", "row 2", "rows 2, 1"), ("no column", "a", "a, b"))
    left.set_title("utilities of the prefixes", size=11)
    _write_grid(right, differences, ("row 2", "row 1"), ("a", "b"), largest=4.0)
    right.set_title("what each block adds", size=11)
    return figure


def sums_are_not_enough() -> Figure:
    """Draw two tables with equal row and column sums but different cells."""
    figure = Figure(figsize=(7.2, 2.6), layout="constrained")
    product = np.full((2, 2), 0.5)
    values = value_game(_TwoGoodCells(), (2, 2)).values
    for ax, cells, title in zip(
        figure.subplots(1, 2),
        (product, values),
        ("row value x column value / total", "2D-Shapley"),
        strict=True,
    ):
        _write_grid(ax, cells, ("row 1", "row 2"), ("a", "b"), largest=1.0)
        ax.set_title(title, size=11)
        for line, total in enumerate(cells.sum(axis=1)):
            ax.text(1.75, line, f"= {total:g}", size=12, color=GRAY, **_POINTS)
        for line, total in enumerate(cells.sum(axis=0)):
            ax.text(line, 1.75, f"= {total:g}", size=12, color=GRAY, **_POINTS)
    return figure


def cluster() -> Figure:
    """Draw the script, the scheduler, workers that may die, and the checkpoint."""
    ax = _make_board()
    _draw_box(ax, 0.0, 1.15, 2.4, "your script\nchooses tasks, adds up")
    _draw_arrow(ax, (1.2, 0.72), (1.2, 0.43))
    _draw_box(ax, 0.0, 0.0, 2.4, "checkpoint", color=PALE_BLUE)
    _draw_arrow(ax, (2.45, 1.25), (3.55, 1.25))
    _draw_arrow(ax, (3.55, 1.05), (2.45, 1.05))
    ax.text(3.0, 1.35, "tasks", size=10, color=GRAY, ha="center")
    ax.text(3.0, 0.78, "results", size=10, color=GRAY, ha="center")
    _draw_box(ax, 3.6, 1.15, 1.7, "scheduler")
    for y, text in (
        (2.1, "worker"),
        (1.15, "worker"),
        (0.2, "lost worker: its\ntasks run elsewhere"),
    ):
        _draw_arrow(ax, (5.35, 1.15 + 0.15 * (y - 1.15)), (6.55, y))
        _draw_box(ax, 6.6, y, 2.4, text, color="0.88" if "lost" in text else ZERO)
    return ax.figure


def home() -> Image.Image:
    """Photograph the page that the code of the home page writes: its head, findings, heat map."""
    home_page = (HERE.parent / "index.md").read_text(encoding="utf-8")
    code = home_page.split("```python\n", 1)[1].split("```", 1)[0]
    with TemporaryDirectory() as folder, chdir(folder):
        table = Path(os.environ["CELLWORTH_DATA"], "raha_hospital_dirty.csv.gz")
        Path("hospital.csv").write_bytes(gzip.decompress(table.read_bytes()))
        exec(compile(code, "index.md", "exec"), {})  # noqa: S102 (our own page)
        return _stack(_photograph(Path("hospital.html").resolve()))


def _photograph(page: Path) -> list[Image.Image]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        window = browser.new_page(viewport={"width": 620, "height": 900}, device_scale_factor=1.5)
        window.goto(page.as_uri())
        window.wait_for_timeout(1000)
        parts = [
            window.locator(part).first.screenshot()
            for part in ("header", "#findings table", "#map-box")
        ]
        browser.close()
    return [Image.open(BytesIO(part)).convert("RGB") for part in parts]


def _stack(parts: list[Image.Image]) -> Image.Image:
    """Put parts of a page below each other; of the last, the heat map, only its upper third."""
    parts[-1] = parts[-1].crop((0, 0, parts[-1].width, parts[-1].height // 3))
    width = max(part.width for part in parts)
    picture = Image.new(
        "RGB", (width, sum(part.height + 12 for part in parts)), parts[0].getpixel((0, 0))
    )
    top = 0
    for part in parts:
        picture.paste(part, ((width - part.width) // 2, top))
        top += part.height + 12
    return picture.quantize(128, dither=Image.Dither.NONE)


def social_card() -> Figure:
    """Draw what a link to the site shows: 1,200 x 630 pixels."""
    figure = Figure(figsize=(12.0, 6.3))
    figure.text(0.06, 0.72, "cellworth", size=58, weight="bold")
    lines = "What is wrong with a table,\nwhat each of its cells is worth to a model,"
    figure.text(0.06, 0.34, f"{lines}\nand who gets what.", size=24, linespacing=1.5)
    X, y = _read_wine()
    values = KNNValuer(5).fit(X, y).valuation_.values[40:68, 3:]
    ax = figure.add_axes((0.66, 0.08, 0.28, 0.84))
    limit = float(np.abs(values).max())
    ax.imshow(values, cmap=diverging(), vmin=-limit, vmax=limit, aspect="auto")
    ax.axis("off")
    return figure


def explain_a_row() -> Figure:
    """Draw why the lowest row of the wine table has its value."""
    X, y = _read_wine()
    valuation = KNNValuer(5).fit(X, y).valuation_
    row = valuation.rows().lowest(1).labels["row"][0]
    return plots.waterfall(explain_row(valuation, row, X=X), max_bars=8, ax=_make_axes()).figure


def split_revenue() -> Figure:
    """Draw a payout to three owners of columns of the wine table."""
    X, y = _read_wine()
    names = X.column_names
    owners = Owners(X).assign("laboratory", columns=names[:5])
    owners = owners.assign("winery", columns=names[5:10]).assign("grower", columns=names[10:])
    valuation = payouts.OwnerValuer(KNNValuer(5)).fit(X, y, owners=owners).valuation_
    payout = payouts.split_revenue(valuation, owners, amount="10000.00")
    return plots.owners(payout, ax=_make_axes()).figure


def _read_wine() -> tuple[pa.Table, np.ndarray]:
    wine = load_wine()
    names = [name.removesuffix("/od315_of_diluted_wines") for name in wine.feature_names]
    return pa.table(dict(zip(names, wine.data.T, strict=True))), wine.target


def _make_board() -> Axes:
    ax = Figure(figsize=(9.0, 2.9), layout="constrained").subplots()
    ax.set_xlim(-0.1, 9.1)
    ax.set_ylim(-0.5, 2.6)
    ax.axis("off")
    return ax


def _draw_box(ax: Axes, x: float, y: float, width: float, text: str, *, color: str = ZERO) -> None:
    """Draw a box with its middle at height y."""
    style = {"facecolor": color, "edgecolor": GRAY, "boxstyle": "round,pad=0,rounding_size=0.08"}
    ax.add_patch(FancyBboxPatch((x, y - 0.38), width, 0.76, **style))
    ax.text(x + width / 2, y, text, size=11, **_POINTS)


def _draw_arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float]) -> None:
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": GRAY, "lw": 1.4})


def _make_axes() -> Axes:
    return Figure(figsize=(6.0, 4.0), layout="constrained").subplots()


class _TwoGoodCells:
    """A game in which each row has one good cell, in different columns, with value 1."""

    def value(self, rows: np.ndarray, columns: np.ndarray) -> float:
        return float((rows & columns).sum())


def _write_grid(
    ax: Axes,
    grid: np.ndarray,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    *,
    largest: float | None = None,
) -> None:
    paint = diverging()

    def color(i: int, j: int) -> object:
        return ZERO if largest is None else paint(0.5 + grid[i, j] / (4.0 * largest))

    _draw_table(ax, *grid.shape, color)
    for (i, j), entry in np.ndenumerate(grid):
        ax.text(j, i, f"{entry:g}", size=14, **_POINTS)
    for i, name in enumerate(rows):
        ax.text(-0.65, i, name, size=11, ha="right", va="center")
    for j, name in enumerate(columns):
        ax.text(j, -0.75, name, size=11, **_POINTS)


def _draw_table(ax: Axes, n_rows: int, n_columns: int, color: Callable[[int, int], object]) -> None:
    for i in range(n_rows):
        for j in range(n_columns):
            _fill(ax, i, j, color(i, j))
    ax.set_xlim(-1.2, n_columns - 0.2)
    ax.set_ylim(n_rows - 0.2, -1.2)
    ax.set_aspect("equal")
    ax.axis("off")


def _fill(ax: Axes, row: int, column: int, color: object) -> None:
    ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=color, edgecolor="0.35"))


if __name__ == "__main__":
    with plots.style():
        card = HERE.parent / "_static" / "social-card.png"
        social_card().savefig(card, dpi=100, metadata={"Software": None})
    for draw in (four_corners, one_pair_of_orders, sums_are_not_enough):
        name = draw.__name__.replace("_", "-")
        draw().savefig(HERE / f"{name}.png", dpi=110, metadata={"Software": None})
    for draw in (cluster, explain_a_row, split_revenue):
        name = draw.__name__.replace("_", "-")
        with plots.style():
            draw().savefig(HERE / f"{name}.png", dpi=150, metadata={"Software": None})
    home().save(HERE / "home.png", optimize=True)
