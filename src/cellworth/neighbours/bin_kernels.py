"""Numba kernels of rank bins: rows are counted by distance instead of sorted."""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from cellworth.neighbours.kernels import fill_block, kernel, measure

# Distances are told apart in this many steps beyond the nearest rows.
N_STEPS = 4096

# Rows measured together, whose distances stay in the cache, and rows counted together.
_ROWS_AT_ONCE = 512
_ROWS_COUNTED = 8192
_LANES = 4
# Four places of 16 bits are read as one word.
_PLACE = np.uint64(0xFFFF)
_SECOND, _THIRD, _FOURTH = np.uint64(16), np.uint64(32), np.uint64(48)


@kernel
def place_edges(sample, edge_places, steps_to_bin):
    """Choose where the nearest rows end and where bins begin, from a sample of the rows.

    Parameters
    ----------
    sample : (n_sample,) int32
        Distances as ordered by 32 bits, sorted.
    edge_places : (n_edges,) int64
        Places in the sample at which bins begin, ascending; the nearest rows end at the first.
    steps_to_bin : (N_STEPS,) uint16
        Filled: twice the bin of each step.

    Returns
    -------
    tuple
        Where the nearest rows end, and how many bits wide a step is.
    """
    low = np.int64(sample[edge_places[0]])
    high = np.int64(sample[edge_places[-1]])
    bits = 0
    while _step(high - low, bits) >= N_STEPS - 1:
        bits += 1
    steps_to_bin[:] = 0
    # The first step is the distance at which the nearest end and no other: many rows may tie there,
    # and the K nearest may be among them.
    steps_to_bin[1] = 1
    for place in edge_places[1:]:
        steps_to_bin[_step(np.int64(sample[place]) - low, bits)] = 1
    steps_to_bin[0] = 0
    n_bins = 0
    for step in range(N_STEPS):
        n_bins += steps_to_bin[step]
        steps_to_bin[step] = 2 * n_bins
    return low, bits


@kernel
def _step(beyond, bits):
    """Step that a distance is in, so far beyond the nearest; rounded up."""
    return (beyond + (1 << bits) - 1) >> bits


@kernel
def ordinals(keys, shift, floats):
    """Order distances by 32 bits: the bits of a float that is not negative grow with it."""
    for i in range(keys.shape[0]):
        floats[i] = np.float32((keys[i] >> shift) + 1)


@kernel
def bin_rows(
    rows, query, rulers, players, order, steps, payload, shift, edges, places, counts, near, n_near
):
    """Count rows by bin and match, and list the nearest, for all coalitions of one query.

    Parameters
    ----------
    rows, query, rulers, players, order, steps, payload, shift
        As in fill_keys; the payload has the match of labels in its lowest bit.
    edges : tuple
        Ends of the nearest, width of a step in bits, bins of steps: a line per coalition.
    places : (n_coalitions, n_rows) uint16
        Filled: twice the bin of each row, plus 1 for a match; the last place for the nearest.
    counts : (n_coalitions, n_places) int64
        Added to.
    near : (n_coalitions, n_most) int64
        Filled: sort keys of the nearest rows.
    n_near : (n_coalitions,) int64
        Number of nearest rows, even where ``near`` has not room for all of them.
    """
    nearest_end, bits, steps_to_bin = edges
    n_rows, n_coalitions = payload.shape[0], places.shape[0]
    n_places = counts.shape[1]
    block = np.empty((order.shape[0] + 1, _ROWS_AT_ONCE), dtype=np.int64)
    keys = np.empty((n_coalitions, _ROWS_AT_ONCE), dtype=np.int64)
    floats = np.empty(_ROWS_AT_ONCE, dtype=np.float32)
    ordinal = floats.view(np.int32)
    reached = np.empty(_ROWS_AT_ONCE, dtype=np.uint16)
    match = np.empty(_ROWS_AT_ONCE, dtype=np.uint16)
    lanes = np.zeros((_LANES, n_places), dtype=np.int32)
    counted = 0
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        width = min(_ROWS_AT_ONCE, n_rows - first)
        measure(rows, query, rulers, players, shift, first, width, block)
        fill_block(block, order, steps, payload[first : first + width], keys, 0)
        for i in range(width):
            match[i] = payload[first + i] & 1
        for s in range(n_coalitions):
            line, place = keys[s, :width], places[s, first : first + width]
            ordinals(line, shift, floats)
            # Two loops: together they would not fit the vector units.
            _find_steps(ordinal, nearest_end[s], bits[s], reached[:width])
            _find_places(reached, match, steps_to_bin[s], place)
            if _smallest(ordinal, width) < nearest_end[s]:
                for i in range(width):
                    if ordinal[i] < nearest_end[s]:
                        place[i] = n_places - 1
                        if n_near[s] < near.shape[1]:
                            near[s, n_near[s]] = line[i]
                        n_near[s] += 1
        if first + width - counted >= _ROWS_COUNTED or first + width == n_rows:
            for s in range(n_coalitions):
                _count(places[s, counted : first + width], lanes, counts[s])
            counted = first + width


@kernel
def _find_steps(ordinal, low, bits, reached):
    bits = np.int32(bits)
    # Rounded up, as in _step.
    low = np.int32(low - (1 << bits) + 1)
    none, last = np.int32(0), np.int32(N_STEPS - 1)
    for i in range(reached.shape[0]):
        step = np.int32(max(np.int32(ordinal[i] - low), none) >> bits)
        reached[i] = np.uint16(min(step, last))


@kernel
def _find_places(reached, match, steps_to_bin, place):
    for i in range(place.shape[0]):
        place[i] = steps_to_bin[reached[i]] | match[i]


@kernel
def _smallest(ordinal, width):
    smallest = ordinal[0]
    for i in range(width):
        smallest = min(smallest, ordinal[i])
    return smallest


@kernel
def _count(place, lanes, counts):
    # Several lanes: the same bin often comes twice in a row, and would wait for itself.
    lanes[:] = 0
    n_words = place.shape[0] // _LANES
    words = place[: n_words * _LANES].view(np.uint64)
    for i in range(n_words):
        word = words[i]
        lanes[0, word & _PLACE] += 1
        lanes[1, (word >> _SECOND) & _PLACE] += 1
        lanes[2, (word >> _THIRD) & _PLACE] += 1
        lanes[3, word >> _FOURTH] += 1
    for i in range(n_words * _LANES, place.shape[0]):
        lanes[0, place[i]] += 1
    for k in range(counts.shape[0]):
        counts[k] += lanes[0, k] + lanes[1, k] + lanes[2, k] + lanes[3, k]


@kernel
def binned_values(counts, near, shift, single, running, far_values, near_values):
    """Values by place for far rows, and of each of the nearest, for one coalition.

    Parameters
    ----------
    counts : (n_places,) int64
        Rows by twice the bin plus match; the last place counts the nearest.
    near : (n_near,) int64
        Sorted keys of the nearest rows.
    far_values : (n_places,) float64
        Filled; 0 at the last place.
    near_values : (n_near,) float64
        Filled, in the order of ``near``.
    """
    n_bins = (counts.shape[0] - 1) // 2
    far_values[:] = 0.0
    farther = 0.0
    end = counts[:-1].sum() + near.shape[0]
    for b in range(n_bins - 1, -1, -1):
        matches, tied = counts[2 * b + 1], counts[2 * b] + counts[2 * b + 1]
        if tied == 0:
            continue
        begin = end - tied
        of_other, of_match, farther = _tied_values(begin, end, matches, single, running, farther)
        far_values[2 * b] = of_other
        far_values[2 * b + 1] = of_match
        end = begin
    while end > 0:
        begin = end - 1
        distance = near[begin] >> shift
        matches = near[begin] & 1
        while begin > 0 and near[begin - 1] >> shift == distance:
            begin -= 1
            matches += near[begin] & 1
        of_other, of_match, farther = _tied_values(begin, end, matches, single, running, farther)
        for i in range(begin, end):
            near_values[i] = of_match if near[i] & 1 else of_other
        end = begin


@kernel
def _tied_values(begin, end, matches, single, running, farther):
    """Values of rows tied at ranks begin + 1 to end, and what they do to those in front."""
    tied = end - begin
    mean = (running[end] - running[begin]) / tied
    pushed = (mean - single[end]) / (tied - 1) if tied > 1 else 0.0
    of_other = -matches * pushed - farther
    of_match = mean + pushed + of_other
    if begin > 0:
        farther += matches * (single[begin] - single[end]) / tied
    return of_other, of_match, farther


@kernel
def add_far(places, far_values, weights, into):
    """Add what far rows are worth: ``into[j] += weights[s, j] * far_values[s, places[s]]``."""
    n_coalitions, n_rows = places.shape
    line = np.empty(_ROWS_AT_ONCE)
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        width = min(_ROWS_AT_ONCE, n_rows - first)
        for s in range(n_coalitions):
            place, values = places[s, first : first + width], far_values[s]
            for i in range(width):
                line[i] = values[place[i]]
            for j in range(into.shape[0]):
                weight = weights[s, j]
                # In designs of prefixes a coalition counts for two columns only.
                if weight != 0.0:
                    _add_weighted(line, weight, into[j, first : first + width])


@kernel
def _add_weighted(line, weight, cells):
    for i in range(cells.shape[0]):
        cells[i] += weight * line[i]


@kernel
def add_near(rows, values, weights, into):
    """Add what the nearest rows of one coalition are worth."""
    for k in range(rows.shape[0]):
        for j in range(into.shape[0]):
            into[j, rows[k]] += weights[j] * values[k]
