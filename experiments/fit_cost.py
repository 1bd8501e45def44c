"""Measure what a utility costs beside its fit and score, and what validation errors cost.

A utility of ModelGame is timed against a bare clone, fit and score, whose subtables are ready:
ModelGame selects rows and columns, restricts the model's column selections, checks the labels and
counts failures. Then exact values of a decision tree are timed with and without what validation
errors need. Both are timed in turns, in one thread, least CPU time of several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from cellworth import Runtime
from cellworth.games import ModelGame
from cellworth.games.fitting import for_columns
from cellworth.runtime import Serial
from cellworth.valuers.model_valuer import value_coalitions
from cellworth.valuers.settings import Settings
from experiments import tables
from experiments.frame import Row, Tables, log, spend

QUICK = {"rounds": 1, "validation_rows": (100,)}
N_ROW_GROUPS, N_COLUMN_COALITIONS, N_ROW_COALITIONS = 20, 6, 4
TREE = DecisionTreeClassifier(random_state=0)


def cases(folder: Path) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield name, model and data."""
    train, val = tables.draw_samples(tables.load("breast 30", folder), 341, 228, seed=0)
    arrays = train.X.to_numpy(), train.y, val.X.to_numpy(), val.y
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    yield "NumPy, logistic regression", scaled, arrays
    yield "NumPy, decision tree", TREE, arrays
    train, val = tables.draw_samples(tables.load("adult", folder), 2000, 200, seed=0)
    rest = train.X.select_dtypes("number").columns.tolist()
    text = [name for name in train.X if name not in rest]
    encoded = ColumnTransformer(
        [("text", OneHotEncoder(handle_unknown="ignore"), text), ("rest", StandardScaler(), rest)]
    )
    yield "pandas, named columns", make_pipeline(encoded, LogisticRegression()), (*train, *val)


def coalitions(shape: tuple[int, int]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return row coalitions combined with the same few column coalitions."""
    rng = np.random.default_rng(0)
    many_columns = rng.random((N_COLUMN_COALITIONS, shape[1])) < 0.6
    many_columns[~many_columns.any(axis=1)] = True
    for rows in rng.random((N_ROW_COALITIONS, shape[0])) < 0.6:
        yield from ((rows, columns) for columns in many_columns)


def compare_with_bare(name: str, model: Any, data: tuple[Any, ...], rounds: int) -> Row:
    """Return milliseconds of a utility and of the bare version, means over coalitions."""
    X, y, X_val, y_val = data
    groups = np.arange(len(y)) % N_ROW_GROUPS
    game = ModelGame(model, X, y, X_val, y_val, row_groups=groups)
    scorer, best = get_scorer("accuracy"), []
    for rows, columns in coalitions(game.shape):
        train = rows[groups]
        ready = for_columns(model, game.problem.table.names, columns)
        cut = part(X, train, columns), y[train]
        checked = part(X_val, slice(None), columns), y_val
        ours, bare = (
            lambda rows=rows, columns=columns: game.value(rows, columns),
            lambda m=ready, c=cut, v=checked: scorer(clone(m).fit(*c), *v),
        )
        times = [(spend(ours)[1], spend(bare)[1]) for _ in range(rounds)]
        best.append(np.min(times, axis=0))
    of_game, of_fit = np.mean(best, axis=0) * 1e3
    figures = {"fit and score, ms": of_fit, "beyond that, ms": of_game - of_fit}
    return {"table, model": name} | figures | {"ratio": of_game / of_fit}


def part(X: Any, rows: Any, columns: Any) -> Any:
    return X[rows][:, columns] if isinstance(X, np.ndarray) else X.loc[rows, columns]


class Plain:
    """A game without what validation errors need."""

    def __init__(self, game: ModelGame) -> None:
        """Hide the deviations of a game."""
        self.value, self.problem_spec, self.parts = game.value, game.problem_spec, game.parts


def own_score(model: Any, X: Any, y: Any) -> float:
    """Score without a closed form known to cellworth."""
    return float(np.mean(model.predict(X) == y))


def compare_without_errors(scoring: Any, n_rows: int, rounds: int) -> Row:
    """Return the CPU time of exact values with validation errors over that without."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400 + n_rows, 4))
    y = (X @ [1.0, 0.5, 0.2, 0.0] + rng.normal(size=len(X)) > 0).astype(int)
    groups = {"row_groups": np.arange(400) % 4}
    game = ModelGame(TREE, X[:400], y[:400], X[400:], y[400:], scoring=scoring, **groups)
    settings = Settings.of(runtime=Runtime(Serial(), progress=False))

    def value(given: Any) -> Callable[[], object]:
        return lambda: value_coalitions(given, game.blocks, settings, estimator="exact")

    times = [(spend(value(Plain(game)))[1], spend(value(game))[1]) for _ in range(rounds)]
    without, with_errors = np.min(times, axis=0)
    name = "accuracy" if scoring == "accuracy" else "a function (bootstrap)"
    return {"score": name, "validation rows": n_rows, "with / without": with_errors / without}


def run(data: Path, *, rounds: int = 3, validation_rows: tuple[int, ...] = (100, 2000)) -> Tables:
    """Return the cost of utilities, and of validation errors."""
    with threadpool_limits(1):
        costs = []
        for name, model, given in cases(data):
            costs.append(compare_with_bare(name, model, given, rounds))
            log(costs[-1])
        errors = [
            compare_without_errors(scoring, n_rows, rounds)
            for scoring in ("accuracy", own_score)
            for n_rows in validation_rows
        ]
    return {"a utility": costs, "validation errors": errors}
