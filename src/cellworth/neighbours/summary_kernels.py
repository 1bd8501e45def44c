"""Numba kernels that gather what a column's numbers have in common: arrays in, arrays out.

Sums are kept in whole-number limbs, so that the order of numbers cannot matter. Keys are whole
numbers in the order of the numbers that they stand for; each comes with a count. This module is
imported where it is used.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from cellworth.neighbours.kernels import kernel

_MAGNITUDE = 2**63 - 1
_FRACTION = 2**52 - 1
_26, _27, _32, _54 = 2**26 - 1, 2**27 - 1, 2**32 - 1, 2**54 - 1


@kernel
def runs_of_floats(bits):
    """Keys and counts from the bits of sorted floats without NaN; negative zero is zero."""
    keys, counts = np.empty_like(bits), np.empty_like(bits)
    place = -1
    for i in range(bits.shape[0]):
        key = bits[i] ^ ((bits[i] >> 63) & _MAGNITUDE)
        # The key of negative zero is -1.
        key += key == -1
        if place >= 0 and keys[place] == key:
            counts[place] += 1
        else:
            place += 1
            keys[place] = key
            counts[place] = 1
    return keys[: place + 1], counts[: place + 1]


@kernel
def runs_of_wholes(numbers):
    """Keys and counts of sorted whole numbers, which are their own keys."""
    keys, counts = np.empty_like(numbers), np.empty_like(numbers)
    place = -1
    for i in range(numbers.shape[0]):
        if place >= 0 and keys[place] == numbers[i]:
            counts[place] += 1
        else:
            place += 1
            keys[place] = numbers[i]
            counts[place] = 1
    return keys[: place + 1], counts[: place + 1]


@kernel
def add_floats(keys, counts, limbs):
    """Add finite floats to limbs of 27 bits, by exponent; tell whether all survive as float32.

    Parameters
    ----------
    keys, counts : (n,) int64
    limbs : (2047, 6) int64
        Two for the numbers, four for their squares.
    """
    narrow = True
    for i in range(keys.shape[0]):
        times = counts[i]
        bits = keys[i] ^ ((keys[i] >> 63) & _MAGNITUDE)
        magnitude = bits & _MAGNITUDE
        field = magnitude >> 52
        mantissa = magnitude & _FRACTION
        if field > 0:
            mantissa += _FRACTION + 1
        narrow &= _is_narrow(field, mantissa)
        field = max(field, 1)
        high, low = mantissa >> 27, mantissa & _27
        cross = high * low
        bottom = low * low + ((cross & _26) << 28)
        top = high * high + (cross >> 26) + (bottom >> 54)
        bottom &= _54
        signed = -times if bits < 0 else times
        limbs[field, 0] += low * signed
        limbs[field, 1] += high * signed
        limbs[field, 2] += (bottom & _27) * times
        limbs[field, 3] += (bottom >> 27) * times
        limbs[field, 4] += (top & _27) * times
        limbs[field, 5] += (top >> 27) * times
    return narrow


@kernel
def _is_narrow(field, mantissa):
    """Whether a float32 holds this magnitude: 24 bits, exponents from -149 to 127."""
    if mantissa == 0:
        return True
    if field > 1023 + 127 or field < 1023 - 149:
        return False
    lost = 29 + max(0, 1023 - 126 - field)
    return mantissa & ((1 << lost) - 1) == 0


@kernel
def add_wholes(keys, counts, limbs):
    """Add whole numbers to eight limbs of 32 bits: two for numbers, six for their squares."""
    for i in range(keys.shape[0]):
        times = counts[i]
        high, low = keys[i] >> 32, keys[i] & _32
        square, cross = high * high, high * low
        bottom = np.uint64(low) * np.uint64(low)
        limbs[0] += high * times
        limbs[1] += low * times
        limbs[2] += (square >> 32) * times
        limbs[3] += (square & _32) * times
        limbs[4] += (cross >> 32) * times
        limbs[5] += (cross & _32) * times
        limbs[6] += np.int64(bottom >> np.uint64(32)) * times
        limbs[7] += np.int64(bottom & np.uint64(_32)) * times


@kernel
def coarsened(keys, counts, drop):
    """Sorted keys without so many low bits; those that are the same then are one."""
    coarse, sums = np.empty_like(keys), np.empty_like(counts)
    place = -1
    for i in range(keys.shape[0]):
        key = keys[i] >> drop
        if place >= 0 and coarse[place] == key:
            sums[place] += counts[i]
        else:
            place += 1
            coarse[place] = key
            sums[place] = counts[i]
    return coarse[: place + 1], sums[: place + 1]


@kernel
def joined(keys, counts, more_keys, more_counts):
    """Join two lists of sorted distinct keys with counts."""
    n, m = keys.shape[0], more_keys.shape[0]
    all_keys, all_counts = np.empty(n + m, dtype=np.int64), np.empty(n + m, dtype=np.int64)
    place, i, j = 0, 0, 0
    while i < n and j < m:
        key, other = keys[i], more_keys[j]
        all_keys[place] = min(key, other)
        all_counts[place] = (key <= other) * counts[i] + (other <= key) * more_counts[j]
        i += key <= other
        j += other <= key
        place += 1
    for k in range(i, n):
        all_keys[place], all_counts[place] = keys[k], counts[k]
        place += 1
    for k in range(j, m):
        all_keys[place], all_counts[place] = more_keys[k], more_counts[k]
        place += 1
    return all_keys[:place], all_counts[:place]


@kernel
def bits_to_drop(keys, most):
    """Fewest low bits without which sorted distinct keys are no more than so many."""
    if keys.shape[0] <= most:
        return 0
    # Halving: without 64 bits there is one key, without none there are too many.
    too_few, enough = 0, 64
    while enough - too_few > 1:
        drop = (too_few + enough) // 2
        distinct = 1
        for i in range(1, keys.shape[0]):
            distinct += (keys[i] ^ keys[i - 1]) >> drop != 0
        if distinct > most:
            too_few = drop
        else:
            enough = drop
    return enough
