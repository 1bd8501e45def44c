"""Compare block values of nearest neighbors with exact block values of other models.

    python -m experiments transfer

Tables of 5 sources (row groups) x 4 column groups. Sources are alike (random rows), or unlike: rows
sorted by their first principal component, so that each source has its own population, and random
labels in two sources: half of them, and all. ``KNNValuer`` has a closed form for rows; models take
465 fits. All are scored on the same validation rows.

Reported is the rank correlation of the 20 block values with those of each model, and of the 5
sources. The ceiling is the same model scored on another sample of validation rows: what is left of
the order if only validation rows change. Means and standard errors are over tables.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from cellworth import KNNValuer, Runtime, value_game
from cellworth.games import ModelGame, TableGame
from cellworth.runtime import Serial
from experiments.frame import Mean, Row, Tables, log, means
from experiments.tables import Table, draw_samples, load

SETS = (
    "wine", "breast original", "breast 30", "heart", "credit", "electricity", "adult",
    "lawschool", "pol", "fried", "2dplanes", "jannis",
)  # fmt: skip
QUICK = {"seeds": range(1), "sets": ("wine",), "models": ("logistic regression",)}
SHAPE = (5, 4)
N_TRAIN, N_VALIDATION = 150, 300
QUIET = Runtime(Serial(), progress=False)
MODELS: dict[str, Any] = {
    "gradient boosting": HistGradientBoostingClassifier(
        max_iter=8, learning_rate=0.3, max_leaf_nodes=8, min_samples_leaf=5, early_stopping=False
    ),
    "logistic regression": LogisticRegression(),
    "neural network": MLPClassifier((8,), solver="lbfgs", max_iter=20, alpha=0.1, random_state=0),
    "nearest neighbors": KNeighborsClassifier(),
}
# Shares of random labels in the sources of a table with unlike ones.
NOISE = (0.0, 0.0, 0.0, 0.5, 1.0)


def samples_of(table: Table, seed: int) -> list[Table]:
    """Return training rows and two samples of validation rows; small tables give fewer."""
    n_rows = len(table.y)
    n_train = min(N_TRAIN, n_rows * 2 // 5)
    # What is left must have a row of each class to be drawn from.
    n_validation = min(N_VALIDATION, (n_rows - n_train - len(np.unique(table.y))) // 2)
    return draw_samples(table, n_train, n_validation, n_validation, seed=seed)


def divide(train: Table, seed: int, *, alike: bool) -> dict[str, Any]:
    """Return training data with groups: five sources of as many rows, four groups of columns."""
    rng = np.random.default_rng(seed)
    X, y = train.X.to_numpy(), train.y.copy()
    if alike:
        sources = rng.permutation(np.arange(len(y)) % SHAPE[0])
    else:
        first = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)[0][:, 0]
        positions = np.empty(len(y), dtype=int)
        positions[np.argsort(first)] = np.arange(len(y))
        names = rng.permutation(SHAPE[0])
        sources = names[positions * SHAPE[0] // len(y)]
        wrong = rng.random(len(y)) < np.array(NOISE)[sources]
        y[wrong] = rng.permutation(train.y)[wrong]
    columns = rng.permutation(np.arange(X.shape[1]) % SHAPE[1])
    return {"X": X, "y": y, "row_groups": sources, "column_groups": columns}


def value_cheaply(given: dict[str, Any], validation: Table) -> Any:
    """Return the valuation by nearest neighbors."""
    scored = {"X_val": validation.X.to_numpy(), "y_val": validation.y}
    return KNNValuer(random_state=0, runtime=QUIET).fit(**given, **scored).valuation_


def value_exactly(model: Any, given: dict[str, Any], *samples: Table) -> list[Any]:
    """Return the exact valuations by a model on several samples, which share all fits."""
    X_val, y_val = (np.concatenate([np.asarray(each[part]) for each in samples]) for part in (0, 1))
    ends = np.cumsum([len(each.y) for each in samples])[:-1]
    seen: list[Any] = []

    def score(fitted: Any, X: Any, y: Any) -> float:
        right = fitted.predict(X) == y
        seen.append([part.mean() for part in np.split(right, ends)])
        return float(right.mean())

    game = ModelGame(model, **given, X_val=X_val, y_val=y_val, scoring=score)
    utilities = np.empty((2 ** SHAPE[0], 2 ** SHAPE[1], len(samples)))
    for rows, columns in np.ndindex(*utilities.shape[:2]):
        seen.clear()
        game.value(members(rows, SHAPE[0]), members(columns, SHAPE[1]))
        # Several constant predictors may stand for the empty coalition.
        utilities[rows, columns] = np.mean(seen, axis=0)
    games = map(TableGame, np.moveaxis(utilities, 2, 0))
    return [value_game(game, estimator="exact", runtime=QUIET) for game in games]


def members(number: int, n_players: int) -> Any:
    """Return the players whose bits are set in a number."""
    return (number >> np.arange(n_players) & 1).astype(bool)


def rank_correlation(one: Any, other: Any) -> float:
    """Return Spearman's correlation; 0 if one has no order."""
    found = float(spearmanr(np.ravel(one), np.ravel(other)).statistic)
    return 0.0 if np.isnan(found) else found


def compare(name: str, table: Table, seed: int, models: tuple[str, ...]) -> list[Row]:
    """Return the correlations of all models on one table, for sources alike and unlike."""
    train, validation, other = samples_of(table, seed)
    found = []
    for alike in (True, False):
        given = divide(train, seed, alike=alike)
        cheap = value_cheaply(given, validation)
        error = np.sqrt(np.mean(cheap.validation_se**2)) / np.std(cheap.values)
        for model in models:
            exact, again = value_exactly(MODELS[model], given, validation, other)
            sources = [each.rows().values for each in (cheap, exact, again)]
            found.append({
                "table": name, "sources": "alike" if alike else "unlike", "model": model,
                "20 blocks": rank_correlation(cheap.values, exact.values),
                "ceiling": rank_correlation(again.values, exact.values),
                "5 sources": rank_correlation(sources[0], sources[1]),
                "ceiling of sources": rank_correlation(sources[2], sources[1]),
                "lowest source found": float(sources[0].argmin() == sources[1].argmin()),
                "score ahead": exact.score - cheap.scores.accuracy, "error share": error,
            })  # fmt: skip
    return found


def trust(rows: list[Row]) -> list[Row]:
    """Return how the correlation depends on what one can know before: scores and errors."""
    others = [row for row in rows if row["model"] != "nearest neighbors"]
    found = []
    for what, limit, below, above in (
        ("score ahead", 0.05, "the model scores at most .05 more", "it scores more than that"),
        ("error share", 0.5, "validation errors of KNNValuer below half of the spread", "larger"),
    ):
        for text, chosen in (
            (below, [row for row in others if row[what] <= limit]),
            (above, [row for row in others if row[what] > limit]),
        ):
            by_table: dict[str, list[float]] = {}
            for row in chosen:
                by_table.setdefault(row["table"], []).append(row["20 blocks"])
            found.append({
                "where": text, "games": len(chosen), "tables": len(by_table),
                "20 blocks": Mean.of(np.mean(each) for each in by_table.values()),
            })  # fmt: skip
    return found


def run(
    data: Path,
    seeds: range = range(1),
    sets: tuple[str, ...] = SETS,
    models: tuple[str, ...] = tuple(MODELS),
) -> Tables:
    """Compare on all tables."""
    # Networks stop early on purpose; small coalitions have constant columns.
    warnings.simplefilter("ignore")
    found: list[Row] = []
    with threadpool_limits(1):
        for name in sets:
            table = load(name, data).numbers()
            for seed in seeds:
                found += compare(name, table, seed, models)
            log(name)
    shown = [{key: row[key] for key in row if key != "error share"} for row in found]
    by_table = [
        {key: row[key] for key in ("table", "sources", "20 blocks", "ceiling", "5 sources")}
        for row in found
        if row["model"] != "nearest neighbors"
    ]
    return {
        "by model": means(shown, ["sources", "model"], over="table"),
        "by table": means(by_table, ["sources", "table"]),
        "when to trust": trust(found),
    }
