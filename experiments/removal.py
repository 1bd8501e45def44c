"""Measure a model as cells of its training table are removed, by value or at random.

The tables chose nothing in the library (``tables.py``). Each is split into training rows (a half),
validation rows (a quarter) and untouched test rows (a quarter). Columns are standardized, and
strings are codes.

First table: balanced accuracy on the test rows minus that of removing as many cells at random, in
points, mean over 10% and 20% of cells removed, with standard errors over tables, and the number
of tables where it is positive, with sign tests. A removed cell becomes a random draw from the cells
of its column that are kept, or (last two lines) their mean, as in the 2D-Shapley paper. Second
table: the same, by table. Third: cross-validation on a table without its lowest 20% of cells, for
the first ten seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, Runtime
from cellworth.runtime import Serial
from experiments.baselines import LeverageSampler
from experiments.frame import Row, Tables, compute_part, log, means, sign_tests
from experiments.tables import HELD_OUT, Table, draw_samples, load

QUICK = {"seeds": range(1), "sets": ("wine",)}
SHARES = (0.1, 0.2)
LEAKING_SHARE, N_LEAKING = 0.2, 10
MODELS = {
    "tree": DecisionTreeClassifier(random_state=0),
    "logistic": LogisticRegression(max_iter=2000),
    "neighbors": KNeighborsClassifier(),
}
FILLS = {"draw": tuple(MODELS), "mean": ("tree",)}


class Split(NamedTuple):
    """Training rows with the values of their cells, and test rows."""

    train: Table
    test: Table
    values: np.ndarray

    def score(self, model: str, X: pd.DataFrame) -> float:
        """Return the balanced accuracy on the test rows of a model trained on another table."""
        trained = clone(MODELS[model]).fit(X.to_numpy(), self.train.y)
        is_right = trained.predict(self.test.X.to_numpy()) == self.test.y
        return float(np.mean([is_right[self.test.y == label].mean() for label in set(self.test.y)]))


def run(
    data: Path,
    seeds: range = range(30),
    sets: tuple[str, ...] = HELD_OUT,
    rows: int = 200,
    keep: str = "",
) -> Tables:
    """Return the differences from random removal, and what cross-validation says."""
    loaded = {name: load(name, data).numbers() for name in sets}
    found = measure_all("removal", measure, loaded, seeds=seeds, rows=rows, keep=keep)
    leaks = [row for row in found if "points" not in row]
    return against_random([row for row in found if "points" in row]) | {
        "lowest 20% replaced": means(leaks, ["fill"], "table")
    }


def measure_all(
    experiment: str,
    measure: Callable[[str, Table, int, int], list[Row]],
    loaded: Mapping[str, Table],
    *,
    seeds: range,
    rows: int,
    keep: str,
) -> list[Row]:
    """Return the rows of all tables and seeds, part by part."""
    found: list[Row] = []
    for seed in seeds:
        for name, table in loaded.items():
            compute = partial(measure, name, table, seed, rows)
            found += compute_part(keep, f"{experiment}, {(name, seed, rows)}", compute)["rows"]
        log(seed)
    return found


def measure(name: str, table: Table, seed: int, n_rows: int) -> list[Row]:
    """Return the differences and the scores of cross-validation on one split of a table."""
    split = value_split(*split_rows(table, seed, n_rows), seed)
    leaks = all_leaks(split, seed) if seed < N_LEAKING else []
    return [{"table": name} | row for row in all_improvements(split, seed) + leaks]


def split_rows(table: Table, seed: int, most_rows: int) -> list[Table]:
    """Return training, validation and test rows."""
    n_rows = min(len(table.y), most_rows)
    half, quarter = n_rows // 2, n_rows // 4
    return draw_samples(table, half, quarter, n_rows - half - quarter, seed=seed)


def value_split(train: Table, validation: Table, test: Table, seed: int) -> Split:
    """Return the values of the training cells; all classes of validation rows count the same."""
    valuer = KNNValuer(
        scoring="balanced_neighbor_agreement", sampler=LeverageSampler(), n_passes=1,
        random_state=seed, runtime=Runtime(Serial(), progress=False),
    )  # fmt: skip
    valuer.fit(train.X, train.y, X_val=validation.X, y_val=validation.y)
    return Split(train, test, valuer.values_)


def all_improvements(split: Split, seed: int) -> list[Row]:
    """Return the points of score against random removal, mean over shares."""
    rng = np.random.default_rng(seed)
    scores = {
        "highest": -split.values,
        "lowest": split.values,
        "random": np.zeros_like(split.values),
    }
    found: dict[Any, list[float]] = {}
    for order, score in scores.items():
        # Equal scores are in random order.
        first = np.lexsort((rng.random(score.size), score.ravel()))
        for share, (fill, models) in product(SHARES, FILLS.items()):
            mask = np.zeros(score.shape, dtype=bool)
            mask.ravel()[first[: round(share * len(first))]] = True
            X = remove_cells(split.train.X, mask, fill, seed)
            for model in models:
                found.setdefault((fill, order, model), []).append(split.score(model, X))
    return [
        {"fill": fill, "order": order, "model": model}
        | {"points": 100 * float(np.mean(some) - np.mean(found[fill, "random", model]))}
        for (fill, order, model), some in found.items()
        if order != "random"
    ]


def remove_cells(X: pd.DataFrame, mask: np.ndarray, fill: str, seed: int) -> pd.DataFrame:
    """Replace cells by draws from those of their column that are kept, or by their mean."""
    if fill == "mean":
        kept = X.mask(mask)
        return kept.fillna(kept.mean())
    uniforms, cells = np.random.default_rng(seed).random(X.shape), X.to_numpy().copy()
    for position in np.flatnonzero(mask.any(axis=0)):
        removed = mask[:, position]
        pool = cells[~removed, position]
        cells[removed, position] = pool[(uniforms[removed, position] * len(pool)).astype(int)]
    return pd.DataFrame(cells, X.index, X.columns)


def all_leaks(split: Split, seed: int) -> list[Row]:
    """Return scores of a tree by cross-validation and on test rows, and of the mask alone."""
    X, y = split.train
    mask = split.values <= np.quantile(split.values, LEAKING_SHARE)
    tables = {"nothing removed": X} | {fill: remove_cells(X, mask, fill, seed) for fill in FILLS}
    mask_auc = cross_val_score(LogisticRegression(), mask, y, scoring="roc_auc_ovr").mean()
    return [
        {
            "fill": fill,
            "cross-validation": cross_val_score(
                MODELS["tree"], changed, y, scoring="balanced_accuracy"
            ).mean(),
            "test rows": split.score("tree", changed),
            "AUC of the mask": mask_auc,
        }
        for fill, changed in tables.items()
    ]


def against_random(improvements: list[Row]) -> Tables:
    """Return the mean over tables with sign tests, and that of each table."""
    by = ["fill", "order", "model"]
    points = pd.DataFrame(improvements).groupby([*by, "table"], sort=False).points.mean().to_frame()
    won = sign_tests(points.rename(columns={"points": "tables above random removal"}))
    rows = means(points.reset_index(), by)
    for row in rows:
        row.update(won.loc[tuple(row[key] for key in by)])
    drawn = points.loc["draw"].unstack(["order", "model"], sort=False).points
    drawn.columns = [f"{order}, {model}" for order, model in drawn.columns]
    return {
        "points against random removal": rows,
        "points by table": drawn.reset_index().to_dict("records"),
    }
