"""Measure the coverage of 95% intervals of sampled columns, by sampler and semivalue.

    python benchmarks/column_coverage.py [repetitions] [passes]

Values of rows are computed once for every coalition of 14 columns. The ground truth is therefore
known, and a repetition needs no ranking: coalitions are drawn and renamed per query, as KNNValuer
does it.
"""

import sys

import numpy as np

from cellworth.sampling import (
    Banzhaf,
    Beta,
    ExhaustiveSampler,
    LeverageSampler,
    PermutationSampler,
    QuadratureSampler,
    Shapley,
)
from cellworth.sampling.moments import WIDTH_95, widening

N_ROWS, N_COLUMNS, N_QUERIES, K = 60, 14, 8, 5
CASES = [
    (PermutationSampler(), Beta(16, 1)),
    (PermutationSampler(), Beta(1, 16)),
    (PermutationSampler(), Beta(4, 1)),
    (PermutationSampler(), Banzhaf()),
    (PermutationSampler(), Shapley()),
    (LeverageSampler(), Shapley()),
    (QuadratureSampler(), Shapley()),
]


def row_values(matches):
    """Return Shapley values of rows from label matches, nearest first."""
    n = matches.shape[1]
    values = np.empty(matches.shape)
    values[:, -1] = matches[:, -1] / max(n, K)
    for position in range(n - 2, -1, -1):
        step = (
            (matches[:, position] - matches[:, position + 1])
            / K
            * min(K, position + 1)
            / (position + 1)
        )
        values[:, position] = values[:, position + 1] + step
    return values


def game(seed=0):
    """Return values of all rows for every query and coalition of columns; their sum comes last."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N_ROWS + N_QUERIES, N_COLUMNS))
    slopes = 0.7 ** np.arange(N_COLUMNS)
    y = X @ slopes + 0.5 * rng.normal(size=len(X)) > 0
    members = (np.arange(1 << N_COLUMNS)[:, None] >> np.arange(N_COLUMNS)) & 1
    found = np.empty((N_QUERIES, 1 << N_COLUMNS, N_ROWS + 1))
    for q in range(N_QUERIES):
        squares = (X[:N_ROWS] - X[N_ROWS + q]) ** 2
        order = np.argsort(members @ squares.T, axis=1, kind="stable")
        match = (y[:N_ROWS] == y[N_ROWS + q]).astype(float)
        values = np.empty(order.shape)
        np.put_along_axis(values, order, row_values(match[order]), axis=1)
        shuffled = rng.permuted(np.tile(np.arange(N_ROWS), (4000, 1)), axis=1)
        tied = np.empty(shuffled.shape)
        np.put_along_axis(tied, shuffled, row_values(match[shuffled]), axis=1)
        values[0] = tied.mean(axis=0)
        found[q, :, :-1], found[q, :, -1] = values, values.sum(axis=1)
    return found


def run_pass(drawn, found, rng):
    """Return the estimates of one pass: every query draws coalitions under its own names."""
    total = np.zeros((N_COLUMNS, N_ROWS + 1))
    for values in found:
        order = rng.permutation(N_COLUMNS)
        numbers = drawn.members @ (1 << order)
        renamed = drawn.weights.T @ values[numbers] + np.outer(drawn.nothing, values[0])
        total[order] += renamed / len(found)
    return total


def exact(found, semivalue):
    drawn = ExhaustiveSampler().draw(N_COLUMNS, semivalue, np.random.default_rng(0))
    numbers = drawn.members @ (1 << np.arange(N_COLUMNS))
    mean = found.mean(axis=0)
    return drawn.weights.T @ mean[numbers] + np.outer(drawn.nothing, mean[0])


def main(repetitions=200, n_passes=10):
    """Print one line for each sampler and semivalue."""
    found = game()
    print(f"{repetitions} repetitions of {n_passes} passes; 95% intervals, normal and Student's t")
    print("sampler, semivalue               columns        cells          error / standard error")
    for sampler, semivalue in CASES:
        truth, rng = exact(found, semivalue), np.random.default_rng(1)
        inside, ratios = [], []
        for _ in range(repetitions):
            seen = np.array(
                [
                    run_pass(sampler.draw(N_COLUMNS, semivalue, rng), found, rng)
                    for _ in range(n_passes)
                ]
            )
            off = seen.mean(axis=0) - truth
            errors = seen.std(axis=0, ddof=1) / np.sqrt(n_passes)
            widths = WIDTH_95, WIDTH_95 * float(widening(n_passes))
            inside.append([np.abs(off) <= width * errors for width in widths])
            ratios.append((off**2, errors**2))
        inside = np.array(inside)
        columns, cells = inside[..., -1].mean(axis=(0, 2)), inside[..., :-1].mean(axis=(0, 2, 3))
        of_columns, of_cells = (
            np.sqrt(
                np.mean([r[0][:, part] for r in ratios]) / np.mean([r[1][:, part] for r in ratios])
            )
            for part in (np.s_[-1:], np.s_[:-1])
        )
        name = f"{type(sampler).__name__}, {semivalue}"
        print(
            f"{name:32} {columns[0]:.3f}  {columns[1]:.3f}   {cells[0]:.3f}  {cells[1]:.3f}   "
            f"{of_columns:.3f} {of_cells:.3f}"
        )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
