"""Mergeable statistics of columns: the same exact sums and the same quantiles for any sharding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Integers
from cellworth.data.column import NO_TIME

# In tables of up to this many rows, all distinct numbers are kept, and percentiles are exact.
MAX_EXACT = 2**16
# Most keys of other columns, of which low bits are dropped: their summaries have at most 16 kB.
MAX_KEYS = 900
# Numbers sorted together: a larger batch joins counts less often.
AT_ONCE = 2**17
_IN_CACHE = 2**13
# The smallest float is 2**-1074.
_UNIT_BITS = 1074
_MAGNITUDE = 2**63 - 1
_LOW = 2**32 - 1
_Counted = tuple[int, Integers, Integers]


@dataclass(frozen=True, eq=False)
class NumberSummary:
    """Summary of the numbers of a column, and the number of missing values."""

    # Whether numbers are integers, such as microseconds, or floats.
    integral: bool
    count: int
    n_missing: int
    # Exact sums of the numbers and of their squares, in units of 1 for integers, else of the
    # smallest float and of its square.
    total: int
    squares: int
    # Smallest and largest number; (0, 0) if there is none.
    ends: tuple[float, float]
    # Whether all numbers are exact as float32.
    narrow: bool
    # Most distinct numbers that are all kept.
    most: int
    # Low bits dropped from keys: none if all numbers are kept, else the fewest that leave at most
    # MAX_KEYS distinct keys.
    shift: int
    # Sorted distinct keys, in the order of the numbers, and how often each occurs.
    keys: Integers
    counts: Integers

    @classmethod
    def from_cells(cls, cells: NDArray[Any], most: int = MAX_EXACT) -> NumberSummary:
        """Summarize finite float64 numbers, NaN if missing, or int64 numbers, NO_TIME if missing.

        If there are more than ``most`` different numbers, they are counted in buckets.
        """
        parts = [cells[i : i + AT_ONCE] for i in range(0, max(len(cells), 1), AT_ONCE)]
        return reduce(cls.merge, (_summarize_part(part, most) for part in parts))

    def merge(self, other: NumberSummary) -> NumberSummary:
        """Return the summary of the numbers of both, in which as many distinct numbers are kept."""
        known = [part for part in (self, other) if part.count]
        shift = max(self.shift, other.shift)
        keys = np.concatenate([part.keys >> (shift - part.shift) for part in (self, other)])
        counts, order = np.concatenate([self.counts, other.counts]), np.argsort(keys, kind="stable")
        shift, keys, counts = _drop_low_bits(shift, keys[order], counts[order], self.most)
        return NumberSummary(
            self.integral,
            self.count + other.count,
            self.n_missing + other.n_missing,
            self.total + other.total,
            self.squares + other.squares,
            (min(p.ends[0] for p in known), max(p.ends[1] for p in known)) if known else (0, 0),
            self.narrow and other.narrow,
            self.most,
            shift,
            keys,
            counts,
        )

    @property
    def reach(self) -> tuple[float, float]:
        """Smallest and largest number; integers are counted from the smallest."""
        return (0.0, float(self.ends[1] - self.ends[0])) if self.integral else self.ends

    def variance(self) -> float:
        """Return the variance, rounded once; infinity if it is too large."""
        scatter = self.count * self.squares - self.total**2
        try:
            return float(Fraction(scatter, (self.count * self._unit) ** 2))
        except OverflowError:
            return math.inf

    def mean(self) -> float:
        """Return the exact sum, rounded once, over the number of numbers."""
        return float(Fraction(self.total, self._unit)) / self.count

    def deviations(self, center: float) -> tuple[float, float]:
        """Return the sums of the differences from a number and of their squares, rounded once."""
        total, middle = Fraction(self.total, self._unit), Fraction(center)
        squares = Fraction(self.squares, self._unit**2)
        return (
            float(total - self.count * middle),
            float(squares - 2 * middle * total + self.count * middle**2),
        )

    @property
    def _unit(self) -> int:
        return 1 if self.integral else 2**_UNIT_BITS

    def percentile(self, percent: float) -> float:
        """Return a percentile, with linear interpolation.

        If all distinct numbers are kept, the result equals ``np.percentile`` to the last bit.
        Otherwise, powers of two are divided into buckets of equal width, whose numbers are assumed
        to be evenly spaced: a percentile is off by less than the width of its bucket. The
        interquartile range of a million draws (normal, lognormal, heavy tails, timestamps) is exact
        to 3 in 10,000. Integers are counted from the smallest.
        """
        position = (self.count - 1) * (percent / 100)
        before = math.floor(position)
        low, high = self._number_at(before), self._number_at(min(before + 1, self.count - 1))
        share = position - before
        difference = high - low
        return high - difference * (1 - share) if share >= 0.5 else low + difference * share

    def _number_at(self, rank: int) -> float:
        ends = np.cumsum(self.counts)
        position = int(np.searchsorted(ends, rank, side="right"))
        key, count = int(self.keys[position]), int(self.counts[position])
        if self.shift == 0:
            return self._number(key)
        low = self._number(max(key << self.shift, _compute_key(self.ends[0])))
        high = self._number(min((key + 1) << self.shift, _compute_key(self.ends[1])))
        within = rank - (int(ends[position]) - count)
        return low + (high - low) * ((within + 0.5) / count)

    @property
    def distinct(self) -> dict[float, int]:
        """How often each number occurs; nothing if not all of them are kept."""
        if self.shift:
            return {}
        numbers = self.keys if self.integral else _flip_bits(self.keys).view(np.float64)
        return dict(zip(numbers.tolist(), self.counts.tolist(), strict=True))

    def _number(self, key: int) -> float:
        if self.integral:
            return float(key - int(self.ends[0]))
        return float(_flip_bits(np.array([key])).view(np.float64)[0])


@dataclass(frozen=True, eq=False)
class CategorySummary:
    """Distinct cells of a column, and the number of missing values."""

    # How often, and where first, each cell occurs.
    counts: dict[Any, int]
    firsts: dict[Any, int]
    n_missing: int

    @property
    def count(self) -> int:
        """Number of known cells."""
        return sum(self.counts.values())

    @property
    def values(self) -> list[Any]:
        """Distinct cells in order of first appearance."""
        return sorted(self.firsts, key=self.firsts.__getitem__)

    def merge(self, other: CategorySummary) -> CategorySummary:
        """Return the summary of the cells of both."""
        counts, firsts = self.counts | other.counts, self.firsts | other.firsts
        return CategorySummary(
            {cell: self.counts.get(cell, 0) + other.counts.get(cell, 0) for cell in counts},
            {cell: min(self.firsts.get(cell, at), at) for cell, at in firsts.items()},
            self.n_missing + other.n_missing,
        )


def limit_keys(n_rows: int) -> int:
    """Return how many distinct numbers of a column are kept in a table of so many rows."""
    return MAX_EXACT if n_rows <= MAX_EXACT else MAX_KEYS


def _summarize_part(cells: NDArray[Any], most: int) -> NumberSummary:
    integral = cells.dtype.kind == "i"
    # Adding zero turns -0.0 into 0.0.
    known = cells[cells != NO_TIME] if integral else cells[~np.isnan(cells)] + 0.0
    keys, counts = np.unique(
        known if integral else _flip_bits(known.view(np.int64)), return_counts=True
    )
    counts = counts.astype(np.int64)
    numbers = keys if integral else _flip_bits(keys).view(np.float64)
    parts = (slice(i, i + _IN_CACHE) for i in range(0, len(keys), _IN_CACHE))
    sums = [(_sum_integers if integral else _sum_floats)(keys[p], counts[p]) for p in parts]
    shift, *fitted = _drop_low_bits(0, keys, counts, most)
    with np.errstate(over="ignore"):
        narrow = not integral and bool((numbers.astype(np.float32) == numbers).all())
    return NumberSummary(
        integral,
        len(known),
        len(cells) - len(known),
        sum(total for total, _ in sums),
        sum(squares for _, squares in sums),
        (numbers[0].item(), numbers[-1].item()) if len(numbers) else (0, 0),
        narrow,
        most,
        shift,
        *fitted,
    )


def _flip_bits(bits: Integers) -> Integers:
    """Convert the bits of floats to keys in the order of the numbers, or keys to bits."""
    flipped: Integers = bits ^ ((bits >> 63) & _MAGNITUDE)
    return flipped


def _compute_key(number: float) -> int:
    if isinstance(number, int):
        return number
    return int(_flip_bits(np.array([number]).view(np.int64))[0])


def _sum_floats(keys: Integers, counts: Integers) -> tuple[int, int]:
    """Return the exact sums of the floats of sorted keys and of their squares."""
    bits = _flip_bits(keys)
    field = (bits & _MAGNITUDE) >> 52
    mantissa = (bits & (2**52 - 1)) + (np.minimum(field, 1) << 52)
    exponent = np.maximum(field, 1) - 1
    starts = _find_starts(exponent)
    high, low = mantissa >> 27, mantissa & (2**27 - 1)
    parts = np.where(bits < 0, -mantissa, mantissa), high * high, high * low, low * low
    sums = (_sum_exactly(part, counts, starts) for part in parts)
    total = squares = 0
    for shift, m, hh, hl, ll in zip(exponent[starts].tolist(), *sums, strict=True):
        total += m << shift
        squares += ((hh << 54) + (hl << 28) + ll) << (2 * shift)
    return total, squares


def _sum_integers(keys: Integers, counts: Integers) -> tuple[int, int]:
    """Return the exact sums of integers and of their squares."""
    high, low = keys >> 32, keys & _LOW
    parts = keys, high * high, high * low, low * low
    (total,), (hh,), (hl,), (ll,) = (_sum_exactly(part, counts, np.array([0])) for part in parts)
    # Low halves squared may need all 64 bits, and then look negative.
    wrapped = int(counts[parts[3] < 0].sum())
    return total, (hh << 64) + (hl << 33) + ll + (wrapped << 64)


def _sum_exactly(numbers: Integers, counts: Integers, starts: Integers) -> list[int]:
    """Return weighted sums by group; halves of 64-bit numbers cannot overflow."""
    halves = (np.add.reduceat(half * counts, starts) for half in (numbers >> 32, numbers & _LOW))
    return [(high << 32) + low for high, low in zip(*(h.tolist() for h in halves), strict=True)]


def _find_starts(ordered: Integers) -> Integers:
    """Return the positions where runs of the same number begin."""
    changes = ordered[1:] != ordered[:-1]
    return np.flatnonzero(np.concatenate([ordered[:1] == ordered[:1], changes]))


def _drop_low_bits(shift: int, keys: Integers, counts: Integers, most: int) -> _Counted:
    """Count sorted keys; if there are too many, drop the fewest low bits that leave MAX_KEYS.

    The result is the number of low bits dropped, sorted distinct keys, and how often each occurs.
    It follows from the numbers alone: a part of them never drops more bits than all.
    """
    drop, limit = 0, MAX_KEYS if shift else most
    if len(keys) > limit:
        # Where two neighbors differ in a bit that is kept, a new key begins.
        apart = (keys[1:] ^ keys[:-1]).view(np.uint64)
        if np.count_nonzero(apart) >= limit:
            drop = int(np.partition(apart, -MAX_KEYS)[-MAX_KEYS]).bit_length()
            keys = keys >> drop
    starts = _find_starts(keys)
    return shift + drop, keys[starts], np.add.reduceat(counts, starts)
