# mypy: ignore-errors
"""Compiled kernels for exact ranks: distances, values and votes of sorted rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numba import njit
from numba.core import event as events

from cellworth.runtime.executors import Serial, Threads
from cellworth.runtime.progress import announce

# Rows whose distances are computed together: small enough for the fastest cache.
_ROWS_AT_ONCE = 512
# Distances from which those of a coalition are computed by adding or subtracting columns.
NOTHING, PREVIOUS, EVERYTHING = 0, 1, 2
# Values by rank are integers in these units: a sum of all is at most 1.
FIXED_UNITS = 2.0**60
# If more than one row in this many ties, rows are valued by groups.
_ROWS_PER_FEW_TIES = 4
_ONCE = "kernels, once per machine and release, which takes 5 to 20 s"


class UniqueNames(str):
    """Pattern for the names of numba's cache files, with a name of its own for each file.

    numba numbers the files of a function. Two processes that compile a function for different types
    at the same time would use the same number, and one would load the code of the other.
    """

    def format(self, *, number: int) -> str:
        """Return the name of a new file."""
        return f"{super().format(number=number).removesuffix('.nbc')}.{uuid4().hex[:16]}.nbc"


class _CompilationListener(events.Listener):
    """Announces the first compilation in this process."""

    _announced = False

    def on_start(self, event: Any) -> None:
        # Functions that others make by exec may have no module.
        module = event.data["dispatcher"].py_func.__module__ or ""
        if not self._announced and module.startswith("cellworth."):
            self._announced = True
            announce("compile", f"compiling {_ONCE}")

    def on_end(self, event: Any) -> None:
        """Do nothing: a listener must have both methods."""


_listener = _CompilationListener()
# Code that is loaded from the cache is no such event.
events.register("numba:compile", _listener)


def announce_compilation(executor: Any) -> None:
    """Announce that workers in other processes will compile, if this machine has no cached code."""
    if isinstance(executor, Serial | Threads):
        return
    cached = Path(getattr(fill_keys._cache, "cache_path", "") or "")
    if not any(cached.glob("kernels.*.nbi")):
        announce("compile", f"workers compile {_ONCE}")


def kernel(function: Any) -> Any:
    """Compile on first use and cache the result on disk if possible.

    A name with an underscore is for kernels alone: its code is part of theirs.
    """
    settings = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    if function.__name__.startswith("_"):
        return njit(no_cpython_wrapper=True, **settings)(function)
    try:
        compiled = njit(cache=True, **settings)(function)
    except RuntimeError:
        # In some containers neither the package nor the user's cache folder is writable.
        return njit(**settings)(function)
    files = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if files is not None:
        files._data_name_pattern = UniqueNames(files._data_name_pattern)
    return compiled


@kernel
def fill_keys(rows, scales, players, batch, steps, part, classes, code, last, distances, keys):
    """Write the distances of all rows, and their sort keys, one line per query and coalition.

    From its highest bits, a key has a code of the distance, a 0 for the mark of order_ties, the
    row's position, and whether its label matches. A code has the highest bits of the distance, so
    that a farther row never has a lower one.

    Parameters
    ----------
    rows : Columns
    scales : ColumnScales
    players : (n_columns,) int64, player of each column of ``rows``
    batch : QueryBatch
    steps : Steps
    part : tuple
        First query and end, first coalition and end. Of several queries, these are all.
    classes : (n_rows,) int64, codes of classes; -1 for numeric targets
    code : tuple
        Bits of the float up to which codes are 0, bits that are dropped, bits below the code.
    last : (n_rows,) float64
        Distances on the coalition before the first; output: those on the last one.
    distances : (n_lines, n_rows) float64, output
    keys : (n_lines, n_rows) uint32 or int64, output
    """
    first_query, end_query, first_coalition, end_coalition = part
    least, n_dropped, n_low = code
    n_rows, n_coalitions = last.shape[0], end_coalition - first_coalition
    block = np.empty((batch.orders.shape[1] + 1, _ROWS_AT_ONCE))
    payload = np.empty(_ROWS_AT_ONCE, dtype=np.int64)
    for query in range(first_query, end_query):
        order, label = batch.orders[query], np.int64(batch.labels[query])
        draw = batch.draws[query]
        start, at = steps.starts[draw] + first_coalition, (query - first_query) * n_coalitions
        for first in range(0, n_rows, _ROWS_AT_ONCE):
            width = min(_ROWS_AT_ONCE, n_rows - first)
            measure(rows, scales, players, batch, query, first, width, block)
            add_everything(steps, draw, width, block)
            for i in range(width):
                payload[i] = ((first + i) << 1) | np.int64(classes[first + i] == label)
            end = first + width
            line = last[first:end]
            bits = line.view(np.int64)
            for s in range(n_coalitions):
                apply_steps(block, order, steps.bases, steps.firsts, steps.toggles, start + s, line)
                away, own = distances[at + s, first:end], keys[at + s, first:end]
                for i in range(width):
                    away[i] = line[i]
                    beyond = max(bits[i] - least, 0) >> n_dropped
                    own[i] = (beyond << n_low) | payload[i]


@kernel
def measure(rows, scales, players, batch, query, first, width, block):
    """Compute the distances of rows first..first + width - 1 to one query, one line per player."""
    block[:-1, :width] = 0.0
    numbers, categories, end = rows.numbers, rows.categories, first + width
    n_numbers = numbers.shape[0]
    # Slices of single lines are known to be contiguous, so the compiler uses vector instructions.
    for j in range(n_numbers):
        _measure_numbers(
            numbers[j, first:end], batch.numbers[query, j], scales.number_weights[j],
            scales.number_missing[j], scales.farthest, block[players[j], :width],
        )  # fmt: skip
    for j in range(categories.shape[0]):
        _measure_categories(
            categories[j, first:end], batch.categories[query, j], scales.category_weights[j],
            scales.category_missing[j], block[players[n_numbers + j], :width],
        )  # fmt: skip


@kernel
def _measure_numbers(cells, here, weight, missing, farthest, line):
    # Independent conditional expressions compile to vector instructions.
    for i in range(cells.shape[0]):
        difference = np.float64(cells[i]) - here
        distance = np.floor(difference * difference * weight + 0.5)
        distance = distance if distance < farthest else farthest
        line[i] += distance if difference == difference else missing  # noqa: PLR0124 (NaN)


@kernel
def _measure_categories(cells, here, mismatch, missing, line):
    """Add the distances of categories to one of them, which may be missing, to a line."""
    if here < 0:
        for i in range(cells.shape[0]):
            line[i] += missing
        return
    for i in range(cells.shape[0]):
        distance = mismatch if cells[i] != here else 0.0
        line[i] += missing if cells[i] < 0 else distance


@kernel
def add_everything(steps, draw, width, block):
    """Add up the distances of all players in the last line, if a coalition needs them."""
    needed = False
    for s in range(steps.starts[draw], steps.starts[draw + 1]):
        needed = needed or steps.bases[s] == EVERYTHING
    if needed:
        last = block.shape[0] - 1
        block[last, :width] = 0.0
        for player in range(last):
            for i in range(width):
                block[last, i] += block[player, i]


@kernel
def apply_steps(block, order, bases, firsts, toggles, s, line):
    """Turn the distances of the previous coalition into those of coalition s."""
    width = line.shape[0]
    if bases[s] == NOTHING:
        for i in range(width):
            line[i] = 0.0
    elif bases[s] == EVERYTHING:
        everything = block.shape[0] - 1
        for i in range(width):
            line[i] = block[everything, i]
    for t in range(firsts[s], firsts[s + 1]):
        if toggles[t] >= 0:
            player = order[toggles[t]]
            for i in range(width):
                line[i] += block[player, i]
        else:
            player = order[~toggles[t]]
            for i in range(width):
                line[i] -= block[player, i]


@kernel
def order_ties(keys, low_bits, distances, n_ties):
    """Order rows with the same code by distance, and mark the last row of each distance.

    Parameters
    ----------
    keys : (n_lines, n_rows) uint32 or int64
        Sorted. The lowest bit of the code, which is 0, becomes the mark.
    low_bits : int, bits of position and match, below the code
    distances : (n_lines, n_rows) float64, by position
    n_ties : (n_lines,) int64, output: number of rows without a mark
    """
    n_rows, mark = keys.shape[1], low_bits + 1
    away = np.empty(n_rows)
    for s in range(keys.shape[0]):
        line, by_position = keys[s], distances[s]
        n_equal = 0
        for i in range(n_rows - 1):
            differs = (line[i] ^ line[i + 1]) > low_bits
            line[i] |= mark if differs else 0
            n_equal += 0 if differs else 1
        line[n_rows - 1] |= mark
        n_ties[s] = 0
        if n_equal == 0:
            continue
        _gather(line, low_bits, by_position, away)
        n_wrong = 0
        for i in range(n_rows - 1):
            n_wrong += 1 if away[i] > away[i + 1] else 0
        if n_wrong > 0:
            _sort_runs(line, low_bits, away)
        n_left = 0
        for i in range(n_rows - 1):
            differs = away[i] != away[i + 1]
            line[i] |= mark if differs else 0
            n_left += 0 if differs else 1
        n_ties[s] = n_left


@kernel
def _gather(line, low_bits, by_position, sorted_values):
    for i in range(line.shape[0]):
        sorted_values[i] = by_position[(line[i] & low_bits) >> 1]


@kernel
def _sort_runs(line, low_bits, away):
    """Sort the runs without marks whose distances, which are given, are not in order."""
    mark, last = low_bits + 1, 0
    while last < line.shape[0] - 1:
        if away[last] > away[last + 1]:
            begin = last
            while begin > 0 and line[begin - 1] & mark == 0:
                begin -= 1
            while line[last] & mark == 0:
                last += 1
            line[last] ^= mark
            _sort_run(line[begin : last + 1], away[begin : last + 1], low_bits)
            line[last] |= mark
        last += 1


@kernel
def _sort_run(run, away, low_bits):
    """Sort keys by distance and position, by Shell's method with Ciura's strides."""
    for stride in (1577, 701, 301, 132, 57, 23, 10, 4, 1):
        for i in range(stride, run.shape[0]):
            key, mine, at = run[i], away[i], i
            while at >= stride and (
                away[at - stride] > mine
                or (away[at - stride] == mine and run[at - stride] & low_bits > key & low_bits)
            ):
                run[at], away[at] = run[at - stride], away[at - stride]
                at -= stride
            run[at], away[at] = key, mine


@kernel
def class_values(keys, low_bits, n_ties, single, running, fixed, values):
    """Compute the value of every row for queries with a class label, one line per coalition.

    Rows at the same distance get the mean over all of their orders.

    Parameters
    ----------
    keys : (n_lines, n_rows) uint32 or int64, from order_ties
    low_bits, n_ties
        As in order_ties.
    single, running : (n_rows + 1,) float64, as in RankChances
    fixed : (n_rows + 1,) int64, ``single`` in units of 1 / FIXED_UNITS
    values : (n_lines, n_rows) float64, output, by position
    """
    n_rows = keys.shape[1]
    groups = np.empty(n_rows + 1, dtype=np.int64), np.empty(n_rows + 1, dtype=np.int64)
    of_group, inverse = np.empty((n_rows, 2)), 1.0 / np.maximum(np.arange(n_rows + 1), 1)
    for s in range(keys.shape[0]):
        if n_ties[s] * _ROWS_PER_FEW_TIES > n_rows:
            _value_groups(keys[s], low_bits, single, running, inverse, groups, of_group, values[s])
        else:
            _value_rows(keys[s], low_bits, single, running, inverse, fixed, values[s])


@kernel
def _value_rows(line, low_bits, single, running, inverse, fixed, out):
    """Compute the values of rows of which few tie, in integers: their sums take one cycle."""
    mark, farther, end = low_bits + 1, np.int64(0), line.shape[0]
    while end > 0:
        key, share = line[end - 1], fixed[end]
        if end == 1 or line[end - 2] & mark != 0:
            match = -np.int64(key & 1)
            out[(key & low_bits) >> 1] = ((share & match) - farther) * (1.0 / FIXED_UNITS)
            farther += (fixed[end - 1] - share) & match
            end -= 1
            continue
        begin, n_matches = end - 1, np.int64(key & 1)
        while begin > 0 and line[begin - 1] & mark == 0:
            begin -= 1
            n_matches += np.int64(line[begin] & 1)
        mean, pushed, nearer = _value_tie(begin, end, n_matches, single, running, inverse)
        of_other = -n_matches * pushed - farther / FIXED_UNITS
        for i in range(begin, end):
            match = np.float64(line[i] & 1)
            out[(line[i] & low_bits) >> 1] = match * (mean + pushed) + of_other
        farther += np.int64(nearer * FIXED_UNITS)
        end = begin


@kernel
def _value_tie(begin, end, n_matches, single, running, inverse):
    """Return the mean share of tied rows, what each loses for another's match, and nearer rows."""
    n_tied, alone = end - begin, single[end]
    mean = (running[end] - running[begin]) * inverse[n_tied]
    mean = mean if n_tied > 1 else alone
    pushed = (mean - alone) * inverse[max(n_tied - 1, 1)]
    return mean, pushed, n_matches * (single[max(begin, 1)] - alone) * inverse[n_tied]


@kernel
def _value_groups(line, low_bits, single, running, inverse, groups, of_group, out):
    """Compute the values of rows of which many tie, without branches that are hard to predict."""
    starts, matches = groups
    mark, n_groups, n_matches = low_bits + 1, 0, 0
    starts[0], matches[0] = 0, 0
    for i in range(line.shape[0]):
        n_matches += np.int64(line[i] & 1)
        # Overwritten until the group ends.
        starts[n_groups + 1], matches[n_groups + 1] = i + 1, n_matches
        n_groups += np.int64(line[i] & mark != 0)
    farther = 0.0
    for group in range(n_groups - 1, -1, -1):
        n_matches = matches[group + 1] - matches[group]
        mean, pushed, nearer = _value_tie(
            starts[group], starts[group + 1], n_matches, single, running, inverse
        )
        of_group[group, 0] = -n_matches * pushed - farther
        of_group[group, 1] = of_group[group, 0] + mean + pushed
        farther += nearer
    group = 0
    for i in range(line.shape[0]):
        out[(line[i] & low_bits) >> 1] = of_group[group, line[i] & 1]
        group += np.int64(line[i] & mark != 0)


@kernel
def gain_values(keys, low_bits, gains, chances, voter_terms, values):
    """Compute the value of every row for one query whose votes earn any gains.

    Parameters
    ----------
    keys, low_bits, values : as in class_values
    gains : (n_coalitions, n_rows) float64, in the order of the keys
    chances : tuple, ``single`` and ``running`` of RankChances
    voter_terms : tuple, as in find_voter_terms
    """
    (single, running), (own, others), mark = chances, voter_terms, low_bits + 1
    for s in range(keys.shape[0]):
        line, gain, out = keys[s], gains[s], values[s]
        farther, end = others * _sum(gain), keys.shape[1]
        while end > 0:
            begin = end - 1
            key, total = line[begin], gain[begin]
            if begin == 0 or line[begin - 1] & mark != 0:
                # Without ties, no sum waits for a division.
                out[(key & low_bits) >> 1] = total * (single[end] + own + others) - farther
                farther += total * (single[begin] - single[end])
                end = begin
                continue
            while begin > 0 and line[begin - 1] & mark == 0:
                begin -= 1
                total += gain[begin]
            tied = end - begin
            mean = (running[end] - running[begin]) / tied
            pushed = (mean - single[end]) / (tied - 1)
            of_other, more = -total * pushed - farther, mean + pushed + own + others
            for i in range(begin, end):
                out[(line[i] & low_bits) >> 1] = gain[i] * more + of_other
            farther += total * (single[begin] - single[end]) / tied
            end = begin


@kernel
def add_few(values, weights, into):
    """Add the values of rows to the cells in which coalitions have weights; most are 0.

    Parameters
    ----------
    values : (n_coalitions, n_rows) float64
    weights : (n_coalitions, n_results) float64
    into : (n_results, n_rows) float64, added to
    """
    for s in range(values.shape[0]):
        for result in range(weights.shape[1]):
            if weights[s, result] != 0.0:
                _add_one(weights[s, result], values[s], into[result])


@kernel
def _add_one(weight, values, line):
    for i in range(line.shape[0]):
        line[i] += weight * values[i]


@kernel
def target_values(keys, low_bits, targets, asked, n_neighbors, chances, values):
    """Compute the value of every row for one query with a numeric target, one line per coalition.

    The utility of a coalition is -(sum of its nearest targets / K - asked)**2. Expanding the square
    gives a sum over rows, with values like those of matching labels, and a sum over pairs of rows.

    Parameters
    ----------
    keys, low_bits
        As in class_values.
    targets : (n_rows,) float64
    asked : float, target of the query
    chances : tuple, ``single``, ``running``, ``pair`` and ``pushed`` of RankChances
    values : (n_coalitions, n_rows) float64, output, by position
    """
    single, running, pair, pushed = chances
    n_rows, mark = keys.shape[1], low_bits + 1
    nearer = np.empty(n_rows + 1)
    for s in range(keys.shape[0]):
        line, out = keys[s], values[s]
        nearer[0] = 0.0
        for i in range(n_rows):
            nearer[i + 1] = nearer[i] + targets[(line[i] & low_bits) >> 1]
        # Terms that farther rows add to nearer ones: singly, as partners, and as pairs pushed out.
        farther, partners, pairs_out = 0.0, 0.0, 0.0
        end = n_rows
        while end > 0:
            begin = end - 1
            while begin > 0 and line[begin - 1] & mark == 0:
                begin -= 1
            tied = end - begin
            total, squares = 0.0, 0.0
            for i in range(begin, end):
                target = targets[(line[i] & low_bits) >> 1]
                total += target
                squares += target * target
            alone = 2.0 * asked * total - squares / n_neighbors
            mean = (running[end] - running[begin]) / tied
            # Sums over the ranks of tied rows, weighted by powers of how many ties are in front.
            pair_0, pair_1, pushed_0, pushed_1, pushed_2 = 0.0, 0.0, 0.0, 0.0, 0.0
            for rank in range(begin + 1, end + 1):
                front = rank - begin - 1
                pair_0 += pair[rank]
                pair_1 += front * pair[rank]
                pushed_0 += pushed[rank]
                pushed_1 += front * pushed[rank]
                pushed_2 += front * (front - 1) * pushed[rank]
            others = max(tied - 1, 1)
            ways = tied * others
            for i in range(begin, end):
                row = (line[i] & low_bits) >> 1
                target = targets[row]
                own = 2.0 * asked * target - target * target / n_neighbors
                rest = total - target
                rest_pairs = rest * rest - (squares - target * target)
                singly = own * mean - (alone - own) * (mean - single[end]) / others - farther
                as_partner = (
                    target * nearer[begin] * pair_0 / tied
                    + target * rest * (2.0 * pair_1 + pushed_1) / ways
                    + target * partners
                )
                pushing = (
                    rest * (nearer[begin] + target) * pushed_1 / ways
                    + rest_pairs * pushed_2 / (ways * max(tied - 2, 1))
                    + pairs_out
                )
                out[row] = singly - 2.0 * (as_partner - pushing)
            if begin > 0:
                farther += alone * (single[begin] - single[end]) / tied
            partners += (pair_0 + pushed_0) * total / tied
            pairs_out += total * nearer[begin] * pushed_0 / tied
            pairs_out += (total * total - squares) * pushed_1 / ways
            end = begin


@kernel
def nearest_error(keys, low_bits, targets, asked, n_neighbors):
    """Return the squared error of the nearest rows' mean, averaged over all orders of ties."""
    nearer, end, n_nearest = find_voters(keys, low_bits, n_neighbors)
    tied = end - nearer
    sure, total, squares = 0.0, 0.0, 0.0
    for i in range(end):
        target = targets[(keys[i] & low_bits) >> 1]
        if i < nearer:
            sure += target
        else:
            total += target
            squares += target * target
    positions = n_nearest - nearer
    mean = sure + positions * total / tied
    missing = mean / n_neighbors - asked
    variance = variance_of_draw(positions, tied, total, squares)
    return missing * missing + variance / n_neighbors**2


@kernel
def find_voters(keys, low_bits, n_neighbors):
    """Return where the rows begin and end that tie for the last votes, and how many rows vote."""
    n_nearest = min(n_neighbors, keys.shape[0])
    begin, end, mark = n_nearest - 1, n_nearest, low_bits + 1
    while begin > 0 and keys[begin - 1] & mark == 0:
        begin -= 1
    while keys[end - 1] & mark == 0:
        end += 1
    return begin, end, n_nearest


@kernel
def score_votes(keys, low_bits, classes, asked, votes, n_neighbors, utilities, scores):
    """Compute the mean share of right votes, and whether the vote is right, as score_vote does.

    Parameters
    ----------
    keys, low_bits
        As in class_values; a line for each query.
    classes, asked : (n_rows,) and (n_queries,) int64, classes of rows and of queries
    votes : (2, n_classes) int64, buffer: rows that vote, and rows that tie for the votes left
    utilities, scores : (n_queries,) float64, output
    """
    for query in range(keys.shape[0]):
        begin, end, n_nearest = find_voters(keys[query], low_bits, n_neighbors)
        votes[:] = 0
        for i in range(end):
            votes[np.int64(i >= begin), classes[(keys[query, i] & low_bits) >> 1]] += 1
        n_tied, n_left, right = end - begin, n_nearest - begin, asked[query]
        earned = votes[0, right] + votes[1, right] * n_left / n_tied
        utilities[query] = earned / n_neighbors
        # In integers: rounding must not decide.
        own, n_more, n_equal = votes[0, right] * n_tied + votes[1, right] * n_left, 0, 0
        for other in range(votes.shape[1]):
            theirs = votes[0, other] * n_tied + votes[1, other] * n_left
            n_more += np.int64(theirs > own)
            n_equal += np.int64(theirs == own)
        scores[query] = 0.0 if n_more else 1.0 / n_equal


@kernel
def variance_of_draw(taken, tied, total, squares):
    """Return the variance of a sum of tied targets that are drawn without replacement."""
    if taken == tied:
        return 0.0
    deviations = squares - total * total / tied
    return float(taken) * (tied - taken) * deviations / (float(tied) * (tied - 1))


@kernel
def add_cells(weight, values, shares, nothing, order, into):
    """Add the values of a query's cells to those of all.

    Parameters
    ----------
    weight : float, weight of the query
    values : (n_results, n_rows) float64, for the players of a draw
    shares, nothing : (n_results,) and (n_rows,) float64
        Weight of the empty coalition in each result, and values of rows on it.
    order : (n_results,) int64, column player for each player of the draw
    into : (n_results, n_rows) float64, added to
    """
    for j in range(values.shape[0]):
        found, line, share = values[j], into[order[j]], shares[j]
        for i in range(line.shape[0]):
            line[i] += weight * (found[i] + share * nothing[i])


@kernel
def add_scaled(weight, values, into):
    """Add ``weight`` times an array of values to another one."""
    for j in range(values.shape[0]):
        _add_one(weight, values[j], into[j])


@kernel
def add_by_player(values, players, into):
    """Add values of rows, shape (n_results, n_rows), to those of their row players."""
    for j in range(values.shape[0]):
        line, found = values[j], into[j]
        for i in range(line.shape[0]):
            found[players[i]] += line[i]


@kernel
def observe(values, squared_weight, totals, first, second):
    """Add the values of one query, with their margins, to sums over queries; set them to 0.

    Parameters
    ----------
    values : (n_results, n_players) float64, set to 0
    squared_weight : float, squared weight of the query
    totals : (n_players,) float64, buffer
    first, second : (n_results + 1, n_players + 1) float64
        Sums of squared weight times value, and of squared weight times squared value.
    """
    n_results, n_players = values.shape
    everything = 0.0
    _fill(totals, 0.0)
    for j in range(n_results):
        line, total = values[j], _sum(values[j])
        _add_one(1.0, line, totals)
        _observe_line(line, squared_weight, first[j], second[j])
        first[j, n_players] += squared_weight * total
        second[j, n_players] += squared_weight * total * total
        everything += total
        _fill(line, 0.0)
    _observe_line(totals, squared_weight, first[n_results], second[n_results])
    first[n_results, n_players] += squared_weight * everything
    second[n_results, n_players] += squared_weight * everything * everything


@kernel
def _sum(line):
    # Four sums need not wait for each other.
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    n_fours = line.shape[0] // 4
    for i in range(n_fours):
        a += line[4 * i]
        b += line[4 * i + 1]
        c += line[4 * i + 2]
        d += line[4 * i + 3]
    for i in range(4 * n_fours, line.shape[0]):
        a += line[i]
    return (a + b) + (c + d)


@kernel
def _observe_line(line, squared_weight, first, second):
    for i in range(line.shape[0]):
        weighted = squared_weight * line[i]
        first[i] += weighted
        second[i] += weighted * line[i]


@kernel
def _fill(line, value):
    for i in range(line.shape[0]):
        line[i] = value
