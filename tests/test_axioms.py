"""The theory: which promises two-dimensional values keep, against enumeration."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellworth import value_game
from cellworth.games import TableGame
from cellworth.sampling import Banzhaf, Beta, LeaveOneOut, Shapley
from cellworth.sampling.semivalues import coalition_weights
from enumeration import block_values, line_values, weight

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "two-dimensional-shapley.md"
TOLERANCE = 1e-12
MAKERS = {"Shapley": Shapley, "Banzhaf": Banzhaf, "Beta": Beta, "LeaveOneOut": LeaveOneOut}
PROMISES = ("linear", "dummy", "symmetric", "efficient", "row sums", "column sums")


def semivalue_named(text):
    name, arguments = re.fullmatch(r"(\w+)\((.*)\)", text).groups()
    return MAKERS[name](*(float(a) for a in arguments.split(",") if a))


def promises_on_the_page():
    table = PAGE.read_text().split("\n| rows | columns ")[1].split("\n\n")[0]
    header, _, *table = f"| rows | columns {table}".splitlines()
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
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return shape, rng.normal(size=(1 << shape[0], 1 << shape[1]))


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
