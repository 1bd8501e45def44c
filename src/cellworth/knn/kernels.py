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
_ROWS_AT_ONCE = 256
_ROWS_OF_STEPS = 1024
# Distances from which those of a coalition are computed by adding or subtracting columns.
NOTHING, PREVIOUS, EVERYTHING = 0, 1, 2
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
def fill_keys(rows, query, scales, players, order, steps, payload, shift, keys):
    """Write the sort keys of all rows for one query, one line per coalition.

    A key is an integer distance, shifted left by ``shift``, plus the row's payload.

    Parameters
    ----------
    rows : Columns
    query : tuple, ``numbers`` and ``categories`` of the Query
    scales : ColumnScales
    players : (n_columns,) int64, player of each column of ``rows``
    order : (n_players,) int64
        Actual player for each player of the coalitions; queries share coalitions.
    steps : tuple
        Base of each coalition (NOTHING, PREVIOUS or EVERYTHING), its first entry in toggles, and
        toggles: p if player p joins, ~p if it leaves.
    payload : (n_rows,) int64, low bits of the keys
    keys : (n_coalitions, n_rows) int64, output
    """
    n_rows = payload.shape[0]
    block = np.empty((order.shape[0] + 1, _ROWS_AT_ONCE), dtype=np.int64)
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        width = min(_ROWS_AT_ONCE, n_rows - first)
        _measure(rows, query, scales, players, shift, first, width, block)
        _fill_block(block, order, steps, payload[first : first + width], keys, first)


@kernel
def _fill_block(block, order, steps, payload, keys, first):
    """Write the keys of a block of rows from their distances by player.

    The keys start at ``first`` in each line. The last line of ``block`` is overwritten.
    """
    bases, firsts, toggles = steps
    n_players, width = order.shape[0], payload.shape[0]
    everything = block[n_players, :width]
    needed = False
    for s in range(bases.shape[0]):
        needed = needed or bases[s] == EVERYTHING
    if needed:
        _copy(payload, everything)
        for player in range(n_players):
            _add(block[player, :width], everything, everything)
    for s in range(bases.shape[0]):
        line = keys[s, first : first + width]
        source = payload
        if bases[s] == PREVIOUS:
            source = keys[s - 1, first : first + width]
        elif bases[s] == EVERYTHING:
            source = everything
        for t in range(firsts[s], firsts[s + 1]):
            if toggles[t] >= 0:
                _add(block[order[toggles[t]], :width], source, line)
            else:
                _subtract(block[order[~toggles[t]], :width], source, line)
            source = line
        if firsts[s] == firsts[s + 1]:
            _copy(source, line)


@kernel
def follow_steps(
    rows, query, scales, columns, order, steps, payload, shift, everything, last, keys
):  # fmt: skip
    """Write the sort keys of all rows as fill_keys does, with a column measured whenever it joins.

    This is faster where every coalition is few steps from the one before.

    Parameters
    ----------
    rows, query, scales, order, steps, payload, shift, keys
        As in fill_keys. The first coalition may have the base PREVIOUS, too.
    columns : tuple
        Columns of ``rows`` sorted by player, and the first of each player.
    everything : (n_rows,) int64, keys of the full coalition; not read unless a base is EVERYTHING
    last : (n_rows,) int64, keys of the coalition before the first; output: those of the last one
    """
    bases, firsts, toggles = steps
    sorted_columns, starts = columns
    n_rows = payload.shape[0]
    for first in range(0, n_rows, _ROWS_OF_STEPS):
        end = min(first + _ROWS_OF_STEPS, n_rows)
        line = last[first:end]
        for s in range(bases.shape[0]):
            if bases[s] == NOTHING:
                _copy(payload[first:end], line)
            elif bases[s] == EVERYTHING:
                _copy(everything[first:end], line)
            for t in range(firsts[s], firsts[s + 1]):
                leaves = np.int64(-1) if toggles[t] < 0 else np.int64(0)
                player = order[toggles[t] ^ leaves]
                for j in range(starts[player], starts[player + 1]):
                    _measure_column(
                        rows, query, scales, sorted_columns[j], shift, leaves, first, end, line
                    )
            _copy(line, keys[s, first:end])


@kernel
def _measure(rows, query, scales, players, shift, first, width, block):
    """Compute the distances of rows first..first + width - 1 to one query, one line per player.

    The last line of ``block`` is not changed.
    """
    for player in range(block.shape[0] - 1):
        _fill(block[player], 0)
    for j in range(players.shape[0]):
        line, end = block[players[j], :width], first + width
        _measure_column(rows, query, scales, j, shift, np.int64(0), first, end, line)


@kernel
def _measure_column(rows, query, scales, j, shift, leaves, first, end, line):
    """Add the distances of rows first..end - 1 in column j; subtract them if ``leaves`` is -1."""
    # Slices of single lines are known to be contiguous, so the compiler uses vector instructions.
    n_numbers = rows.numbers.shape[0]
    if j < n_numbers:
        _measure_numbers(
            rows.numbers[j, first:end], query[0][j], scales.number_weights[j],
            scales.number_missing[j], scales.farthest, shift, leaves, line,
        )  # fmt: skip
        return
    j -= n_numbers
    mismatch, missing = scales.category_weights[j] << shift, scales.category_missing[j] << shift
    measure_categories(
        rows.categories[j, first:end], query[1][j], (mismatch ^ leaves) - leaves,
        (missing ^ leaves) - leaves, line,
    )  # fmt: skip


@kernel
def _measure_numbers(cells, here, weight, missing, farthest, shift, leaves, line):
    # Independent conditional expressions compile to vector instructions.
    for i in range(cells.shape[0]):
        difference = cells[i] - here
        distance = difference * difference * weight + 0.5
        distance = distance if distance < farthest else farthest
        distance = distance if difference == difference else missing  # noqa: PLR0124 (NaN)
        # Distances are not negative and 0.5 was added, so truncation rounds to the nearest.
        line[i] += ((np.int64(distance) << shift) ^ leaves) - leaves


@kernel
def measure_categories(cells, here, mismatch, missing, line):
    """Add the distances of categories to one of them, which may be missing, to a line."""
    if here < 0:
        for i in range(cells.shape[0]):
            line[i] += missing
        return
    # An integer or a float, as the distances are.
    nothing = mismatch - mismatch
    for i in range(cells.shape[0]):
        distance = mismatch if cells[i] != here else nothing
        line[i] += missing if cells[i] < 0 else distance


@kernel
def _copy(source, line):
    # A loop, because assignment to a slice takes seconds to compile.
    for i in range(line.shape[0]):
        line[i] = source[i]


@kernel
def _add(distances, source, line):
    for i in range(line.shape[0]):
        line[i] = source[i] + distances[i]


@kernel
def _subtract(distances, source, line):
    for i in range(line.shape[0]):
        line[i] = source[i] - distances[i]


@kernel
def class_values(keys, shift, single, running, values):
    """Compute the value of every row for one query with a class label, one line per coalition.

    Rows at the same distance get the mean over all of their orders.

    Parameters
    ----------
    keys : (n_coalitions, n_rows) int64
        Sorted; the payload is twice the row's position, plus 1 if its label matches.
    single, running : (n_rows + 1,) float64, as in RankChances
    values : (n_coalitions, n_rows) float64, output, by position
    """
    low_bits = (np.int64(1) << shift) - 1
    for s in range(keys.shape[0]):
        line, out = keys[s], values[s]
        farther, end = 0.0, keys.shape[1]
        while end > 0:
            while end > 4:
                # Most often four rows tie with no other. Their sums do not wait for each other.
                a, b, c, d = line[end - 1], line[end - 2], line[end - 3], line[end - 4]
                apart = ((a ^ b) > low_bits) & ((b ^ c) > low_bits) & ((c ^ d) > low_bits)
                if apart & ((d ^ line[end - 5]) > low_bits):
                    single_a, single_b, single_c = single[end], single[end - 1], single[end - 2]
                    single_d, single_e = single[end - 3], single[end - 4]
                    of_a, of_b = (a & 1) * (single_b - single_a), (b & 1) * (single_c - single_b)
                    of_c, of_d = (c & 1) * (single_d - single_c), (d & 1) * (single_e - single_d)
                    of_two = of_a + of_b
                    out[(a & low_bits) >> 1] = (a & 1) * single_a - farther
                    out[(b & low_bits) >> 1] = (b & 1) * single_b - (farther + of_a)
                    out[(c & low_bits) >> 1] = (c & 1) * single_c - (farther + of_two)
                    out[(d & low_bits) >> 1] = (d & 1) * single_d - (farther + (of_two + of_c))
                    farther += of_two + (of_c + of_d)
                    end -= 4
                    continue
                two = (a ^ b) <= low_bits
                if two & ((b ^ c) <= low_bits):
                    break
                # One or two rows, without branches that would often be predicted wrongly.
                mean = 0.5 * (running[end] - running[end - 2]) if two else single[end]
                pushed = mean - single[end]
                match_a, match_b = np.float64(a & 1), np.float64(b & 1)
                both = match_a + (match_b if two else 0.0)
                of_other, more = -both * pushed - farther, mean + pushed
                out[(a & low_bits) >> 1] = match_a * more + of_other
                # If it does not tie, the next round overwrites this.
                out[(b & low_bits) >> 1] = match_b * more + of_other
                nearer, share = single[end - 2] if two else single[end - 1], 0.5 if two else 1.0
                farther += both * (nearer - single[end]) * share
                end -= 2 if two else 1
            begin = end - 1
            key, matches = line[begin], line[begin] & 1
            while begin > 0 and (line[begin - 1] ^ key) <= low_bits:
                begin -= 1
                matches += line[begin] & 1
            tied = end - begin
            # As in binned_kernels.value_ties; a call would take more time.
            mean, pushed = single[end], 0.0
            if tied > 1:
                mean = (running[end] - running[begin]) / tied
                pushed = (mean - single[end]) / (tied - 1)
            of_other, more = -matches * pushed - farther, mean + pushed
            for i in range(begin, end):
                out[(line[i] & low_bits) >> 1] = (line[i] & 1) * more + of_other
            if begin > 0:
                farther += matches * (single[begin] - single[end]) / tied
            end = begin


@kernel
def gain_values(keys, shift, gains, chances, voter_terms, values):
    """Compute the value of every row for one query whose votes earn any gains.

    Parameters
    ----------
    keys, shift, values : as in class_values
    gains : (n_coalitions, n_rows) float64, in the order of the keys
    chances : tuple, ``single`` and ``running`` of RankChances
    voter_terms : tuple, as in find_voter_terms
    """
    (single, running), (own, others) = chances, voter_terms
    low_bits = (np.int64(1) << shift) - 1
    for s in range(keys.shape[0]):
        line, gain, out = keys[s], gains[s], values[s]
        farther, end = others * _sum(gain), keys.shape[1]
        while end > 0:
            begin = end - 1
            key, total = line[begin], gain[begin]
            if begin == 0 or (line[begin - 1] ^ key) > low_bits:
                # Without ties, no sum waits for a division.
                out[(key & low_bits) >> 1] = total * (single[end] + own + others) - farther
                farther += total * (single[begin] - single[end])
                end = begin
                continue
            while begin > 0 and (line[begin - 1] ^ key) <= low_bits:
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
def add_few(values, before, nothing, few, order, query_weight, into):
    """Add the values of rows to the cells in which coalitions have weights.

    Parameters
    ----------
    values : (n_coalitions, n_rows) float64
    before : (n_rows,) float64, values of the coalition before the first one
    nothing : (n_rows,) float64, values without columns
    few : tuple
        FewWeights of the coalitions: first entry of each coalition, and for each entry its result,
        the weight of the coalition, the weight of another one, and which: NOTHING or PREVIOUS.
    order : (n_players,) int64, as in fill_keys
    query_weight : float
    into : (n_results, n_rows) float64, added to
    """
    firsts, results, weights, other_weights, others = few
    for s in range(values.shape[0]):
        for e in range(firsts[s], firsts[s + 1]):
            line = into[order[results[e]]]
            weight, other_weight = query_weight * weights[e], query_weight * other_weights[e]
            if other_weight == 0.0:
                _add_one(weight, values[s], line)
            elif others[e] == NOTHING:
                _add_two(weight, values[s], other_weight, nothing, line)
            elif s == 0:
                _add_two(weight, values[s], other_weight, before, line)
            else:
                _add_two(weight, values[s], other_weight, values[s - 1], line)


@kernel
def _add_one(weight, values, line):
    for i in range(line.shape[0]):
        line[i] += weight * values[i]


@kernel
def _add_two(weight, values, other_weight, others, line):
    for i in range(line.shape[0]):
        line[i] += weight * values[i] + other_weight * others[i]


@kernel
def target_values(keys, shift, targets, asked, n_neighbors, chances, values):
    """Compute the value of every row for one query with a numeric target, one line per coalition.

    The utility of a coalition is -(sum of its nearest targets / K - asked)**2. Expanding the square
    gives a sum over rows, with values like those of matching labels, and a sum over pairs of rows.

    Parameters
    ----------
    keys : (n_coalitions, n_rows) int64, sorted; the payload is as in class_values
    targets : (n_rows,) float64
    asked : float, target of the query
    chances : tuple, ``single``, ``running``, ``pair`` and ``pushed`` of RankChances
    values : (n_coalitions, n_rows) float64, output, by position
    """
    single, running, pair, pushed = chances
    n_rows = keys.shape[1]
    low_bits = (np.int64(1) << shift) - 1
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
            distance = line[begin] >> shift
            while begin > 0 and line[begin - 1] >> shift == distance:
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
def nearest_error(keys, shift, targets, asked, n_neighbors):
    """Return the squared error of the nearest rows' mean, averaged over all orders of ties."""
    n_rows = keys.shape[0]
    low_bits = (np.int64(1) << shift) - 1
    n_nearest = min(n_neighbors, n_rows)
    farthest = keys[n_nearest - 1] >> shift
    nearer, tied = 0, 0
    sure, total, squares = 0.0, 0.0, 0.0
    for i in range(n_rows):
        distance = keys[i] >> shift
        if distance > farthest:
            break
        target = targets[(keys[i] & low_bits) >> 1]
        if distance < farthest:
            nearer += 1
            sure += target
        else:
            tied += 1
            total += target
            squares += target * target
    positions = n_nearest - nearer
    mean = sure + positions * total / tied
    missing = mean / n_neighbors - asked
    variance = variance_of_draw(positions, tied, total, squares)
    return missing * missing + variance / n_neighbors**2


@kernel
def variance_of_draw(taken, tied, total, squares):
    """Return the variance of a sum of tied targets that are drawn without replacement."""
    if taken == tied:
        return 0.0
    deviations = squares - total * total / tied
    return float(taken) * (tied - taken) * deviations / (float(tied) * (tied - 1))


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
