# mypy: ignore-errors
"""Compiled kernels for binned ranks: distances, bins and values."""

from __future__ import annotations

import numpy as np

from cellworth.knn.kernels import (
    add_everything,
    apply_steps,
    kernel,
    measure,
    variance_of_draw,
)
from cellworth.sampling.passes import TARGET_BITS

# Number of steps into which distances beyond the nearest rows are rounded.
N_STEPS = 4096
# Rows whose distances are computed together.
_ROWS_AT_ONCE = 2048
_LANES = 4
# Rows are searched for the nearest in blocks of this size; most blocks have none.
_SEARCHED = 32
# Four bins of 16 bits are read as one word.
_FIELD = np.uint64(0xFFFF)
_SECOND, _THIRD, _FOURTH = np.uint64(16), np.uint64(32), np.uint64(48)
# Targets of far rows have TARGET_BITS and a sign. Squares are summed in two halves.
_LOW_HALF = (1 << TARGET_BITS) - 1


@kernel
def sample_distances(rows, scales, players, batch, steps, query, origins, ordinals):
    """Compute the distances of all rows to one query in 32 bits, one line per coalition.

    Distances are relative to the nearest row's. Otherwise a column in which the query is far from
    all rows would leave too few digits for the other columns.

    Parameters
    ----------
    rows : Columns
    scales : ColumnScales
    players : (n_columns,) int64, player of each column of ``rows``
    batch : QueryBatch
    steps : Steps
    query : int
    origins : (n_coalitions,) float64, output: distance of the nearest row
    ordinals : (n_coalitions, n_rows) float32
        Output; the bits of non-negative floats, read as integers, have the same order.
    """
    n_rows, draw = ordinals.shape[1], batch.draws[query]
    block, line = _make_buffers(batch)
    origins[:] = np.inf
    for is_second in range(2):
        for first in range(0, n_rows, _ROWS_AT_ONCE):
            width = min(_ROWS_AT_ONCE, n_rows - first)
            measure(rows, scales, players, batch, query, first, width, block)
            add_everything(steps, draw, width, block)
            for s in range(ordinals.shape[0]):
                _apply(steps, steps.starts[draw] + s, block, batch.orders[query], line[:width])
                if is_second:
                    _as_ordinals(line[:width], origins[s], ordinals[s, first : first + width])
                else:
                    origins[s] = min(origins[s], _smallest(line[:width]))


@kernel
def count(rows, starts, targets, scales, players, batch, steps, ends, counts, near, n_near, kept):
    """Count rows by bin and list the nearest, for all coalitions of all queries.

    Where targets are None, the compiler drops all that is for numeric targets; so it does with
    what is kept of rows.

    Parameters
    ----------
    rows, scales, players, batch, steps
        As in sample_distances.
    starts : (n_classes + 1,) int64, first row of each class
    targets : (n_rows,) float64, numeric targets in steps of TargetScale; None for classes
    ends : tuple
        Edges of the bins, (n_pairs, n_edges) int32, and the distances that they are relative to,
        (n_pairs,) float64. The nearest rows lie before the first edge.
    counts : (n_pairs, 2, n_bins) uint32
        Counts of rows whose label does not match, and of rows whose label does; added to. For
        numeric targets, (n_pairs, n_bins, 4) int64: see _make_words.
    near : tuple of (n_pairs, n_most) arrays
        Output: twice the distance of each of the nearest rows, plus 1 for a match. For numeric
        targets, the distance, int64, and the target, float64. If steps are kept, also positions.
    n_near : (n_pairs,) int64, output: number of nearest rows, which may exceed n_most
    kept : (n_pairs, n_rows) uint16
        Output for classes: step of each row, from which its bin follows; None if it is not kept.
    """
    n_bins = counts.shape[2]
    block, line = _make_buffers(batch)
    ordinals = np.empty(_ROWS_AT_ONCE, dtype=np.float32)
    buffer = np.empty(_ROWS_AT_ONCE, dtype=np.uint16)
    positions = np.empty(_ROWS_AT_ONCE, dtype=np.uint16)
    lanes = np.zeros((_LANES, n_bins), dtype=np.int32)
    words = np.empty((_ROWS_AT_ONCE, 4), dtype=np.int64)
    edges, origins = ends
    nearest_end, bits, bins = _all_edges(edges)
    for group in range(starts.shape[0] - 1):
        for first in range(starts[group], starts[group + 1], _ROWS_AT_ONCE):
            width = min(_ROWS_AT_ONCE, starts[group + 1] - first)
            if targets is not None:
                _make_words(targets[first : first + width], words)
            for query in range(batch.labels.shape[0]):
                match = np.int64(batch.labels[query] == group)
                measure(rows, scales, players, batch, query, first, width, block)
                draw = batch.draws[query]
                add_everything(steps, draw, width, block)
                for pair in range(batch.pair_starts[query], batch.pair_starts[query + 1]):
                    s = steps.starts[draw] + pair - batch.pair_starts[query]
                    _apply(steps, s, block, batch.orders[query], line[:width])
                    _as_ordinals(line[:width], origins[pair], ordinals[:width])
                    ordinal = ordinals[:width].view(np.int32)
                    reached = _choose_steps(kept, pair, first, buffer[:width])
                    _find_steps(ordinal, nearest_end[pair], bits[pair], reached)
                    _find_bins(reached, bins[pair], positions[:width])
                    if targets is None:
                        _count(positions[:width], lanes, counts[pair, match])
                    else:
                        _add_words(positions[:width], words, counts[pair])
                    if _smallest(ordinal) < nearest_end[pair]:
                        if targets is None:
                            n_near[pair] = _list_nearest(
                                ordinal, nearest_end[pair], line[:width], match, first,
                                near[0][pair], None if kept is None else near[1][pair],
                                n_near[pair], counts[pair, match],
                            )  # fmt: skip
                        else:
                            n_near[pair] = _list_targets(
                                ordinal, nearest_end[pair], line[:width],
                                targets[first : first + width], words, near[0][pair],
                                near[1][pair], n_near[pair], counts[pair, 0],
                            )  # fmt: skip


@kernel
def accumulate(
    rows, starts, targets, scales, players, batch, steps, ends, queries, all_weights, row_values,
    into, seen, kept,
):  # fmt: skip
    """Add the values of rows to their cells, for all coalitions of some queries.

    Parameters
    ----------
    rows, starts, targets, scales, players, batch, steps, ends
        As in count.
    queries : tuple of int, range of queries: the first one, and one after the last
    all_weights : tuple of arrays
        Weights of coalitions, shape (n_coalitions, n_results), of the empty coalition, shape
        (n_draws, n_results), and of queries, in units of fixed point.
    row_values : tuple of arrays
        Values by bin of mismatches and matches, shape (n_pairs, 2, n_bins); values of the nearest
        rows, pair by pair in the order of count; start of each pair in these; and values of
        mismatches and matches without columns, shape (n_queries, 2). For numeric targets, values
        are coefficients of 1, the target and its square, (n_pairs, n_bins, 3) and (n_queries, 3).
    into : (n_strata, n_results, n_rows) int64
        Values of the cells by stratum of the query, added to; with no rows they are not wanted.
    seen : QueryRecord, output: squares of the values of single queries, and sums over cells
    kept : tuple, steps that count kept, and positions of the nearest rows; None if it did not
    """
    weights, without, query_weights = all_weights
    far, near, starts_of_near, nothing = row_values
    cursor = starts_of_near.copy()
    block, line = _make_buffers(batch)
    ordinals = np.empty(_ROWS_AT_ONCE, dtype=np.float32)
    buffer = np.empty(_ROWS_AT_ONCE, dtype=np.uint16)
    positions = np.empty(_ROWS_AT_ONCE, dtype=np.uint16)
    values, units = np.empty(_ROWS_AT_ONCE), np.empty(_ROWS_AT_ONCE, dtype=np.int64)
    n_results, dense = into.shape[1], _dense(steps, weights)
    sums, totals = np.empty((n_results, _ROWS_AT_ONCE)), np.empty(_ROWS_AT_ONCE)
    own_cells = np.empty((n_results, _ROWS_AT_ONCE), dtype=np.int64)
    recorded = seen.squares.shape[2] + seen.sums.shape[1] > 0
    before = batch.pair_starts[queries[0]]
    edges, origins = ends
    nearest_end, bits, bins = _all_edges(edges[before : batch.pair_starts[queries[1]]])
    for group in range(starts.shape[0] - 1):
        for first in range(starts[group], starts[group + 1], _ROWS_AT_ONCE):
            width = min(_ROWS_AT_ONCE, starts[group + 1] - first)
            for query in range(queries[0], queries[1]):
                match = np.int64(batch.labels[query] == group)
                order, draw, weight = batch.orders[query], batch.draws[query], query_weights[query]
                stratum = seen.strata[query]
                # The values of a single query are added up by themselves first.
                cells, at = (own_cells, 0) if recorded else (into[stratum], first)
                if recorded:
                    own_cells[:, :width] = 0
                if kept is None:
                    measure(rows, scales, players, batch, query, first, width, block)
                    add_everything(steps, draw, width, block)
                _begin(
                    _some(targets, first, width), (nothing[query], match, weight), without[draw],
                    dense[draw], order, (values[:width], units[:width], sums), cells, at,
                )  # fmt: skip
                for pair in range(batch.pair_starts[query], batch.pair_starts[query + 1]):
                    s = steps.starts[draw] + pair - batch.pair_starts[query]
                    ordinal, end = ordinals[:width].view(np.int32), nearest_end[pair - before]
                    reached = _choose_steps(
                        None if kept is None else kept[0], pair, first, buffer[:width]
                    )
                    if kept is None:
                        _apply(steps, s, block, order, line[:width])
                        _as_ordinals(line[:width], origins[pair], ordinals[:width])
                        _find_steps(ordinal, end, bits[pair - before], reached)
                    _find_bins(reached, bins[pair - before], positions[:width])
                    _look_up(
                        _some(targets, first, width), positions[:width], match, far[pair],
                        values[:width],
                    )  # fmt: skip
                    if kept is not None:
                        last = starts_of_near[pair + 1]
                        cursor[pair] = _fill_kept(
                            kept[1][:last], near, cursor[pair], first, values[:width]
                        )
                    elif _smallest(ordinal) < end:
                        cursor[pair] = _fill_nearest(ordinal, end, near, cursor[pair], values)
                    if dense[draw]:
                        _add_many(values[:width], weights[s], weight, sums)
                    else:
                        _add_few(
                            values[:width], weights[s], weight, order, units[:width], cells, at
                        )
                _add_sums(dense[draw], sums, order, units[:width], cells, at)
                if recorded:
                    _record(own_cells, seen, query, weight, first, width, totals, into)


@kernel
def add_draws(by_draw, first, sums, squares, units):
    """Add the values of a round to the sums of a shard, in one pass over them.

    Parameters
    ----------
    by_draw : (n_draws, n_strata, n_results, n_rows) int64
        Values in fixed point, of one or two draws; two become their difference, over all strata.
    first : (n_strata, n_results, n_rows) int64
        The first draw is added to it, in units of a query with one draw; without rows it is not.
    sums : (n_results + 1, n_rows) int64
        All values are added to it; the last line is for the sums of rows.
    squares : (n_results + 1, n_rows) float64, of two draws; their squared difference is added
    units : float, units of fixed point
    """
    n_draws, n_strata, n_results, n_rows = by_draw.shape
    of_rows = np.empty(_ROWS_AT_ONCE, dtype=np.int64)
    for begin in range(0, n_rows, _ROWS_AT_ONCE):
        some = slice(begin, min(begin + _ROWS_AT_ONCE, n_rows))
        width = some.stop - begin
        of_rows[:width] = 0
        for result in range(n_results):
            own, rows = by_draw[0, 0, result, some], sums[n_results, some]
            for stratum in range(n_strata if first.shape[2] else 0):
                line = first[stratum, result, some]
                for _ in range(n_draws):
                    _add(by_draw[0, stratum, result, some], line)
            for stratum in range(1, n_strata):
                for draw in range(n_draws):
                    _add(by_draw[draw, stratum, result, some], by_draw[draw, 0, result, some])
            for draw in range(n_draws):
                _add(by_draw[draw, 0, result, some], sums[result, some])
                _add(by_draw[draw, 0, result, some], rows)
            if n_draws == 2:
                _subtract(by_draw[1, 0, result, some], own)
                _add(own, of_rows[:width])
                _add_squares(own, units, squares[result, some])
        if n_draws == 2:
            _add_squares(of_rows[:width], units, squares[n_results, some])


@kernel
def _add_squares(numbers, units, line):
    for i in range(line.shape[0]):
        value = numbers[i] / units
        line[i] += value * value


@kernel
def take_units(units, scale, into, values):
    """Add values in fixed point to sums, write them as floats, and set them to 0."""
    for j in range(units.shape[0]):
        line, sums, floats = units[j], into[j], values[j]
        for i in range(line.shape[0]):
            sums[i] += line[i]
            floats[i] = line[i] / scale
            line[i] = 0


@kernel
def _record(cells, seen, query, weight, first, width, totals, into):
    """Add one query's values, their squares, and their sums over cells with the same code."""
    n_results, squared_weight = cells.shape[0], seen.squared_weights[query]
    if into.shape[2]:
        for result in range(n_results):
            line = into[seen.strata[query], result, first : first + width]
            _add(cells[result, :width], line)
    if seen.squares.shape[2] and squared_weight > 0.0:
        squares = seen.squares[seen.strata[query]]
        totals[:width] = 0.0
        for result in range(n_results):
            line = squares[result, first : first + width]
            for i in range(width):
                value = cells[result, i] / weight
                totals[i] += value
                line[i] += squared_weight * value * value
        line = squares[n_results, first : first + width]
        for i in range(width):
            line[i] += squared_weight * totals[i] * totals[i]
    if seen.sums.shape[1]:
        sums, lines = seen.sums[query], seen.row_lines[first : first + width]
        for result in range(n_results):
            codes = seen.codes[result]
            for i in range(width):
                sums[codes[lines[i]]] += cells[result, i]


@kernel
def _make_buffers(batch):
    """Return buffers for distances by player and in total, and for those of a coalition."""
    block = np.empty((batch.orders.shape[1] + 1, _ROWS_AT_ONCE))
    return block, np.empty(_ROWS_AT_ONCE)


@kernel
def _apply(steps, s, block, order, line):
    apply_steps(block, order, steps.bases, steps.firsts, steps.toggles, s, line)


@kernel
def _all_edges(ends):
    """Return the end of the nearest rows, the bits per step and the bin of each step, by pair."""
    n_pairs = ends.shape[0]
    nearest_end, bits = np.empty(n_pairs, dtype=np.int32), np.empty(n_pairs, dtype=np.int32)
    bins = np.empty((n_pairs, N_STEPS), dtype=np.uint16)
    for pair in range(n_pairs):
        nearest_end[pair], bits[pair] = _find_edges(ends[pair], bins[pair])
    return nearest_end, bits, bins


@kernel
def _find_edges(ends, bins):
    low, high = np.int64(ends[0]), np.int64(ends[-1])
    bits = 0
    while _step(high - low, bits) >= N_STEPS - 1:
        bits += 1
    bins[:] = 0
    # The first edge has a step of its own: many rows may tie there, also some of the K nearest.
    bins[1] = 1
    for end in ends[1:]:
        bins[_step(np.int64(end) - low, bits)] = 1
    bins[0] = 0
    n_bins = 0
    for step in range(N_STEPS):
        n_bins += bins[step]
        bins[step] = n_bins
    return low, bits


@kernel
def _step(beyond, bits):
    """Return the step of a distance beyond the first edge, rounded up."""
    return (beyond + (1 << bits) - 1) >> bits


@kernel
def _add(numbers, line):
    for i in range(line.shape[0]):
        line[i] += numbers[i]


@kernel
def _subtract(numbers, line):
    for i in range(line.shape[0]):
        line[i] -= numbers[i]


@kernel
def _as_ordinals(line, origin, ordinals):
    for i in range(line.shape[0]):
        # Rows nearer than the whole sample all get 0; they are ranked by their exact distances.
        ordinals[i] = np.float32(max(line[i] - origin + 1.0, 0.0))


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
def _find_bins(reached, bins, positions):
    for i in range(positions.shape[0]):
        positions[i] = bins[reached[i]]


@kernel
def _choose_steps(kept, pair, first, buffer):
    """Return the steps that are kept of some rows, or else the buffer for them."""
    return buffer if kept is None else kept[pair, first : first + buffer.shape[0]]


@kernel
def _some(targets, first, width):
    return None if targets is None else targets[first : first + width]


@kernel
def _look_up(targets, positions, match, far, values):
    """Look up the values of rows by bin, or compute them from their rounded targets."""
    if targets is None:
        line = far[match]
        for i in range(positions.shape[0]):
            values[i] = line[positions[i]]
    else:
        for i in range(positions.shape[0]):
            target, line = np.rint(targets[i]), far[positions[i]]
            values[i] = line[0] + (line[1] + line[2] * target) * target


@kernel
def _smallest(ordinal):
    smallest = ordinal[0]
    for i in range(ordinal.shape[0]):
        smallest = min(smallest, ordinal[i])
    return smallest


@kernel
def _list_nearest(ordinal, end, line, match, first_row, near, near_rows, n_near, counts):
    for first in range(0, ordinal.shape[0], _SEARCHED):
        some = ordinal[first : first + _SEARCHED]
        if _smallest(some) >= end:
            continue
        for i in range(some.shape[0]):
            if some[i] < end:
                # The first bin counts them, too.
                counts[0] -= 1
                if n_near < near.shape[0]:
                    near[n_near] = 2 * np.int64(line[first + i]) + match
                    if near_rows is not None:
                        near_rows[n_near] = first_row + first + i
                n_near += 1
    return n_near


@kernel
def _count(position, lanes, counts):
    # With several lanes, equal bins in a row do not wait for each other's increments.
    lanes[:] = 0
    n_words = position.shape[0] // _LANES
    words = position[: n_words * _LANES].view(np.uint64)
    for i in range(n_words):
        word = words[i]
        lanes[0, word & _FIELD] += 1
        lanes[1, (word >> _SECOND) & _FIELD] += 1
        lanes[2, (word >> _THIRD) & _FIELD] += 1
        lanes[3, word >> _FOURTH] += 1
    for i in range(n_words * _LANES, position.shape[0]):
        lanes[0, position[i]] += 1
    for k in range(counts.shape[0]):
        counts[k] += lanes[0, k] + lanes[1, k] + lanes[2, k] + lanes[3, k]


@kernel
def _make_words(targets, words):
    """Write 1, the rounded target and both halves of its square: bins have sums of these."""
    for i in range(targets.shape[0]):
        target = np.int64(np.rint(targets[i]))
        words[i, 0], words[i, 1] = 1, target
        words[i, 2] = (target * target) >> TARGET_BITS
        words[i, 3] = (target * target) & _LOW_HALF


@kernel
def _add_words(positions, words, sums):
    for i in range(positions.shape[0]):
        line = sums[positions[i]]
        for k in range(4):
            line[k] += words[i, k]


@kernel
def _list_targets(ordinal, end, line, targets, words, near, near_targets, n_near, sums):
    for i in range(ordinal.shape[0]):
        if ordinal[i] < end:
            # The first bin counts them, too.
            for k in range(4):
                sums[k] -= words[i, k]
            if n_near < near.shape[0]:
                near[n_near], near_targets[n_near] = np.int64(line[i]), targets[i]
            n_near += 1
    return n_near


@kernel
def _dense(steps, weights):
    """Return, for each draw, whether coalitions have weights in more than two results."""
    dense = np.zeros(steps.starts.shape[0] - 1, dtype=np.bool_)
    for draw in range(dense.shape[0]):
        for s in range(steps.starts[draw], steps.starts[draw + 1]):
            dense[draw] |= np.count_nonzero(weights[s]) > 2
    return dense


@kernel
def _begin(targets, of_query, without, dense, order, buffers, into, first):
    """Start the sums with the values of rows without columns."""
    nothing, match, weight = of_query
    values, units, sums = buffers
    width = values.shape[0]
    if targets is None:
        alone = nothing[match] * weight
        for result in range(without.shape[0]):
            start = without[result] * alone
            if dense:
                sums[result, :width] = start
            elif start != 0.0:
                constant = np.int64(np.rint(start))
                cells = into[order[result], first : first + width]
                for i in range(width):
                    cells[i] += constant
    else:
        for i in range(width):
            values[i] = nothing[0] + (nothing[1] + nothing[2] * targets[i]) * targets[i]
        if dense:
            sums[:, :width] = 0.0
            _add_many(values, without, weight, sums)
        else:
            _add_few(values, without, weight, order, units, into, first)


@kernel
def _fill_nearest(ordinal, end, near, cursor, values):
    for first in range(0, ordinal.shape[0], _SEARCHED):
        some = ordinal[first : first + _SEARCHED]
        if _smallest(some) >= end:
            continue
        for i in range(some.shape[0]):
            if some[i] < end:
                values[first + i] = near[cursor]
                cursor += 1
    return cursor


@kernel
def _fill_kept(near_rows, near, cursor, first, values):
    while cursor < near_rows.shape[0] and near_rows[cursor] < first + values.shape[0]:
        values[near_rows[cursor] - first] = near[cursor]
        cursor += 1
    return cursor


@kernel
def _add_many(values, weights, query_weight, sums):
    for result in range(weights.shape[0]):
        weight, line = weights[result] * query_weight, sums[result, : values.shape[0]]
        for i in range(line.shape[0]):
            line[i] += weight * values[i]


@kernel
def _add_sums(dense, sums, order, units, into, first):
    for result in range(order.shape[0] if dense else 0):
        _to_units(sums[result, : units.shape[0]], 1.0, units)
        _add(units, into[order[result], first : first + units.shape[0]])


@kernel
def _add_few(values, weights, query_weight, order, units, into, first):
    """Add a coalition with weights for few columns; a prefix has two, w and -w.

    Values are rounded to units before they are added, so w and -w cancel exactly in the sum over
    columns.
    """
    last, end = 0.0, first + values.shape[0]
    for result in range(weights.shape[0]):
        weight = weights[result]
        if weight == 0.0:
            continue
        if weight != -last:
            _to_units(values, weight * query_weight, units)
            _add(units, into[order[result], first:end])
            last = weight
        else:
            _subtract(units, into[order[result], first:end])


@kernel
def _to_units(values, weight, units):
    for i in range(values.shape[0]):
        units[i] = np.int64(np.rint(weight * values[i]))


@kernel
def value_bins(counts, near, head, at_bins, far, near_values):
    """Compute the values of far rows by bin, and of each of the nearest rows, for one pair.

    Parameters
    ----------
    counts : (2, n_bins) int64, mismatches and matches by bin
    near : (n_near,) int64, twice the distance, plus 1 for a match, of the nearest rows, sorted
    head : tuple of (n_near + 1,) arrays
        ``single`` and ``running`` of RankChances at ranks 0..n_near.
    at_bins : tuple of (n_bins + 1,) arrays
        The same at the first rank of each bin, and at the last rank.
    far : (2, n_bins) float64, output: values of mismatches and matches by bin
    near_values : (n_near,) float64, output, in the order of ``near``
    """
    far[:] = 0.0
    farther = 0.0
    single, running = at_bins
    end = near.shape[0] + counts.sum()
    for b in range(counts.shape[1] - 1, -1, -1):
        matches, tied = counts[1, b], counts[0, b] + counts[1, b]
        if tied == 0:
            continue
        chances = single[b], single[b + 1], running[b], running[b + 1]
        far[0, b], far[1, b], farther = value_ties(end - tied, end, matches, chances, farther)
        end -= tied
    single, running = head
    while end > 0:
        begin = end - 1
        distance = near[begin] >> 1
        matches = near[begin] & 1
        while begin > 0 and near[begin - 1] >> 1 == distance:
            begin -= 1
            matches += near[begin] & 1
        chances = single[begin], single[end], running[begin], running[end]
        of_other, of_match, farther = value_ties(begin, end, matches, chances, farther)
        for i in range(begin, end):
            near_values[i] = of_match if near[i] & 1 else of_other
        end = begin


@kernel
def value_ties(begin, end, matches, chances, farther):
    """Return the values of mismatches and matches tied at ranks begin + 1..end, and farther.

    ``farther`` is subtracted from the values of all rows in front of these ranks.
    """
    single_begin, single_end, running_begin, running_end = chances
    tied = end - begin
    mean = (running_end - running_begin) / tied
    pushed = (mean - single_end) / (tied - 1) if tied > 1 else 0.0
    of_other = -matches * pushed - farther
    of_match = mean + pushed + of_other
    if begin > 0:
        farther += matches * (single_begin - single_end) / tied
    return of_other, of_match, farther


@kernel
def count_binned_votes(counts, near, n_neighbors, surely, tied):
    """Count the votes of mismatches and matches; return how many tied rows vote.

    Parameters
    ----------
    counts : (2, n_bins) int64, mismatches and matches by bin; rows of a bin tie
    near : (n_near,) int64, twice the distance, plus 1 for a match, of the nearest rows, sorted
    surely, tied : (2,) int64
        Output: rows that certainly vote, and rows that tie for the remaining votes.
    """
    left, begin = n_neighbors, 0
    while begin < near.shape[0] and left > 0:
        end, matches = begin, 0
        while end < near.shape[0] and near[end] >> 1 == near[begin] >> 1:
            matches += near[end] & 1
            end += 1
        into = surely if end - begin <= left else tied
        into[0] += end - begin - matches
        into[1] += matches
        if end - begin > left:
            return left
        left -= end - begin
        begin = end
    for b in range(counts.shape[1]):
        rows = counts[0, b] + counts[1, b]
        into = surely if rows <= left else tied
        if left > 0:
            into[0] += counts[0, b]
            into[1] += counts[1, b]
            if rows > left:
                return left
            left -= rows
    return 0


@kernel
def nearest_matches(counts, near, n_neighbors):
    """Return the number of matches among the K nearest rows, as a mean over orders of ties."""
    surely, tied = np.zeros(2, dtype=np.int64), np.zeros(2, dtype=np.int64)
    left = count_binned_votes(counts, near, n_neighbors, surely, tied)
    shared = left * tied[1] / (tied[0] + tied[1]) if left > 0 else 0.0
    return surely[1] + shared


@kernel
def value_target_bins(sums, near, targets, query, head, at_bins, far, near_values):
    """Compute the values of far rows by bin, and of the nearest rows, for a numeric target.

    Parameters
    ----------
    sums : (n_bins, 4) int64, sums over the rows of each bin: see _make_words
    near, targets : (n_near,) arrays, distances and targets of the nearest rows, sorted by both
    query : tuple, target of the query, and K
    head, at_bins : tuples of arrays, as in value_bins, but those of ``pairs_at``
    far : (n_bins, 3) float64, output: coefficients of 1, the target and its square by bin
    near_values : (n_near,) float64, output
    """
    far[:] = 0.0
    carried = 0.0, 0.0, 0.0
    n_near, n_bins = near.shape[0], sums.shape[0]
    nearer = np.zeros(n_near + 1)
    for i in range(n_near):
        nearer[i + 1] = nearer[i] + targets[i]
    end, nearer_far = n_near, np.int64(0)
    for b in range(n_bins):
        end += sums[b, 0]
        nearer_far += sums[b, 1]
    for b in range(n_bins - 1, -1, -1):
        tied, total = sums[b, 0], sums[b, 1]
        if tied == 0:
            continue
        # As integers: their sums are exact.
        nearer_far -= total
        of_ties = nearer[n_near] + nearer_far, float(total), _sum_of_squares(sums[b])
        first, last = _pick(at_bins, b), _pick(at_bins, b + 1)
        coefficients, carried = value_target_ties(
            end - tied, end, of_ties, query, first, last, carried
        )
        for k in range(3):
            far[b, k] = coefficients[k]
        end -= tied
    while end > 0:
        begin, total, squares = end, 0.0, 0.0
        while begin > 0 and near[begin - 1] == near[end - 1]:
            begin -= 1
            total += targets[begin]
            squares += targets[begin] * targets[begin]
        first, last = _pick(head, begin), _pick(head, end)
        coefficients, carried = value_target_ties(
            begin, end, (nearer[begin], total, squares), query, first, last, carried
        )
        for i in range(begin, end):
            slope = coefficients[1] + coefficients[2] * targets[i]
            near_values[i] = coefficients[0] + slope * targets[i]
        end = begin


@kernel
def value_target_ties(begin, end, sums, query, first, last, carried):
    """Return the values of rows tied at ranks begin + 1..end, and what they add to nearer rows.

    Expanding the formulas of kernels.target_values in the target of a row gives a quadratic
    function; the coefficients of 1, the target and its square are returned. Sums over ranks follow
    from running sums, by partial summation. Their rounding errors cancel in the sum of all values.

    Parameters
    ----------
    begin, end : int
    sums : tuple, sum of the targets of nearer rows, of tied rows, and of the squares of the latter
    query : tuple, target of the query, and K
    first, last : tuples, the chances of ``pairs_at`` at ranks begin and end
    carried : tuple, ``farther``, ``partners`` and ``pairs_out`` as in kernels.target_values
    """
    nearer, total, squares = sums
    asked, n_neighbors = query
    farther, partners, pairs_out = carried
    tied = end - begin
    single, pair = last[0], last[2]
    mean = (last[1] - first[1]) / tied if tied > 1 else single
    pair_0 = last[3] - first[3] if tied > 1 else pair
    pair_1 = last[4] - first[4] - begin * pair_0 if tied > 2 else (tied - 1) * pair
    others = max(tied - 1, 1)
    ways = float(tied) * others
    pushed = (mean - single) / others
    pushed_0 = first[2] - pair
    pushed_1 = (pair_0 - tied * pair) / ways
    pushed_2 = (2.0 * pair_1 - tied * (tied - 1.0) * pair) / (ways * max(tied - 2, 1))
    partner = 2.0 * pair_1 / ways + pushed_1
    alone = 2.0 * asked * total - squares / n_neighbors
    of_pairs = total * total - squares
    constant = 2.0 * (total * nearer * pushed_1 + of_pairs * pushed_2 + pairs_out)
    of_target = asked * (mean + pushed) - nearer * pair_0 / tied - total * partner - partners
    of_target += (total - nearer) * pushed_1 - 2.0 * total * pushed_2
    of_square = 2.0 * (partner - pushed_1) + 4.0 * pushed_2 - (mean + pushed) / n_neighbors
    coefficients = constant - alone * pushed - farther, 2.0 * of_target, of_square
    farther += alone * (first[0] - single) / tied
    pairs_out += total * nearer * pushed_0 / tied + of_pairs * pushed_1
    partners += (pair_0 + pushed_0) * total / tied
    return coefficients, (farther, partners, pairs_out)


@kernel
def _pick(arrays, position):
    one, two, three, four, five = arrays
    return one[position], two[position], three[position], four[position], five[position]


@kernel
def _sum_of_squares(sums):
    return float(sums[2]) * (1 << TARGET_BITS) + float(sums[3])


@kernel
def nearest_error(sums, near, targets, asked, n_neighbors):
    """Return the squared error of the nearest rows' mean, as a mean over orders of ties."""
    left, mean, variance = n_neighbors, 0.0, 0.0
    begin, n_near = 0, near.shape[0]
    while begin < n_near and left > 0:
        end, total, squares = begin, 0.0, 0.0
        while end < n_near and near[end] == near[begin]:
            total += targets[end]
            squares += targets[end] * targets[end]
            end += 1
        taken = min(left, end - begin)
        mean += taken * total / (end - begin)
        variance += variance_of_draw(taken, end - begin, total, squares)
        left -= taken
        begin = end
    for b in range(sums.shape[0]):
        taken = min(left, sums[b, 0])
        if taken > 0:
            mean += taken * float(sums[b, 1]) / sums[b, 0]
            variance += variance_of_draw(
                taken, sums[b, 0], float(sums[b, 1]), _sum_of_squares(sums[b])
            )
            left -= taken
    error = mean / n_neighbors - asked
    return error * error + variance / n_neighbors**2
