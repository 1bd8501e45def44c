"""What can be told from zero, given both kinds of errors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr, stdtrit

from cellworth.counts import Floats

# Half the width of a 95 % interval, in standard errors.
WIDTH_95 = 1.959963984540054
# Said of single blocks where errors from the choice of validation rows are known of sums alone.
SAMPLING_ALONE = "by sampling errors alone, as validation errors of single blocks are not known"


class Signs(NamedTuple):
    """How many values are surely below zero, surely above, cannot be told, or are not known.

    A value counts as told if zero is outside its 95 % interval, value by value: of many values
    that are truly zero, 2.5 % are on each side by chance. Where validation errors are not known,
    as of single cells of a table in shards, the interval is of sampling errors alone.
    """

    negative: int
    undecided: int
    positive: int
    unknown: int = 0

    @property
    def total(self) -> int:
        """All values."""
        return sum(self)

    @classmethod
    def of(cls, values: Floats, errors: Floats) -> Signs:
        """Count them; exact values (errors of 0) are undecided only where they are 0."""
        reach = WIDTH_95 * errors
        negative = int(np.count_nonzero(values + reach < 0))
        positive = int(np.count_nonzero(values - reach > 0))
        unknown = int(np.count_nonzero(np.isnan(values + reach)))
        return cls(negative, values.size - negative - positive - unknown, positive, unknown)

    def __str__(self) -> str:
        """Say it in words."""
        words = (
            f"{self._share(self.negative)} of {self.total:,} blocks are clearly worth less than "
            f"nothing, {self._share(self.positive)} clearly more than nothing; "
            f"{self._share(self.undecided)} cannot be told from zero"
        )
        unknown = f"; of {self._share(self.unknown)} value or error is not known"
        return words + unknown if self.unknown else words

    def _share(self, count: int) -> str:
        return f"{count:,} ({count / max(self.total, 1):.1%})"

    def with_others(self, other: Signs) -> Signs:
        """Count these and others together."""
        return Signs(*(one + two for one, two in zip(self, other, strict=True)))


def student_width(freedom: Any) -> Floats:
    """Return half the width of Student's 95% interval, in standard errors."""
    return np.asarray(stdtrit(freedom, ndtr(WIDTH_95)))


def widening(n_seen: Any) -> Floats:
    """How much errors from so few observations grow for 1.96 of them to make a 95 % interval.

    Spreads of few observations are uncertain themselves, as Student found: two sweeps tell little.

    Examples
    --------
    >>> widening([2, 4, 10, 100]).round(2)
    array([6.48, 1.62, 1.15, 1.01])
    """
    # Most blocks were seen equally often, and the quantile takes its time.
    distinct, places = np.unique(np.asarray(n_seen), return_inverse=True)
    wider = student_width(np.maximum(distinct - 1, 1)) / WIDTH_95
    return np.asarray(wider[places].reshape(np.shape(n_seen)))


def both_errors(standard: Floats, validation: Floats | None) -> Floats:
    """Root of the sum of squares of the errors that are known; NaN where neither is."""
    if validation is None:
        return standard
    squares: Floats = np.nan_to_num(standard) ** 2 + np.nan_to_num(validation) ** 2
    return np.where(np.isnan(standard) & np.isnan(validation), np.nan, np.sqrt(squares))
