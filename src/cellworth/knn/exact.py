"""Exact ranks: training rows sorted by distance on every coalition, and values by rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import NamedTuple, cast

import numpy as np
from scipy.linalg.blas import dgemm

from cellworth.data.arguments import Codes, Floats, Integers, Mask
from cellworth.knn.distances import Columns, ColumnScales
from cellworth.sampling.semivalues import Semivalue, Shapley, inside_chances

# Bases, first entries and toggles of coalitions; see kernels.fill_keys.
StepArrays = tuple[Integers, Integers, Integers]
# Arrays of FewWeights.
FewArrays = tuple[Integers, Integers, Floats, Floats, Integers]
# As in kernels, which are imported when they are needed.
_NOTHING, _PREVIOUS, _EVERYTHING = 0, 1, 2
# Keys that are sorted together if a matrix product follows, which is fast for many lines.
_KEYS_AT_ONCE = 2**18
_MIN_AT_ONCE = 16
# Keys that are sorted together if not: with two lines of values they stay in a core's cache.
_FEW_KEYS_AT_ONCE = 2**16
# Weights that are not 0, up to which no matrix product is needed: a prefix of an order has two.
_FEW_PER_COALITION = 2
# Floats below are not normal numbers, which some libraries tell the processor to take for 0.
_MIN_NORMAL_BITS = 2**52
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


class Query(NamedTuple):
    """One validation row."""

    # Cells as in Columns.
    numbers: Floats
    categories: Codes
    label: float  # Code of its class, or its target minus the mean target of all training rows

    @classmethod
    def from_row(cls, columns: Columns, position: int, label: float) -> Query:
        """Return one row of a query table."""
        numbers = np.ascontiguousarray(columns.numbers[:, position])
        return cls(numbers, np.ascontiguousarray(columns.categories[:, position]), label)


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
    weigh: Callable[[Integers], Floats] | None = None  # Weights of votes by integer distance

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.labels)

    @property
    def shift(self) -> int:
        """Number of low bits in a sort key: the row's position, and whether its label matches."""
        return self.n_rows.bit_length() + 1

    @property
    def has_votes(self) -> bool:
        """Whether votes count, instead of a squared error."""
        return self.is_class and self.class_targets is None

    @cached_property
    def columns(self) -> tuple[Integers, Integers]:
        """Columns sorted by player, and the first column of each player."""
        starts = np.concatenate([[0], np.cumsum(np.bincount(self.players))])
        return np.argsort(self.players, kind="stable"), starts

    @cached_property
    def _targets(self) -> Floats:
        return find_targets(self.labels, self.class_targets)

    def _compare(self, query: Query) -> Iterator[tuple[Floats, float]]:
        """Yield targets of all rows, and that of a query."""
        asked = find_targets(np.array([query.label]), self.class_targets)
        return zip(self._targets, asked[:, 0].tolist(), strict=True)

    def payload(self, query: Query) -> Integers:
        """Return the low bits of the sort keys, with one bit that all keys have in common."""
        positions = (np.arange(self.n_rows, dtype=np.int64) << 1) + _MIN_NORMAL_BITS
        return positions | (self.labels == query.label) if self.is_class else positions

    def row_values(self, keys: Integers, query: Query, out: Floats) -> None:
        """Compute the value of every row from sorted keys, one line per coalition."""
        from cellworth.knn import kernels

        single, running = self.chances.single, self.chances.running
        if not self.has_votes:
            self._value_targets(keys, query, out)
        elif self.gains is None:
            kernels.class_values(keys, self.shift, single, running, out)
        elif self.radius is None:
            kernels.gain_values(
                keys, self.shift, self._sort_gains(keys, query), (single, running),
                self.voter_terms or (0.0, 0.0), out,
            )  # fmt: skip
        else:
            gains, inside = self._sort_gains(keys, query), self._find_inside(keys, self.radius)
            kept, lost = self.radius.find_terms(inside.sum(axis=1))
            total = (gains * inside).sum(axis=1, keepdims=True)
            values = inside * (kept * gains - lost * (total - gains))
            np.put_along_axis(out, self._positions(keys), values, axis=1)

    def _value_targets(self, keys: Integers, query: Query, out: Floats) -> None:
        from cellworth.knn import kernels

        chances = self.chances
        tables = (chances.single, chances.running, chances.pair, chances.pushed)
        for number, (targets, asked) in enumerate(self._compare(query)):
            values = np.empty_like(out) if number else out
            kernels.target_values(
                keys, self.shift, targets, asked, self.n_neighbors, tables, values
            )
            if number:
                out += values

    def utility(self, keys: Integers, query: Query) -> float:
        """Compute the utility of all rows from one line of sorted keys."""
        from cellworth.knn import kernels

        if not self.has_votes:
            return -sum(
                float(kernels.nearest_error(keys, self.shift, targets, asked, self.n_neighbors))
                for targets, asked in self._compare(query)
            )
        if self.gains is not None:
            return self._mean_gain(keys, query)
        surely, tied, n_left = self._count_votes(keys, query)
        right = int(query.label)
        # The mean share of right votes, over all orders of ties.
        return float(surely[right] + tied[right] * n_left / tied.sum()) / self.n_neighbors

    def score_vote(self, keys: Integers, query: Query) -> float:
        """Return whether the vote is correct, as :func:`score_vote` does; NaN for a number."""
        if not self.is_class:
            return math.nan
        return score_vote(*self._count_votes(keys, query), int(query.label))

    def utility_of_nothing(self, query: Query) -> float:
        """Return the utility without rows: no row votes, and the prediction is the mean."""
        return 0.0 if self.has_votes else -sum(asked**2 for _, asked in self._compare(query))

    def _mean_gain(self, keys: Integers, query: Query) -> float:
        """Return the mean gain of the rows that vote, over all orders of ties."""
        gains = self._sort_gains(keys, query)
        if self.radius is not None:
            inside = self._find_inside(keys, self.radius)
            return float((gains * inside).sum() / max(inside.sum(), 1))
        begin, end, n_left = self._find_voters(keys)
        earned = float(gains[:begin].sum() + gains[begin:end].mean() * n_left)
        return earned / (self.n_neighbors if self.voter_terms is None else begin + n_left)

    def _find_voters(self, keys: Integers) -> tuple[int, int, int]:
        """Return where tied rows begin and end among sorted keys, and how many of them vote.

        All rows in front of them vote.
        """
        n_nearest = min(self.n_neighbors, self.n_rows)
        farthest = keys[n_nearest - 1] >> self.shift
        ends = np.array([farthest, farthest + 1]) << self.shift
        begin, end = np.searchsorted(keys, ends).tolist()
        return begin, end, n_nearest - begin

    def _sort_gains(self, keys: Integers, query: Query) -> Floats:
        """Return what the votes of rows earn, in the order of keys."""
        gains: Floats = cast(Floats, self.gains)[int(query.label)][self._positions(keys)]
        return gains if self.weigh is None else self.weigh(self._find_distances(keys)) * gains

    def _positions(self, keys: Integers) -> Integers:
        return (keys & ((1 << self.shift) - 1)) >> 1

    def _find_inside(self, keys: Integers, radius: RadiusVotes) -> Mask:
        """Return whether rows are within the radius, in the order of keys."""
        return np.asarray(self._find_distances(keys) <= radius.limit)

    def _find_distances(self, keys: Integers) -> Integers:
        return (keys - _MIN_NORMAL_BITS) >> self.shift

    def without_columns(self, query: Query) -> tuple[Floats, float]:
        """Return the values of rows, and their utility, without columns: all rows tie."""
        keys = self.payload(query)
        values = np.empty((1, self.n_rows))
        self.row_values(keys[None, :], query, values)
        return values[0], self.utility(keys, query)

    def _count_votes(self, keys: Integers, query: Query) -> tuple[Integers, Integers, int]:
        """Count the votes of the nearest rows, as in :func:`score_vote`."""
        if self.radius is None:
            begin, end, n_left = self._find_voters(keys)
        else:
            begin = end = int(self._find_inside(keys, self.radius).sum())
            n_left = 0
        classes = self.labels[self._positions(keys[:end])].astype(np.int64)
        n_classes = int(max(self.labels.max(), query.label)) + 1
        surely, tied = (np.bincount(c, minlength=n_classes) for c in np.split(classes, [begin]))
        return surely, tied, n_left


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


def score_vote(surely: Integers, tied: Integers, positions: int, right: int) -> float:
    """Return 1 if class ``right`` wins the vote, its share if several classes do, and 0 otherwise.

    ``surely`` counts the rows that vote, by class, and ``tied`` those that tie for ``positions``
    more votes, which they share.
    """
    # In integers: rounding must not decide.
    votes = (surely * max(int(tied.sum()), 1) + tied * positions).tolist()
    most = max(votes)
    return float(votes[right] == most) / int(votes.count(most))


class FewWeights(NamedTuple):
    """Weights of coalitions with few results each, such as the prefixes of an order.

    The value of a column that joins is the difference of two coalitions that follow each other, so
    an entry has two weights.
    """

    firsts: Integers  # (n_coalitions + 1,): first entry of each coalition
    results: Integers  # (n_entries,)
    weights: Floats
    other_weights: Floats
    others: Integers  # To what the other weight belongs: kernels.NOTHING or PREVIOUS

    @classmethod
    def from_weights(cls, weights: Floats) -> FewWeights:
        """Find the weights that are not 0; the last line is for the empty coalition."""
        entries: list[list[tuple[int, float, float, int]]] = [[] for _ in weights[:-1]]
        coalitions: list[list[int]] = [[] for _ in weights.T]
        for result, s in np.argwhere(weights[:-1].T).tolist():
            coalitions[result].append(s)
        for result, (left, nothing) in enumerate(
            zip(coalitions, weights[-1].tolist(), strict=True)
        ):
            if nothing and not left:
                left.append(0)
            other, which = nothing, _NOTHING
            while left:
                s = left.pop(0)
                if not other and left[:1] == [s + 1]:
                    other, which = float(weights[s, result]), _PREVIOUS
                    s = left.pop(0)
                entries[s].append((result, float(weights[s, result]), other, which))
                other, which = 0.0, _NOTHING
        table = np.array(list(chain.from_iterable(entries)), dtype=np.float64).reshape(-1, 4)
        results, own, others, which_others = np.ascontiguousarray(table.T)
        firsts = np.cumsum([0] + [len(some) for some in entries])
        return cls(firsts, results.astype(np.int64), own, others, which_others.astype(np.int64))

    def take(self, batch: slice) -> FewArrays:
        """Return the arrays of a batch of coalitions; kernels take plain tuples faster."""
        firsts = self.firsts[batch.start : batch.stop + 1]
        mine = slice(firsts[0], firsts[-1])
        return (
            firsts - firsts[0],
            self.results[mine],
            self.weights[mine],
            self.other_weights[mine],
            self.others[mine],
        )


@dataclass(frozen=True, eq=False)
class CoalitionBatches:
    """Coalitions of a draw, in batches that are ranked together."""

    weights: Floats  # (n_coalitions + 1, n_results); the last line is for the empty coalition
    # Slices of the coalitions, each with its steps for the kernel.
    batches: tuple[tuple[slice, StepArrays], ...]
    # For each batch, if all coalitions have weights in few results; steps go on over batches then.
    few: tuple[FewArrays, ...] = ()
    needs_everything: bool = False  # Whether steps of these batches start at the full coalition

    @classmethod
    def divide(cls, members: Mask, weights: Floats, n_rows: int) -> CoalitionBatches:
        """Divide coalitions into batches for tables of n_rows rows."""
        n_coalitions, n_results = len(members), weights.shape[1]
        if np.count_nonzero(weights) > _FEW_PER_COALITION * n_coalitions + n_results:
            batches = _divide(n_coalitions, max(_KEYS_AT_ONCE // n_rows, _MIN_AT_ONCE))
            steps = [find_steps(members[batch]) for batch in batches]
            return cls(weights, tuple(zip(batches, steps, strict=True)))
        batches = _divide(n_coalitions, max(_FEW_KEYS_AT_ONCE // n_rows, 1))
        bases, firsts, toggles = find_fewest_steps(members)
        few, steps = FewWeights.from_weights(weights), []
        for batch in batches:
            mine = firsts[batch.start : batch.stop + 1]
            steps.append((bases[batch], mine - mine[0], toggles[mine[0] : mine[-1]]))
        return cls(
            weights,
            tuple(zip(batches, steps, strict=True)),
            tuple(map(few.take, batches)),
            needs_everything=_EVERYTHING in bases,
        )


def _divide(n_coalitions: int, at_once: int) -> list[slice]:
    starts = range(0, n_coalitions, at_once)
    return [slice(start, min(start + at_once, n_coalitions)) for start in starts]


def find_steps(members: Mask, *, with_everything: bool = True) -> StepArrays:
    """Return the fewest steps to each coalition from nothing, the previous one, or everything."""
    before = np.vstack([members[:1], members[:-1]])
    sources = np.stack([np.zeros_like(members), before, np.ones_like(members)])
    lengths = (sources != members).sum(axis=2)
    lengths[1, 0] = members.shape[1] + 1
    bases = lengths[: 3 if with_everything else 2].argmin(axis=0)
    changed = sources[bases, np.arange(len(members))] != members
    coalition, player = np.nonzero(changed)
    toggles = np.where(members[coalition, player], player, ~player)
    firsts = np.concatenate([[0], np.cumsum(changed.sum(axis=1))])
    return bases.astype(np.int64), firsts.astype(np.int64), toggles.astype(np.int64)


def find_fewest_steps(members: Mask) -> StepArrays:
    """Return steps that start from everything only if that saves more than it takes to add up."""
    return min(
        (find_steps(members, with_everything=choice) for choice in (False, True)),
        key=lambda steps: len(steps[2]) + (_EVERYTHING in steps[0]) * members.shape[1],
    )


class SortedRows:
    """Computes values for one query after the other, with its own buffers."""

    def __init__(self, training: TrainingRows, plans: Sequence[CoalitionBatches]) -> None:
        # Coalitions of the largest batch, and rows.
        sizes = [len(steps[0]) for plan in plans for _, steps in plan.batches]
        shape = max(sizes), training.n_rows
        self._training = training
        self._keys = np.empty(shape, dtype=np.int64)
        if any(plan.few for plan in plans):
            # Values of this batch of coalitions and of the one before.
            self._values = np.empty((2, *shape))
            self._last, self._everything = np.empty((2, shape[1]), dtype=np.int64)
        if not all(plan.few for plan in plans):
            # The last line is for the values without columns.
            self._stacked = np.empty((shape[0] + 1, shape[1]))

    def add(
        self,
        query: Query,
        plan: CoalitionBatches,
        *,
        order: Integers,
        query_weight: float,
        nothing: Floats,
        into: Floats,
    ) -> Integers:
        """Add the values of all cells for one query; return the keys of the full coalition.

        ``order`` is the column player at each position of the plan's coalitions. ``nothing`` has
        the values of rows without columns. ``into`` has shape (n_results, n_rows).
        """
        from cellworth.knn import kernels

        training, keys, before = self._training, self._keys[:1], nothing
        weights = plan.weights if plan.few else plan.weights[:, np.argsort(order)]
        for number, keys in enumerate(self._rank(query, plan, order)):
            if plan.few:
                values = self._values[number % 2, : len(keys)]
                training.row_values(keys, query, values)
                kernels.add_few(
                    values, before, nothing, plan.few[number], order, query_weight, into
                )
                before = values[-1]
                continue
            values, batch = self._stacked[: len(keys) + 1], plan.batches[number][0]
            training.row_values(keys, query, values[:-1])
            batch_weights = weights[batch]
            if batch.stop == len(weights) - 1:
                values[-1] = nothing
                batch_weights = weights[batch.start :]
            dgemm(
                query_weight, values[: len(batch_weights)].T, batch_weights,
                beta=1.0, c=into.T, overwrite_c=1,
            )  # fmt: skip
        return np.asarray(keys[-1])

    def _rank(self, query: Query, plan: CoalitionBatches, order: Integers) -> Iterator[Integers]:
        """Yield the sorted keys of each batch of coalitions."""
        from cellworth.knn import kernels

        training, payload = self._training, self._training.payload(query)
        given, shift = (training.rows, query[:2], training.scales), training.shift
        if plan.needs_everything:
            players = np.arange(len(training.columns[1]) - 1)
            steps = find_steps(np.ones((1, len(players)), dtype=bool), with_everything=False)
            kernels.follow_steps(
                *given, training.columns, players, steps, payload, shift, payload, self._last,
                self._everything[np.newaxis],
            )  # fmt: skip
        for _, steps in plan.batches:
            keys = self._keys[: len(steps[0])]
            if plan.few:
                kernels.follow_steps(
                    *given, training.columns, order, steps, payload, shift, self._everything,
                    self._last, keys,
                )  # fmt: skip
            else:
                kernels.fill_keys(*given, training.players, order, steps, payload, shift, keys)
            # Floats with the same bits are sorted faster, in the same order.
            keys.view(np.float64).sort(axis=1)
            yield keys


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
