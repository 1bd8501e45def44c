"""Labels as players of a game with a model, against enumeration."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier

from cellworth import ModelValuer, value_game
from cellworth.games import ModelGame
from cellworth.sampling import Banzhaf, Shapley
from enumeration import block_values

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(24, 2)), RNG.normal(size=(30, 2))
GROUPS = np.repeat(["a", "b", "c"], 8)


def make_game(kind, **settings):
    y, y_val = (each[:, 0] + 0.3 * each[:, 1] for each in (X, X_VAL))
    if kind == "numbers":
        return ModelGame(LinearRegression(), X, y, X_VAL, y_val, row_groups=GROUPS, **settings)
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    return ModelGame(tree, X, y > 0, X_VAL, y_val > 0, row_groups=GROUPS, **settings)


def members(number, n_players):
    return (number >> np.arange(n_players) & 1).astype(bool)


def enumerate_with_labels(game):
    """The utilities of the game; without the label, those of no rows."""
    n, m = game.shape
    table = np.array(
        [[game.value(members(S, n), members(F, m)) for F in range(1 << m)] for S in range(1 << n)]
    )
    return np.hstack([np.repeat(table[:1], len(table), axis=0), table])


@pytest.mark.parametrize("empty", ["prior", "zero"])
@pytest.mark.parametrize("kind", ["classes", "numbers"])
@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf()], ids=repr)
def test_values_with_labels_are_those_of_enumeration(kind, empty, semivalue):
    game = make_game(kind, empty=empty)
    truth = block_values(enumerate_with_labels(game), (3, 3), semivalue, Shapley())
    found = value_game(game.with_labels(), semivalue=(semivalue, None))
    np.testing.assert_allclose(found.values, truth, atol=1e-12)
    assert found.column_labels.tolist() == ["x0", "x1", "(label)"]
    assert np.abs(found.values[:, :2] - value_game(game).values).max() > 1e-3
    assert found.validation_se.shape == (3, 3)


def test_without_labels_as_players_nothing_changes():
    game = make_game("classes")
    assert "value_labels" not in game.problem_spec()
    with_labels = pickle.loads(pickle.dumps(game.with_labels()))  # noqa: S301 (our own)
    assert with_labels.problem_spec() == {**game.problem_spec(), "value_labels": True}
    assert with_labels.with_labels().shape == with_labels.shape == (3, 3)
    valuer = ModelValuer(DecisionTreeClassifier(random_state=0))
    spec = valuer.problem_spec(X, X[:, 0] > 0, X_val=X_VAL, y_val=X_VAL[:, 0] > 0)
    assert "value_labels" not in spec
