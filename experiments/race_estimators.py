"""Estimators from the literature, for games with two sides, as the race of estimators runs them.

All were published for one set of players. The value of a block is the Shapley value over rows of
the Shapley value over columns, so a recipe carries over by products: of the weights of two
coalitions, of two regressions, or of two odd parts. Each is our own, short version, and knows no
utility but those that it asks for.
"""

from __future__ import annotations

import math
from collections import defaultdict
from itertools import chain, combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.model_selection import KFold

from cellworth.sampling import Shapley
from cellworth.sampling.semivalues import membership_weights

Floats = NDArray[np.float64]
Found = tuple[Floats, Floats | None]
# Draws after which an estimator ends, whether or not its fits are used up, in draws per fit.
_MAX_DRAWS = 5
# TMC ends a scan if the score is this close to that of the whole table, as a share of the total.
_TOLERANCE = 0.01
_FOLDS = 5
# Weight of an observation of a full side in a regression, where theory wants infinity.
_FULL = 100.0


def masks(n_players: int) -> NDArray[np.bool_]:
    """Return all coalitions, by number."""
    return (np.arange(1 << n_players)[:, None] >> np.arange(n_players) & 1).astype(bool)


class BudgetSpentError(Exception):
    """The next fits would exceed the budget."""


class Asked:
    """A tabulated game that counts the distinct coalitions asked for; empty sides are free."""

    def __init__(self, interactions: Floats, n_fits: int, seed: int) -> None:
        """Begin with the fit of the whole table."""
        self.n_fits = n_fits
        self.rng = np.random.default_rng(seed)
        n_rows, n_columns = (side.bit_length() - 1 for side in interactions.shape)
        self.shape = n_rows, n_columns
        self.members = masks(n_rows), masks(n_columns)
        self.full = interactions.shape[0] - 1, interactions.shape[1] - 1
        self.seen: set[tuple[int, int]] = set()
        self._interactions = interactions
        self.total = float(self([self.full[0]], [self.full[1]])[0])

    def __call__(self, rows: Any, columns: Any) -> Floats:
        """Return the interactions of pairs, h(S, F) - h(S, 0) - h(0, F) + h(0, 0)."""
        pairs = zip(np.ravel(rows).tolist(), np.ravel(columns).tolist(), strict=True)
        asked = self.seen | {pair for pair in pairs if all(pair)}
        if len(asked) > self.n_fits:
            raise BudgetSpentError
        self.seen = asked
        return self._interactions[np.asarray(rows), np.asarray(columns)]

    def draw(self, side: int, chances: Floats) -> int:
        """Draw a coalition of rows (0) or columns (1) whose size 0..n has these chances."""
        n = self.shape[side]
        chosen = self.rng.permutation(n)[: self.rng.choice(n + 1, p=chances)]
        return int((1 << chosen).sum())

    def draw_sides(self, chances: Any) -> tuple[Any, Any]:
        """Draw coalitions of rows and of columns, each with its complement."""
        drawn = self.draw(0, chances[0]), self.draw(1, chances[1])
        rows, columns = (
            np.array([one, all_of - one]) for one, all_of in zip(drawn, self.full, strict=True)
        )
        return rows, columns

    def ask_all(self, rows: Any, columns: Any) -> Floats:
        """Return the interactions of each of some rows with each of some columns."""
        pairs = np.repeat(rows, len(columns)), np.tile(columns, len(rows))
        return self(*pairs).reshape(len(rows), len(columns))

    def until_spent(self, draw: Any) -> list[Any]:
        """Collect draws until the budget is spent."""
        found = []
        try:
            while len(found) < _MAX_DRAWS * self.n_fits:
                found.append(draw())
        except BudgetSpentError:
            pass
        return found


def kernel_chances(n_players: int) -> Floats:
    """Return KernelSHAP's chances of the sizes 0..n: those of its weights; 0 for 0 and n."""
    sizes = np.arange(1, n_players)
    weights = 1.0 / (sizes * (n_players - sizes))
    return np.r_[0.0, weights / weights.sum(), 0.0]


def truncate_permutations(game: Asked) -> Found:
    """TMC: random orders, each scan of columns ended near the score of the whole table.

    Ghorbani and Zou (2019), Data Shapley: Equitable Valuation of Data for Machine Learning, ICML.
    """
    n_rows, n_columns = game.shape

    def task() -> Floats:
        row_order, column_order = game.rng.permutation(n_rows), game.rng.permutation(n_columns)
        rows, columns = (np.cumsum(np.r_[0, 1 << order]) for order in (row_order, column_order))
        grid = np.zeros((n_rows + 1, n_columns + 1))
        for i, j in np.ndindex(n_rows, n_columns):
            near = j and abs(grid[i + 1, j] - game.total) <= _TOLERANCE * abs(game.total)
            known = game.total if near else game([rows[i + 1]], [columns[j + 1]])[0]
            grid[i + 1, j + 1] = known
        values = np.empty(game.shape)
        values[np.ix_(row_order, column_order)] = np.diff(np.diff(grid, axis=0), axis=1)
        return values

    seen = np.array(game.until_spent(task))
    if len(seen) < 2:
        return np.full(game.shape, game.total / math.prod(game.shape)), None
    return seen.mean(axis=0), seen.std(axis=0, ddof=1) / math.sqrt(len(seen))


def kernel_regression(game: Asked) -> Found:
    """KernelSHAP with paired coalitions, on each margin and on what margins leave unexplained.

    Lundberg and Lee (2017), A Unified Approach to Interpreting Model Predictions, NIPS; Covert and
    Lee (2021), Improving KernelSHAP: Practical Shapley Value Estimation via Linear Regression,
    AISTATS.
    """
    chances = [kernel_chances(n) for n in game.shape]

    def task() -> Any:
        rows, columns = game.draw_sides(chances)
        return rows, columns, game.ask_all([*rows, game.full[0]], [*columns, game.full[1]])

    row_sides, column_sides, seen = map(np.array, zip(*game.until_spent(task), strict=True))
    centered, shares = zip(
        *(_center(side, all_of) for side, all_of in zip(
            (row_sides, column_sides), game.members, strict=True)), strict=True,
    )  # fmt: skip
    total = game.total
    by_row = _solve(centered[0], seen[:, :2, 2] - shares[0] * total)
    by_column = _solve(centered[1], seen[:, 2, :2] - shares[1] * total)
    left = (
        seen[:, :2, :2]
        - shares[0][:, :, None] * seen[:, 2:, :2]
        - shares[1][:, None, :] * seen[:, :2, 2:]
        + shares[0][:, :, None] * shares[1][:, None, :] * total
    )
    both = np.einsum("kai,kbj->kabij", *centered).reshape(*left.shape, -1)
    n_rows, n_columns = game.shape
    values = total / (n_rows * n_columns) + _solve(both, left).reshape(game.shape)
    return values + by_row[:, None] / n_columns + by_column / n_rows, None


def _center(numbers: Any, members: Any) -> tuple[Floats, Floats]:
    """Return memberships less their mean over players, and this mean."""
    shares = members[numbers].mean(axis=-1)
    return members[numbers] - shares[..., None], shares


def _solve(features: Floats, target: Floats) -> Floats:
    """Return the shortest least-squares solution."""
    n = target.size
    return np.linalg.lstsq(features.reshape(n, -1), target.ravel(), rcond=None)[0]


def regression_msr(game: Asked) -> Found:
    """RegressionMSR: exact values of trees, plus importance-weighted residuals of other folds.

    Witter, Liu and Musco (2025), Regression-adjusted Monte Carlo Estimators for Shapley Values and
    Probabilistic Values, arXiv:2506.11849.
    """
    uniform = [np.full(n + 1, 1 / (n + 1)) for n in game.shape]

    def task() -> Any:
        rows, columns = game.draw_sides(uniform)
        return rows, columns, game.ask_all(rows, columns)

    row_sides, column_sides, seen = map(np.array, zip(*game.until_spent(task), strict=True))
    members = [
        each[sides] for each, sides in zip(game.members, (row_sides, column_sides), strict=True)
    ]
    weights = [
        membership_weights(Shapley(), each.reshape(-1, n)).reshape(each.shape)
        * ((n + 1) * _count_alike(each))[..., None]
        for each, n in zip(members, game.shape, strict=True)
    ]
    features = np.concatenate(
        [np.repeat(members[0], 2, axis=1), np.tile(members[1], (1, 2, 1))], axis=2
    ).astype(float)
    terms = np.empty((len(seen), *game.shape))
    # Draws are independent, so those of one fold say nothing about which ones another fold has.
    for inside, outside in KFold(_FOLDS, shuffle=True, random_state=0).split(terms):
        trees = _fit_trees(features[inside].reshape(-1, sum(game.shape)), seen[inside].ravel())
        predicted = trees.predict(features[outside].reshape(-1, sum(game.shape)))
        left = seen[outside] - predicted.reshape(-1, 2, 2)
        own = np.einsum("kab,kai,kbj->kij", left, weights[0][outside], weights[1][outside]) / 4
        terms[outside] = own + tree_values(trees, game.shape)
    return terms.mean(axis=0), terms.std(axis=0, ddof=1) / math.sqrt(len(terms))


def _count_alike(members: NDArray[np.bool_]) -> Floats:
    """Return how many coalitions have the size of each."""
    n = members.shape[-1]
    counts = np.array([float(math.comb(n, size)) for size in range(n + 1)])
    return counts[members.sum(axis=-1)]


def _fit_trees(features: Floats, amounts: Floats) -> Any:
    """Boost trees that add up to the interactions."""
    return GradientBoostingRegressor(n_estimators=60, max_depth=4, random_state=0).fit(
        features, amounts
    )


def leaves(trees: Any, shape: tuple[int, int]) -> list[tuple[float, Any, Any]]:
    """Return each leaf: its number, and the rows and columns that must be present or absent."""
    found = []
    for tree in (each.tree_ for each in trees.estimators_.ravel()):
        waiting: list[Any] = [(0, ((), ()), ((), ()))]
        while waiting:
            node, rows, columns = waiting.pop()
            if tree.children_left[node] < 0:
                found.append((trees.learning_rate * tree.value[node, 0, 0], rows, columns))
                continue
            player = int(tree.feature[node])
            for child, k in ((tree.children_right[node], 0), (tree.children_left[node], 1)):
                on_rows = player < shape[0]
                side = list(rows if on_rows else columns)
                side[k] = (*side[k], player if on_rows else player - shape[0])
                both = (tuple(side), columns) if on_rows else (rows, tuple(side))
                waiting.append((child, *both))
    return found


def tree_values(trees: Any, shape: tuple[int, int]) -> Floats:
    """Return the exact values of a sum of trees over memberships, leaf by leaf."""
    values = np.zeros(shape)
    for number, rows, columns in leaves(trees, shape):
        values += number * np.outer(_leaf_values(*rows, shape[0]), _leaf_values(*columns, shape[1]))
    return values


def _leaf_values(present: Any, absent: Any, n_players: int) -> Floats:
    """Return the Shapley values of a game that is 1 if some are present and others absent."""
    p, q = len(present), len(absent)
    values = np.zeros(n_players)
    if p:
        values[list(present)] = math.factorial(p - 1) * math.factorial(q) / math.factorial(p + q)
    if q:
        values[list(absent)] = -math.factorial(p) * math.factorial(q - 1) / math.factorial(p + q)
    return values


def odd_regression(game: Asked) -> Found:
    """OddSHAP: a regression of the part that is odd in rows and in columns on Fourier terms.

    All terms of one row and one column, and those terms of more players that are largest in
    boosted trees. Fumagalli et al. (2026), An Odd Estimator for
    Shapley Values, arXiv:2602.01399.
    """
    chances = [kernel_chances(n) for n in game.shape]

    def task() -> list[tuple[int, int, float]]:
        rows, columns = game.draw_sides(chances)
        seen = game.ask_all([*rows, game.full[0]], [*columns, game.full[1]])
        quad = float(seen[0, 0] - seen[0, 1] - seen[1, 0] + seen[1, 1])
        # The complement of a full side is empty, where interactions are 0.
        by_row, by_column = float(seen[0, 2] - seen[1, 2]), float(seen[2, 0] - seen[2, 1])
        return [
            (rows[0], columns[0], quad / 4),
            (rows[0], game.full[1], by_row / 4),
            (game.full[0], columns[0], by_column / 4),
        ]

    drawn = [(*game.full, game.total / 4), *chain.from_iterable(game.until_spent(task))]
    rows, columns = (np.array([each[k] for each in drawn]) for k in (0, 1))
    odd = np.array([each[2] for each in drawn])
    terms = [((i,), (j,)) for i, j in np.ndindex(game.shape)]
    seen = np.array(sorted(game.seen))
    features = np.hstack([game.members[0][seen[:, 0]], game.members[1][seen[:, 1]]]).astype(float)
    trees = _fit_trees(features, game(seen[:, 0], seen[:, 1]))
    # At most half as many terms as equations that are of neither margin.
    lower = np.minimum(rows, game.full[0] - rows), np.minimum(columns, game.full[1] - columns)
    inner = len({pair for pair in zip(*map(np.ndarray.tolist, lower), strict=True) if all(pair)})
    terms += _largest_terms(trees, game.shape, inner // 2 - len(terms))
    signs = [
        1 - 2 * each[numbers].astype(float)
        for each, numbers in zip(game.members, (rows, columns), strict=True)
    ]
    products = np.column_stack([
        signs[0][:, list(t)].prod(axis=1) * signs[1][:, list(u)].prod(axis=1) for t, u in terms
    ])  # fmt: skip
    weights = np.where(rows == game.full[0], _FULL, 1) * np.where(columns == game.full[1], _FULL, 1)
    found = _solve(products * weights[:, None], odd * weights)
    values = np.zeros(game.shape)
    for (t, u), amount in zip(terms, found, strict=True):
        values[np.ix_(t, u)] += 4 * amount / (len(t) * len(u))
    return values, None


def _largest_terms(trees: Any, shape: tuple[int, int], n_terms: int) -> list[Any]:
    """Return the largest Fourier terms of trees that are odd on both sides, without single ones."""
    amounts: dict[Any, float] = defaultdict(float)
    for number, rows, columns in leaves(trees, shape):
        for t, a in _odd_parts(*rows):
            for u, b in _odd_parts(*columns):
                if len(t) + len(u) > 2:
                    amounts[t, u] += number * a * b
    return sorted(amounts, key=lambda term: -abs(amounts[term]))[: max(n_terms, 0)]


def _odd_parts(present: Any, absent: Any) -> list[Any]:
    """Return the odd Fourier terms of one side of a leaf, with their amounts."""
    players = (*present, *absent)
    return [
        (tuple(sorted(term)), (-1) ** sum(i in present for i in term) / 2 ** len(players))
        for size in range(1, len(players) + 1, 2)
        for term in combinations(players, size)
    ]


def outer_product(game: Asked) -> Found:
    """Multiply exact values of rows and exact values of columns, as a library of one side can.

    Row values are those of the game with all columns, and column values those with all rows.
    """
    of_rows, of_columns = (membership_weights(Shapley(), each) for each in game.members)
    by_row = of_rows.T @ game(np.arange(len(of_rows)), np.full(len(of_rows), game.full[1]))
    by_column = of_columns.T @ game(
        np.full(len(of_columns), game.full[0]), np.arange(len(of_columns))
    )
    return np.outer(by_row, by_column) / game.total, None
