"""Whether values of sources by nearest neighbors hold for other models, decision by decision.

The 12 largest tables of ``tables.py`` with at most 60 columns and no class of more than 80%. Of
each, 1,200 training rows belong to eight sources of 150. One source has half of its labels wrong,
one has noise of two standard deviations in every cell, and one has another population: the rows
that are farthest along the first principal component. Five are honest, random rows.

The reference is the exact values of a model (255 fits) on 1,300 rows that no method saw. Methods
see 500 other validation rows: sums of cells of ``KNNValuer``; ``OwnerValuer`` by neighbors, with
sources as players; exact values of the model itself, as ``ModelValuer`` has them; and what the
score loses if the model is trained without one source. Amounts elsewhere are the share of money
that would go to others than by the reference, if all of the score is split among players.
"""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from cellworth import KNNValuer, Owners, Runtime, value_game
from cellworth.games import ModelGame, TableGame
from cellworth.payouts import OwnerValuer
from cellworth.runtime import Serial
from experiments.frame import Row, Tables, compute_part, log, means
from experiments.tables import Table, draw_samples, load

SETS = (
    "electricity", "fried", "2dplanes", "adult", "jannis", "credit", "lawschool", "pol", "Tuna",
    "Workinghours", "UnempDur", "spam7",
)  # fmt: skip
QUICK = {"seeds": range(1), "sets": ("electricity",), "models": ("logistic regression",)}
N_SOURCES, PER_SOURCE, N_VALIDATION, N_REFERENCE = 8, 150, 500, 1300
WRONG_LABELS, NOISE, OTHER_POPULATION = 0, 1, 2
QUIET = Runtime(Serial(), progress=False)
MODELS: dict[str, Any] = {
    "logistic regression": LogisticRegression(),
    "gradient boosting": HistGradientBoostingClassifier(
        max_iter=6, learning_rate=0.3, max_leaf_nodes=8, max_bins=32, early_stopping=False
    ),
}


def assign(train: Table, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return cells, labels and the source of each row, source by source."""
    rng = np.random.default_rng(seed)
    X, y = train.X.to_numpy(copy=True), train.y.copy()
    along = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0][:, 0]
    others = np.argsort(along)[:-PER_SOURCE]
    sources = np.full(len(y), OTHER_POPULATION)
    rest = np.delete(np.arange(N_SOURCES), OTHER_POPULATION)
    sources[others] = rng.permutation(np.repeat(rest, PER_SOURCE))
    wrong = rng.permutation(np.flatnonzero(sources == WRONG_LABELS))[: PER_SOURCE // 2]
    y[wrong] = [rng.choice(np.setdiff1d(train.y, label)) for label in y[wrong]]
    noisy = sources == NOISE
    X[noisy] += rng.normal(scale=2, size=X[noisy].shape)
    # Groups are in the order in which they first appear.
    order = np.argsort(sources, kind="stable")
    return X[order], y[order], sources[order]


def train_all(model: Any, given: tuple[Any, ...], samples: list[Table]) -> np.ndarray:
    """Return accuracies by coalition of sources, whether columns are known, and sample."""
    X, y, sources = given
    X_val, y_val = (np.concatenate([np.asarray(each[part]) for each in samples]) for part in (0, 1))
    ends = np.cumsum([len(each.y) for each in samples])[:-1]
    seen: list[Any] = []

    def score(fitted: Any, X: Any, y: Any) -> float:
        right = fitted.predict(X) == y
        seen.append([part.mean() for part in np.split(right, ends)])
        return float(right.mean())

    groups = {"row_groups": sources, "column_groups": np.zeros(X.shape[1], dtype=int)}
    game = ModelGame(model, X, y, X_val=X_val, y_val=y_val, scoring=score, **groups)
    found = np.empty((2**N_SOURCES, 2, len(samples)))
    for number, known in np.ndindex(*found.shape[:2]):
        seen.clear()
        game.value((number >> np.arange(N_SOURCES) & 1).astype(bool), np.array([bool(known)]))
        # Several constant predictors may stand for the empty coalition.
        found[number, known] = np.mean(seen, axis=0)
    return found


def value_sources(scores: np.ndarray, *, all_of_it: bool = False) -> np.ndarray:
    """Return exact values of sources, of what columns add or of the whole score."""
    scores = scores.copy()
    if all_of_it:
        scores[0], scores[:, 0] = 0.0, 0.0
    return value_game(TableGame(scores), estimator="exact", runtime=QUIET).rows().values


def value_by_neighbors(given: tuple[Any, ...], validation: Table) -> tuple[Any, Any]:
    """Return sums of cells by source, and values of sources as players."""
    X, y, sources = given
    scored = {"X_val": validation.X.to_numpy(), "y_val": validation.y}
    valuer = KNNValuer(random_state=0, runtime=QUIET).fit(X, y, row_groups=sources, **scored)
    owners = Owners(X)
    for source in range(N_SOURCES):
        owners = owners.assign(str(source), rows=np.flatnonzero(sources == source))
    players = OwnerValuer(KNNValuer(), runtime=QUIET).fit(X, y, owners=owners, **scored).valuation_
    by_name = dict(zip(players.row_labels.astype(int), players.values[:, 0], strict=True))
    values = np.array([by_name[source] for source in range(N_SOURCES)])
    return valuer.valuation_.rows().values, values


def share(values: np.ndarray) -> np.ndarray:
    """Return shares of money; who has a negative value gets nothing."""
    floored = np.maximum(values, 0)
    return floored / floored.sum()


def correlate(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's correlation; 0 if one has no order."""
    found = float(spearmanr(one, other).statistic)
    return 0.0 if np.isnan(found) else found


def compare(name: str, table: Table, models: tuple[str, ...], seed: int) -> list[Row]:
    """Return how each method does on one draw of a table."""
    # Small coalitions have constant columns.
    warnings.simplefilter("ignore")
    sizes = N_SOURCES * PER_SOURCE, N_VALIDATION, N_REFERENCE
    train, *samples = draw_samples(table, *sizes, seed=seed)
    given = assign(train, seed)
    cells, players = value_by_neighbors(given, samples[0])
    found = []
    for model in models:
        seen, unseen = np.moveaxis(train_all(MODELS[model], given, samples), 2, 0)
        without = np.array([-1 - 2**source for source in range(N_SOURCES)])
        truth, money = value_sources(unseen), share(value_sources(unseen, all_of_it=True))
        ways = {
            "reference": (truth, money),
            "KNNValuer, sums of cells": (cells, None),
            "OwnerValuer, nearest neighbors": (players, share(players)),
            "ModelValuer": (value_sources(seen), share(value_sources(seen, all_of_it=True))),
            "training without a source": (seen[-1, 1] - seen[without, 1], None),
            "equal shares": (None, np.full(N_SOURCES, 1 / N_SOURCES)),
        }
        gains = 100 * (unseen[without, 1] - unseen[-1, 1])
        for way, (values, shares) in ways.items():
            row: Row = {"table": name, "model": model, "values": way}
            if values is not None:
                row |= describe(values, truth) | {"points gained": gains[values.argmin()]}
            if shares is not None:
                row["amounts elsewhere, %"] = 50 * np.abs(shares - money).sum()
            found.append({key: x if isinstance(x, str) else float(x) for key, x in row.items()})
    return found


def describe(values: np.ndarray, truth: np.ndarray) -> Row:
    """Return what these values name, and how they agree with the reference."""
    lowest = set(np.argsort(values)[:2])
    honest = slice(OTHER_POPULATION + 1, None)
    return {
        "wrong labels": WRONG_LABELS in lowest,
        "noise": NOISE in lowest,
        "worst": values.argmin() == truth.argmin(),
        "best": values.argmax() == truth.argmax(),
        "8 sources": correlate(values, truth),
        "5 honest": correlate(values[honest], truth[honest]),
    }


def run(
    data: Path,
    *,
    seeds: range = range(5),
    sets: tuple[str, ...] = SETS,
    models: tuple[str, ...] = tuple(MODELS),
    keep: str = "",
) -> Tables:
    """Compare all methods on all tables."""
    found: list[Row] = []
    with threadpool_limits(1):
        for name in sets:
            table = load(name, data).numbers()
            for seed in seeds:
                part = partial(compare, name, table, models, seed)
                found += compute_part(keep, f"{name} {seed}", part)["rows"]
            log(name)
    return {"decisions": means(found, ["model", "values"], over="table")}
