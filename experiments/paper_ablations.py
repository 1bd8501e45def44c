"""What 2D-KNN values depend on: permutations, K, validation rows, semivalue, empty policy, groups.

    python -m experiments paper_ablations

Flags: --seeds 3, --sets heart wine, --orders 10 30 ... (permutations).

Permutations: the paper's 2D-KNN, whose permutations of the columns are shared by all validation
rows, against its exact limit: the same ties, all subsets of columns. Settings: exact values of the
authors' clean table (K = 10, raw distances) against those of another setting; then as many cells as
in their file, 2%, are altered as they describe, and searched among the lowest 5%. Groups: exact
values of a tree on 48 rows and 6 columns of wine, cut ever finer; a quarter of the table is the sum
of its blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import comb
from pathlib import Path
from typing import Any

import numpy as np

from cellworth import KNNValuer, Runtime, value_game
from cellworth.sampling import Banzhaf, Beta, LeaveOneOut
from experiments.detection import Case, share_found
from experiments.frame import Row, Tables, log, means
from experiments.paper_outliers import knn_values, overlap, plant, read_clean
from experiments.tables import draw_samples, load
from experiments.tree_games import Rows, TreeGame

QUICK = {"seeds": range(1), "sets": (), "orders": (10,), "settings": 2}
QUIET = Runtime(progress=False)
N_NEIGHBORS = 10
AUTHORS = "breast, the authors'"
CUTS = ((2, 2), (4, 2), (8, 2), (2, 6), (4, 6), (8, 6))


def run(
    data: Path,
    *,
    seeds: range = range(3),
    sets: tuple[str, ...] = ("heart", "wine"),
    orders: tuple[int, ...] = (10, 30, 100, 300, 500, 1000),
    settings: int = 0,
) -> Tables:
    """Return what each choice changes; settings=2 leaves out all but the first two."""
    clean = read_clean(data)
    tables = {AUTHORS: [clean]} | {
        name: [draw_case(name, data, seed) for seed in seeds[:1]] for name in sets
    }
    converging = [
        {"table": name, "permutations": n} | line
        for name, cases in tables.items()
        for case in cases
        for n, line in compare_orders(case, orders, seeds)
    ]
    log("permutations")
    changed = compare_settings(clean, seeds, settings)
    log("settings")
    grouped = [line for seed in seeds for line in compare_groups(data, seed)]
    return {
        "permutations": means(converging, ["table", "permutations"]),
        "settings": means(changed, ["setting", "choice"]),
        "groups": means(grouped, ["row groups", "column groups"]),
    }


def draw_case(name: str, data: Path, seed: int) -> Case:
    """Draw 60 training and 60 validation rows."""
    train, validation = draw_samples(load(name, data).numbers(), 60, 60, seed=seed)
    X = train.X.to_numpy()
    return Case(X, train.y, np.zeros(X.shape, dtype=bool), validation.X.to_numpy(), validation.y)


def compare_orders(given: Case, orders: tuple[int, ...], seeds: range) -> list[tuple[int, Row]]:
    """Compare the values of some permutations with those of all subsets."""
    of_subsets = value_subsets(given)
    exact = shapley_of_subsets(of_subsets)
    n_columns = given.X.shape[1]
    lines = []
    for n, seed in product(orders, seeds):
        rng = np.random.default_rng([n, seed])
        sums = np.zeros(given.X.shape)
        for _ in range(n):
            before = 0
            for column in rng.permutation(n_columns).tolist():
                after = before | 1 << column
                sums[:, column] += of_subsets[after] - of_subsets[before]
                before = after
        values = sums / n
        line = {"correlation": float(np.corrcoef(values.ravel(), exact.ravel())[0, 1])}
        noise = float(np.square(values - exact).mean() / exact.var())
        lines.append((n, line | {"noise": noise, "lowest 5% in common": overlap(values, exact)}))
    return lines


def value_subsets(given: Case) -> np.ndarray:
    """Return the row values of all subsets of columns, by the bits of their number."""
    squares = np.square(given.X[np.newaxis] - given.X_val[:, np.newaxis])
    match = (given.y == given.y_val[:, np.newaxis]).astype(float)
    n_columns = given.X.shape[1]
    values = np.zeros((1 << n_columns, len(given.y)))
    for subset in range(1, 1 << n_columns):
        columns = [j for j in range(n_columns) if subset >> j & 1]
        distances = squares[:, :, columns].sum(axis=2)
        values[subset] = knn_values(np.argsort(distances, axis=1, kind="stable"), match)
    return values


def shapley_of_subsets(of_subsets: np.ndarray) -> np.ndarray:
    """Return the Shapley values of columns for each row, from all subsets."""
    n_columns = len(of_subsets).bit_length() - 1
    subsets = np.arange(len(of_subsets))
    sizes = np.array([int(each).bit_count() for each in subsets])
    weights = np.array([1 / (n_columns * comb(n_columns - 1, s)) for s in range(n_columns)] + [0])
    values = np.empty((of_subsets.shape[1], n_columns))
    for column in range(n_columns):
        without = subsets[(subsets >> column & 1) == 0]
        added = of_subsets[without | 1 << column] - of_subsets[without]
        values[:, column] = weights[sizes[without]] @ added
    return values


def compare_settings(clean: Case, seeds: range, first: int) -> list[Row]:
    """Compare exact values of other settings with those of the usual ones."""
    usual = value_case(clean)
    altered = [plant(clean, np.random.default_rng(seed), 0.02) for seed in seeds]
    lines = []
    for setting, choice, change in list_settings()[: first or None]:
        values = change(clean, seeds.start)
        for seed, spoiled in zip(seeds, altered, strict=True):
            if setting == "validation rows":
                values = change(clean, seed)
            found = share_found(spoiled.wrong, -change(spoiled, seed), 0.05)
            alike = float(np.corrcoef(values.ravel(), usual.ravel())[0, 1])
            lines.append(
                {"setting": setting, "choice": choice, "correlation": alike}
                | {"lowest 5% in common": overlap(values, usual), "found in the first 5%": found}
            )
    return lines


def list_settings() -> list[tuple[str, str, Callable[[Case, int], np.ndarray]]]:
    """Return all settings, with a function that values a case."""
    semivalues = {"Banzhaf": Banzhaf(), "Beta(4, 1)": Beta(4, 1), "leave one out": LeaveOneOut()}
    settings: list[tuple[str, str, Callable[[Case, int], np.ndarray]]] = [
        ("usual", "K = 10, all 242 rows, Shapley, empty 0", lambda case, _: value_case(case))
    ]
    settings += [("K", str(k), with_options(n_neighbors=k)) for k in (1, 5, 20, 50)]
    settings += [("validation rows", str(n), with_rows(n)) for n in (10, 30, 100)]
    settings += [("semivalue", name, with_options(semivalue=v)) for name, v in semivalues.items()]
    settings.append(("empty", "prior", with_options(empty="prior")))
    return settings


def with_options(**options: Any) -> Callable[[Case, int], np.ndarray]:
    """Return a function that values a case with these options."""
    return lambda case, _: value_case(case, **options)


def with_rows(n_validation: int) -> Callable[[Case, int], np.ndarray]:
    """Return a function that values a case with some of its validation rows."""

    def value(case: Case, seed: int) -> np.ndarray:
        rows = np.random.default_rng(seed).permutation(len(case.y_val))[:n_validation]
        return value_case(case._replace(X_val=case.X_val[rows], y_val=case.y_val[rows]))

    return value


def value_case(case: Case, **options: Any) -> np.ndarray:
    """Return the exact values of all cells."""
    settings = {"n_neighbors": N_NEIGHBORS, "scale": None, "empty": "zero"} | options
    valuer = KNNValuer(**settings, runtime=QUIET)
    return valuer.fit(case.X, case.y, X_val=case.X_val, y_val=case.y_val).values_


def compare_groups(data: Path, seed: int) -> list[Row]:
    """Return how the four quarters of a table share its value, by the number of groups."""
    train, validation = draw_samples(load("wine", data).numbers(), 48, 100, seed=seed)
    codes = np.unique(np.concatenate([train.y, validation.y]), return_inverse=True)[1]
    parts = (train, codes[:48]), (validation, codes[48:])
    given = [Rows(part.X.to_numpy()[:, :6].copy(), y) for part, y in parts]
    lines, coarse = [], None
    for n_rows, n_columns in CUTS:
        groups = np.arange(48) * n_rows // 48, np.arange(6) * n_columns // 6
        values = value_game(
            TreeGame(*given, *groups), (n_rows, n_columns), estimator="exact", runtime=QUIET
        ).values
        quarters = values.reshape(2, n_rows // 2, 2, n_columns // 2).sum(axis=(1, 3))
        coarse = quarters if coarse is None else coarse
        lines.append(
            {"row groups": n_rows, "column groups": n_columns}
            | {"sum of all": float(values.sum())}
            | {"a quarter moves by": float(np.abs(quarters - coarse).mean())}
            | {"spread of quarters": float(coarse.std(ddof=1))}
        )
    return lines


def draw(tables: dict[str, Any]) -> Any:
    """Draw the noise over the number of permutations."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(7, 2.8), sharex=True, layout="constrained")
    names = list(dict.fromkeys(row["table"] for row in tables["permutations"]))
    for name in names:
        rows = [row for row in tables["permutations"] if row["table"] == name]
        at = [row["permutations"] for row in rows]
        for ax, column in zip(axes, ("noise", "lowest 5% in common"), strict=True):
            ax.errorbar(
                at, [row[column]["mean"] for row in rows],
                yerr=[row[column]["se"] or 0 for row in rows], marker="o", markersize=3, label=name,
            )  # fmt: skip
            ax.set_xscale("log")
            ax.set_ylabel(column)
            ax.set_xlabel("permutations")
    axes[0].set_yscale("log")
    axes[0].axvline(500, color="0.7", linewidth=0.8)
    axes[1].legend(fontsize=7)
    return figure
