"""Exact ranks: training rows sorted by distance on every coalition, and values by rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, cast

import numpy as np

from cellworth.data.arguments import Floats, Integers
from cellworth.knn.distances import LARGEST_DISTANCE, Columns, ColumnScales
from cellworth.knn.draws import DrawnCoalitions, QueryBatch
from cellworth.sampling.semivalues import Semivalue, Shapley, inside_chances

# Keys that are sorted together: with distances and values of rows, they stay in a core's cache.
_KEYS_AT_ONCE = 2**17
# Of fewer coalitions at once, distances by column are measured too often.
_MIN_AT_ONCE = 16
# Weights that are not 0, up to which no matrix product is needed: a prefix of an order has two.
_FEW_PER_COALITION = 3
_MIN_RESULTS_OF_FEW = 32
# With more rows, 32 bits leave too few for distances: to order rows with equal codes takes longer.
_MAX_ROWS_OF_SHORT_KEYS = 8192
# Distances below this share of the unit have one code.
_LEAST_SHARE = 2.0**-18
# Sums up to this rank are tabulated.
_HEAD = 65_536


@dataclass(frozen=True, eq=False)
class RankChances:
    """Probabilities by rank; arrays of shape (n_rows + 1,) whose entry 0 is not used."""

    # Probability that the r-th nearest row is among the K nearest of its coalition, over K.
    single: Floats
    running: Floats  # Sums of ``single`` over ranks 1..r
    # Probability that a given nearer row is in the coalition, too, and both are among the K
    # nearest, over K**2.
    pair: Floats
    # Decrease of ``pair`` from the previous rank: the probability that a row that joins in front
    # pushes out the farther of two.
    pushed: Floats

    @classmethod
    def from_semivalue(
        cls, semivalue: Semivalue, n_players: int, n_rows: int, n_neighbors: int
    ) -> RankChances:
        """Compute the probabilities for n_rows training rows among n_players row players."""
        ranks = np.arange(n_rows + 1)
        # If K rows in front are in the coalition, one more in front pushes this row out.
        full = inside_chances(semivalue, n_players, np.maximum(ranks - 1, 0), n_neighbors)
        drop = np.zeros(n_rows + 1)
        drop[2:] = full[2:] / ranks[1:-1]
        pushed = np.zeros(n_rows + 1)
        pushed[3:] = drop[3:] * (n_neighbors - 1) / (n_neighbors * ranks[1:-2])
        fewer = np.arange(min(n_neighbors, n_rows))
        at_end = inside_chances(semivalue, n_players, n_rows - 1, fewer)
        last_single = float(at_end.sum()) / n_neighbors
        # If k of the n - 1 others are in, a given one of them is in with probability k / (n - 1).
        last_pair = float(at_end @ fewer) / max(n_rows - 1, 1) / n_neighbors**2
        single, pair = _from_the_end(last_single, drop), _from_the_end(last_pair, pushed)
        running = np.concatenate([[0.0], np.cumsum(single[1:])])
        return cls(single, running, pair, pushed)

    def at(self, ranks: Integers) -> tuple[Floats, Floats]:
        """Return ``single`` and ``running`` at these ranks."""
        return self.single[ranks], self.running[ranks]

    def pairs_at(self, ranks: Integers) -> tuple[Floats, ...]:
        """Return ``single``, ``running``, ``pair`` and running sums of ``pair``, at these ranks.

        The sums are over ``pair`` and over ``pair`` times the number of nearer rows. Only their
        differences count, so they may start anywhere.
        """
        pairs, fronts = self._pair_sums
        return *self.at(ranks), self.pair[ranks], pairs[ranks], fronts[ranks]

    @cached_property
    def fixed(self) -> Integers:
        """``single`` as integers, in units of 1 / FIXED_UNITS."""
        from cellworth.knn.kernels import FIXED_UNITS

        return np.rint(self.single * FIXED_UNITS).astype(np.int64)

    @cached_property
    def _pair_sums(self) -> tuple[Floats, Floats]:
        fronts = self.pair * (np.arange(len(self.pair)) - 1)
        return -_from_the_end(0.0, self.pair), -_from_the_end(0.0, fronts)


class RadiusVotes:
    """Values of rows if all rows within a distance vote, instead of the K nearest.

    The utility is the mean match of the rows of a coalition that are within ``limit``.
    """

    def __init__(self, limit: int, semivalue: Semivalue, n_players: int) -> None:
        self.limit = limit
        self._semivalue, self._n_players = semivalue, n_players
        self._known: dict[int, tuple[float, float]] = {0: (0.0, 0.0)}
        self._harmonic = ShapleyChances(1)

    def find_terms(self, counts: Integers) -> tuple[Floats, Floats]:
        """Return what a row within the limit gets for its match, and loses for another's.

        ``counts`` are numbers of rows within the limit.
        """
        if isinstance(self._semivalue, Shapley):
            # Any number of other rows is equally likely, so that shares add up as 1 / r does.
            n_inside = np.maximum(counts, 1)
            kept = self._harmonic.at(n_inside)[1] / n_inside
            lost = (kept - 1.0 / n_inside) / np.maximum(n_inside - 1, 1)
            return kept[:, np.newaxis], lost[:, np.newaxis]
        for count in set(np.unique(counts).tolist()) - set(self._known):
            others = np.arange(count)
            chances = inside_chances(self._semivalue, self._n_players, count - 1, others)
            shares = chances / (others + 1)
            lost = float(shares[1:].sum()) / max(count - 1, 1)
            self._known[count] = float(shares.sum()), lost
        terms = np.array([self._known[count] for count in counts.tolist()])
        return terms[:, :1], terms[:, 1:]


class RankedRows(NamedTuple):
    """All rows, ranked by distance on some coalitions: a line for each."""

    keys: Any  # (n_lines, n_rows): as kernels.order_ties leaves them
    low_bits: int  # Bits of position and match
    n_ties: Integers  # (n_lines,): number of rows that tie with the next
    distances: Floats  # (n_lines, n_rows): by position, in integer units

    def take(self, lines: Any) -> RankedRows:
        """Keep these lines."""
        keys, low_bits, n_ties, distances = self
        return RankedRows(keys[lines], low_bits, n_ties[lines], distances[lines])

    @property
    def positions(self) -> Integers:
        """Positions of the rows, from the nearest to the farthest."""
        return np.asarray((self.keys & self.low_bits) >> 1, dtype=np.int64)

    @property
    def sorted_distances(self) -> Floats:
        """Distances from the nearest row to the farthest."""
        return np.take_along_axis(self.distances, self.positions, axis=1)


@dataclass(frozen=True, eq=False)
class TrainingRows:
    """Training rows of one fold."""

    rows: Columns
    scales: ColumnScales
    players: Integers  # (n_columns,): player of each column, in the order of the scales
    labels: Floats  # (n_rows,): codes of classes, or targets minus their mean
    is_class: bool
    n_neighbors: int
    chances: RankChances
    # (n_classes, n_rows): what a row's vote earns for a label; None if a match earns 1.
    gains: Floats | None = None
    # Terms of rows that vote, if gains are divided by their number; see find_voter_terms.
    voter_terms: tuple[float, float] | None = None
    radius: RadiusVotes | None = None  # If rows within a distance vote, instead of the nearest
    class_targets: Floats | None = None  # As in find_targets
    weigh: Callable[[Floats], Floats] | None = None  # Weights of votes by distance

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.labels)

    @property
    def has_votes(self) -> bool:
        """Whether votes count, instead of a squared error."""
        return self.is_class and self.class_targets is None

    @cached_property
    def key_type(self) -> type[np.uint32 | np.int64]:
        """Type of the sort keys."""
        return np.uint32 if self.n_rows <= _MAX_ROWS_OF_SHORT_KEYS else np.int64

    @cached_property
    def low_bits(self) -> int:
        """Bits of position and match in a key."""
        return (2 << (self.n_rows - 1).bit_length()) - 1

    @cached_property
    def code(self) -> tuple[int, int, int]:
        """How distances become codes; see kernels.fill_keys."""
        n_low = self.low_bits.bit_length() + 1
        n_bits = (32 if self.key_type is np.uint32 else 63) - n_low
        ends = np.array([max(self.scales.unit * _LEAST_SHARE, 0.5), LARGEST_DISTANCE])
        least, largest = ends.view(np.int64).tolist()
        return least, max((largest - least).bit_length() - n_bits, 0), n_low

    @cached_property
    def classes(self) -> Integers:
        """Codes of classes; -1 for numeric targets, which match no query."""
        return self.labels.astype(np.int64) if self.is_class else np.full(self.n_rows, -1)

    @cached_property
    def _targets(self) -> Floats:
        return find_targets(self.labels, self.class_targets)

    def _compare(self, label: float) -> Iterator[tuple[Floats, float]]:
        """Yield targets of all rows, and that of a query."""
        asked = find_targets(np.array([label]), self.class_targets)
        return zip(self._targets, asked[:, 0].tolist(), strict=True)

    def row_values(self, ranked: RankedRows, labels: Sequence[float], out: Floats) -> None:
        """Compute the value of every row; each of the labels has as many lines."""
        from cellworth.knn import kernels

        chances = self.chances
        if self.has_votes and self.gains is None:
            kernels.class_values(*ranked[:3], chances.single, chances.running, chances.fixed, out)
            return
        n_lines = len(out) // len(labels)
        for number, label in enumerate(labels):
            lines = slice(number * n_lines, (number + 1) * n_lines)
            if self.has_votes:
                self._value_gains(ranked.take(lines), label, out[lines])
            else:
                self._value_targets(ranked.take(lines), label, out[lines])

    def _value_gains(self, ranked: RankedRows, label: float, out: Floats) -> None:
        from cellworth.knn import kernels

        gains, chances = self._sort_gains(ranked, label), self.chances
        if self.radius is None:
            kernels.gain_values(
                *ranked[:2], gains, (chances.single, chances.running),
                self.voter_terms or (0.0, 0.0), out,
            )  # fmt: skip
            return
        inside = ranked.sorted_distances <= self.radius.limit
        kept, lost = self.radius.find_terms(inside.sum(axis=1))
        total = (gains * inside).sum(axis=1, keepdims=True)
        values = inside * (kept * gains - lost * (total - gains))
        np.put_along_axis(out, ranked.positions, values, axis=1)

    def _value_targets(self, ranked: RankedRows, label: float, out: Floats) -> None:
        from cellworth.knn import kernels

        chances = self.chances
        tables = (chances.single, chances.running, chances.pair, chances.pushed)
        for number, (targets, asked) in enumerate(self._compare(label)):
            values = np.empty_like(out) if number else out
            kernels.target_values(*ranked[:2], targets, asked, self.n_neighbors, tables, values)
            if number:
                out += values

    def score(self, ranked: RankedRows, labels: Sequence[float]) -> tuple[Floats, Floats]:
        """Return the utility of all rows, and whether their vote is correct: a line per query.

        A vote is as in :func:`score_vote`; NaN for a numeric target.
        """
        from cellworth.knn import kernels

        utilities, scores = np.full((2, len(labels)), np.nan)
        if self.is_class:
            asked = np.array(labels, dtype=np.int64)
            votes = np.zeros((2, 1 + int(max(self.classes.max(), asked.max()))), dtype=np.int64)
        if self.is_class and self.radius is None:
            kernels.score_votes(
                *ranked[:2], self.classes, asked, votes, self.n_neighbors, utilities, scores
            )
        for query, label in enumerate(labels):
            if self.radius is not None:
                inside = self.classes[ranked.distances[query] <= self.radius.limit]
                surely = np.bincount(inside, minlength=votes.shape[1])
                scores[query] = score_vote(surely, votes[1], 0, int(label))
            if not self.has_votes:
                utilities[query] = self._negative_error(ranked.take([query]), label)
            elif self.gains is not None:
                utilities[query] = self._mean_gain(ranked.take([query]), label)
        return utilities, scores

    def _negative_error(self, ranked: RankedRows, label: float) -> float:
        from cellworth.knn import kernels

        keys, low_bits = ranked.keys[0], self.low_bits
        return -sum(
            float(kernels.nearest_error(keys, low_bits, targets, asked, self.n_neighbors))
            for targets, asked in self._compare(label)
        )

    def utility_of_nothing(self, label: float) -> float:
        """Return the utility without rows: no row votes, and the prediction is the mean."""
        return 0.0 if self.has_votes else -sum(asked**2 for _, asked in self._compare(label))

    def _mean_gain(self, ranked: RankedRows, label: float) -> float:
        """Return the mean gain of the rows that vote, over all orders of ties."""
        from cellworth.knn import kernels

        gains = self._sort_gains(ranked, label)[0]
        if self.radius is not None:
            inside = ranked.sorted_distances[0] <= self.radius.limit
            return float((gains * inside).sum() / max(inside.sum(), 1))
        begin, end, n_voters = kernels.find_voters(ranked.keys[0], self.low_bits, self.n_neighbors)
        earned = float(gains[:begin].sum() + gains[begin:end].mean() * (n_voters - begin))
        return earned / (self.n_neighbors if self.voter_terms is None else n_voters)

    def _sort_gains(self, ranked: RankedRows, label: float) -> Floats:
        """Return what the votes of rows earn, from the nearest row to the farthest."""
        gains: Floats = cast(Floats, self.gains)[int(label)][ranked.positions]
        return gains if self.weigh is None else self.weigh(ranked.sorted_distances) * gains

    def without_columns(self, label: float) -> tuple[Floats, float]:
        """Return the values of rows, and their utility, without columns: all rows tie."""
        keys = (np.arange(self.n_rows) << 1) | (self.classes == label)
        keys[-1] |= self.low_bits + 1
        ranked = RankedRows(
            keys.astype(self.key_type)[np.newaxis], self.low_bits, np.array([self.n_rows - 1]),
            np.zeros((1, self.n_rows)),
        )  # fmt: skip
        values = np.empty((1, self.n_rows))
        self.row_values(ranked, [label], values)
        return values[0], float(self.score(ranked, [label])[0][0])


def find_targets(labels: Floats, class_targets: Floats | None) -> Floats:
    """Return the numbers that a squared error compares, shape (n_targets, n_labels).

    These are numeric targets, or what ``class_targets``, shape (n_targets, n_classes), has for
    the codes of classes.
    """
    if class_targets is None:
        return labels[np.newaxis]
    return np.ascontiguousarray(class_targets[:, labels.astype(np.int64)])


def find_voter_terms(
    semivalue: Semivalue, n_players: int, n_rows: int, n_neighbors: int
) -> tuple[float, float]:
    """Return what changes if matches are divided by the number of rows that vote, not by K.

    On any columns, the value of a row changes by the first term if it matches, minus the second
    for each other row that does: all rows of a coalition of fewer than K vote.
    """
    sizes = np.arange(min(n_neighbors, n_rows))
    chances = inside_chances(semivalue, n_players, n_rows - 1, sizes)
    shares = chances / (sizes + 1)
    own = float(shares.sum() - chances.sum() / n_neighbors)
    return own, float(shares[1:].sum()) / max(n_rows - 1, 1)


def score_vote(surely: Integers, tied: Integers, n_left: int, right: int) -> float:
    """Return 1 if class ``right`` wins the vote, its share if several classes do, and 0 otherwise.

    ``surely`` counts the rows that vote, by class, and ``tied`` those that tie for the votes that
    are left, which they share.
    """
    # In integers: rounding must not decide.
    votes = (surely * max(int(tied.sum()), 1) + tied * n_left).tolist()
    most = max(votes)
    return float(votes[right] == most) / int(votes.count(most))


class SortedRows:
    """Computes the values of all cells for some queries after the other, with its own buffers."""

    def __init__(self, training: TrainingRows, drawn: DrawnCoalitions, draw: int) -> None:
        n_rows, self._training, self._drawn, self._draw = training.n_rows, training, drawn, draw
        weights = drawn.weights[slice(*drawn.steps.starts[draw : draw + 2])]
        n_coalitions, n_results = weights.shape
        at_once = max(_KEYS_AT_ONCE // n_rows, _MIN_AT_ONCE, n_results // 2)
        starts = range(0, n_coalitions, at_once)
        self._parts = [slice(start, min(start + at_once, n_coalitions)) for start in starts]
        self._weights = weights
        # Queries that are valued together: several, if all coalitions of each fit.
        self.n_queries: int = max(at_once // n_coalitions, 1)
        shape = min(at_once, self.n_queries * n_coalitions), n_rows
        self._has_few = (
            n_results > _MIN_RESULTS_OF_FEW
            and np.count_nonzero(weights) <= _FEW_PER_COALITION * n_coalitions
        )
        self._last, self._distances = np.empty(n_rows), np.empty(shape)
        self._keys = np.empty(shape, dtype=training.key_type)
        self._cells, self._product = np.empty((2, self.n_queries, n_results, n_rows))
        self._n_ties = np.empty(shape[0], dtype=np.int64)

    def value(self, batch: QueryBatch, first: int, end: int) -> tuple[Floats, Floats, Floats]:
        """Return the values of cells for some queries, and the scores of all rows and columns.

        The scores are as in :meth:`TrainingRows.score`. Values have shape (n_queries, n_results,
        n_rows), and columns are players of the draw. The share of the empty coalition is left out.
        """
        from cellworth.knn import kernels

        labels = batch.labels[first:end].tolist()
        cells, product = self._cells[: end - first], self._product[: end - first]
        cells[:] = 0.0
        for part in self._parts:
            n_each = part.stop - part.start
            ranked = self._rank(batch, first, end, part)
            if part.stop == len(self._weights):
                # The last coalition is full.
                full = ranked.take(np.arange(n_each - 1, len(ranked.keys), n_each))
                utilities, votes = self._training.score(full, labels)
            # Values take the place of distances, so that all stays in a core's cache.
            self._training.row_values(ranked, labels, ranked.distances)
            by_query = ranked.distances.reshape(end - first, n_each, -1)
            if self._has_few:
                for query, lines in enumerate(by_query):
                    kernels.add_few(lines, self._weights[part], cells[query])
            else:
                cells += np.matmul(self._weights[part].T, by_query, out=product)
        return cells, utilities, votes

    def _rank(self, batch: QueryBatch, first: int, end: int, part: slice) -> RankedRows:
        """Rank all rows for some queries on some coalitions."""
        from cellworth.knn import kernels

        training, n_lines = self._training, (end - first) * (part.stop - part.start)
        keys, distances = self._keys[:n_lines], self._distances[:n_lines]
        kernels.fill_keys(
            training.rows, training.scales, training.players, batch, self._drawn.steps,
            (first, end, part.start, part.stop), training.classes, training.code, self._last,
            distances, keys,
        )  # fmt: skip
        keys.sort(axis=1)
        n_ties = self._n_ties[:n_lines]
        kernels.order_ties(keys, training.low_bits, distances, n_ties)
        return RankedRows(keys, training.low_bits, n_ties, distances)


def choose_chances(semivalue: Semivalue, n_players: int, n_rows: int, n_neighbors: int) -> Chances:
    """Return probabilities by rank for n_rows training rows among n_players row players."""
    if isinstance(semivalue, Shapley):
        return ShapleyChances(n_neighbors)
    return RankChances.from_semivalue(semivalue, n_players, n_rows, n_neighbors)


@dataclass(frozen=True, eq=False)
class ShapleyChances:
    """Probabilities by rank for Shapley values, without a table of all ranks.

    A row at rank r is among the K nearest of a random coalition with probability min(1, K / r).
    Sums of these are harmonic numbers. Beyond the tabulated ranks, a series computes them with
    additions, multiplications and divisions alone: a logarithm may differ in its last bit between
    machines.
    """

    n_neighbors: int

    def at(self, ranks: Integers) -> tuple[Floats, Floats]:
        """Return ``single`` and ``running`` at these ranks."""
        single = 1.0 / np.maximum(ranks, self.n_neighbors)
        near = np.minimum(ranks, len(self._head) - 1)
        running = self._head[near]
        far = np.flatnonzero(ranks > near)
        if len(far):
            nodes, sums = _nodes(int(ranks.max()), len(self._head) - 1, float(self._head[-1]))
            before = np.searchsorted(nodes, ranks[far], side="right") - 1
            running[far] = sums[before] + _harmonic_step(nodes[before], ranks[far])
        return single, running

    def pairs_at(self, ranks: Integers) -> tuple[Floats, ...]:
        """Return ``single``, ``running``, ``pair`` and running sums of ``pair``, at these ranks.

        With c = (K - 1) / 2K, ``pair`` is c / r(r - 1) beyond rank K, which adds up to -c / r.
        """
        single, running = self.at(ranks)
        k, last = self.n_neighbors, np.maximum(ranks, self.n_neighbors + 1)
        share = (k - 1) / (2 * k)
        # The same for all ranks up to K, where every row is among the nearest.
        first = 0.5 / k**2 if k > 1 else 0.0
        pair = np.where(ranks > k, share / (last * (last - 1.0)), first)
        pairs = np.where(ranks > k, -share / last, (ranks - k) * first - share / k)
        beyond = first * k * (k - 1) / 2 + share * (running - self._head[k])
        fronts = np.where(ranks > k, beyond, first * ranks * (ranks - 1) / 2)
        return single, running, pair, pairs, fronts

    @cached_property
    def _head(self) -> Floats:
        ranks = np.arange(1, max(_HEAD, self.n_neighbors) + 1)
        return np.concatenate([[0.0], np.cumsum(1.0 / np.maximum(ranks, self.n_neighbors))])


Chances = RankChances | ShapleyChances


@lru_cache(maxsize=8)
def _nodes(last: int, first: int, begin: float) -> tuple[Integers, Floats]:
    """Return ranks that grow by a sixteenth each, and the sums up to them."""
    nodes, sums = [first], [begin]
    while nodes[-1] + nodes[-1] // 16 <= last:
        nodes.append(nodes[-1] + nodes[-1] // 16)
        sums.append(sums[-1] + float(_harmonic_step(*map(np.array, nodes[-2:]))))
    return np.array(nodes), np.array(sums)


def _harmonic_step(begin: Integers, end: Integers) -> Floats:
    """Return 1 / (begin + 1) + ... + 1 / end, for a large begin and end <= begin * 17 / 16."""
    ratio = (end - begin) / (end + begin)
    square = ratio * ratio
    # log(end / begin) is twice the inverse hyperbolic tangent of the ratio.
    series = np.zeros(ratio.shape)
    for power in (13, 11, 9, 7, 5, 3, 1):
        series = series * square + 1.0 / power
    low, high = 1.0 / begin, 1.0 / end
    logarithm = 2.0 * ratio * series
    return np.asarray(logarithm + (high - low) / 2.0 - (high - low) * (high + low) / 12.0)


def _from_the_end(last: float, drops: Floats) -> Floats:
    """Add up drops from the last rank to the first; all terms are positive, so none cancel."""
    return np.asarray(np.cumsum(np.append(drops[1:], last)[::-1])[::-1])
