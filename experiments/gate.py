"""Corrupt a table and count how often a comparison with a reference finds it.

The new table and the reference are disjoint random samples of the same size. Power is the share of
corrupted tables with at least one alarm, beside the mean number of touched rows, and then the same
as counts. False alarms are counted over pairs of clean samples, tables in turn. The limit is 1%
over all checks together. Without seeds or clean pairs, that part is left out.
"""

from __future__ import annotations

from collections import Counter
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from cellworth.data.tables import Table
from cellworth.findings.differences import find_differences
from experiments import tables
from experiments.frame import Mean, Row, Tables, log

QUICK = {
    "sets": ("electricity",), "corruptions": ("constant",), "seeds": range(1), "rows": 200,
    "clean": 2, "clean_rows": 200,
}  # fmt: skip
CORRUPTIONS = (
    "swaps 2%", "swaps 5%", "swaps 20%", "times 10 in 5%", "labels 5%", "labels 20%",
    "missing 40%", "shuffled", "code 2%", "minus one 2%", "lower case 5%", "duplicates 5%",
    "duplicates 50%", "leak", "new category 3%", "constant",
)  # fmt: skip


# What is put into cells, of numbers and of strings.
_CONTENTS = {
    "code": (-999, "?"), "new": (1234567, "a new category"), "minus": (-1, None),
    "missing": (None, None),
}  # fmt: skip


def corrupt(clean: tables.Table, kind: str, rng: np.random.Generator) -> tuple[tables.Table, int]:
    """Return a corrupted table and the number of rows that it touches."""
    X, y = clean.X.copy(), clean.y.copy()
    n_rows, n_columns = X.shape
    words = kind.split()
    name, last = words[0], words[-1]
    share = float(last.rstrip("%")) / 100 if last.endswith("%") else 1.0
    numeric = [j for j in range(n_columns) if pd.api.types.is_numeric_dtype(X.dtypes.iloc[j])]
    varied = [j for j in range(n_columns) if X.iloc[:, j].nunique() > 1]
    column = int(rng.choice(varied))
    rows = np.sort(rng.choice(n_rows, round(share * n_rows), replace=False))
    if name == "labels":
        classes = np.unique(y)
        codes = np.searchsorted(classes, y[rows])
        y[rows] = classes[(codes + rng.integers(1, len(classes), len(rows))) % len(classes)]
        return tables.Table(X, y), len(rows)
    if name == "duplicates":
        first = rng.choice(np.setdiff1d(np.arange(n_rows), rows), len(rows))
        X.iloc[rows], y[rows] = X.iloc[first].to_numpy(), y[first]
        return tables.Table(X, y), len(rows)
    limited = {
        "times": [j for j in varied if j in numeric],
        # Elsewhere -1 is a number like others.
        "minus": [j for j in varied if j in numeric and X.iloc[:, j].min() >= 0],
        "lower": [j for j in varied if j not in numeric],
    }
    if name in limited:
        if not limited[name]:
            return clean, 0
        column = int(rng.choice(limited[name]))
    cells = X.to_numpy(dtype=object, copy=True)
    if name == "swaps":
        for j in range(n_columns):
            chosen = rng.choice(n_rows, round(share * n_rows), replace=False)
            cells[chosen, j] = cells[np.roll(chosen, 1), j]
    elif name == "times":
        cells[rows, column] = cells[rows, column] * 10
    elif name == "shuffled":
        cells[:, column] = rng.permutation(cells[:, column])
    elif name in _CONTENTS:
        cells[rows, column] = _CONTENTS[name][column not in numeric]
    elif name == "lower":
        cells[rows, column] = [str(cell).lower() for cell in cells[rows, column]]
    elif name == "leak":
        order = np.argsort(y, kind="stable")
        cells[order, column] = sorted(cells[:, column])
    elif name == "constant":
        cells[:, column] = X.iloc[:, column].mode()[0]
    same = (cells == X.to_numpy(dtype=object)).all(axis=1)
    return tables.Table(pd.DataFrame(cells, columns=X.columns).infer_objects(), y), int(
        (~same).sum()
    )


def look(new: tables.Table, old: tables.Table) -> list[str]:
    """Return the kinds of the alarms."""
    table = Table.from_data(new.X, called="X")
    return [f.kind for f in find_differences(table, new.y, (old.X, old.y), 0.01)]


def measure_power(
    data: dict[str, tables.Table], corruptions: tuple[str, ...], seeds: range, rows: int
) -> list[Row]:
    """Return power by corruption and table."""
    lines = []
    for kind, (name, table) in product(corruptions, data.items()):
        size = min(rows, len(table.y) // 2)
        touched, hits = [], []
        for seed in seeds:
            new, old = tables.draw_samples(table, size, size, seed=seed)
            bad, n_touched = corrupt(new, kind, np.random.default_rng(seed))
            touched.append(n_touched)
            hits.append(float(bool(look(bad, old))))
        if not any(touched):
            # No column of the table can be ruined in this way.
            continue
        line = {"corruption": kind, "table": name, "touched": np.mean(touched)}
        lines.append(line | {"power": Mean.of(hits)})
        log(kind, name, f"{np.mean(hits):.2f}")
    return lines


def count_found(lines: list[Row]) -> list[Row]:
    """Return how many draws raised an alarm, a line per corruption and a column per table."""
    counts: dict[str, Row] = {}
    for line in lines:
        power = line["power"]
        row = counts.setdefault(line["corruption"], {"corruption": line["corruption"]})
        row[line["table"]] = f"{round(power.mean * power.n)} of {power.n}"
    return list(counts.values())


def measure_false_alarms(data: dict[str, tables.Table], clean: int, clean_rows: int) -> list[Row]:
    """Return the share of clean pairs of samples with an alarm, of all tables and of each."""
    alarms: dict[str, list[bool]] = {name: [] for name in data}
    listed: dict[str, Counter[str]] = {name: Counter() for name in data}
    for draw in range(clean):
        name = list(data)[draw % len(data)]
        rows = np.random.default_rng([7, draw]).permutation(len(data[name].y))
        new, old = rows[:clean_rows], rows[clean_rows : 2 * clean_rows]
        found = look(data[name].part(new), data[name].part(old))
        alarms[name].append(bool(found))
        listed[name].update(found)
        if (draw + 1) % 50 == 0:
            log(f"{draw + 1} clean draws, {sum(map(sum, alarms.values()))} false alarms")
    alarms["all"] = [each for some in alarms.values() for each in some]
    listed["all"] = sum(listed.values(), Counter())
    return [
        {"table": name, "draws": len(each), "false alarms": sum(each)}
        | {
            "share": count_share(each),
            "kinds of alarms": ", ".join(f"{n} {k}" for k, n in listed[name].items()),
        }
        for name, each in alarms.items()
    ]


def count_share(alarms: list[bool]) -> Mean:
    """Return the share of alarms; without any, its error is that of one."""
    share = float(np.mean(alarms))
    return Mean(share, float(np.sqrt(max(share, 1 / len(alarms)) / len(alarms))), len(alarms))


def run(
    data: Path,
    *,
    sets: tuple[str, ...] = ("adult", "credit", "electricity", "lawschool", "jannis"),
    corruptions: tuple[str, ...] = CORRUPTIONS,
    seeds: range = range(10),
    rows: int = 10_000,
    clean: int = 1_000,
    clean_rows: int = 1_000,
) -> Tables:
    """Return power and false alarms."""
    loaded = {name: tables.load(name, data) for name in sets}
    found = {}
    if seeds:
        found["power"] = measure_power(loaded, corruptions, seeds, rows)
        found["found"] = count_found(found["power"])
    if clean:
        found["false alarms"] = measure_false_alarms(loaded, clean, clean_rows)
    return found
