# mypy: ignore-errors
"""Compiled kernels for exact ranks: distances, values and votes of sorted rows."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numba import njit
from numba.core import event as events

from cellworth.runtime.executors import Serial, Threads
from cellworth.runtime.stopping import announce, skip_seconds

# Rows whose distances are computed together: small enough for the fastest cache.
_ROWS_AT_ONCE = 256
# Distances from which those of a coalition are computed by adding or subtracting columns.
NOTHING, PREVIOUS, EVERYTHING = 0, 1, 2
_ONCE = "kernels, once per machine and release, which takes 10 to 30 s"


class UniqueNames(str):
    """Pattern for the names of numba's cache files, with a name of its own for each file.

    numba numbers the files of a function. Two processes that compile a function for different types
    at the same time would use the same number, and one would load the code of the other.
    """

    def format(self, *, number: int) -> str:
        """Return the name of a new file."""
        return f"{super().format(number=number).removesuffix('.nbc')}.{uuid4().hex[:16]}.nbc"


class _CompilationListener(events.Listener):
    """Announces the first compilation in this process, and keeps all out of the time left."""

    def __init__(self) -> None:
        self._announced = False
        # Kernels compile those that they call; a lock lets one thread compile at a time.
        self._began: list[float] = []

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not self._announced and function.__module__.startswith("cellworth."):
            self._announced = True
            announce("compile", f"compiling {_ONCE}")
        self._began.append(time.perf_counter())

    def on_end(self, event: Any) -> None:
        seconds = time.perf_counter() - self._began.pop()
        if not self._began:
            skip_seconds(seconds)


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
    """Compile on first use and cache the result on disk if possible."""
    settings = {"nogil": True, "error_model": "numpy"}
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
    query : tuple, ``numbers``, ``categories`` and ``lines`` of the Query
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
        measure(rows, query, scales, players, shift, first, width, block)
        fill_block(block, order, steps, payload[first : first + width], keys, first)


@kernel
def fill_block(block, order, steps, payload, keys, first):
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
def measure(rows, query, scales, players, shift, first, width, block):
    """Compute the distances of rows first..first + width - 1 to one query, one line per player.

    The last line of ``block`` is not changed.
    """
    block[:-1] = 0
    # Slices of single lines are known to be contiguous, so the compiler uses vector instructions.
    n_numbers, n_categories = rows.numbers.shape[0], rows.categories.shape[0]
    for j in range(n_numbers):
        _measure_numbers(
            rows.numbers[j, first : first + width], query[0][j], scales.number_weights[j],
            scales.number_missing[j], scales.farthest, shift, block[players[j], :width],
        )  # fmt: skip
    for j in range(n_categories):
        _measure_categories(
            rows.categories[j, first : first + width], query[1][j],
            scales.category_weights[j] << shift, scales.category_missing[j] << shift,
            block[players[n_numbers + j], :width],
        )  # fmt: skip
    for j in range(rows.coded.shape[0]):
        _look_up(
            rows.coded[j, first : first + width], scales.tables[query[2][j] :], shift,
            block[players[n_numbers + n_categories + j], :width],
        )  # fmt: skip


@kernel
def _measure_numbers(cells, here, weight, missing, farthest, shift, line):
    # Independent conditional expressions compile to vector instructions.
    for i in range(cells.shape[0]):
        difference = cells[i] - here
        distance = difference * difference * weight + 0.5
        distance = farthest if distance > farthest else distance
        distance = missing if difference != difference else distance  # noqa: PLR0124 (NaN)
        # Distances are not negative and 0.5 was added, so truncation rounds to the nearest.
        line[i] += np.int64(distance) << shift


@kernel
def _measure_categories(cells, here, mismatch, missing, line):
    if here < 0:
        for i in range(cells.shape[0]):
            line[i] += missing
        return
    for i in range(cells.shape[0]):
        distance = mismatch if cells[i] != here else np.int64(0)
        line[i] += missing if cells[i] < 0 else distance


@kernel
def _look_up(cells, table, shift, line):
    for i in range(cells.shape[0]):
        line[i] += table[cells[i]] << shift


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
    n_rows = keys.shape[1]
    low_bits = (np.int64(1) << shift) - 1
    for s in range(keys.shape[0]):
        line, out = keys[s], values[s]
        farther = 0.0
        end = n_rows
        distance = line[n_rows - 1] >> shift
        while end > 0:
            begin = end - 1
            key = line[begin]
            next_distance = line[begin - 1] >> shift if begin > 0 else np.int64(-1)
            if next_distance != distance:
                match = key & 1
                out[(key & low_bits) >> 1] = match * single[end] - farther
                if begin > 0:
                    farther += match * (single[begin] - single[end])
            else:
                matches = key & 1
                while next_distance == distance:
                    begin -= 1
                    matches += line[begin] & 1
                    next_distance = line[begin - 1] >> shift if begin > 0 else np.int64(-1)
                # As in binned_kernels.value_ties; a call would take 25% more time.
                tied = end - begin
                mean = (running[end] - running[begin]) / tied
                pushed = (mean - single[end]) / (tied - 1)
                of_other = -matches * pushed - farther
                of_match = mean + pushed + of_other
                for i in range(begin, end):
                    key = line[i]
                    out[(key & low_bits) >> 1] = of_match if key & 1 else of_other
                if begin > 0:
                    farther += matches * (single[begin] - single[end]) / tied
            end = begin
            distance = next_distance


@kernel
def nearest_matches(keys, shift, n_neighbors):
    """Return the number of matches among the nearest rows, as a mean over all orders of ties."""
    n_rows = keys.shape[0]
    n_nearest = min(n_neighbors, n_rows)
    farthest = keys[n_nearest - 1] >> shift
    nearer, tied, matches, tied_matches = 0, 0, 0, 0
    for i in range(n_rows):
        distance = keys[i] >> shift
        if distance > farthest:
            break
        if distance < farthest:
            nearer += 1
            matches += keys[i] & 1
        else:
            tied += 1
            tied_matches += keys[i] & 1
    return matches + tied_matches * (n_nearest - nearer) / tied


@kernel
def target_values(keys, shift, targets, asked, n_neighbors, chances, values):
    """Compute the value of every row for one query with a numeric target, one line per coalition.

    The utility of a coalition is -(sum of its nearest targets / K - asked)**2. Expanding the square
    gives a sum over rows, with values like those of matching labels, and a sum over pairs of rows.

    Parameters
    ----------
    keys : (n_coalitions, n_rows) int64, sorted; the payload is the row's position
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
            nearer[i + 1] = nearer[i] + targets[line[i] & low_bits]
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
                target = targets[line[i] & low_bits]
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
                row = line[i] & low_bits
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
        target = targets[keys[i] & low_bits]
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
def observe(values, players, squared_weight, seen, first, second):
    """Add the cell values of one query, with their margins, to sums over queries.

    Parameters
    ----------
    values : (n_results, n_rows) float64
    players : (n_rows,) int64, row player of each row
    squared_weight : float, squared weight of the query
    seen : (n_results + 1, n_players + 1) float64, buffer for the values by player
    first, second : (n_results + 1, n_players + 1) float64
        Sums of squared weight times value, and of squared weight times squared value.
    """
    n_results, n_rows = values.shape
    n_players = seen.shape[1] - 1
    seen[:] = 0.0
    for j in range(n_results):
        line, cells = seen[j], values[j]
        for i in range(n_rows):
            line[players[i]] += cells[i]
        total = 0.0
        for i in range(n_players):
            total += line[i]
            seen[n_results, i] += line[i]
        line[n_players] = total
        seen[n_results, n_players] += total
    for j in range(n_results + 1):
        for i in range(n_players + 1):
            value = seen[j, i]
            first[j, i] += squared_weight * value
            second[j, i] += squared_weight * value * value


@kernel
def count_sorted_votes(keys, shift, labels, n_neighbors, surely, tied):
    """Count the votes of the nearest rows by class; return how many tied rows vote.

    Parameters
    ----------
    keys : (n_rows,) int64
        Sorted keys of TrainingRows: distance, row, and whether the label matches.
    shift : int, number of bits below the distance
    labels : (n_rows,) float64, codes of classes
    surely, tied : (n_classes,) int64
        Output: rows that certainly vote, and rows that tie for the remaining votes.
    """
    n_nearest = min(n_neighbors, keys.shape[0])
    farthest = keys[n_nearest - 1] >> shift
    below = (np.int64(1) << shift) - 1
    positions = n_nearest
    for i in range(keys.shape[0]):
        distance = keys[i] >> shift
        if distance > farthest:
            break
        label = np.int64(labels[(keys[i] & below) >> 1])
        if distance < farthest:
            surely[label] += 1
            positions -= 1
        else:
            tied[label] += 1
    return positions


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
def right_chance(surely, tied, positions, right):
    """Return the probability that class ``right`` wins the vote; equal classes share the win.

    Parameters
    ----------
    surely : (n_classes,) int64, certain votes by class
    tied : (n_classes,) int64, tied rows by class, of which ``positions`` random ones vote
    positions : int
    right : int
    """
    n_classes = surely.shape[0]
    drawn = np.empty(positions + 1)
    mine = np.empty(positions + 1)
    # By number of votes left to draw, and number of other classes with equally many votes.
    chances = np.zeros((positions + 1, n_classes + 1))
    later = np.zeros((positions + 1, n_classes + 1))
    rows = tied.sum()
    _draw(tied[right], rows, positions, mine)
    found = 0.0
    for votes in range(positions + 1):
        most = surely[right] + votes
        if mine[votes] == 0.0 or most == 0:
            continue
        chances[:] = 0.0
        chances[positions - votes, 0] = mine[votes]
        left = rows - tied[right]
        for other in range(n_classes):
            if other == right or surely[other] + tied[other] == 0:
                continue
            later[:] = 0.0
            for n_open in range(positions - votes + 1):
                if chances[n_open].sum() == 0.0:
                    continue
                _draw(tied[other], left, n_open, drawn)
                for more in range(min(n_open, tied[other]) + 1):
                    if surely[other] + more > most:
                        break
                    equal = 1 if surely[other] + more == most else 0
                    for shared in range(n_classes):
                        later[n_open - more, shared + equal] += (
                            chances[n_open, shared] * drawn[more]
                        )
            chances, later = later, chances
            left -= tied[other]
        for shared in range(n_classes):
            found += chances[0, shared] / (shared + 1)
    return found


@kernel
def _draw(marked, rows, n_drawn, chances):
    """Compute hypergeometric probabilities that 0, 1, ... of ``n_drawn`` rows are marked."""
    chances[:] = 0.0
    first, last = max(0, n_drawn - (rows - marked)), min(n_drawn, marked)
    # From the most likely number outwards, so nothing overflows; underflow does no harm.
    top = min(max((n_drawn + 1) * (marked + 1) // (rows + 2), first), last)
    chances[top] = 1.0
    total = 1.0
    for k in range(top, last):
        ratio = (marked - k) * (n_drawn - k) / ((k + 1) * (rows - marked - n_drawn + k + 1))
        chances[k + 1] = chances[k] * ratio
        total += chances[k + 1]
    for k in range(top, first, -1):
        ratio = k * (rows - marked - n_drawn + k) / ((marked - k + 1) * (n_drawn - k + 1))
        chances[k - 1] = chances[k] * ratio
        total += chances[k - 1]
    for k in range(first, last + 1):
        chances[k] /= total
