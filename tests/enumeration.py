"""Truth for the tests: two-dimensional values straight from their definitions, slow and plain.

Nothing here uses the library's own weights, samplers or matrices.
"""

from itertools import chain, combinations, product
from math import factorial

import numpy as np
from scipy.special import beta as beta_function

from cellworth.sampling import Banzhaf, Beta, LeaveOneOut, Shapley


def subsets(players):
    players = list(players)
    return chain.from_iterable(combinations(players, size) for size in range(len(players) + 1))


def weight(semivalue, size, n_players):
    """Weight of one coalition of this size that a player joins."""
    match semivalue:
        case Shapley():
            return factorial(size) * factorial(n_players - size - 1) / factorial(n_players)
        case Banzhaf():
            return 0.5 ** (n_players - 1)
        case Beta(a, b):
            return beta_function(size + b, n_players - 1 - size + a) / beta_function(b, a)
        case LeaveOneOut():
            return float(size == n_players - 1)
    raise AssertionError(semivalue)


def number(members):
    return sum(1 << member for member in members)


def tabulate(game, shape):
    """All utilities of a game, by the numbers of its coalitions."""
    sides = ((np.arange(1 << n)[:, None] >> np.arange(n)) % 2 == 1 for n in shape)
    rows, columns = sides
    return np.array([[game.value(S, F) for F in columns] for S in rows])


def marginal(table, S, F, i, j):
    with_i, with_j = (*S, i), (*F, j)
    return (
        table[number(with_i), number(with_j)]
        + table[number(S), number(F)]
        - table[number(with_i), number(F)]
        - table[number(S), number(with_j)]
    )


def block_values(table, shape, rows, columns):
    """The set form: weighted sum of marginals over all pairs of coalitions."""
    n, m = shape
    values = np.zeros(shape)
    for i, j in product(range(n), range(m)):
        others = [r for r in range(n) if r != i], [c for c in range(m) if c != j]
        values[i, j] = sum(
            weight(rows, len(S), n) * weight(columns, len(F), m) * marginal(table, S, F, i, j)
            for S in subsets(others[0])
            for F in subsets(others[1])
        )
    return values


def line_values(utilities, n_players, semivalue):
    """One-dimensional values of a game whose utility of coalition s is utilities[s]."""
    values = np.zeros(n_players)
    for i in range(n_players):
        for S in subsets(p for p in range(n_players) if p != i):
            gain = utilities[number((*S, i))] - utilities[number(S)]
            values[i] += weight(semivalue, len(S), n_players) * gain
    return values
