"""Rank bins: the nearest rows are ranked, the others counted; one pass over the rows, no sort.

Beyond the nearest rows a value changes slowly with the rank, so that rows in a narrow range of
ranks may be valued as if they tied. Ties have a closed form, and the sum of all values stays exact.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Positions, Wholes, checked_count

_SAMPLE_SHARE = 16
_LEAST_SAMPLE, _MOST_SAMPLE = 1024, 32768
# Of more than 32 million rows, one in this many: else ever more rows would count as nearest.
_LARGE_SHARE = 1024
# So many rows of the sample must be among the nearest, to tell where these end.
_LEAST_NEAREST_IN_SAMPLE = 8
_MARGIN = 50


@dataclass(frozen=True)
class RankBins:
    """Rank the nearest rows exactly and count the others in bins of like rank.

    Time grows with the number of rows, not faster; worth it above some 50,000 rows. The total and
    the sums of columns stay exact; single values are off by up to a percent of their spread. For
    class labels.

    Parameters
    ----------
    nearest : int, default=1000
        Rows that are ranked exactly, about.
    width : float, default=0.02
        How far ranks in one bin are apart, relative to the rank.

    Examples
    --------
    >>> RankBins().n_bins(1_000_000)
    349
    """

    nearest: int = 1000
    width: float = 0.02

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        checked_count(self.nearest, "nearest of RankBins")
        number = isinstance(self.width, int | float | np.number)
        if not number or not 1e-3 <= self.width <= 1:
            raise ValueError(
                f"width of RankBins is {self.width!r}; give a number between 0.001 and 1."
            )

    def n_bins(self, n_rows: int) -> int:
        """How many bins the far ones of so many rows fall into."""
        ratio = max(n_rows / self.nearest, 1.0)
        return max(math.ceil(math.log(ratio) / math.log1p(self.width)), 1)


def n_nearest(bins: RankBins, n_rows: int, n_neighbors: int) -> int:
    """How many rows are to be ranked exactly: as asked, but enough to find where they end.

    Where these are most rows, all are: bins for the few others would save little.
    """
    in_sample = math.ceil(_LEAST_NEAREST_IN_SAMPLE * n_rows / _sample_size(n_rows))
    nearest = max(bins.nearest, in_sample, 2 * n_neighbors + _MARGIN)
    return max(nearest, n_rows) if 2 * nearest > n_rows else nearest


def sample_places(n_rows: int) -> Positions:
    """Rows whose distances tell where bins begin: one from each of equal parts of the table.

    They depend on the number of rows alone, however the table is cut into shards.
    """
    n_sample = _sample_size(n_rows)
    within = np.random.Generator(np.random.Philox(1)).random(n_sample)
    begins = np.arange(n_sample + 1) * n_rows // n_sample
    return begins[:-1] + (within * np.diff(begins)).astype(np.int64)


def edge_places(bins: RankBins, n_rows: int, n_neighbors: int) -> Wholes:
    """Places in the sorted sample at which bins begin; the nearest rows end at the first."""
    n_sample = _sample_size(n_rows)
    nearest = n_nearest(bins, n_rows, n_neighbors)
    ranks = nearest * (1.0 + bins.width) ** np.arange(bins.n_bins(n_rows) + 1)
    # Of a small table all rows but the farthest are among the nearest.
    ranks = ranks[ranks < n_rows] if nearest < n_rows else np.array([n_rows])
    places = (ranks / n_rows * n_sample).astype(np.int64)
    distinct: NDArray[np.int64] = np.unique(np.clip(places, 0, n_sample - 1))
    return distinct


def _sample_size(n_rows: int) -> int:
    most = max(_MOST_SAMPLE, n_rows // _LARGE_SHARE)
    return min(n_rows, max(min(n_rows // _SAMPLE_SHARE, most), _LEAST_SAMPLE))
