"""The theory: which promises two-dimensional values keep, against enumeration."""

import re
from itertools import combinations_with_replacement, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import null_space

from cellworth import value_game
from cellworth.games import TableGame
from cellworth.sampling import Banzhaf, Beta, LeaveOneOut, Shapley
from cellworth.sampling.semivalues import coalition_weights
from enumeration import (
    block_values,
    dividend,
    line_values,
    marginal,
    paper_system,
    permutation_values,
    subsets,
    unanimity_game,
    weight,
)

PAGE = Path(__file__).parents[1] / "docs" / "explanation" / "axioms.md"
TOLERANCE = 1e-12
MAKERS = {"Shapley": Shapley, "Banzhaf": Banzhaf, "Beta": Beta, "LeaveOneOut": LeaveOneOut}
PROMISES = ("linear", "dummy", "symmetric", "efficient", "row sums", "column sums")


def semivalue_named(text):
    name, arguments = re.fullmatch(r"(\w+)\((.*)\)", text).groups()
    return MAKERS[name](*(float(a) for a in arguments.split(",") if a))


def promises_on_the_page():
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    header, table = lines[0], lines[2:]
    assert [cell.strip() for cell in header.split("|")[3:-1]] == list(PROMISES)
    for line in table:
        rows, columns, *answers = (cell.strip() for cell in line.split("|")[1:-1])
        for promise, answer in zip(PROMISES, answers, strict=True):
            yield pytest.param(
                semivalue_named(rows),
                semivalue_named(columns),
                promise,
                {"yes": True, "no": False}[answer],
                id=f"{rows}-{columns}-{promise}",
            )


@st.composite
def games(draw, most_rows=4, most_columns=4):
    """A shape and a table of utilities, the empty coalitions worth something too."""
    shape = draw(st.integers(1, most_rows)), draw(st.integers(1, most_columns))
    seed = draw(st.integers(0, 2**32 - 1))
    return shape, random_table(shape, seed)


def random_table(shape, seed):
    return np.random.default_rng(seed).normal(size=(1 << shape[0], 1 << shape[1]))


def values(table, rows=None, columns=None):
    game = TableGame(table)
    return value_game(game, game.shape, semivalue=(rows, columns), estimator="exact").values


def max_difference(one, other):
    return float(np.max(np.abs(np.asarray(one) - np.asarray(other))))


# How far a pair of semivalues is from keeping each promise, on one random game ---------------


def linear(table, shape, pair, rng):
    other = rng.normal(size=table.shape)
    return max_difference(
        values(2 * table + 3 * other, *pair), 2 * values(table, *pair) + 3 * values(other, *pair)
    )


def dummy(table, shape, pair, rng):
    """Make block (i, j) add c to every coalition; its value must be c."""
    i, j = rng.integers(shape[0]), rng.integers(shape[1])
    c = rng.normal()
    table = table.copy()
    for S in range(table.shape[0]):
        for F in range(table.shape[1]):
            if S >> i & 1 and F >> j & 1:
                without_i, without_j = S ^ (1 << i), F ^ (1 << j)
                table[S, F] = c + table[S, without_j] + table[without_i, F]
                table[S, F] -= table[without_i, without_j]
    return max_difference(values(table, *pair)[i, j], c)


def symmetric(table, shape, pair, rng):
    row_order, column_order = rng.permutation(shape[0]), rng.permutation(shape[1])
    moved = table[np.ix_(renumber(row_order), renumber(column_order))]
    return max_difference(
        values(moved, *pair), values(table, *pair)[np.ix_(row_order, column_order)]
    )


def renumber(order):
    """Coalition numbers after player p has become player order[p]."""
    numbers = np.arange(1 << len(order))
    return sum(((numbers >> p & 1) << order[p]) for p in range(len(order)))


def efficient(table, shape, pair, rng):
    corners = table[-1, -1] - table[-1, 0] - table[0, -1] + table[0, 0]
    return max_difference(values(table, *pair).sum(), corners)


def row_sums(table, shape, pair, rng):
    one_dimensional = line_values(table[:, -1] - table[:, 0], shape[0], pair[0])
    return max_difference(values(table, *pair).sum(axis=1), one_dimensional)


def column_sums(table, shape, pair, rng):
    one_dimensional = line_values(table[-1] - table[0], shape[1], pair[1])
    return max_difference(values(table, *pair).sum(axis=0), one_dimensional)


DISTANCES = {
    "linear": linear,
    "dummy": dummy,
    "symmetric": symmetric,
    "efficient": efficient,
    "row sums": row_sums,
    "column sums": column_sums,
}


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "columns", "promise", "kept"), list(promises_on_the_page()))
def test_the_page_on_axioms_tells_the_truth(rows, columns, promise, kept):
    rng = np.random.default_rng(7)
    shapes = [(3, 4), (4, 3), (5, 3), (3, 5)]
    distances = [
        DISTANCES[promise](rng.normal(size=(1 << n, 1 << m)), (n, m), (rows, columns), rng)
        for n, m in shapes
    ]
    if kept:
        assert max(distances) <= TOLERANCE
    else:
        assert min(distances) > 1e-3


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(games(), st.integers(0, 2**32 - 1))
@pytest.mark.parametrize("promise", PROMISES)
def test_shapley_keeps_every_promise_on_random_games(promise, game, seed):
    shape, table = game
    pair = Shapley(), Shapley()
    assert DISTANCES[promise](table, shape, pair, np.random.default_rng(seed)) <= TOLERANCE


@pytest.mark.parametrize("n_rows", range(1, 7))
@pytest.mark.parametrize("n_columns", range(1, 7))
def test_the_papers_linear_system_has_our_weights_as_its_only_solution(n_rows, n_columns):
    system, right = paper_system(n_rows, n_columns)
    assert system.shape == (n_rows * n_columns, n_rows * n_columns)
    assert np.linalg.matrix_rank(system) == n_rows * n_columns
    ours = np.outer(coalition_weights(Shapley(), n_rows), coalition_weights(Shapley(), n_columns))
    assert (
        max_difference(np.linalg.solve(system, right).reshape(n_rows, n_columns), ours) <= TOLERANCE
    )


SEMIVALUES = (Shapley(), Banzhaf(), Beta(4, 1), Beta(1, 16), Beta(0.5, 2.5), LeaveOneOut())


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=repr)
@pytest.mark.parametrize("n_players", [1, 2, 3, 7, 12])
def test_weights_equal_the_formulas(semivalue, n_players):
    formulas = [weight(semivalue, size, n_players) for size in range(n_players)]
    assert max_difference(coalition_weights(semivalue, n_players), formulas) <= TOLERANCE


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=repr)
@pytest.mark.parametrize("n_players", [1, 5, 5000])
def test_size_probabilities_add_up_to_one(semivalue, n_players):
    probabilities = semivalue.size_probabilities(n_players)
    assert probabilities.shape == (n_players,)
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(games(), st.sampled_from(SEMIVALUES), st.sampled_from(SEMIVALUES))
def test_values_equal_the_sum_over_all_coalitions(game, rows, columns):
    shape, table = game
    assert (
        max_difference(values(table, rows, columns), block_values(table, shape, rows, columns))
        <= TOLERANCE
    )


@settings(max_examples=40, deadline=None)
@given(games(most_rows=3, most_columns=4))
def test_set_form_equals_permutation_form(game):
    shape, table = game
    assert max_difference(values(table), permutation_values(table, shape)) <= TOLERANCE


# The paper's appendix: unanimity games are a basis, and interchangeable players -----------------


def every_pair_of_coalitions(shape):
    return list(product(*(list(subsets(range(size))) for size in shape)))


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_every_game_is_the_sum_of_its_unanimity_games(shape):
    table = random_table(shape, seed=1)
    games_ = [
        dividend(table, S, F) * unanimity_game(S, F, shape)
        for S, F in every_pair_of_coalitions(shape)
    ]
    assert max_difference(sum(games_), table) <= TOLERANCE
    # No unanimity game is superfluous.
    assert max_difference(sum(games_[:-1]), table) > 1e-3


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_a_unanimity_game_is_shared_equally_by_its_blocks(shape):
    for S, F in every_pair_of_coalitions(shape):
        expected = np.zeros(shape)
        if S and F:
            expected[np.ix_(S, F)] = 1 / (len(S) * len(F))
        assert max_difference(values(unanimity_game(S, F, shape)), expected) <= TOLERANCE


def test_values_are_dividends_shared_equally_for_shapley_alone():
    shape, table = (3, 4), random_table((3, 4), seed=2)
    expected = np.zeros(shape)
    for S, F in every_pair_of_coalitions(shape):
        if S and F:
            expected[np.ix_(S, F)] += dividend(table, S, F) / (len(S) * len(F))
    assert max_difference(values(table), expected) <= TOLERANCE
    assert max_difference(values(table, None, Banzhaf()), expected) > 1e-3


def with_interchangeable(table, shape, rows, columns):
    """The nearest game in which these two rows, and these two columns, are interchangeable."""
    one, other = (
        renumber([dict([pair, pair[::-1]]).get(p, p) for p in range(size)])
        for pair, size in zip((rows, columns), shape, strict=True)
    )
    table = (table + table[one]) / 2
    return (table + table[:, other]) / 2


@pytest.mark.parametrize("rows", [Shapley(), Banzhaf(), Beta(4, 1), LeaveOneOut()], ids=repr)
def test_blocks_of_interchangeable_rows_and_columns_have_equal_values(rows):
    shape, table = (4, 3), random_table((4, 3), seed=3)
    found = values(with_interchangeable(table, shape, (1, 3), (0, 2)), rows, Shapley())
    assert max_difference(found[1, 0], found[3, 2]) <= TOLERANCE
    # Rows alone do not suffice.
    found = values(with_interchangeable(table, shape, (1, 3), (0, 0)), rows, Shapley())
    assert max_difference(found[1, 0], found[3, 2]) > 1e-3


def games_without_empty_utilities(shape):
    """A basis of the paper's games: one coalition has utility 1, and empty ones have 0."""
    one_hot = np.eye(1 << sum(shape)).reshape(-1, 1 << shape[0], 1 << shape[1])
    return one_hot[(one_hot[:, 0].sum(axis=1) == 0) & (one_hot[:, :, 0].sum(axis=1) == 0)]


def dummy_axiom(basis, shape):
    """Yield equations: blocks, their factors on each game of the basis, and the right side."""
    for i, j in np.ndindex(shape):
        others = [p for p in range(shape[0]) if p != i], [p for p in range(shape[1]) if p != j]
        pairs = product(*(list(subsets(side)) for side in others))
        marginals = np.array([[marginal(h, S, F, i, j) for h in basis] for S, F in pairs])
        for game in null_space(marginals[1:] - marginals[0]).T if len(marginals) > 1 else [[1.0]]:
            yield {(i, j): game}, marginals[0] @ game


def efficiency_axiom(basis, shape):
    for game in np.eye(len(basis)):
        yield dict.fromkeys(np.ndindex(shape), game), game @ basis[:, -1, -1]


def interchangeable_players(basis, shape):
    flat = basis.reshape(len(basis), -1)
    sides = [list(combinations_with_replacement(range(size), 2)) for size in shape]
    for rows, columns in product(*sides):
        changed = [with_interchangeable(h, shape, rows, columns).ravel() for h in basis]
        alike = null_space((flat - changed).T).T
        for one, other in {columns, columns[::-1]}:
            if (rows[0], one) != (rows[1], other):
                for game in alike:
                    yield {(rows[0], one): game, (rows[1], other): -game}, 0.0


def system_of(axioms, shape):
    """The equations that axioms are for a linear value: its coefficients times a matrix."""
    basis = games_without_empty_utilities(shape)
    equations, right = [], []
    for axiom in axioms:
        for factors, value in axiom(basis, shape):
            equation = np.zeros((*shape, len(basis)))
            for block, factor in factors.items():
                equation[block] = factor
            equations.append(equation.ravel())
            right.append(value)
    return np.array(equations), np.array(right)


def coefficients(shape, *pair):
    """The values of all blocks in each game of the basis, as unknowns of the system."""
    found = [values(game, *pair) for game in games_without_empty_utilities(shape)]
    return np.moveaxis(found, 0, -1).ravel()


@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (2, 3)])
def test_equal_values_of_interchangeable_players_stand_for_the_symmetry_axiom(shape):
    """The paper's proposition: with the other axioms, they leave one value, which is symmetric."""
    system, right = system_of([dummy_axiom, efficiency_axiom, interchangeable_players], shape)
    ours = coefficients(shape)
    assert np.linalg.matrix_rank(system) == len(ours)
    assert max_difference(system @ ours, right) <= TOLERANCE
    if shape[1] > 2:
        # Another semivalue breaks the equations.
        assert max_difference(system @ coefficients(shape, None, Banzhaf()), right) > 1e-3
    without, _ = system_of([dummy_axiom, efficiency_axiom], shape)
    assert np.linalg.matrix_rank(without) < len(ours)
