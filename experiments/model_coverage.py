"""Measure how often 95% intervals of model games cover the value on the whole population.

A game of 4 x 4 blocks is scored on a population of 20,000 validation rows: its values are the
ground truth. Each repetition draws 300 of these rows and values the same game on them alone. No
model is fitted twice: predictions of all coalitions for all rows are looked up. Everything else,
from scores to errors, is done by ``ModelValuer``.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from cellworth import Owners, Runtime
from cellworth.data.blocks import Blocks
from cellworth.data.problem import Fold
from cellworth.games import ModelGame
from cellworth.games.model import check_scorer
from cellworth.games.scoring import Recorded, ValidationScorer, row_scores
from cellworth.runtime import MaxTasks, MaxUtilities, Serial, TargetPrecision
from cellworth.sampling import AntitheticPermutations, DetailedUtility
from cellworth.sampling.moments import WIDTH_95
from cellworth.valuers.model_valuer import value_coalitions
from cellworth.valuers.settings import Settings
from experiments.frame import Mean, Tables, log

QUICK = {"cases": ("accuracy",), "ways": ("exact",), "repetitions": 2}
PARTS = ("blocks", "rows", "columns", "owners", "total")
SHAPE = (4, 4)
POPULATION, SAMPLE, TRAINING = 20_000, 300, 61
SETTINGS = Settings.of(runtime=Runtime(Serial(), progress=False))
# Tasks after which a run is stopped: a task has 50 utilities, some of them known before.
STOPS = (3, 5, 8, 12, 20)
WAYS: dict[str, dict[str, Any]] = {
    "exact": {},
    "180 fits": {"stop": MaxUtilities(180)},
    "orders, stopped after 3 to 20 tasks": {"estimator": AntitheticPermutations()},
    "TargetPrecision()": {"stop": TargetPrecision() | MaxTasks(500)},
}


CASES: dict[str, tuple[Any, Any]] = {
    "accuracy": (GaussianNB(), "accuracy"),
    "balanced_accuracy": (DecisionTreeClassifier(max_depth=4, random_state=0), "balanced_accuracy"),
    "r2": (LinearRegression(), "r2"),
}


class Answers:
    """A model that looks up its predictions by row number."""

    def __init__(self, fitted: Any, X: Any) -> None:
        """Store the predictions of all rows."""
        self.predicted = fitted.predict(X)

    def predict(self, rows: Any) -> Any:
        """Return predictions of some rows."""
        return self.predicted[rows]


@dataclass(frozen=True, eq=False)
class Sampled:
    """The game scored on some rows of the population."""

    answers: dict[bytes, list[Any]]
    validation_scorer: ValidationScorer
    by_row: Any
    rows: Any
    y: Any

    @classmethod
    def on(cls, population: Population, rows: Any) -> Sampled:
        """Return the game scored on these rows."""
        y = population.y[rows]
        fold = Fold(np.ones(TRAINING, dtype=bool), None, y)  # type: ignore[arg-type]
        validation_scorer = ValidationScorer(population.scorer, (fold,))
        return cls(population.answers, validation_scorer, row_scores(population.scorer), rows, y)

    def value(self, rows: Any, columns: Any) -> DetailedUtility:
        """Return the score of a coalition with its deviations."""
        models = self.answers[rows.tobytes() + columns.tobytes()]
        scores, by_row = zip(*map(self._score, models), strict=True)
        return DetailedUtility(
            np.mean(scores), self.validation_scorer.deviations([np.mean(by_row, axis=0)])
        )

    def _score(self, model: Any) -> tuple[float, Any]:
        # Their mean is the score; calling scikit-learn would take most of the time.
        by_row = self.by_row(Recorded(model, self.rows), self.y)
        return float(by_row.mean()), by_row

    def problem_spec(self) -> dict[str, Any]:
        """Name the game, whose content would take long to hash."""
        return {"game": "sampled", "rows": self.rows[:5].tolist()}


class Population:
    """All validation rows, the predictions of all coalitions, and owners of blocks."""

    def __init__(self, model: Any, scoring: Any) -> None:
        """Train on every coalition once."""
        rng = np.random.default_rng(17)
        X = rng.normal(size=(POPULATION + TRAINING, SHAPE[1])) * [1, 1, 2, 1]
        X[:, 1] += 0.5 * X[:, 0]
        level = X @ [0.8, 0.4, 0.2, 0.0] + rng.normal(size=len(X))
        classifies = not isinstance(model, LinearRegression)
        y = (level > 0.3).astype(int) if classifies else level
        self.y = y[TRAINING:]
        kept: list[Any] = []

        def keep(fitted: Any, rows: Any, _: Any) -> float:
            kept.append(Answers(fitted, rows))
            return 0.0

        game = ModelGame(
            model, X[:TRAINING], y[:TRAINING], X[TRAINING:], self.y, scoring=keep,
            row_groups=np.arange(TRAINING) % SHAPE[0],
        )  # fmt: skip
        self.scorer = check_scorer(scoring, classifies)
        self.answers = {}
        for rows in np.ndindex(*(2,) * SHAPE[0]):
            for columns in np.ndindex(*(2,) * SHAPE[1]):
                kept.clear()
                sides = np.array(rows, dtype=bool), np.array(columns, dtype=bool)
                game.value(*sides)
                self.answers[sides[0].tobytes() + sides[1].tobytes()] = list(kept)
        table = np.zeros(SHAPE)
        self.blocks = Blocks.cut(np.arange(SHAPE[0]), [f"x{j}" for j in range(SHAPE[1])])
        owners = Owners(table).assign("north", rows=[0, 1], columns=["x0", "x1"])
        owners = owners.assign("south", rows=[2, 3]).assign("east", rows=[0, 1], columns=["x2"])
        self.holdings = owners.project(self.blocks)
        self.truth = self.valuation(np.arange(POPULATION))

    def valuation(
        self, rows: Any, *, stop: Any = None, seed: int = 0, estimator: Any = None
    ) -> Any:
        """Value the game scored on these rows: exactly, or until a stopping rule is met."""
        game = Sampled.on(self, rows)
        return value_coalitions(
            game, self.blocks, SETTINGS, estimator="exact" if stop is None else estimator,
            stop=stop, random_state=seed, holdings=self.holdings,
        )  # fmt: skip


def figures(valuation: Any) -> dict[str, tuple[Any, Any]]:
    """Return values with both errors combined: blocks, rows, columns, total and owners."""
    parts = {"rows": valuation.rows(), "columns": valuation.columns(), "owners": valuation.owners()}
    found = {
        name: (part.values, np.hypot(part.sampling_se, part.validation_se))
        for name, part in parts.items()
    }
    errors = np.hypot(valuation.sampling_se, valuation.validation_se)
    found["blocks"] = valuation.values, errors
    found["total"] = np.array([valuation.total]), np.array([valuation.total_error])
    return found


def measure_coverage(population: Population, way: str, repetition: int) -> dict[str, Any]:
    """Return which intervals of a repetition cover the truth."""
    rng = np.random.default_rng([repetition, 5])
    rows = rng.integers(POPULATION, size=SAMPLE)
    given = WAYS[way]
    if "estimator" in given:
        given = given | {"stop": MaxTasks(STOPS[repetition % len(STOPS)])}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        seen = figures(population.valuation(rows, seed=repetition, **given))
    truth = figures(population.truth)
    return {
        name: np.abs(values - truth[name][0]) <= WIDTH_95 * errors
        for name, (values, errors) in seen.items()
    }


def run(
    cases: tuple[str, ...] = tuple(CASES),
    ways: tuple[str, ...] = tuple(WAYS),
    repetitions: int = 60,
) -> Tables:
    """Return the share of intervals that cover the truth, for each case and sampler."""
    found = []
    for case in cases:
        population = Population(*CASES[case])
        for way in ways:
            held = [measure_coverage(population, way, r) for r in range(repetitions)]
            parts = {part: Mean.of(each[part].mean() for each in held) for part in PARTS}
            found.append({"score": case, "values": way} | parts)
            log(case, way)
    return {"coverage of 95% intervals": found}
