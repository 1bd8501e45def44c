"""Plant 40 realistic mistakes in the census table and count those among the first 100 items.

Eight of each kind: a letter of a category is changed (typo); two cells of a row, both strings or
both numbers, change places (swap); a number is multiplied by 10, 100 or 1,000 (unit); a cell gets a
code for a missing value that its column does not use (code); two neighboring digits change places,
or one is doubled or dropped (digits). Items of an audit are the lines of ``cells()``; one counts if
it concerns at most 100 cells. Of a swap, one of both cells must be found.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from cellworth.findings.cell_list import list_cells
from cellworth.findings.data_audit import audit
from experiments import tables
from experiments.cell_scores import ecod
from experiments.frame import Tables, log, means

QUICK = {"seeds": range(1), "rows": (300,)}
N_EACH = 8
MAX_CELLS = 100
CODES = {True: (-1, 999, 9999, -99), False: ("N/A", "unknown", "-", "none")}


class Mistake(NamedTuple):
    """A planted mistake, and the cells of which one must be found."""

    kind: str
    cells: tuple[tuple[int, int], ...]


def plant(X: pd.DataFrame, seed: int) -> tuple[pd.DataFrame, list[Mistake]]:
    """Return a table with mistakes, each in a row of its own."""
    rng = np.random.default_rng(seed)
    wrong = X.astype(object).copy()
    numeric = [j for j, kind in enumerate(X.dtypes) if pd.api.types.is_numeric_dtype(kind)]
    text = [j for j in range(X.shape[1]) if j not in numeric]
    rows = iter(rng.permutation(len(X)).tolist())
    mistakes = []
    for kind, make in MISTAKES.items():
        while sum(each.kind == kind for each in mistakes) < N_EACH:
            row = next(rows)
            cells = wrong.iloc[row].tolist()
            changes = make(cells, numeric, text, rng)
            if any(new != cells[column] for column, new in changes.items()):
                mistakes.append(Mistake(kind, tuple((row, column) for column in changes)))
            for column, new in changes.items():
                wrong.iat[row, column] = new
    return wrong.infer_objects(), mistakes


def make_typo(cells, numeric, text, rng):
    column = int(rng.choice(text))
    word = cells[column]
    letters = [i for i, letter in enumerate(word) if letter.isalpha()]
    if len(letters) < 4:
        return {}
    i = int(rng.choice(letters[1:]))
    other = str(rng.choice(list("abcdefghijklmnopqrstuvwxyz")))
    made = [word[:i] + other + word[i:], word[:i] + word[i + 1 :], word[:i] + other + word[i + 1 :]]
    return {column: made[int(rng.integers(3))]}


def swap(cells, numeric, text, rng):
    kind = text if rng.random() < len(text) / (len(text) + len(numeric)) else numeric
    one, other = rng.choice(kind, 2, replace=False).tolist()
    return {one: cells[other], other: cells[one]}


def change_unit(cells, numeric, text, rng):
    column = int(rng.choice(numeric))
    return {column: cells[column] * int(rng.choice([10, 100, 1000]))} if cells[column] else {}


def enter_code(cells, numeric, text, rng):
    column = int(rng.integers(len(cells)))
    return {column: CODES[column in numeric][int(rng.integers(4))]}


def slip_digits(cells, numeric, text, rng):
    column = int(rng.choice(numeric))
    digits = str(cells[column])
    if len(digits) < 2:
        return {}
    i = int(rng.integers(len(digits) - 1))
    made = [
        digits[:i] + digits[i + 1] + digits[i] + digits[i + 2 :],
        digits[:i] + digits[i] + digits[i:],
        digits[:i] + digits[i + 1 :],
    ]
    return {column: int(made[int(rng.integers(3))])}


MISTAKES = {
    "typo": make_typo, "swap": swap, "unit": change_unit, "code": enter_code, "digits": slip_digits
}  # fmt: skip


def count_found(items: Iterator[set[tuple[int, int]]], mistakes: list[Mistake]) -> Counter[str]:
    """Count the mistakes of each kind that some item contains."""
    seen = set().union(*items)
    return Counter(each.kind for each in mistakes if any(cell in seen for cell in each.cells))


def by_audit(X: pd.DataFrame, y: np.ndarray, n_items: int) -> Iterator[set[tuple[int, int]]]:
    found = audit(X, y)
    for line in list_cells(found.table, found.findings, found.scores, None, n_items):
        if line.column is not None and len(line.rows) <= MAX_CELLS:
            yield {(row, line.column) for row in line.rows.tolist()}


def by_ecod(X: pd.DataFrame, y: np.ndarray, n_items: int) -> Iterator[set[tuple[int, int]]]:
    """Yield the first cells by ECOD; strings are coded by how frequent they are."""
    coded = X.apply(
        lambda cells: (
            cells if pd.api.types.is_numeric_dtype(cells) else cells.map(cells.value_counts())
        )
    )
    order = np.argsort(-ecod(coded.to_numpy(dtype=float)), axis=None, kind="stable")[:n_items]
    for row, column in zip(*np.unravel_index(order, X.shape), strict=True):
        yield {(int(row), int(column))}


METHODS = {
    "audit": by_audit,
    "ECOD, strings by frequency": by_ecod,
}


def run(
    data: Path,
    *,
    seeds: range = range(100, 108),
    rows: tuple[int, ...] = (2000,),
    items: int = 100,
) -> Tables:
    """Return the number found, all and by kind, and the CPU seconds of one table."""
    everyone, lines = tables.load("adult", data), []
    for n_rows, name in product(rows, METHODS):
        for seed in seeds:
            (part,) = tables.draw_samples(everyone, n_rows, seed=seed)
            X, mistakes = plant(part.X, seed)
            spent = time.process_time()
            found = count_found(METHODS[name](X, part.y, items), mistakes)
            spent = time.process_time() - spent
            line = {"rows": n_rows, "method": name, "found of 40": sum(found.values())}
            lines.append(line | {kind: found[kind] for kind in MISTAKES} | {"CPU seconds": spent})
        log(n_rows, name)
    return {"found": means(lines, ["rows", "method"])}
