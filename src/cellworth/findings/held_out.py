"""Scores of models on held-out rows, and their variance."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask, Model, Positions, Scoring
from cellworth.data.tables import Table, TableLike, VectorLike
from cellworth.games.model import ModelGame
from cellworth.games.scoring import Recorded, RowScores, row_scores
from cellworth.sampling.moments import student_width

# Measured by experiments/removal.py; see docs/evidence/removal.md.
REASON = (
    "a table that was changed with the help of its labels overrates itself: in experiments, "
    "cross-validation on such a table rose from .795 to .957 while the score on untouched rows "
    "fell from .797 to .769"
)
# Fewer changed rows than this are not sampled: every training set has all of them.
FEW_CHANGED_ROWS = 10
# Groups of held-out rows for the jackknife, which serves scorers without a closed form.
N_GROUPS = 20
MIN_GROUPS = 5
# Share of the variance between halves that is added to the estimated variance, which few splits
# leave uncertain. With it, experiments/verdicts.py finds at most 5% of false verdicts.
SAFETY = 0.15


def make_held_out_game(
    model: Model,
    X: TableLike,
    y: VectorLike,
    X_test: TableLike,
    y_test: VectorLike,
    *,
    scoring: Scoring,
) -> ModelGame:
    """Make the game that trains on all rows and columns and scores on held-out rows."""
    if X_test is None or y_test is None:
        missing = "X_test" if X_test is None else "y_test"
        raise ValueError(
            f"{missing} must not be None; pass rows that were set aside before anything was valued "
            "or changed, with their labels. There is no cross-validation here."
        )
    try:
        return ModelGame(model, X, y, X_test, y_test, scoring=scoring, error="raise")
    except (TypeError, ValueError) as error:
        message = str(error).replace("X_val", "X_test").replace("y_val", "y_test")
        raise type(error)(message) from error


def check_held_out_rows(
    X_test: TableLike, test_labels: Any, tables: dict[str, tuple[TableLike, Any]]
) -> None:
    """Raise ValueError if the held-out rows are the training rows; warn if some of them are.

    ``tables`` has each table of training rows with its labels.
    """
    test = Table.from_data(X_test, called="X_test")
    shared = {}
    for called, (given, labels) in tables.items():
        table = Table.from_data(given, called=called)
        tested = Counter(_iter_rows(table.align(test, called="X_test"), test_labels))
        trained = Counter(_iter_rows(table, labels))
        if X_test is given or tested == trained:
            raise ValueError(
                f"X_test must have other rows than {called}; pass rows that were set aside before "
                f"anything was valued or changed, because {REASON}."
            )
        shared[called] = sum(count for row, count in tested.items() if row in trained)
    called = max(shared, key=lambda name: shared[name])
    if shared[called]:
        warnings.warn(
            f"{shared[called]} of {test.shape[0]} rows of X_test are also in {called}, with the "
            "same label; set other rows aside, unless the table has repeated rows.",
            stacklevel=3,
        )


def _iter_rows(table: Table, labels: Any) -> Iterator[tuple[Any, ...]]:
    columns = [table.read(position).objects for position in range(table.shape[1])]
    yield from zip(*columns, labels.tolist(), strict=True)


class VarianceComponent(NamedTuple):
    """A component of the variance of a difference, with its degrees of freedom."""

    variance: float
    freedom: int


def compute_half_width(noise: Sequence[VarianceComponent]) -> float:
    """Return half of Student's 95% interval, with Satterthwaite's degrees of freedom."""
    variance = sum(part.variance for part in noise)
    if variance == 0:
        return 0.0
    # Squares of shares: squares of tiny variances would be 0.
    freedom = 1 / sum((part.variance / variance) ** 2 / part.freedom for part in noise)
    return float(student_width(freedom)) * math.sqrt(variance)


def find_strata(codes: NDArray[np.int64], changed: Positions) -> NDArray[np.int64]:
    """Number the strata of rows (class, changed or not); -1 for rows that both halves get."""
    # Both halves get the changed rows if these are few, and the only row of a stratum.
    is_changed = np.zeros(len(codes), dtype=np.int64)
    is_changed[changed] = 1
    strata_codes, counts = np.unique(
        2 * codes + is_changed, return_inverse=True, return_counts=True
    )[1:]
    few = len(changed) < min(FEW_CHANGED_ROWS, len(codes) / 4)
    return np.where((is_changed == 1) & few | (counts[strata_codes] == 1), -1, strata_codes)


def split_in_halves(strata_codes: NDArray[np.int64], rng: np.random.Generator) -> tuple[Mask, Mask]:
    """Split rows into random halves, each with half of every stratum."""
    both = strata_codes < 0
    first = both.copy()
    for kind in np.unique(strata_codes[~both]):
        rows = rng.permutation(np.flatnonzero(strata_codes == kind))
        # The odd row goes to either half.
        first[rows[: (len(rows) + rng.integers(2)) // 2]] = True
    return first, ~first | both


def estimate_training_variance(differences: Floats) -> VarianceComponent:
    """Estimate the variance of the mean difference due to training rows and seeds.

    ``differences`` has shape (n_splits, 2). The halves of a split have no row in common, so their
    differences are independent.
    """
    n_splits = len(differences)
    of_halves = float(np.mean((differences[:, 0] - differences[:, 1]) ** 2)) / 4
    if n_splits == 1:
        return VarianceComponent(of_halves, 1)
    of_splits = float(np.var(differences.mean(axis=1), ddof=1))
    shared = max(of_halves - of_splits, 0.0)
    return VarianceComponent(
        shared + of_splits / n_splits + SAFETY * (of_halves + of_splits), n_splits
    )


class HeldOutRows:
    """Held-out rows, with the variance of a mean score due to their choice.

    A scorer that is the mean of one score per row has the variance of these; for any other, groups
    of rows are left out in turn (jackknife). ``model`` tells whether it is such a mean.
    """

    def __init__(
        self, scorer: Any, target: NDArray[Any], strata: list[Positions], model: Recorded,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self._scorer, self._target, self._strata = scorer, target, strata
        most = max(N_GROUPS // len(strata), MIN_GROUPS)
        # The only row of a stratum is never left out.
        self._groups = [
            np.array_split(rng.permutation(own), min(len(own), most))
            for own in strata
            if len(own) > 1
        ]
        read = row_scores(scorer)
        # Where it does not apply, its mean is NaN or another score.
        applies = read is not None and np.isclose(
            read(model, target).mean(), self.score(model), rtol=1e-6, atol=1e-9
        )
        self.read_rows: RowScores | None = read if applies else None

    def score(self, model: Recorded) -> float:
        """Return the score of a model on all rows."""
        return self._score_rows(model, np.arange(len(self._target)))

    def _score_rows(self, model: Recorded, rows: Positions) -> float:
        some = model.on(rows, rows[:, None])
        return float(self._scorer(some, some.X, self._target[rows]))

    def compute_replicates(self, model: Recorded) -> Floats:
        """Return the score of each row or without each group, of which differences are averaged."""
        if self.read_rows is not None:
            return self.read_rows(model, self._target)
        everyone = np.arange(len(self._target))
        without = [np.delete(everyone, group) for own in self._groups for group in own]
        return np.array([self._score_rows(model, rows) for rows in without])

    def estimate_variance(self, replicates: Floats) -> list[VarianceComponent]:
        """Estimate, stratum by stratum, the variance of a difference from that of replicates."""
        if self.read_rows is None:
            ends = np.cumsum([len(own) for own in self._groups])
            return [
                VarianceComponent(float(np.var(part)) * (len(part) - 1), len(part) - 1)
                for part in np.split(replicates, ends)[:-1]
            ]
        n_rows = len(replicates)
        parts = []
        for own in self._strata:
            squares = float(np.sum((replicates[own] - replicates[own].mean()) ** 2))
            variance = squares / (n_rows * max(n_rows - 1, 1))
            parts.append(VarianceComponent(variance, max(len(own) - 1, 1)))
        return parts
