"""Random trees: how much likelier a cell is given the rest of its row than in its column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from cellworth.data.arguments import Floats, Mask, Positions
from cellworth.findings.features import FeatureColumn, find_ties

Codes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]
N_CODES = 256
# Trees of a column, of a whole table, and rows that all trees of a column are asked about. A table
# with so many columns that each would have fewer trees gets none.
N_TREES, MIN_TREES = 60, 6
MAX_TREES, _MAX_ROUTED = 6_000, 1_000_000
# Rows that are drawn for all trees which are grown together.
_MAX_DRAWN = 250_000
# Rows that are routed through their trees together.
_MAX_AT_ONCE = 50_000
# Rows that a tree is grown from; of a small table, this share of them.
ROWS_OF_A_TREE, SHARE_OF_ROWS = 500, 0.6
MIN_LEAF = 5
# Random splits of a node, of which the best is taken.
N_CANDIDATES = 20
# Width of the kernel over the normal scores of 200 rows.
WIDTH_OF_SCORES = 0.3
# Rows with the distribution of the column that are added to each leaf.
_PRIOR_ROWS = 1.0
# What a content that no other row has counts as, in rows.
_MIN_COUNT = 0.1
# Levels that a split tells apart, and that are counted to choose one; more share these.
_N_IN_SET, _N_COUNTED = 64, 16
_ROUNDS = 3
_DIGITS = 9


def compute_log_ratios(columns: Sequence[FeatureColumn], label: FeatureColumn) -> Floats:
    """Return log(density given the rest of the row / density in the column) of each cell.

    Trees with random splits by the other columns and the label gather similar rows in their leaves.
    A tree scores only rows that it was not grown from. The order of rows and of columns does not
    matter: both are first put into an order that depends on their contents alone.
    """
    ratios = np.zeros((len(label.levels), len(columns)))
    codes = [encode(column) for column in (*columns, label)]
    varied = np.array([j for j, code in enumerate(codes) if code.min() < code.max()], dtype=np.intp)
    is_possible = len(varied) > 1 and len(ratios) >= 2 * MIN_LEAF
    if is_possible and len(varied) * MIN_TREES <= MAX_TREES:
        is_level = np.array([column.numbers is None for column in (*columns, label)])
        seeds = (2 * is_level[varied] + (varied == len(columns))).astype(np.uint64)
        of_rows, of_columns = hash_contents([codes[j] for j in varied], seeds)
        order, rows = (np.argsort(hashes, kind="stable") for hashes in (of_columns, of_rows))
        varied, of_columns, of_rows = varied[order], of_columns[order], of_rows[rows]
        forest = _Forest(np.stack([codes[j][rows] for j in varied]), is_level[varied])
        asked = np.flatnonzero(varied < len(columns))
        found = dict(forest.compute_ratios(asked))
        of_asked = np.stack([found[position] for position in asked.tolist()])
        means = _average(_average(of_asked, of_columns[asked]).T, of_rows)
        ratios[np.ix_(rows, varied[asked])] = np.log(means)
    return ratios


def _average(found: Floats, hashes: Hashes) -> Floats:
    """Return the mean over equal rows, whose order is arbitrary; hashes are ascending."""
    starts = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    sizes = np.diff(np.append(starts, len(found)))
    means = np.round(np.add.reduceat(found, starts, axis=0) / sizes[:, None], _DIGITS)
    return np.repeat(means, sizes, axis=0)


def encode(column: FeatureColumn) -> Codes:
    """Return ranks of numbers, 0 if missing, or of the frequency of levels; at most 256."""
    if column.numbers is None:
        ranks = np.empty(len(column.counts), dtype=np.intp)
        ranks[np.argsort(-column.counts, kind="stable")] = np.arange(len(ranks))
        return np.minimum(ranks, N_CODES - 1)[column.levels].astype(np.uint8)
    codes = np.zeros(len(column.levels), dtype=np.uint8)
    first, end = find_ties(column.numbers[column.order])
    ranks = np.cumsum(first == np.arange(len(first))) - 1
    if len(ranks) and ranks[-1] >= N_CODES - 1:
        ranks = (first + end) * (N_CODES - 1) // (2 * len(first))
    codes[column.order] = 1 + ranks
    return codes


@dataclass(frozen=True, eq=False)
class _Forest:
    """Codes of columns, rows and columns in an order that depends on contents alone."""

    # Shape (n_columns, n_rows).
    codes: Codes
    is_level: Mask

    def compute_ratios(self, asked: Positions) -> Iterator[tuple[int, Floats]]:
        """Yield columns with the ratio of densities of each of their cells."""
        n_columns, n_rows = self.codes.shape
        rng = np.random.default_rng(0)
        n_trees = max(min(N_TREES, MAX_TREES // n_columns, _MAX_ROUTED // n_rows), MIN_TREES)
        n_drawn = min(ROWS_OF_A_TREE, int(SHARE_OF_ROWS * n_rows))
        # Many columns at once, because each step of growth has a fixed cost.
        at_once = max(_MAX_DRAWN // (n_trees * n_drawn), 1)
        for same in (asked[self.is_level[asked]], asked[~self.is_level[asked]]):
            for start in range(0, len(same), at_once):
                some = same[start : start + at_once]
                drawn = np.stack(
                    [
                        np.sort(rng.choice(n_rows, n_drawn, replace=False))
                        for _ in range(n_trees * len(some))
                    ]
                )
                trees, leaves = self._grow(drawn, np.repeat(some, n_trees), rng)
                for i, position in enumerate(some.tolist()):
                    own = range(i * n_trees, (i + 1) * n_trees)
                    yield position, self._compute_means(position, trees, own, drawn, leaves)

    def _compute_means(
        self, position: int, trees: _Trees, own: range, drawn: Positions, leaves: Positions
    ) -> Floats:
        """Return the mean ratio of each cell of a column, over trees that did not see its row."""
        target = self.codes[position]
        here = leaves[own.start : own.stop]
        distinct, inverse = np.unique(here, return_inverse=True)
        tables = _tabulate(
            inverse.reshape(-1), target[drawn[own.start : own.stop]].ravel(), target,
            bool(self.is_level[position]),
        )  # fmt: skip
        left_out = np.ones((len(own), len(target)), dtype=bool)
        np.put_along_axis(left_out, drawn[own.start : own.stop], False, axis=1)
        ratios, counts = np.zeros(len(target)), left_out.sum(axis=0)
        at_once = max(_MAX_AT_ONCE // len(target), 1)
        for start in range(0, len(own), at_once):
            tree, rows = np.nonzero(left_out[start : start + at_once])
            nodes = trees.route(own.start + start + tree, rows, self.codes)
            found = tables[np.searchsorted(distinct, nodes), target[rows]]
            # In the order of trees, however many are routed at once.
            np.add.at(ratios, rows, found)
        means: Floats = np.where(counts > 0, ratios / np.maximum(counts, 1.0), 1.0)
        return means

    def _grow(
        self, drawn: Positions, targets: Positions, rng: np.random.Generator
    ) -> tuple[_Trees, Positions]:
        """Grow trees together, level by level; return them and the leaf of each drawn row.

        All targets, the columns that trees predict, are levels or all are numbers.
        """
        n_nodes = n_open = len(drawn)
        at = np.repeat(np.arange(n_open), drawn.shape[1])
        grown = []
        while n_open:
            # In the order of nodes, so that a random row of a node is found by its position.
            active = np.flatnonzero(at >= n_nodes - n_open)
            active = active[np.argsort(at[active], kind="stable")]
            rows, nodes = drawn.ravel()[active], at[active] - (n_nodes - n_open)
            cells = self.codes.take(targets[nodes] * self.codes.shape[1] + rows)
            target = _Target.of(cells, nodes, bool(self.is_level[targets[0]]))
            splits, is_split = self._find_splits(rows, target, targets, rng)
            children = np.where(is_split, n_nodes + 2 * (np.cumsum(is_split) - 1), 0)
            grown.append((*splits, children))
            moved = np.flatnonzero(is_split[nodes])
            left = self._go_left(splits, rows[moved], nodes[moved])
            at[active[moved]] = children[nodes[moved]] + ~left
            targets = np.repeat(targets[is_split], 2)
            n_open = len(targets)
            n_nodes += n_open
        columns, cuts, sets, children = (np.concatenate(p) for p in zip(*grown, strict=True))
        trees = _Trees.of(_Splits(columns, cuts, sets), children, self.is_level)
        return trees, at.reshape(drawn.shape)

    def _find_splits(
        self, rows: Positions, target: _Target, targets: Positions, rng: np.random.Generator
    ) -> tuple[_Splits, Mask]:
        """Return the best of some random splits of each node, and whether there is any."""
        least = best = target.weigh_unsplit() * (1 + 1e-9)
        splits = self._draw_splits(rows, target.sizes, targets, rng)
        for _ in range(N_CANDIDATES):
            drawn = self._draw_splits(rows, target.sizes, targets, rng)
            weights = target.weigh(self._go_left(drawn, rows, target.nodes))
            is_better = weights > best
            best = np.where(is_better, weights, best)
            splits = splits.where(is_better, drawn)
        return splits, best > least

    def _draw_splits(
        self, rows: Positions, sizes: Positions, targets: Positions, rng: np.random.Generator
    ) -> _Splits:
        """Draw one split per node: a column, a cut between the numbers of two rows, a set."""
        columns = rng.integers(len(self.codes) - 1, size=len(sizes))
        columns += columns >= targets
        picked = (rng.random((2, len(sizes))) * sizes).astype(np.intp) + np.cumsum(sizes) - sizes
        ends = self.codes[columns, rows[picked]].astype(np.float64)
        cuts = np.floor(ends.min(axis=0) + rng.random(len(sizes)) * np.abs(ends[0] - ends[1]))
        return _Splits(columns, cuts, rng.integers(0, 2**64, size=len(sizes), dtype=np.uint64))

    def _go_left(self, splits: _Splits, rows: Positions, nodes: Positions) -> Mask:
        """Return whether rows of nodes go left."""
        columns = splits.columns.take(nodes)
        codes = self.codes.take(columns * self.codes.shape[1] + rows)
        left: Mask = codes <= splits.cuts.take(nodes)
        of_levels = np.flatnonzero(self.is_level.take(columns))
        sets = splits.sets.take(nodes.take(of_levels))
        left[of_levels] = _is_in(sets, codes.take(of_levels))
        return left


class _Splits(NamedTuple):
    """One split per node: numbers up to a cut, or the levels of a set, go left."""

    columns: Positions
    cuts: Floats
    # Bits of the levels that go left.
    sets: Hashes

    def where(self, is_better: Mask, other: _Splits) -> _Splits:
        """Return the better split of each node."""
        return _Splits(*(np.where(is_better, b, a) for a, b in zip(self, other, strict=True)))


def _is_in(sets: Hashes, codes: Codes) -> Mask:
    bits = sets >> (codes % _N_IN_SET).astype(np.uint64)
    return (bits & np.uint64(1)).astype(bool)


@dataclass(frozen=True, eq=False)
class _Trees:
    """Nodes of all trees; the roots come first."""

    columns: Positions
    # Left child of each node, the right one is next; 0 for a leaf.
    children: Positions
    # Whether rows with a code go left; shape (n_nodes, n_codes).
    tables: Mask

    @classmethod
    def of(cls, splits: _Splits, children: Positions, is_level: Mask) -> _Trees:
        every = np.arange(N_CODES, dtype=np.uint8)
        tables = every <= splits.cuts[:, None]
        of_levels = is_level[splits.columns]
        tables[of_levels] = _is_in(splits.sets[of_levels, None], every)
        return cls(splits.columns, children, tables)

    def route(self, roots: Positions, rows: Positions, codes: Codes) -> Positions:
        """Return the leaf of each row in the tree with its root."""
        at = roots.copy()
        moving = np.arange(len(at))
        while len(moving):
            nodes = at.take(moving)
            children = self.children.take(nodes)
            inner = np.flatnonzero(children)
            moving, nodes, children = moving.take(inner), nodes.take(inner), children.take(inner)
            cells = codes.take(self.columns.take(nodes) * codes.shape[1] + rows.take(moving))
            at[moving] = children + ~self.tables.take(nodes * N_CODES + cells)
        return at


@dataclass(frozen=True, eq=False)
class _Target:
    """Contents of the predicted column in rows of nodes."""

    # Numbers, or positions of levels among those of all nodes.
    cells: Positions
    is_level: bool
    nodes: Positions
    sizes: Positions
    # Sums of numbers, or counts of levels; shape (n_nodes, 1 or n_levels).
    sums: Floats

    @classmethod
    def of(cls, codes: Codes, nodes: Positions, is_level: bool) -> _Target:
        cells = nodes * _N_COUNTED + codes % _N_COUNTED if is_level else codes.astype(np.intp)
        target = cls(cells, is_level, nodes, np.bincount(nodes), np.zeros((0, 0)))
        return replace(target, sums=target.sum_over(np.ones(len(codes), dtype=bool)))

    def sum_over(self, chosen: Mask) -> Floats:
        """Return the sums of numbers, or the counts of levels, over some rows."""
        n_nodes = len(self.sizes)
        if self.is_level:
            counts = np.bincount(
                self.cells.take(np.flatnonzero(chosen)), minlength=n_nodes * _N_COUNTED
            )
            return counts.reshape(n_nodes, _N_COUNTED).astype(np.float64)
        sums = np.bincount(self.nodes, self.cells * chosen, n_nodes)
        return sums.astype(np.float64)[:, None]

    def weigh_unsplit(self) -> Floats:
        """Return what ``weigh`` returns if both sides are alike."""
        return np.asarray((self.sums**2).sum(axis=1) / self.sizes)

    def weigh(self, left: Mask) -> Floats:
        """Return how much the two sides of each node differ; 0 if one is too small."""
        n_left = np.bincount(self.nodes, left, len(self.sizes))
        n_right = self.sizes - n_left
        sums = self.sum_over(left)
        squares = (sums**2).sum(axis=1) / np.maximum(n_left, 1)
        squares += ((self.sums - sums) ** 2).sum(axis=1) / np.maximum(n_right, 1)
        return np.where(np.minimum(n_left, n_right) >= MIN_LEAF, squares, 0.0)


def _tabulate(leaves: Positions, members: Codes, target: Codes, is_level: bool) -> Floats:
    """Return the ratio of densities by node and code, for leaves; shape (n_nodes, n_codes)."""
    kernel = np.eye(N_CODES) if is_level else _make_kernel(target)
    counts = np.bincount(target, minlength=N_CODES)
    # Without the cell itself.
    overall = np.maximum(counts @ kernel - np.diag(kernel), _MIN_COUNT) / (len(target) - 1)
    shape = (int(leaves.max()) + 1, N_CODES)
    alike = np.bincount(leaves * N_CODES + members, minlength=shape[0] * N_CODES).reshape(shape)
    sizes = alike.sum(axis=1, keepdims=True)
    found = alike.astype(np.float64) if is_level else alike @ kernel
    return np.asarray((found / overall + _PRIOR_ROWS) / (sizes + _PRIOR_ROWS))


def _make_kernel(codes: Codes) -> Floats:
    """Return a kernel over the normal scores of numbers; a missing value is like none of them."""
    counts = np.bincount(codes, minlength=N_CODES)[1:]
    scores = ndtri((np.cumsum(counts) - counts / 2).clip(0.5, counts.sum() - 0.5) / counts.sum())
    width = WIDTH_OF_SCORES * (len(codes) / 200) ** -0.2
    kernel = np.eye(N_CODES)
    kernel[1:, 1:] = np.exp(-0.5 * ((scores[:, None] - scores) / width) ** 2)
    return kernel


def hash_contents(codes: Sequence[Codes], seeds: Hashes) -> tuple[Hashes, Hashes]:
    """Return hashes of rows and of columns that do not depend on the order of either.

    Columns of a different role have different seeds. Hashes of rows are made from hashes of
    columns and vice versa, until all that differ have different ones.
    """
    every = _mix(np.arange(N_CODES, dtype=np.uint64))
    of_columns = seeds
    for _ in range(_ROUNDS):
        of_rows = np.zeros(len(codes[0]), dtype=np.uint64)
        for code, own in zip(codes, of_columns, strict=True):
            of_rows += _mix(every + own)[code]
        sums = [_mix(every[code] + of_rows).sum() for code in codes]
        of_columns = seeds + np.array(sums, dtype=np.uint64)
    return of_rows, of_columns


def _mix(numbers: Hashes) -> Hashes:
    """Return pseudorandom bits (the last steps of SplitMix64)."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
