"""Noise of a difference of scores: how far other held-out or training rows would move it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from cellworth.applications.lookups import Lookup
from cellworth.blocks import Mask, Positions
from cellworth.games.row_scores import RowScores, row_scores

Floats = NDArray[np.float64]

# Fewer changed rows than this are no sample of anything: every training set has all of them.
FEW_CHANGED_ROWS = 10
# Groups of held-out rows that are left out in turn where a scorer has no closed form.
N_GROUPS = 20
FEWEST_GROUPS = 5
# Part of the spread of halves that is added to the estimated variance, which few splits leave
# uncertain. With it, experiments/verdicts.py finds at most 5 % of false verdicts whatever part of
# the spread averages out over splits.
SAFETY = 0.15


class Noise(NamedTuple):
    """A part of the variance of a difference, and how many degrees of freedom tell it."""

    variance: float
    freedom: int


def half_width(noise: Sequence[Noise]) -> float:
    """Half of Student's 95 % interval, with Satterthwaite's degrees of freedom."""
    variance = sum(part.variance for part in noise)
    if variance == 0:
        return 0.0
    # Shares, because squares of tiny variances would be 0.
    freedom = 1 / sum((part.variance / variance) ** 2 / part.freedom for part in noise)
    return float(stdtrit(freedom, 0.975)) * math.sqrt(variance)


def split_kinds(codes: NDArray[np.int64], changed: Positions) -> NDArray[np.int64]:
    """Number the kinds of rows (class, changed or not); -1 for rows that both halves get.

    Those are the changed rows where they are few, and the only row of a kind.
    """
    is_changed = np.zeros(len(codes), dtype=np.int64)
    is_changed[changed] = 1
    kinds, counts = np.unique(2 * codes + is_changed, return_inverse=True, return_counts=True)[1:]
    few = len(changed) < min(FEW_CHANGED_ROWS, len(codes) / 4)
    return np.where((is_changed == 1) & few | (counts[kinds] == 1), -1, kinds)


def halves(kinds: NDArray[np.int64], rng: np.random.Generator) -> tuple[Mask, Mask]:
    """Split rows into random halves, each with half of every kind."""
    both = kinds < 0
    first = both.copy()
    for kind in np.unique(kinds[~both]):
        rows = rng.permutation(np.flatnonzero(kinds == kind))
        # The odd row goes to either half.
        first[rows[: (len(rows) + rng.integers(2)) // 2]] = True
    return first, ~first | both


def of_training(differences: Floats) -> Noise:
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
        return Noise(of_halves, 1)
    of_splits = float(np.var(differences.mean(axis=1), ddof=1))
    shared = max(of_halves - of_splits, 0.0)
    return Noise(
        shared + of_splits / n_splits + SAFETY * (of_halves + of_splits),
        n_splits,
    )


class Judges(Protocol):
    """Held-out rows, and how their choice moves a mean of scores."""

    def score(self, model: Lookup) -> float:
        """Score of a model on all rows."""
        ...

    def told(self, model: Lookup) -> Floats:
        """What held-out rows tell of a model, to be subtracted and averaged over models."""
        ...

    def noise(self, told: Floats) -> list[Noise]:
        """Noise of a difference, from the same difference of what was told."""
        ...


def judges_of(
    scorer: Any, target: NDArray[Any], strata: list[Positions], model: Lookup,
    rng: np.random.Generator,
) -> Judges:  # fmt: skip
    """Judge by single rows where the scorer has a closed form that holds, else by groups."""
    groups = RowGroups(scorer, target, strata, rng)
    read = row_scores(scorer)
    # It gives NaN, or another score, where it is not that of this problem.
    if read is None or not np.isclose(
        read(model, target).mean(), groups.score(model), rtol=1e-6, atol=1e-9
    ):
        return groups
    return SingleRows(scorer, read, target, strata)


class _Rows:
    """Held-out rows that score a model."""

    def __init__(self, scorer: Any, target: NDArray[Any]) -> None:
        self._scorer, self._target = scorer, target

    def score(self, model: Lookup) -> float:
        """Score of a model on all rows."""
        return self._scored(model, np.arange(len(self._target)))

    def _scored(self, model: Lookup, rows: Positions) -> float:
        return float(self._scorer(model, rows[:, None], self._target[rows]))


class SingleRows(_Rows):
    """Held-out rows with a score of their own each, whose mean is the score."""

    def __init__(
        self, scorer: Any, read: RowScores, target: NDArray[Any], strata: list[Positions]
    ) -> None:
        """Keep how rows are scored."""
        super().__init__(scorer, target)
        self._read, self._strata = read, strata

    def told(self, model: Lookup) -> Floats:
        """Scores of single rows."""
        return self._read(model, self._target)

    def noise(self, told: Floats) -> list[Noise]:
        """Variance of the mean over the rows of each stratum, the others held fixed."""
        n_rows = len(told)
        parts = []
        for own in self._strata:
            squares = float(np.sum((told[own] - told[own].mean()) ** 2))
            variance = squares / (n_rows * max(n_rows - 1, 1))
            parts.append(Noise(variance, max(len(own) - 1, 1)))
        return parts


class RowGroups(_Rows):
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

    def told(self, model: Lookup) -> Floats:
        """Scores without each group."""
        everyone = np.arange(len(self._target))
        without = [np.delete(everyone, group) for own in self._groups for group in own]
        return np.array([self._scored(model, rows) for rows in without])

    def noise(self, told: Floats) -> list[Noise]:
        """Variance by the jackknife of each stratum, the others held fixed."""
        sizes = [len(own) for own in self._groups]
        parts = np.split(told, np.cumsum(sizes)[:-1]) if sizes else []
        return [Noise(float(np.var(part)) * (len(part) - 1), len(part) - 1) for part in parts]
