"""Measure the cost of validation errors: CPU time of exact values with and without them.

    python benchmarks/validation_cost.py

Without them, the same valuer runs on the same game with utilities without deviations. Both are
timed in turns, in one process. The figure is the ratio of the least times.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from cellworth import Runtime
from cellworth.games import ModelGame
from cellworth.runtime import Serial
from cellworth.valuers.model_valuers import exact_valuation
from cellworth.valuers.settings import Settings

MODELS: dict[str, Any] = {
    "decision tree": DecisionTreeClassifier(random_state=0),
    "logistic regression": LogisticRegression(),
    "gradient boosting": HistGradientBoostingClassifier(max_iter=20, random_state=0),
}


def own_score(model: Any, X: Any, y: Any) -> float:
    """Score without a closed form known to cellworth."""
    return float(np.mean(model.predict(X) == y))


class Plain:
    """A game without what validation errors need."""

    def __init__(self, game: ModelGame) -> None:
        """Hide the deviations of a game."""
        self.value = game.value
        self.problem_spec = game.problem_spec
        self.parts = game.parts


def seconds(game: Any, blocks: Any) -> float:
    """Return the CPU time of exact values."""
    settings = Settings.of(runtime=Runtime(Serial(), progress=False))
    began = time.process_time()
    exact_valuation(game, blocks, settings, max_utilities=2**20)
    return time.process_time() - began


def main() -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--rows", nargs="*", type=int, default=[100, 500, 2000])
    parser.add_argument("--scoring", nargs="*", default=["accuracy", "roc_auc", "own"])
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2400, 4))
    y = (X @ [1.0, 0.5, 0.2, 0.0] + rng.normal(size=2400) > 0).astype(int)
    print(f"{'model':<20} {'scoring':<10} {'rows':>5} {'ms a utility':>13} {'with / without':>15}")
    for name in asked.models:
        for scoring in asked.scoring:
            for n_rows in asked.rows:
                given = own_score if scoring == "own" else scoring
                game = ModelGame(
                    MODELS[name], X[:400], y[:400], X[400 : 400 + n_rows], y[400 : 400 + n_rows],
                    scoring=given, row_groups=np.arange(400) % 4,
                )  # fmt: skip
                times = [
                    (seconds(Plain(game), game.blocks), seconds(game, game.blocks))
                    for _ in range(asked.rounds)
                ]
                without, with_errors = np.min(times, axis=0)
                print(f"{name:<20} {scoring:<10} {n_rows:>5} {without / 256 * 1e3:>13.2f} "
                      f"{with_errors / without:>15.3f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
