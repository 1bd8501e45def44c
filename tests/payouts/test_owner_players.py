"""Owners as players, against enumeration from the definition."""

from itertools import combinations
from math import factorial

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, r2_score
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, ModelValuer, Owners, ShardedTable
from cellworth.knn.knn_game import KNNGame
from cellworth.payouts import (
    Agreement,
    OwnerValuer,
    Policy,
    compare_sources,
    list_facts,
    split_revenue,
    verify_bundle,
)
from cellworth.payouts.neighbor_scores import NeighborScorer, PartyScorer
from cellworth.runtime import MaxTasks
from owned_cells import assign_cells

K = 3
N_ROWS = 16
TREE = DecisionTreeClassifier(max_depth=3, random_state=0)


def make_table(n_rows, seed, missing=0.1):
    """Integers with ties, missing values, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    cells = rng.integers(0, 7, (n_rows, 4)).astype(float)
    y = ((cells[:, 0] + cells[:, 1] > 6) ^ (rng.random(n_rows) < 0.1)).astype(int)
    cells[rng.random(cells.shape) < missing] = np.nan
    return pd.DataFrame(cells, columns=list("abcd")), y


X, Y = make_table(N_ROWS, seed=2)
X_VAL, Y_VAL = make_table(5, seed=1)
FULL, FULL_VAL = make_table(N_ROWS, 2, missing=0)[0], make_table(5, 1, missing=0)[0]
TARGET, TARGET_VAL = FULL["a"] + FULL["b"] / 3 + Y, FULL_VAL["a"] + FULL_VAL["b"] / 3 + Y_VAL


def make_masks(n_owners, *, free=0.1, shared=0.2, seed=0):
    """Irregular fragments: a cell has one owner, or none, or two."""
    rng = np.random.default_rng(seed)
    whose = rng.integers(0, n_owners, X.shape)
    whose[rng.random(X.shape) < free] = -1
    masks = [whose == owner for owner in range(n_owners)]
    masks[0] |= rng.random(X.shape) < shared
    return masks


def make_owners(table, masks, labels=()):
    owners = Owners(table, overlaps="equal")
    for number, cells in enumerate(masks):
        owners = assign_cells(owners, f"o{number}", cells)
    for name, rows in labels:
        owners = owners.assign(name, rows=rows, columns="(label)")
    return owners


def values_of(valuation):
    return dict(zip(valuation.row_labels.tolist(), valuation.values[:, 0].tolist(), strict=True))


def shapley(players, utility):
    """Return Shapley values from their definition."""
    known = {
        frozenset(some): utility(frozenset(some))
        for size in range(len(players) + 1)
        for some in combinations(players, size)
    }
    n, values = len(players), dict.fromkeys(players, 0.0)
    for some, worth in known.items():
        for player in some:
            gain = worth - known[some - {player}]
            size = len(some) - 1
            values[player] += factorial(size) * factorial(n - size - 1) / factorial(n) * gain
    return values


def fragments(masks):
    """Return the cells of each player, those without an owner included."""
    held = {f"o{number}": cells for number, cells in enumerate(masks)}
    free = ~np.any(masks, axis=0)
    return held | ({"unassigned": free} if free.any() else {})


def union(held, members):
    return np.any([held[name] for name in members], axis=0) if members else np.zeros(X.shape, bool)


def agreement(there, rows, table=X, y=Y):
    """Return the share of matching neighbors, a validation row and a training row at a time."""
    scores = []
    for query, label in zip(X_VAL.to_numpy(), Y_VAL, strict=True):
        distances = measure(query, there, rows, table)
        scores.append(sum(weight * (y[row] == label) for row, weight in vote(distances)) / K)
    return np.mean(scores)


def squared_error(there, rows):
    """Return minus the mean squared error of K targets; the mean stands for those that lack."""
    total, mean = 0.0, TARGET.mean()
    for query, target in zip(X_VAL.to_numpy(), TARGET_VAL, strict=True):
        distances = measure(query, there, rows, X)
        chosen = list(choose(distances))
        errors = [
            ((sum(TARGET[row] for row in some) + (K - len(some)) * mean) / K - target) ** 2
            for some in chosen
        ]
        total -= np.mean(errors)
    return total / len(TARGET_VAL)


def measure(query, there, rows, table):
    """Return squared distances; an absent or missing cell has the mean one of its column."""
    known = table.to_numpy()
    missing = 2 * np.nanvar(known, axis=0)
    found = {}
    for row in np.flatnonzero(rows):
        squares = (known[row] - query) ** 2
        squares[np.isnan(squares) | ~there[row]] = missing[np.isnan(squares) | ~there[row]]
        # Rounded, because sums in another order must tie, too.
        found[row] = round(float(squares.sum()), 9)
    return found


def choose(distances):
    """Yield all sets of K nearest rows, one for each choice among ties."""
    if len(distances) <= K:
        yield tuple(distances)
        return
    farthest = sorted(distances.values())[K - 1]
    nearer = [row for row, distance in distances.items() if distance < farthest]
    tied = [row for row, distance in distances.items() if distance == farthest]
    for some in combinations(tied, K - len(nearer)):
        yield (*nearer, *some)


def vote(distances):
    """Yield rows and the chance of each to be among the K nearest."""
    if len(distances) <= K:
        yield from dict.fromkeys(distances, 1.0).items()
        return
    farthest = sorted(distances.values())[K - 1]
    n_nearer = sum(distance < farthest for distance in distances.values())
    n_tied = sum(distance == farthest for distance in distances.values())
    for row, distance in distances.items():
        yield row, float(distance < farthest) or (distance == farthest) * (K - n_nearer) / n_tied


def test_neighbors_equal_enumeration_with_eight_irregular_owners():
    masks = make_masks(7)
    held = fragments(masks)
    assert len(held) == 8

    def utility(members):
        there = union(held, members)
        rows = there.any(axis=1)
        labels_alone = agreement(np.zeros_like(there), rows)
        return agreement(there, rows) - labels_alone

    owners = make_owners(X, masks)
    valuer = OwnerValuer(KNNValuer(K, scale=None), score="above baseline")
    valuer.fit(X, Y, X_val=X_VAL, y_val=Y_VAL, owners=owners)
    found, wanted = values_of(valuer.valuation_), shapley(list(held), utility)
    assert valuer.valuation_.status == "exact"
    assert found == pytest.approx(wanted, abs=1e-12)


def test_neighbors_of_a_numeric_target_equal_enumeration():
    masks = make_masks(2)
    held = fragments(masks)

    def utility(members):
        there = union(held, members)
        rows = there.any(axis=1)
        return squared_error(there, rows) - squared_error(np.zeros_like(there), rows)

    valuer = OwnerValuer(KNNValuer(K, scale=None))
    valuer.fit(X, TARGET, X_val=X_VAL, y_val=TARGET_VAL, owners=make_owners(X, masks))
    wanted = shapley(list(held), utility)
    assert values_of(valuer.valuation_) == pytest.approx(wanted, abs=1e-12)


def test_all_of_the_score_is_shared_by_default():
    masks = make_masks(4)
    held = fragments(masks)

    def utility(members):
        there = union(held, members)
        return agreement(there, there.any(axis=1))

    valuer = OwnerValuer(KNNValuer(K, scale=None))
    valuer.fit(X, Y, X_val=X_VAL, y_val=Y_VAL, owners=make_owners(X, masks))
    found, wanted = values_of(valuer.valuation_), shapley(list(held), utility)
    assert found == pytest.approx(wanted, abs=1e-12)
    assert valuer.valuation_.total == pytest.approx(valuer.valuation_.score, abs=1e-12)


def test_what_exceeds_the_baseline_is_shared_if_the_score_is_an_error():
    owners, data = make_owners(X, make_masks(2)), {"X_val": X_VAL, "y_val": TARGET_VAL}
    assert OwnerValuer(KNNValuer(K)).fit(X, TARGET, owners=owners, **data).valuation_.baseline < 0
    with pytest.raises(ValueError, match="score='whole' needs a score that is 0 without data"):
        OwnerValuer(KNNValuer(K), score="whole").fit(X, TARGET, owners=owners, **data)


# The third party holds a row of the second, too.
WHOLE_ROWS = [np.arange(N_ROWS) % 3 == party for party in range(3)]
WHOLE_ROWS[2][1] = True


@pytest.mark.parametrize("score", ["whole", "above baseline"])
def test_parties_of_whole_rows_equal_enumeration(score):
    masks = [np.repeat(rows[:, np.newaxis], 4, axis=1) for rows in WHOLE_ROWS]

    def utility(members):
        there = union(fragments(masks), members)
        alone = agreement(there & False, there.any(axis=1)) if score != "whole" else 0.0
        return agreement(there, there.any(axis=1)) - alone

    valuer = OwnerValuer(KNNValuer(K, scale=None), score=score)
    valuer.fit(X, Y, X_val=X_VAL, y_val=Y_VAL, owners=make_owners(X, masks))
    wanted = shapley(["o0", "o1", "o2"], utility)
    assert values_of(valuer.valuation_) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("scoring", [None, "neg_brier_score", "neg_mean_squared_error"])
def test_lists_of_nearest_rows_score_as_all_rows_do(scoring):
    y, y_val = (Y, Y_VAL) if scoring is None else (Y % 3, Y_VAL % 3)
    game = KNNGame(X.round(-1), y, X_VAL.round(-1), y_val, n_neighbors=K, scoring=scoring)
    sets = np.arange(N_ROWS) % 5
    lists = PartyScorer(game, np.eye(5, 6, dtype=bool), sets)
    rng = np.random.default_rng(0)
    for members in rng.random((20, 5)) < 0.5:
        rows = members[sets]
        cells = np.repeat(rows[:, np.newaxis], 4, axis=1)
        for with_cells in (True, False):
            wanted = NeighborScorer(game)(cells & with_cells, rows)
            found = lists.score_members(members, with_cells=with_cells)
            assert float(found) == pytest.approx(float(wanted), abs=1e-12)


def test_scores_of_parties_do_not_depend_on_the_coalition_before():
    game = KNNGame(X, Y, X_VAL, Y_VAL, n_neighbors=K)
    given = (game, np.eye(5, 6, dtype=bool), np.arange(N_ROWS) % 5)
    one = PartyScorer(*given)
    for members in np.tril(np.ones((5, 5), dtype=bool)):
        fresh = PartyScorer(*given).score_members(members, with_cells=True)
        assert float(one.score_members(members, with_cells=True)) == float(fresh)


def test_copies_of_rows_add_nothing():
    masks = [np.repeat(rows[:, np.newaxis], 4, axis=1) for rows in WHOLE_ROWS]
    copied = np.r_[np.arange(N_ROWS), np.flatnonzero(WHOLE_ROWS[0]), np.flatnonzero(WHOLE_ROWS[0])]
    more = [mask[copied] & (np.arange(len(copied)) < N_ROWS)[:, np.newaxis] for mask in masks]
    more[0][N_ROWS:] = True
    found = []
    for table, y, held in ((X, Y, masks), (X.iloc[copied], Y[copied], more)):
        owners = make_owners(table.reset_index(drop=True), held)
        valuer = OwnerValuer(KNNValuer(K, scale=None))
        data = {"X_val": X_VAL, "y_val": Y_VAL, "owners": owners}
        found.append(values_of(valuer.fit(table.reset_index(drop=True), y, **data).valuation_))
    assert found[0] == pytest.approx(found[1], abs=1e-12)


@pytest.mark.parametrize("irregular", [False, True])
def test_equal_rows_of_two_parties_are_shared(irregular):
    rows = np.r_[np.arange(8), np.arange(4)]
    table, y = X.iloc[rows].reset_index(drop=True), Y[rows]
    masks = [np.zeros((12, 4), dtype=bool) for _ in range(3)]
    for mask, held in zip(masks, (slice(0, 4), slice(4, 8), slice(8, 12)), strict=True):
        mask[held] = True
    if irregular:
        # The second party holds a cell of a row that the first and the third share.
        masks[0][0, 0], masks[1][0, 0] = False, True
    valuer = OwnerValuer(KNNValuer(K, scale=None))
    valuer.fit(table, y, X_val=X_VAL, y_val=Y_VAL, owners=make_owners(table, masks))
    apart, shared = masks, [mask[:8].copy() for mask in masks]
    shared[2][:4] = apart[2][8:]
    once = OwnerValuer(KNNValuer(K, scale=None))
    owners = make_owners(X[:8].reset_index(drop=True), shared)
    once.fit(X[:8], Y[:8], X_val=X_VAL, y_val=Y_VAL, owners=owners)
    assert values_of(valuer.valuation_) == pytest.approx(values_of(once.valuation_), abs=1e-12)


def test_rows_that_several_parties_handed_in_are_listed():
    rows = np.r_[np.arange(8), np.arange(2), 0]
    table, y = X.iloc[rows].reset_index(drop=True), Y[rows]
    owners = Owners(table).assign("ann", rows=slice(0, 8)).assign("bob", rows=slice(8, 11))
    valuer = OwnerValuer(KNNValuer(K)).fit(table, y, X_val=X_VAL, y_val=Y_VAL, owners=owners)
    (fact,) = list_facts(owners, valuer.valuation_)
    assert (fact.rows, fact.owners) == ((0, 1, 8, 9, 10), ("ann", "bob"))
    assert fact.sentence.startswith("5 rows equal rows of another owner (ids 0, 1, 8, 9, 10)")


def fitted_score(model, there, rows, *, columns=True):
    """Return the score of a model on the cells that are there; absent ones are column means."""
    is_class = isinstance(model, LogisticRegression | DecisionTreeClassifier)
    y, y_val = (Y, Y_VAL) if is_class else (TARGET.to_numpy(), TARGET_VAL.to_numpy())
    score = accuracy_score if is_class else r2_score
    used = [name for j, name in enumerate(FULL) if columns and there[rows, j].any()]
    if not rows.any() or not used or (is_class and len(set(y[rows])) == 1):
        if not is_class:
            return score(y_val, np.full(len(y_val), y[rows].mean() if rows.any() else y.mean()))
        counts = np.bincount(y[rows], minlength=2)
        best = np.flatnonzero(counts == counts.max())
        return np.mean([score(y_val, np.full(len(y_val), label)) for label in best])
    filled = FULL.where(there)[rows][used]
    filled = filled.fillna(filled.mean())
    return score(y_val, clone(model).fit(filled, y[rows]).predict(FULL_VAL[used]))


@pytest.mark.parametrize(
    ("model", "n_owners"),
    [
        (LogisticRegression(), 2),
        pytest.param(TREE, 5, marks=pytest.mark.slow),
    ],
)
def test_models_equal_enumeration_with_irregular_owners(model, n_owners):
    masks = make_masks(n_owners)
    held = fragments(masks)

    def utility(members):
        there = union(held, members)
        rows = there.any(axis=1)
        return fitted_score(model, there, rows) - fitted_score(model, there, rows, columns=False)

    valuer = OwnerValuer(ModelValuer(model, estimator="exact"), score="above baseline")
    valuer.fit(FULL, Y, X_val=FULL_VAL, y_val=Y_VAL, owners=make_owners(FULL, masks))
    wanted = shapley(list(held), utility)
    assert values_of(valuer.valuation_) == pytest.approx(wanted, abs=1e-12)


def test_a_regression_model_equals_enumeration():
    masks, model = make_masks(2), Ridge()
    held = fragments(masks)

    def utility(members):
        there = union(held, members)
        rows = there.any(axis=1)
        return fitted_score(model, there, rows) - fitted_score(model, there, rows, columns=False)

    valuer = OwnerValuer(ModelValuer(model, estimator="exact"), score="above baseline")
    valuer.fit(FULL, TARGET, X_val=FULL_VAL, y_val=TARGET_VAL, owners=make_owners(FULL, masks))
    wanted = shapley(list(held), utility)
    assert values_of(valuer.valuation_) == pytest.approx(wanted, abs=1e-12)


def test_owners_of_labels_are_players_and_all_of_the_score_is_shared():
    masks = make_masks(3, free=0, shared=0)
    north = np.arange(N_ROWS) < 15
    owners = make_owners(X, masks, [("o0", north), ("clinic", ~north)])

    def utility(members):
        there = union(fragments(masks), members & {"o0", "o1", "o2"})
        labels = north * ("o0" in members) | ~north * ("clinic" in members)
        rows = labels & there.any(axis=1)
        # Labels alone tell how frequent classes are.
        return agreement(there, rows) if rows.any() else agreement(there & False, labels)

    valuer = OwnerValuer(KNNValuer(K, scale=None), score="above baseline")
    valuation = valuer.fit(X, Y, X_val=X_VAL, y_val=Y_VAL, owners=owners).valuation_
    wanted = shapley(["o0", "o1", "o2", "clinic"], utility)
    assert values_of(valuation) == pytest.approx(wanted, abs=1e-12)
    assert valuation.total == pytest.approx(valuation.score, abs=1e-12)


def test_a_base_is_always_there_and_values_are_gains_over_it():
    masks = make_masks(4)
    held = fragments(masks)

    def utility(members):
        there = union(held, {"o2", *members})
        return agreement(there, there.any(axis=1))

    owners = make_owners(X, masks)
    valuer = OwnerValuer(KNNValuer(K, scale=None), base=["o2"])
    valuation = valuer.fit(X, Y, X_val=X_VAL, y_val=Y_VAL, owners=owners).valuation_
    wanted = shapley([name for name in held if name != "o2"], utility)
    assert values_of(valuation) == pytest.approx(wanted, abs=1e-12)
    assert valuation.baseline == pytest.approx(utility(frozenset()), abs=1e-12)


def test_a_buyer_sees_what_each_source_adds_with_an_interval_over_validation_rows():
    masks, data = make_masks(4, free=0), {"X_val": X_VAL, "y_val": Y_VAL}
    held, owners = fragments(masks), make_owners(X, masks)
    valuer = KNNValuer(K, scale=None)
    added = compare_sources(valuer, owners, X, Y, base=["o1"], **data)

    def score(*members):
        there = union(held, members)
        return agreement(there, there.any(axis=1))

    assert added.owners == ("o0", "o2", "o3")
    wanted = [score("o1", name) - score("o1") for name in added.owners]
    assert added.alone.tolist() == pytest.approx(wanted, abs=1e-12)
    assert added.shared.sum() == pytest.approx(score(*held) - score("o1"), abs=1e-12)
    shown = added.to_frame("pandas")
    assert (shown["alone_low"] < shown["alone"]).all()
    assert f"Base {score('o1'):.4f}, with all sources" in repr(added)


def test_the_error_of_a_gain_is_that_of_paired_validation_rows():
    X_many, y_many = make_table(400, seed=3)
    owners, data = make_owners(X, make_masks(2, free=0)), {"base": ["o0"]}
    draws = [
        compare_sources(KNNValuer(K), owners, X, Y, X_val=X_many[i::8], y_val=y_many[i::8], **data)
        for i in range(8)
    ]
    spread = np.std([draw.alone[0] for draw in draws], ddof=1)
    stated = np.sqrt(np.mean([draw.alone_se[0] ** 2 for draw in draws]))
    # The spread of eight draws has seven degrees of freedom: 99.9% within these bounds.
    assert 0.29 < spread / stated < 1.87


@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_owners_of_single_rows_or_columns_get_the_sums_of_their_cells(axis):
    table, y = X[:8], Y[:8]
    cells = KNNValuer(K).fit(table, y, X_val=X_VAL, y_val=Y_VAL).valuation_
    sums = getattr(cells, axis)()
    owners = Owners(table)
    for label in cells.row_labels if axis == "rows" else cells.column_labels:
        owners = owners.assign(f"o{label}", **{axis: [label]})
    valuer = OwnerValuer(KNNValuer(K), score="above baseline")
    players = valuer.fit(table, y, X_val=X_VAL, y_val=Y_VAL, owners=owners)
    found = values_of(players.valuation_)
    assert [found[name] for name in owners.names] == pytest.approx(sums.values.tolist(), abs=1e-12)
    order = [list(found).index(name) for name in owners.names]
    errors = players.valuation_.validation_se[order, 0].tolist()
    assert errors == pytest.approx(sums.validation_se.tolist(), rel=1e-5)
    assert players.valuation_.total == pytest.approx(cells.total, abs=1e-12)


def test_rectangles_have_the_utilities_of_the_game_of_blocks():
    rows, model = np.arange(N_ROWS) % 3, TREE
    data = {"X_val": FULL_VAL, "y_val": Y_VAL}
    blocks = ModelValuer(model, estimator="exact").fit(
        FULL, Y, row_groups=rows, column_groups=[0] * 4, **data
    )
    owners = Owners(FULL)
    for number in range(3):
        owners = owners.assign(f"o{number}", rows=rows == number)
    found = values_of(
        OwnerValuer(ModelValuer(model, estimator="exact"), score="above baseline")
        .fit(FULL, Y, owners=owners, **data)
        .valuation_
    )
    assert [found[name] for name in owners.names] == pytest.approx(
        blocks.values_[:, 0].tolist(), abs=1e-12
    )


def test_estimates_are_within_their_errors():
    owners, data = make_owners(X, make_masks(6, free=0)), {"X_val": X_VAL, "y_val": Y_VAL}
    exact = OwnerValuer(KNNValuer(K)).fit(X, Y, owners=owners, **data).valuation_
    short = OwnerValuer(KNNValuer(K), stop=MaxTasks(8), random_state=0)
    short = short.fit(X, Y, owners=owners, **data).valuation_
    assert (exact.status, short.status) == ("exact", "estimated")
    z = (short.values - exact.values) / short.sampling_se
    assert np.abs(z).max() < 4.5


def test_beyond_twelve_players_values_are_estimated():
    owners, data = make_owners(X, make_masks(13, free=0, shared=0)), {"X_val": X_VAL}
    valuer = OwnerValuer(KNNValuer(K), random_state=0)
    valuation = valuer.fit(X, Y, owners=owners, y_val=Y_VAL, **data).valuation_
    assert valuation.status == "estimated"
    assert (valuation.sampling_se > 0).all()
    assert valuation.total == pytest.approx(valuation.expected_total, abs=1e-12)


def test_names_and_the_order_of_assignment_do_not_matter():
    masks, data = make_masks(4), {"X_val": X_VAL, "y_val": Y_VAL}
    names = ["zoe", "ann", "eve", "bob"]
    one, other = Owners(X, overlaps="equal"), Owners(X, overlaps="equal")
    for name, cells in zip(names, masks, strict=True):
        one = assign_cells(one, name, cells)
    for name, cells in zip(names[::-1], masks[::-1], strict=True):
        other = assign_cells(other, name.upper(), cells)
    paid = []
    for owners in (one, other):
        valuation = OwnerValuer(KNNValuer(K)).fit(X, Y, owners=owners, **data).valuation_
        policy = Policy()
        payout = split_revenue(valuation, owners, amount="0.05", policy=policy)
        paid.append(dict(zip(map(str.upper, payout.owners), payout.amounts, strict=True)))
    assert paid[0] == paid[1]


def test_a_payout_to_players_is_agreed_saved_and_replayed(tmp_path):
    masks, data = make_masks(4, free=0), {"X": FULL, "y": Y, "X_val": FULL_VAL, "y_val": Y_VAL}
    owners = make_owners(FULL, masks)
    valuer = OwnerValuer(KNNValuer(K), random_state=0)
    policy = Policy()
    agreement = Agreement.draft(valuer, owners, policy, **data)
    agreement.save(tmp_path / "deal.toml")
    agreement = Agreement.from_toml(tmp_path / "deal.toml")
    valuation = valuer.fit(**data, owners=owners).valuation_
    payout = agreement.split(valuation, FULL, amount="100.00")
    assert sum(payout.amounts) == 100
    assert split_revenue(valuation, owners, amount="100.00").amounts == payout.amounts
    assert payout.statement("o1").to_dict()["cells"] == masks[1].sum()
    digest = payout.save(tmp_path / "bundle")
    given = {"data": data, "valuer": valuer, "digest": digest}
    assert repr(verify_bundle(tmp_path / "bundle", **given)).endswith("data, values agree")
    other = OwnerValuer(KNNValuer(K + 1), random_state=0)
    assert not verify_bundle(tmp_path / "bundle", data=data, valuer=other)
    # The same payout to owners who hold other cells does not follow from the agreement.
    moved = make_owners(FULL, [masks[1], masks[0], *masks[2:]])
    valuation = valuer.fit(**data, owners=moved).valuation_
    forged = split_revenue(
        valuation, moved, amount="100.00", policy=agreement.policy, agreement=agreement.text
    )
    forged.save(tmp_path / "forged")
    verdict = verify_bundle(tmp_path / "forged", data=data)
    assert "are not those in the agreement" in str(verdict.difference)


def test_mistakes_get_one_sentence(tmp_path):
    owners, data = make_owners(X, make_masks(2)), {"X_val": X_VAL, "y_val": Y_VAL}
    with pytest.raises(ValueError, match="base must name owners, got 'zoe'; owners are o0, o1"):
        OwnerValuer(KNNValuer(K), base=["zoe"]).fit(X, Y, owners=owners, **data)
    with pytest.raises(ValueError, match="base must leave an owner to be valued"):
        OwnerValuer(KNNValuer(K), base=["o0", "o1"]).fit(X, Y, owners=owners, **data)
    with pytest.raises(TypeError, match="valuer must be a KNNValuer or a ModelValuer"):
        OwnerValuer(LogisticRegression()).fit(X, Y, owners=owners, **data)
    path = tmp_path / "table.parquet"
    pq.write_table(pa.table({"x0": [1.0, 2.0], "y": [0, 1]}), path)
    with pytest.raises(TypeError, match="in memory, got a ShardedTable; use ShardedKNNValuer"):
        OwnerValuer(KNNValuer(K)).fit(
            ShardedTable.from_files(path, target="y"), None, owners=owners
        )
    with pytest.raises(TypeError, match="owners must be Owners, got NoneType"):
        OwnerValuer(KNNValuer(K)).fit(X, Y, **data)
    valuation = OwnerValuer(KNNValuer(K)).fit(X, Y, owners=owners, **data).valuation_
    with pytest.raises(ValueError, match="the values are of owners, but the policy says"):
        split_revenue(valuation, owners, amount="1.00", policy=Policy(game="cells"))
    with pytest.raises(ValueError, match="base must name the owners whose cells the buyer has"):
        compare_sources(KNNValuer(K), owners, X, Y, base=[], **data)
    cells = KNNValuer(K).fit(X, Y, **data).valuation_
    with pytest.raises(ValueError, match="the values are of cells, but the policy says"):
        split_revenue(cells, owners, amount="1.00", policy=Policy())


def test_cross_validation_and_monte_carlo_models_have_owners_as_players():
    masks = make_masks(3, free=0)
    for valuer in (KNNValuer(K), ModelValuer(TREE)):
        players = OwnerValuer(valuer).fit(FULL, Y, cv=3, owners=make_owners(FULL, masks))
        valuation = players.valuation_
        assert valuation.total == pytest.approx(valuation.expected_total, abs=1e-12)
        assert (valuation.validation_se > 0).all()
