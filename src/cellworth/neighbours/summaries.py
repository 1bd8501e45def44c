"""What a column's cells have in common: summaries that merge, the same bits in any order.

Sums are exact, quantiles are read from counts of distinct numbers. However a column is cut into
parts, and in whatever order parts and rows come, a summary is the same to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Wholes = NDArray[np.int64]
# Low bits that were dropped, distinct keys in order, and how often each came.
_Counted = tuple[int, Wholes, Wholes]

# Distinct numbers that are told apart; of more, the lowest bits are dropped until there are fewer.
MOST_KEYS = 2**16
# Numbers that are sorted together: the more, the less often counts are joined.
_AT_ONCE = 2**17
# The smallest float is 2**-1074.
_UNIT_BITS = 1074
_MAGNITUDE = 2**63 - 1


@dataclass(frozen=True, eq=False)
class Numbers:
    """Known numbers of a column, and how many gaps there are.

    Parameters
    ----------
    whole : bool
        Whether numbers are whole, as microseconds are; else they are floats.
    count, gaps : int
        How many are known, and how many are not.
    total, squares : int
        Exact sums of numbers and of their squares, in the unit of the smallest float and in its
        square; in units of 1 for whole numbers.
    ends : tuple
        Smallest and largest number; (0, 0) where none is known.
    narrow : bool
        Whether all survive as float32.
    shift : int
        Low bits of keys that were dropped: the fewest that leave at most 65,536 distinct keys.
    keys, counts : arrays
        Distinct keys in order, and how often each came. Keys have the order of numbers.
    """

    whole: bool
    count: int
    gaps: int
    total: int
    squares: int
    ends: tuple[float, float]
    narrow: bool
    shift: int
    keys: Wholes
    counts: Wholes

    @classmethod
    def of(cls, cells: NDArray[Any]) -> Numbers:
        """Summarise float64 numbers, in which NaN is a gap, or int64 numbers."""
        # So few need no compiled kernel, which would take longer to load.
        if len(cells) > MOST_KEYS:
            gathering = Gathering(whole=cells.dtype.kind == "i")
            gathering.add(cells)
            return gathering.summary()
        if cells.dtype.kind == "i":
            return _few_wholes(cells)
        return _few_floats(cells)

    def merge(self, other: Numbers) -> Numbers:
        """Summary of the numbers of both."""
        known = [part for part in (self, other) if part.count]
        shift, keys, counts = _joined(
            (self.shift, self.keys, self.counts), (other.shift, other.keys, other.counts)
        )
        return Numbers(
            self.whole,
            self.count + other.count,
            self.gaps + other.gaps,
            self.total + other.total,
            self.squares + other.squares,
            (min(p.ends[0] for p in known), max(p.ends[1] for p in known)) if known else (0, 0),
            self.narrow and other.narrow,
            shift,
            keys,
            counts,
        )

    @property
    def reach(self) -> tuple[float, float]:
        """Smallest and largest number; whole numbers are counted from the smallest."""
        return (0.0, float(self.ends[1] - self.ends[0])) if self.whole else self.ends

    def variance(self) -> float:
        """Mean squared distance from the mean, rounded once; infinity if it is too large."""
        unit = 1 if self.whole else 4**_UNIT_BITS
        spread = self.count * self.squares - self.total**2
        try:
            return float(Fraction(spread, self.count**2 * unit))
        except OverflowError:
            return math.inf

    def percentile(self, percent: float) -> float:
        """Number below which so many per cent are, between two by interpolation.

        While there are no more than 65,536 distinct numbers, this is what ``np.percentile`` gives,
        to the last bit. With more, a number is known but for the bits that were dropped, and
        those of one key are taken to lie evenly. Quartiles of a million draws (normal, lognormal,
        heavy tails, moments) are then as far apart as exact ones, but for 3 in 100,000. What lies
        closer together than a key is wide, as numbers 1 apart at 1e9 in a column that reaches
        1e12, is not told apart. Whole numbers are counted from the smallest.
        """
        place = (self.count - 1) * (percent / 100)
        before = math.floor(place)
        low, high = self._ranked(before), self._ranked(min(before + 1, self.count - 1))
        share = place - before
        gap = high - low
        return high - gap * (1 - share) if share >= 0.5 else low + gap * share

    def _ranked(self, rank: int) -> float:
        ends = np.cumsum(self.counts)
        place = int(np.searchsorted(ends, rank, side="right"))
        key, count = int(self.keys[place]), int(self.counts[place])
        if self.shift == 0:
            return self._number(key)
        low = self._number(max(key << self.shift, _key(self.ends[0])))
        high = self._number(min((key + 1) << self.shift, _key(self.ends[1])))
        within = rank - (int(ends[place]) - count)
        return low + (high - low) * ((within + 0.5) / count)

    def _number(self, key: int) -> float:
        if self.whole:
            return float(key - int(self.ends[0]))
        return float(_flipped(np.array([key])).view(np.float64)[0])


@dataclass(frozen=True, eq=False)
class Categories:
    """Distinct cells of a column, and how many gaps there are.

    Parameters
    ----------
    counts : dict
        How often each cell came.
    firsts : dict
        Where each came first.
    gaps : int
    """

    counts: dict[Any, int]
    firsts: dict[Any, int]
    gaps: int

    @property
    def count(self) -> int:
        """How many cells are known."""
        return sum(self.counts.values())

    @property
    def values(self) -> list[Any]:
        """Distinct cells in the order in which they came first."""
        return sorted(self.firsts, key=self.firsts.__getitem__)

    def merge(self, other: Categories) -> Categories:
        """Summary of the cells of both."""
        return Categories(
            _with(self.counts, other.counts, int.__add__),
            _with(self.firsts, other.firsts, min),
            self.gaps + other.gaps,
        )


class Gathering:
    """Numbers that are summarised part by part, in bounded memory.

    Parameters
    ----------
    whole : bool
        Whether numbers are whole, as microseconds are; else they are floats.
    """

    def __init__(self, *, whole: bool) -> None:
        """Begin with none."""
        self._whole = whole
        self._limbs = np.zeros(8 if whole else (2047, 6), dtype=np.int64)
        self._gaps = 0
        self._waiting: list[NDArray[Any]] = []
        self._ends: list[float] = []
        self._narrow = not whole
        self._counted: _Counted = (0, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))

    def add(self, cells: NDArray[Any]) -> None:
        """Add finite float64 numbers, in which NaN is a gap, or int64 numbers."""
        for start in range(0, len(cells), _AT_ONCE):
            self._waiting.append(cells[start : start + _AT_ONCE])
            if sum(map(len, self._waiting)) >= _AT_ONCE:
                self._add_waiting()

    def add_gaps(self, gaps: int) -> None:
        """Add this many gaps."""
        self._gaps += gaps

    def _add_waiting(self) -> None:
        ordered = np.sort(np.concatenate(self._waiting))
        self._waiting = []
        if not self._whole:
            # NaN are sorted to the end.
            n_known = int(np.searchsorted(ordered, np.inf, side="right"))
            self._gaps += len(ordered) - n_known
            ordered = ordered[:n_known]
        if len(ordered):
            self._add_ordered(ordered)

    def _add_ordered(self, ordered: NDArray[Any]) -> None:
        from cellworth.neighbours import summary_kernels as kernels

        if self._whole:
            keys, counts = kernels.runs_of_wholes(ordered)
            kernels.add_wholes(keys, counts, self._limbs)
        else:
            keys, counts = kernels.runs_of_floats(ordered.view(np.int64))
            self._narrow &= kernels.add_floats(keys, counts, self._limbs)
        ends = [*self._ends, *_ends(ordered[[0, -1]])]
        self._ends = [min(ends), max(ends)]
        self._counted = _joined(self._counted, (0, keys, counts))

    def summary(self) -> Numbers:
        """What came so far."""
        if self._waiting:
            self._add_waiting()
        sums = _whole_sums(self._limbs) if self._whole else _float_sums(self._limbs)
        low, high = self._ends or (0, 0)
        shift, keys, counts = self._counted
        return Numbers(
            self._whole, int(counts.sum()), self._gaps, *sums, (low, high), self._narrow,
            shift, keys, counts,
        )  # fmt: skip


def _few_floats(cells: Floats) -> Numbers:
    known = cells[~np.isnan(cells)]
    # Adding zero turns -0.0 into 0.0.
    bits = (known + 0.0).view(np.int64)
    keys, counts = np.unique(_flipped(bits), return_counts=True)
    with np.errstate(over="ignore"):
        narrow = bool((known.astype(np.float32) == known).all())
    return Numbers(
        False,
        len(known),
        len(cells) - len(known),
        *_float_sums(_limbs(bits)),
        _ends(np.array([known.min(), known.max()])) if len(known) else (0, 0),
        narrow,
        0,
        keys,
        counts.astype(np.int64),
    )


def _few_wholes(cells: Wholes) -> Numbers:
    keys, counts = np.unique(cells, return_counts=True)
    listed = list(zip(keys.tolist(), counts.tolist(), strict=True))
    return Numbers(
        True,
        len(cells),
        0,
        sum(number * times for number, times in listed),
        sum(number * number * times for number, times in listed),
        _ends(keys[[0, -1]]) if len(keys) else (0, 0),
        False,
        0,
        keys,
        counts.astype(np.int64),
    )


def _ends(ends: NDArray[Any]) -> tuple[float, float]:
    # Adding zero turns -0.0 into 0.0.
    low, high = (ends + ends.dtype.type(0)).tolist()
    return low, high


def _flipped(bits: Wholes) -> Wholes:
    """Keys in the order of numbers from the bits of floats, or bits from keys."""
    flipped: Wholes = bits ^ ((bits >> 63) & _MAGNITUDE)
    return flipped


def _key(number: float) -> int:
    if isinstance(number, int):
        return number
    return int(_flipped(np.array([number]).view(np.int64))[0])


def _limbs(bits: Wholes) -> Wholes:
    """Mantissas and their squares in limbs of 27 bits, added up by exponent."""
    field = (bits & _MAGNITUDE) >> 52
    mantissa = (bits & (2**52 - 1)) + (np.minimum(field, 1) << 52)
    high, low = mantissa >> 27, mantissa & (2**27 - 1)
    cross = high * low
    bottom = low * low + ((cross & (2**26 - 1)) << 28)
    top = high * high + (cross >> 26) + (bottom >> 54)
    sign = np.where(bits < 0, -1, 1)
    lowest = 2**27 - 1
    parts = [
        sign * low, sign * high, bottom & lowest, (bottom >> 27) & lowest, top & lowest, top >> 27
    ]  # fmt: skip
    # Sums of 27 bits stay exact as floats, for numbers as few as these.
    field = np.maximum(field, 1)
    return np.stack([np.bincount(field, part, 2047).astype(np.int64) for part in parts], axis=1)


def _float_sums(limbs: Wholes) -> tuple[int, int]:
    total = squares = 0
    for field in np.flatnonzero(limbs.any(axis=1)).tolist():
        parts = limbs[field].tolist()
        total += (parts[0] + (parts[1] << 27)) << (field - 1)
        square = sum(part << (27 * place) for place, part in enumerate(parts[2:]))
        squares += square << (2 * (field - 1))
    return total, squares


def _whole_sums(limbs: Wholes) -> tuple[int, int]:
    high, low, *parts = limbs.tolist()
    shifts = (96, 64, 65, 33, 32, 0)
    return (high << 32) + low, sum(p << s for p, s in zip(parts, shifts, strict=True))


def _joined(one: _Counted, other: _Counted) -> _Counted:
    from cellworth.neighbours import summary_kernels as kernels

    shift = max(one[0], other[0])
    sides = [kernels.coarsened(keys, counts, shift - own) for own, keys, counts in (one, other)]
    keys, counts = kernels.joined(*sides[0], *sides[1])
    drop = kernels.bits_to_drop(keys, MOST_KEYS)
    if drop:
        keys, counts = kernels.coarsened(keys, counts, drop)
    return shift + drop, keys, counts


def _with(
    one: dict[Any, int], other: dict[Any, int], joined: Callable[[int, int], int]
) -> dict[Any, int]:
    both = dict(one)
    for cell, number in other.items():
        both[cell] = joined(both[cell], number) if cell in both else number
    return both
