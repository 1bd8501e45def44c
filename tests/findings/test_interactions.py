"""Interactions of pairs of players, against their definition."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, Owners
from cellworth.findings import measure_interactions
from cellworth.games import ModelGame, TableGame
from cellworth.knn import KNNGame
from cellworth.payouts import measure_owner_interactions
from cellworth.payouts.owner_players import OwnerGame
from cellworth.sampling import Banzhaf, Beta, Shapley
from cellworth.sampling.moments import widening
from enumeration import line_values


def by_definition(utilities, n_players, semivalue):
    """The value of i if j is always there, less its value if j is never there."""
    found = np.full((n_players, n_players), np.nan)
    for j in range(n_players):
        others = [p for p in range(n_players) if p != j]
        numbers = [
            sum(1 << p for k, p in enumerate(others) if coalition >> k & 1)
            for coalition in range(1 << len(others))
        ]
        with_j, without = (
            line_values(utilities[np.array(numbers) + added], len(others), semivalue)
            for added in (1 << j, 0)
        )
        found[others, j] = with_j - without
    return found


@pytest.mark.parametrize("semivalue", [Shapley(), Banzhaf(), Beta(4, 1)], ids=repr)
@pytest.mark.parametrize("players", ["rows", "columns"])
def test_interactions_are_those_of_the_definition(players, semivalue):
    table = np.random.default_rng(0).normal(size=(16, 16))
    line = table[:, -1] - table[:, 0] if players == "rows" else table[-1] - table[0]
    found = measure_interactions(TableGame(table), players=players, semivalue=semivalue)
    truth = by_definition(line, found.values.shape[0], semivalue)
    np.testing.assert_allclose(found.values, truth, atol=1e-12)
    other = Banzhaf() if semivalue == Shapley() else Shapley()
    assert np.nanmax(np.abs(found.values - by_definition(line, len(truth), other))) > 1e-3
    assert np.isnan(found.errors).all()


def all_utilities(game, n_players):
    members = (np.arange(1 << n_players)[:, None] >> np.arange(n_players) & 1).astype(bool)
    columns = np.ones(game.shape[1], dtype=bool)
    return np.array([game.value(m, columns) - game.value(m, ~columns) for m in members])


@pytest.fixture
def data():
    rng = np.random.default_rng(1)
    X, X_val = rng.normal(size=(24, 3)), rng.normal(size=(20, 3))
    y, y_val = ((each[:, 0] * each[:, 1] > 0).astype(int) for each in (X, X_val))
    return X, y, X_val, y_val


@pytest.mark.parametrize("kind", ["neighbors", "model"])
def test_blocks_of_neighbors_and_models_interact_by_definition(data, kind):
    groups = np.repeat(["a", "b", "c"], 8)
    game = (
        KNNGame(*data, n_neighbors=3, row_groups=groups)
        if kind == "neighbors"
        else ModelGame(DecisionTreeClassifier(random_state=0), *data, row_groups=groups)
    )
    found = measure_interactions(game)
    truth = by_definition(all_utilities(game, 3), 3, Shapley())
    np.testing.assert_allclose(found.values, truth, atol=1e-12)
    assert found.names == ("a", "b", "c")
    assert np.isnan(found.errors).all() == (kind == "neighbors")


def test_errors_of_owners_are_those_of_a_mean_over_validation_rows(data):
    X, y, X_val, y_val = data
    owners = Owners(X)
    for position, name in enumerate(("ann", "bob", "cid")):
        owners = owners.assign(name, columns=f"x{position}")
    found = measure_owner_interactions(KNNValuer(3), owners, X, y, X_val=X_val, y_val=y_val)
    single = []
    for k in range(len(X_val)):
        game = OwnerGame(KNNGame(X, y, X_val[k : k + 1], y_val[k : k + 1], n_neighbors=3), owners)
        order = [game.fragments.names.index(name) for name in found.names]
        single.append(by_definition(all_utilities(game, 3), 3, Shapley())[np.ix_(order, order)])
    assert found.names == ("ann", "bob", "cid")
    n = len(single)
    np.testing.assert_allclose(found.values, np.mean(single, axis=0), atol=1e-12)
    errors = np.std(single, axis=0, ddof=1) / np.sqrt(n) * widening(n)
    # Deviations have single precision.
    np.testing.assert_allclose(found.errors, errors, rtol=1e-5)
    assert np.nanmin(found.errors) > 0
    strongest = found.to_frame("pandas").iloc[0]
    assert abs(strongest["interaction"]) == np.nanmax(np.abs(found.values))


def test_wrong_arguments_are_named(data):
    with pytest.raises(ValueError, match="2 to 12 players on the side of rows, got 24; give row"):
        measure_interactions(KNNGame(*data))
    with pytest.raises(ValueError, match="players must be 'rows' or 'columns', got 'cells'"):
        measure_interactions(KNNGame(*data), players="cells")
