"""Scores on held-out rows: models that are judged by rows which they have not seen."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Mask, Positions
from cellworth.data.blocks import is_missing
from cellworth.data.tables import Table
from cellworth.games.game import one_line
from cellworth.games.model import ModelGame, scoring_name
from cellworth.games.scoring import Recorded, RowScores, row_scores
from cellworth.sampling.moments import student_width

# Measured by experiments/removal.py; see docs/explanation/removal.md.
REASON = (
    "a table that was changed in the light of its labels looks good to itself: measured, "
    "cross-validation on such a table rose from .795 to .957 while the score on untouched rows "
    "fell from .797 to .769"
)
# Fewer changed rows than this are no sample of anything: every training set has all of them.
FEW_CHANGED_ROWS = 10
# Groups of held-out rows that are left out in turn where a scorer has no closed form.
N_GROUPS = 20
FEWEST_GROUPS = 5
# Part of the spread of halves that is added to the estimated variance, which few splits leave
# uncertain. With it, experiments/verdicts.py finds at most 5 % of false verdicts whatever part of
# the spread averages out over splits.
SAFETY = 0.15


def make_held_out_game(
    model: Any, X: Any, y: Any, X_test: Any, y_test: Any, *, scoring: Any, n_repeats: int = 1
) -> ModelGame:
    """State the game in which all rows and columns are trained on and held-out rows judge.

    It is checked as a validation set is, and the sentences name what the caller calls it.
    """
    if X_test is None or y_test is None:
        missing = "X_test" if X_test is None else "y_test"
        raise ValueError(
            f"{missing} is None; give rows that were set aside before anything was valued or "
            "changed, and their labels. There is no cross-validation here."
        )
    try:
        return ModelGame(
            model, X, y, X_test, y_test, scoring=scoring, n_repeats=n_repeats, error="raise"
        )
    except (TypeError, ValueError) as error:
        message = str(error).replace("X_val", "X_test").replace("y_val", "y_test")
        raise type(error)(message) from error


def describe_cause(error: RuntimeError) -> str:
    """What the model itself complained of, where it raised, else what was wrong with its score."""
    cause = error.__cause__
    return one_line(cause if isinstance(cause, Exception) else error)


def name_scoring(scoring: Any, game: ModelGame) -> str:
    """Name a scoring for a caption."""
    return scoring_name(scoring, game.problem.classes is not None)


def check_held_out_rows(X_test: Any, tables: dict[str, Any], label: Any, labels: Any) -> None:
    """Refuse held-out rows that are the rows of a training table; warn of some that are.

    Parameters
    ----------
    X_test : table
    tables : dict
        Tables that are trained on, by what the caller calls them.
    label, labels : arrays
        Labels of the held-out rows and of the training rows.
    """
    test = Table.from_data(X_test, called="X_test")
    shared = {}
    for called, given in tables.items():
        table = Table.from_data(given, called=called)
        asked = Counter(_iter_rows(test.align_to(table, called="X_test"), label))
        trained = Counter(_iter_rows(table, labels))
        if X_test is given or asked == trained:
            raise ValueError(
                f"X_test has the rows of {called}; give rows that were set aside before anything "
                f"was valued or changed, because {REASON}."
            )
        shared[called] = sum(count for row, count in asked.items() if row in trained)
    called = max(shared, key=lambda name: shared[name])
    if shared[called]:
        warnings.warn(
            f"{shared[called]} of {test.shape[0]} rows of X_test are rows of {called}, label and "
            "all; unless the table repeats rows anyway, set other rows aside.",
            stacklevel=3,
        )


def _iter_rows(table: Table, labels: Any) -> Iterator[tuple[Any, ...]]:
    columns = [table.column(position).tolist() for position in range(table.shape[1])]
    for *row, label in zip(*columns, labels.tolist(), strict=True):
        yield (*(None if is_missing(cell) else cell for cell in row), label)


class PredictionRecorder:
    """A scorer that records the models it is asked to score."""

    def __init__(self) -> None:
        self.seen: list[Recorded] = []

    def __call__(self, fitted: Any, X: Any, y: Any) -> float:
        """Record a fitted model with the rows to predict; score nothing yet."""
        self.seen.append(Recorded(fitted, X))
        return 0.0


class VarianceComponent(NamedTuple):
    """A part of the variance of a difference, and how many degrees of freedom tell it."""

    variance: float
    freedom: int


def compute_half_width(noise: Sequence[VarianceComponent]) -> float:
    """Half of Student's 95 % interval, with Satterthwaite's degrees of freedom."""
    variance = sum(part.variance for part in noise)
    if variance == 0:
        return 0.0
    # Shares, because squares of tiny variances would be 0.
    freedom = 1 / sum((part.variance / variance) ** 2 / part.freedom for part in noise)
    return float(student_width(freedom)) * math.sqrt(variance)


def find_strata(codes: NDArray[np.int64], changed: Positions) -> NDArray[np.int64]:
    """Number the kinds of rows (class, changed or not); -1 for rows that both halves get.

    Those are the changed rows where they are few, and the only row of a kind.
    """
    is_changed = np.zeros(len(codes), dtype=np.int64)
    is_changed[changed] = 1
    kinds, counts = np.unique(2 * codes + is_changed, return_inverse=True, return_counts=True)[1:]
    few = len(changed) < min(FEW_CHANGED_ROWS, len(codes) / 4)
    return np.where((is_changed == 1) & few | (counts[kinds] == 1), -1, kinds)


def split_in_halves(kinds: NDArray[np.int64], rng: np.random.Generator) -> tuple[Mask, Mask]:
    """Split rows into random halves, each with half of every kind."""
    both = kinds < 0
    first = both.copy()
    for kind in np.unique(kinds[~both]):
        rows = rng.permutation(np.flatnonzero(kinds == kind))
        # The odd row goes to either half.
        first[rows[: (len(rows) + rng.integers(2)) // 2]] = True
    return first, ~first | both


def estimate_training_variance(differences: Floats) -> VarianceComponent:
    """Noise of the mean difference over splits, as if training rows and seeds were drawn anew.

    Parameters
    ----------
    differences : array of shape (n_splits, 2)
        One difference of scores for each half. The halves of a split have no row in common: they
        vary independently, by what all splits of these rows share and by what averages out.
    """
    n_splits = len(differences)
    of_halves = float(np.mean((differences[:, 0] - differences[:, 1]) ** 2)) / 4
    if n_splits == 1:
        return VarianceComponent(of_halves, 1)
    of_splits = float(np.var(differences.mean(axis=1), ddof=1))
    shared = max(of_halves - of_splits, 0.0)
    return VarianceComponent(
        shared + of_splits / n_splits + SAFETY * (of_halves + of_splits),
        n_splits,
    )


class HeldOutRows(Protocol):
    """Held-out rows, and how their choice moves a mean of scores."""

    def score(self, model: Recorded) -> float:
        """Score of a model on all rows."""
        ...

    def told(self, model: Recorded) -> Floats:
        """What held-out rows tell of a model, to be subtracted and averaged over models."""
        ...

    def noise(self, told: Floats) -> list[VarianceComponent]:
        """Noise of a difference, from the same difference of what was told."""
        ...


def make_held_out_rows(
    scorer: Any, target: NDArray[Any], strata: list[Positions], model: Recorded,
    rng: np.random.Generator,
) -> HeldOutRows:  # fmt: skip
    """Judge by single rows where the scorer has a closed form that holds, else by groups."""
    groups = JackknifeGroups(scorer, target, strata, rng)
    read = row_scores(scorer)
    # It gives NaN, or another score, where it is not that of this problem.
    if read is None or not np.isclose(
        read(model, target).mean(), groups.score(model), rtol=1e-6, atol=1e-9
    ):
        return groups
    return RowwiseScores(scorer, read, target, strata)


class _ScoredRows:
    """Held-out rows that score a model."""

    def __init__(self, scorer: Any, target: NDArray[Any]) -> None:
        self._scorer, self._target = scorer, target

    def score(self, model: Recorded) -> float:
        """Score of a model on all rows."""
        return self._scored(model, np.arange(len(self._target)))

    def _scored(self, model: Recorded, rows: Positions) -> float:
        some = model.on(rows, rows[:, None])
        return float(self._scorer(some, some.X, self._target[rows]))


class RowwiseScores(_ScoredRows):
    """Held-out rows with a score of their own each, whose mean is the score."""

    def __init__(
        self, scorer: Any, read: RowScores, target: NDArray[Any], strata: list[Positions]
    ) -> None:
        """Keep how rows are scored."""
        super().__init__(scorer, target)
        self._read, self._strata = read, strata

    def told(self, model: Recorded) -> Floats:
        """Scores of single rows."""
        return self._read(model, self._target)

    def noise(self, told: Floats) -> list[VarianceComponent]:
        """Variance of the mean over the rows of each stratum, the others held fixed."""
        n_rows = len(told)
        parts = []
        for own in self._strata:
            squares = float(np.sum((told[own] - told[own].mean()) ** 2))
            variance = squares / (n_rows * max(n_rows - 1, 1))
            parts.append(VarianceComponent(variance, max(len(own) - 1, 1)))
        return parts


class JackknifeGroups(_ScoredRows):
    """Held-out rows in groups, each left out in turn: the jackknife, for any scorer."""

    def __init__(
        self, scorer: Any, target: NDArray[Any], strata: list[Positions], rng: np.random.Generator
    ) -> None:
        """Deal the rows of each stratum to groups."""
        super().__init__(scorer, target)
        most = max(N_GROUPS // len(strata), FEWEST_GROUPS)
        # A stratum of one row cannot do without it.
        self._groups = [
            np.array_split(rng.permutation(own), min(len(own), most))
            for own in strata
            if len(own) > 1
        ]

    def told(self, model: Recorded) -> Floats:
        """Scores without each group."""
        everyone = np.arange(len(self._target))
        without = [np.delete(everyone, group) for own in self._groups for group in own]
        return np.array([self._scored(model, rows) for rows in without])

    def noise(self, told: Floats) -> list[VarianceComponent]:
        """Variance by the jackknife of each stratum, the others held fixed."""
        sizes = [len(own) for own in self._groups]
        parts = np.split(told, np.cumsum(sizes)[:-1]) if sizes else []
        return [
            VarianceComponent(float(np.var(part)) * (len(part) - 1), len(part) - 1)
            for part in parts
        ]
