"""Decision trees: how much likelier a cell is given the rest of its row than in its column."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import ndtri

from cellworth.data.arguments import Floats
from cellworth.data.equal_rows import mix_bits
from cellworth.findings.features import FeatureColumn, find_ties

Codes = NDArray[np.uint8]
Hashes = NDArray[np.uint64]
N_CODES = 256
# Trees of a column, of a whole table, and rows that all trees of a column are asked about. A table
# with so many columns that each would have fewer trees gets none.
N_TREES, MIN_TREES = 30, 6
MAX_TREES, _MAX_ROUTED = 6_000, 1_000_000
# Rows that a tree is grown from; of a small table, this share of them.
ROWS_OF_A_TREE, SHARE_OF_ROWS = 500, 0.6
MIN_LEAF = 5
# Width of the kernel over the normal scores of 200 rows.
WIDTH_OF_SCORES = 0.3
# Rows with the distribution of the column that are added to each leaf.
_PRIOR_ROWS = 1.0
# What a content that no other row has counts as, in rows.
_MIN_COUNT = 0.1
# Trees tell so many levels apart, and all others from them.
_MOST_FREQUENT = 9
_ROUNDS = 3
_DIGITS = 9


def compute_log_ratios(columns: Sequence[FeatureColumn], label: FeatureColumn) -> Floats:
    """Return log(density given the rest of the row / density in the column) of each cell.

    Trees that predict the column from the others and the label gather similar rows in their leaves.
    Each is grown from random rows, and scores only rows that it was not grown from. The order of
    rows and of columns does not matter: both are first put into an order that depends on their
    contents alone.
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
        cells = np.stack([codes[j][rows] for j in varied], axis=1)
        asked = np.flatnonzero(varied < len(columns))
        rng = np.random.default_rng(0)
        of_asked = np.stack(
            [_compute_ratios(cells, j, bool(is_level[varied[j]]), rng) for j in asked.tolist()]
        )
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


def _compute_ratios(
    cells: Codes, position: int, is_level: bool, rng: np.random.Generator
) -> Floats:
    """Return the mean ratio of each cell of a column, over trees that did not see its row."""
    from sklearn import config_context
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    make_tree = DecisionTreeClassifier if is_level else DecisionTreeRegressor
    n_rows, n_columns = cells.shape
    n_trees = max(min(N_TREES, MAX_TREES // n_columns, _MAX_ROUTED // n_rows), MIN_TREES)
    n_drawn = min(ROWS_OF_A_TREE, int(SHARE_OF_ROWS * n_rows))
    target = cells[:, position]
    others = np.delete(cells, position, axis=1).astype(np.float32)
    kernel = np.eye(N_CODES) if is_level else _make_kernel(target)
    # Without the cell itself.
    frequencies = np.bincount(target, minlength=N_CODES) @ kernel - np.diag(kernel)
    overall = np.maximum(frequencies, _MIN_COUNT) / (n_rows - 1)
    heights = np.minimum(target, _MOST_FREQUENT) if is_level else target
    tree = make_tree(min_samples_leaf=MIN_LEAF, random_state=0)
    sums, counts = np.zeros(n_rows), np.full(n_rows, n_trees)
    for _ in range(n_trees):
        drawn = rng.choice(n_rows, n_drawn, replace=False)
        with config_context(skip_parameter_validation=True):
            tree.fit(others[drawn], heights[drawn], check_input=False)
        leaves = tree.apply(others, check_input=False)
        drawn = drawn[np.argsort(leaves[drawn], kind="stable")]
        starts = np.searchsorted(leaves[drawn], np.arange(tree.tree_.node_count + 1))
        # Lines are nodes. Most counts of codes are 0: a dense product would take as long as all
        # else, and keep the threads of BLAS busy in between.
        entries = (np.ones(n_drawn), target[drawn], starts)
        alike = sparse.csr_array(entries, shape=(len(starts) - 1, N_CODES)) @ kernel
        found = (alike / overall + _PRIOR_ROWS) / (np.diff(starts)[:, None] + _PRIOR_ROWS)
        before = sums[drawn]
        sums += found[leaves, target]
        sums[drawn] = before
        counts[drawn] -= 1
    return np.where(counts > 0, sums / np.maximum(counts, 1), 1.0)


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
    every = mix_bits(np.arange(N_CODES, dtype=np.uint64), 0)
    of_columns = seeds
    for _ in range(_ROUNDS):
        of_rows = np.zeros(len(codes[0]), dtype=np.uint64)
        for code, own in zip(codes, of_columns, strict=True):
            of_rows += mix_bits(every + own, 0)[code]
        sums = [mix_bits(every[code] + of_rows, 0).sum() for code in codes]
        of_columns = seeds + np.array(sums, dtype=np.uint64)
    return of_rows, of_columns
