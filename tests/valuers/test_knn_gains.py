"""Gains of votes and the Brier score against enumeration that shares no code with them."""

from functools import cache
from itertools import permutations

import numpy as np
import pandas as pd
import pytest

from cellworth import KNNValuer, Owners, load, value_game
from cellworth.knn import BinnedRanks, KNNGame, NeighborAgreement
from cellworth.sampling import Beta, LeaveOneOut, PermutationSampler, Shapley
from enumeration import block_values, number, subsets

# Small tables have fewer rows than K, on purpose.
pytestmark = pytest.mark.filterwarnings("ignore:n_neighbors should")

CLASSES = ["a", "b", "c"]
RNG = np.random.default_rng(0)
X, X_VAL = RNG.integers(0, 3, (5, 2)).astype(float), RNG.integers(0, 3, (3, 2)).astype(float)
Y, Y_VAL = ["a", "b", "c", "a", "b"], ["a", "a", "c"]
GAINS = {(vote, label): RNG.normal() for vote in CLASSES for label in CLASSES}
MATCHES = {(label, label): 1.0 for label in CLASSES}
# Probabilities of classes for every training row.
SOFT = RNG.dirichlet([1.0, 1.0, 1.0], 5)
GAIN_CHOICES = {"gains": GAINS, "matches": None, "soft": SOFT}


def mean_gain(rows, distances, gains, k, divisor):
    """The gains of the nearest rows, averaged over all orders of ties."""
    totals = [
        sum(gains[row] for row in sorted(order, key=lambda row: distances[row])[:k])
        for order in permutations(rows)
    ]
    return np.mean(totals) / (min(k, len(rows)) if divisor == "n_voters" else k)


def earn(kind, row, label):
    """What the vote of a row earns for a validation row with a label."""
    if kind == "soft":
        return SOFT[row, CLASSES.index(label)]
    return (GAINS if kind == "gains" else MATCHES).get((Y[row], label), 0.0)


@cache
def utilities(kind, k, divisor, empty):
    """The utility of every coalition, straight from the definition."""
    table = np.zeros((32, 4))
    for S in subsets(range(5)):
        for F in subsets(range(2)) if S else ():
            if F or empty == "prior":
                for asked, label in zip(X_VAL, Y_VAL, strict=True):
                    distances = ((X - asked)[:, list(F)] ** 2).sum(axis=1)
                    earned = [earn(kind, row, label) for row in range(5)]
                    mean = mean_gain(S, distances, earned, k, divisor)
                    table[number(S), number(F)] += mean / len(Y_VAL)
    return table


def fit(agreement, k, **settings):
    more = {"value_labels": settings.pop("value_labels", False)}
    valuer = KNNValuer(k, scoring=agreement, scale=None, **settings)
    return valuer.fit(X, Y, X_val=X_VAL, y_val=Y_VAL, **more).valuation_


@pytest.mark.parametrize(
    ("semivalue", "divisor", "empty"),
    [
        (Shapley(), "n_neighbors", "prior"),
        (Beta(4, 1), "n_voters", "zero"),
        (LeaveOneOut(), "n_voters", "prior"),
    ],
    ids=str,
)
@pytest.mark.parametrize(("kind", "k"), [("gains", 2), ("gains", 9), ("matches", 3), ("soft", 2)])
def test_values_with_gains_and_divisors_are_those_of_enumeration(
    kind, k, divisor, empty, semivalue
):
    table = utilities(kind, k, divisor, empty)
    truth = block_values(table, (5, 2), semivalue, semivalue)
    agreement = NeighborAgreement(gains=GAIN_CHOICES[kind], divisor=divisor)
    found = fit(agreement, k, empty=empty, semivalue=semivalue)
    np.testing.assert_allclose(found.values, truth, atol=1e-12)
    assert found.score == pytest.approx(table[-1, -1], abs=1e-12)
    assert found.baseline == pytest.approx(table[-1, 0], abs=1e-12)


@pytest.mark.parametrize("empty", ["prior", "zero"])
@pytest.mark.parametrize("kind", GAIN_CHOICES)
def test_labels_as_players_with_gains_and_divisors_are_those_of_enumeration(kind, empty):
    table = utilities(kind, 3, "n_voters", empty)
    with_label = np.hstack([np.zeros_like(table), table])
    truth = block_values(with_label, (5, 3), Shapley(), Shapley())
    agreement = NeighborAgreement(gains=GAIN_CHOICES[kind], divisor="n_voters")
    found = fit(agreement, 3, empty=empty, value_labels=True)
    np.testing.assert_allclose(found.values, truth, atol=1e-12)


def utilities_within(radius, kind, empty):
    """The utility of every coalition if all rows within a distance vote."""
    table = np.zeros((32, 4))
    for S in subsets(range(5)):
        for F in subsets(range(2)) if S else ():
            for asked, label in zip(X_VAL, Y_VAL, strict=True):
                distances = np.sqrt(((X - asked)[:, list(F)] ** 2).sum(axis=1))
                near = [earn(kind, row, label) for row in S if distances[row] <= radius]
                if near and (F or empty == "prior"):
                    table[number(S), number(F)] += np.mean(near) / len(Y_VAL)
    return table


@pytest.mark.parametrize(("semivalue", "empty"), [(Shapley(), "prior"), (Beta(4, 1), "zero")])
@pytest.mark.parametrize(
    ("kind", "radius", "ranking"),
    [
        ("matches", 1.0, None),
        ("gains", 1.5, None),
        ("soft", 1.5, None),
        ("matches", 1.0, BinnedRanks()),
        ("matches", 0.0, BinnedRanks()),
    ],
)
def test_values_within_a_radius_are_those_of_enumeration(kind, radius, ranking, empty, semivalue):
    table = utilities_within(radius, kind, empty)
    agreement = NeighborAgreement(gains=GAIN_CHOICES[kind], radius=radius)
    settings = {"empty": empty, "semivalue": semivalue, "ranking": ranking}
    found = fit(agreement, 5, **settings)
    truth = block_values(table, (5, 2), semivalue, semivalue)
    np.testing.assert_allclose(found.values, truth, atol=1e-12)
    assert found.score == pytest.approx(table[-1, -1], abs=1e-12)
    assert found.baseline == pytest.approx(table[-1, 0], abs=1e-12)
    with_label = np.hstack([np.zeros_like(table), table])
    truth = block_values(with_label, (5, 3), semivalue, semivalue)
    found = fit(agreement, 5, value_labels=True, **settings)
    np.testing.assert_allclose(found.values, truth, atol=1e-12)
    game = KNNGame(X, Y, X_VAL, Y_VAL, scoring=agreement, scale=None, empty=empty)
    everything = np.ones(5, dtype=bool), np.ones(2, dtype=bool)
    assert game.value(*everything) == pytest.approx(table[-1, -1], abs=1e-12)
    assert found.provenance.problem_spec["radius"] == radius


def test_rows_at_the_radius_vote():
    distances = np.sqrt(((X - X_VAL[:, np.newaxis]) ** 2).sum(axis=2))
    y, y_val = (np.array(["abc".index(label) for label in each]) for each in (Y, Y_VAL))

    def accuracy(near):
        votes = np.array([np.bincount(y[rows], minlength=y.max() + 1) for rows in near])
        most = votes == votes.max(axis=1, keepdims=True)
        return (most / most.sum(axis=1, keepdims=True))[np.arange(len(y_val)), y_val].mean()

    found = fit(NeighborAgreement(gains=GAIN_CHOICES["matches"], radius=1.0), 5)
    assert found.scores.accuracy == pytest.approx(accuracy(distances <= 1.0))
    assert accuracy(distances < 1.0) != accuracy(distances <= 1.0)


def weigh(distances):
    """Weights of votes, also for users who ask for a single distance."""
    return 1.0 / (1.0 + distances) ** 2


@cache
def weighted_utilities(kind, k, radius, divisor, empty):
    """The utility of every coalition if votes have weights by distance, from the definition."""
    table = np.zeros((32, 4))
    for S in subsets(range(5)):
        for F in subsets(range(2)) if S else ():
            if not F and empty == "zero":
                continue
            for asked, label in zip(X_VAL, Y_VAL, strict=True):
                distances = np.sqrt(((X - asked)[:, list(F)] ** 2).sum(axis=1))
                earned = [weigh(distances[row]) * earn(kind, row, label) for row in range(5)]
                near = [earned[row] for row in S if radius and distances[row] <= radius]
                mean = np.mean(near or [0.0])
                if radius is None:
                    mean = mean_gain(S, distances, earned, k, divisor)
                table[number(S), number(F)] += mean / len(Y_VAL)
    return table


@pytest.mark.parametrize(("semivalue", "empty"), [(Shapley(), "zero"), (Beta(4, 1), "prior")])
@pytest.mark.parametrize(
    "case",
    [
        ("matches", 2, None, "n_neighbors"),
        ("soft", 3, None, "n_voters"),
        ("gains", 9, None, "n_voters"),
        ("soft", 5, 1.5, "n_neighbors"),
    ],
)
def test_values_with_weights_are_those_of_enumeration(case, empty, semivalue):
    kind, k, radius, divisor = case
    table = weighted_utilities(kind, k, radius, divisor, empty)
    agreement = NeighborAgreement(
        gains=GAIN_CHOICES[kind], divisor=divisor, radius=radius, weights=weigh
    )
    found = fit(agreement, k, empty=empty, semivalue=semivalue)
    truth = block_values(table, (5, 2), semivalue, semivalue)
    np.testing.assert_allclose(found.values, truth, atol=1e-12)
    assert found.score == pytest.approx(table[-1, -1], abs=1e-12)
    assert found.baseline == pytest.approx(table[-1, 0], abs=1e-12)
    with_label = np.hstack([np.zeros_like(table), table])
    truth = block_values(with_label, (5, 3), semivalue, semivalue)
    found = fit(agreement, k, empty=empty, semivalue=semivalue, value_labels=True)
    np.testing.assert_allclose(found.values, truth, atol=1e-12)
    game = KNNGame(X, Y, X_VAL, Y_VAL, n_neighbors=k, scoring=agreement, scale=None, empty=empty)
    for rows in (0b00110, 0b11111):
        members = np.array([bool(rows >> row & 1) for row in range(5)])
        assert game.value(members, np.ones(2, dtype=bool)) == pytest.approx(table[rows, -1])


def brier_utilities(labels, asked_labels, k, empty):
    """Minus the Brier score of every coalition; the frequencies in y replace missing votes."""
    classes, table = np.unique(labels), np.zeros((32, 4))
    one_hot = (np.array(labels)[:, None] == classes).astype(float)
    for S in subsets(range(5)):
        for F in subsets(range(2)):
            if empty == "zero" and not (S and F):
                continue
            for asked, label in zip(X_VAL, asked_labels, strict=True):
                distances = ((X - asked)[:, list(F)] ** 2).sum(axis=1)
                errors = []
                for order in permutations(S):
                    nearest = sorted(order, key=lambda row: distances[row])[:k]
                    missing = (k - len(nearest)) * one_hot.mean(axis=0)
                    shares = (one_hot[nearest].sum(axis=0) + missing) / k
                    errors.append(((shares - (classes == label)) ** 2).sum())
                # As in scikit-learn, half of it for two classes.
                scale = len(asked_labels) * (2 if len(classes) == 2 else 1)
                table[number(S), number(F)] -= np.mean(errors) / scale
    return table


@pytest.mark.parametrize(("semivalue", "empty"), [(Shapley(), "zero"), (LeaveOneOut(), "prior")])
@pytest.mark.parametrize(("labels", "k"), [("abcab", 2), ("abcab", 9), ("abbab", 3)])
def test_values_for_the_brier_score_are_those_of_enumeration(labels, k, empty, semivalue):
    labels, asked = list(labels), ["a", "a", labels[2]]
    table = brier_utilities(labels, asked, k, empty)
    settings = {"scoring": "neg_brier_score", "scale": None, "empty": empty}
    given = {"X": X, "y": labels, "X_val": X_VAL, "y_val": asked}
    found = KNNValuer(k, semivalue=semivalue, **settings).fit(**given).valuation_
    truth = block_values(table, (5, 2), semivalue, semivalue)
    np.testing.assert_allclose(found.values, truth, atol=1e-12)
    assert found.score == pytest.approx(table[-1, -1], abs=1e-12)
    assert found.baseline == pytest.approx(table[-1, 0], abs=1e-12)
    game = KNNGame(**given, n_neighbors=k, **settings)
    by_game = value_game(game, game.shape, semivalue=semivalue, estimator="exact")
    np.testing.assert_allclose(by_game.values, truth, atol=1e-12)


def test_labels_as_players_for_the_brier_score_are_those_of_enumeration():
    table = brier_utilities(Y, Y_VAL, 3, "prior")
    # Rows without labels predict what no rows predict.
    with_label = np.hstack([np.full_like(table, table[0, 0]), table])
    truth = block_values(with_label, (5, 3), Shapley(), Shapley())
    found = fit("neg_brier_score", 3, value_labels=True)
    np.testing.assert_allclose(found.values, truth, atol=1e-12)


def test_certain_soft_labels_are_labels():
    certain = np.eye(3)[[CLASSES.index(label) for label in Y]]
    found = fit(NeighborAgreement(gains=certain), 2)
    np.testing.assert_allclose(found.values, fit(None, 2).values, atol=1e-12)
    assert found.provenance.problem_spec["gains_sha256"]
    other = fit(NeighborAgreement(gains=SOFT), 2).provenance.problem_spec
    assert other["gains_sha256"] != found.provenance.problem_spec["gains_sha256"]


def test_soft_labels_follow_their_rows_in_cross_validation():
    rng = np.random.default_rng(4)
    table, labels = rng.integers(0, 4, (30, 2)).astype(float), rng.integers(0, 2, 30)
    gains = {(0, 0): 2.0, (1, 0): -1.0, (1, 1): 0.5}
    rows = np.array([[gains.get((vote, label), 0.0) for label in (0, 1)] for vote in labels])
    one, other = (
        KNNValuer(3, scoring=NeighborAgreement(gains=each)).fit(table, labels).valuation_
        for each in (gains, rows)
    )
    np.testing.assert_allclose(one.values, other.values, atol=1e-12)


def test_gains_of_one_are_plain_agreement():
    for balanced, name in ((False, "neighbor_agreement"), (True, "balanced_neighbor_agreement")):
        settings = {"sampler": PermutationSampler(2), "n_passes": 2, "random_state": 0}
        plain, object_ = fit(name, 2, **settings), fit(NeighborAgreement(balanced), 2, **settings)
        gains = fit(NeighborAgreement(balanced, MATCHES), 2, **settings)
        np.testing.assert_array_equal(object_.values, plain.values)
        np.testing.assert_allclose(gains.values, plain.values, rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(gains.sampling_se, plain.sampling_se, rtol=1e-12, atol=1e-15)
        assert object_.provenance.problem_spec == plain.provenance.problem_spec
        assert gains.provenance.problem_spec != plain.provenance.problem_spec


@pytest.mark.parametrize("ranking", [None, BinnedRanks()])
def test_groups_of_a_column_have_equal_weights(ranking):
    rng = np.random.default_rng(5)
    table, labels = rng.integers(0, 4, (40, 2)).astype(float), rng.integers(0, 2, 40)
    asked, right = rng.integers(0, 4, (30, 2)).astype(float), rng.integers(0, 2, 30)
    asked[:, 1] = np.repeat([0.0, 1.0, np.nan], [20, 7, 3])
    settings = {"scale": None, "ranking": ranking}

    def value(scoring, rows):
        valuer = KNNValuer(3, scoring=scoring, **settings)
        return valuer.fit(table, labels, X_val=asked[rows], y_val=right[rows]).valuation_

    found = value(NeighborAgreement(balanced="x1"), slice(None))
    alone = [value(None, rows) for rows in (slice(0, 20), slice(20, 27), slice(27, 30))]
    np.testing.assert_allclose(found.values, np.mean([v.values for v in alone], 0), atol=1e-9)
    # A validation error is within groups, as for classes.
    squares = sum(v.validation_se**2 for v in alone) / 9
    assert np.median(found.validation_se**2 / squares) == pytest.approx(1.0, rel=0.5)
    assert found.provenance.problem_spec["balanced"] == "x1"
    most = int(labels.mean() > 0.5)
    shares = [np.mean(right[rows] == most) for rows in (slice(0, 20), slice(20, 27), slice(27, 30))]
    assert found.scores.majority == pytest.approx(np.mean(shares))


def test_gains_are_saved_with_a_valuation(tmp_path):
    agreement = NeighborAgreement(gains=GAINS, divisor="n_voters")
    fit(agreement, 2).save(tmp_path / "values")
    found = load(tmp_path / "values")
    spec = found.provenance.problem_spec
    expected = [[GAINS[vote, label] for label in CLASSES] for vote in CLASSES]
    assert (spec["gains"], spec["divisor"]) == (expected, "n_voters")
    assert found.scores.name == "neighbor gain"
    assert "majority vote" in found.scores.sentence


@pytest.mark.parametrize("kind", ["gains", "soft", "brier"])
def test_owners_as_players_have_the_same_utilities(kind):
    from cellworth.payouts.owner_players import OwnerGame

    score, truth = "neg_brier_score", brier_utilities(Y, Y_VAL, 3, "prior")
    if kind != "brier":
        score = NeighborAgreement(gains=GAIN_CHOICES[kind], divisor="n_voters")
        truth = utilities(kind, 3, "n_voters", "prior")
    game = KNNGame(X, Y, X_VAL, Y_VAL, n_neighbors=3, scoring=score, scale=None)
    owners = Owners(X).assign("first", rows=slice(0, 2)).assign("second", rows=slice(2, 5))
    players = OwnerGame(game, owners)
    weighted = KNNGame(X, Y, X_VAL, Y_VAL, scoring=NeighborAgreement(weights=weigh))
    with pytest.raises(ValueError, match="leave radius and weights out"):
        OwnerGame(weighted, owners)
    first, cells = np.array([True, False]), np.ones(1, dtype=bool)
    for members, rows in ((first, 0b00011), (~first, 0b11100), (first | True, 0b11111)):
        assert players.value(members, cells) == pytest.approx(truth[rows, -1], abs=1e-12)
        assert players.value(members, ~cells) == pytest.approx(truth[rows, 0], abs=1e-12)


@pytest.mark.parametrize(
    ("gains", "message"),
    [
        ({("a", "z"): 1}, "gains have the label 'z', which is not in y"),
        ({"a": 1}, "got the key 'a'"),
        ({("a", "a"): float("nan")}, "give a finite number"),
        ([[1, 0], [0, 1]], r"numbers of shape \(n_rows, n_classes\) = \(5, 3\), got \[\[1, 0"),
        (np.full((5, 3), np.nan), "gains must be finite numbers"),
        (pd.DataFrame(SOFT, columns=["a", "c", "b"]), "gains must have the columns"),
    ],
)
def test_wrong_gains_are_named(gains, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fit(NeighborAgreement(gains=gains), 2)


def test_what_gains_cannot_do_is_said():
    with pytest.raises(ValueError, match="divisor must be 'n_neighbors' or 'n_voters', got 'K'"):
        NeighborAgreement(divisor="K")
    with pytest.raises(ValueError, match="radius must be a finite number from 0, got -1"):
        NeighborAgreement(radius=-1)
    with pytest.raises(TypeError, match="weights must be a function of distances, got 'distance'"):
        NeighborAgreement(weights="distance")
    with pytest.raises(ValueError, match="weights must return a finite number for every distance"):
        fit(NeighborAgreement(weights=lambda distances: 1 / distances), 2)
    with pytest.raises(ValueError, match="balanced='sex' must be the name of a column of X"):
        fit(NeighborAgreement(balanced="sex"), 2)
    with pytest.raises(TypeError, match="balanced must be True, False or the name of a column"):
        NeighborAgreement(balanced=2)
    for score in (NeighborAgreement(gains=GAINS), "neg_brier_score"):
        with pytest.raises(ValueError, match="this score needs exact ranks"):
            fit(score, 2, ranking=BinnedRanks())
