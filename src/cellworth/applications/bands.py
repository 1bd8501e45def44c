"""Band: a mean and how far it may be off, over runs that differ by their seed."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats


class Band(NamedTuple):
    """A mean with its 95 % interval; numbers, or arrays of one entry per point of a curve."""

    mean: Any
    low: Any
    high: Any

    @classmethod
    def over_seeds(cls, runs: NDArray[np.float64]) -> Band:
        """Mean over the first axis with Student's interval; NaN for the ends of a single run."""
        mean, n_runs = runs.mean(axis=0), len(runs)
        if n_runs < 2:
            return cls(mean, np.full_like(mean, np.nan), np.full_like(mean, np.nan))
        half = stats.t.ppf(0.975, n_runs - 1) * runs.std(axis=0, ddof=1) / np.sqrt(n_runs)
        return cls(mean, mean - half, mean + half)
