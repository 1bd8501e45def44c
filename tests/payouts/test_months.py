"""Month after month: each bundle continues the one before, and nothing can be slipped in."""

import json
import shutil
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cellworth import KNNValuer, Owners
from cellworth.payouts import (
    Agreement,
    Policy,
    ValidationDraw,
    split_revenue,
    verify_bundle,
)
from forging import rehashed

START = datetime(2025, 1, 31, 12, tzinfo=UTC)
MONTH = timedelta(days=30)
VALUER = KNNValuer(1, random_state=0)
POLICY = Policy(game="cells", negative="carry")
# eve's labels are wrong, so her rows have a negative value.
X = pd.DataFrame({"a": [0.0, 1.0, 9.0, 8.0, 0.5, 8.5], "b": [1.0, 2.0, 9.0, 9.0, 1.0, 9.0]})
Y = np.array([0, 0, 1, 1, 1, 0])
DATA = {"X": X, "y": Y, "X_val": X[:4] + 0.1, "y_val": Y[:4]}
OWNERS = Owners(X).assign("ann", rows=[0, 1]).assign("bob", rows=[2, 3]).assign("eve", rows=[4, 5])


def first_agreement(**changed):
    given = {"created": START - MONTH, "contract": "C-7"} | changed
    return Agreement.draft(VALUER, OWNERS, POLICY, **given, **DATA)


@pytest.fixture(scope="module")
def valuation():
    return VALUER.fit(**DATA).valuation_


@pytest.fixture
def months(tmp_path, valuation):
    """Three months under one agreement and an amendment."""
    agreement, last, folders = first_agreement(), None, []
    for month in range(3):
        if month == 2:
            agreement = first_agreement(amends=agreement, created=START + MONTH)
        last, carried = tmp_path / f"m{month}", last
        payout = agreement.split(valuation, X, amount="100.00", carried=carried)
        payout.save(last, time=START + month * MONTH)
        folders.append(last)
    return folders


def test_a_chain_verifies_and_shortfalls_add_up(months, valuation):
    verdict = verify_bundle(months[-1], data=DATA, valuer=VALUER)
    assert verdict.checked == ("files", "split", "agreement", "months before", "data", "values")
    carried = [json.loads((one / "payout.json").read_bytes())["carried"]["eve"] for one in months]
    alone = split_revenue(valuation, OWNERS, amount="100", policy=POLICY).values[2]
    assert alone < 0
    assert np.allclose(carried, alone * np.array([1, 2, 3]), rtol=1e-12)


def test_a_month_that_is_gone_is_said_and_one_that_was_made_anew_is_another(months, valuation):
    shutil.rmtree(months[0])
    assert verify_bundle(months[2]).left[-1] == "the month before is not in this folder"
    first_agreement().split(valuation, X, amount="900.00").save(months[0], time=START)
    assert verify_bundle(months[2]).left[-1] == "the month before is not in this folder"


def test_two_successors_of_one_month_are_reported(months, valuation):
    agreement = Agreement.from_toml(months[1] / "agreement.toml")
    again = agreement.split(valuation, X, amount="99.00", carried=months[0])
    again.save(months[1].with_name("twin"), time=START + MONTH)
    assert verify_bundle(months[2]).difference == "m1 and twin continue the same month."


def test_a_damaged_month_before_is_reported(months):
    changed(months[0], amount="900.00")
    # Its digest is another one.
    assert verify_bundle(months[2]).left[-1] == "the month before is not in this folder"
    payout = months[1] / "payout.json"
    payout.write_text(payout.read_text().replace("100.00", "900.00"))
    assert "payout.json is not the file that was saved" in verify_bundle(months[2]).difference


def test_shortfalls_cannot_be_dropped(months, valuation):
    shutil.rmtree(months[2])
    agreement = Agreement.from_toml(months[1] / "agreement.toml")
    payout = agreement.split(valuation, X, amount="100.00", carried=months[1])
    forgiven = split_revenue(
        valuation, OWNERS, amount="100.00", policy=POLICY, agreement=agreement.text
    )
    object.__setattr__(forgiven, "previous", payout.previous)
    forgiven.save(months[2], time=START + 2 * MONTH)
    assert verify_bundle(months[2]).difference.startswith("what m2 brought forward should be {'eve")


def test_another_contract_is_no_amendment(months, valuation):
    other = first_agreement(contract="D-1")
    shutil.rmtree(months[1])
    payout = other.split(valuation, X, amount="100.00", carried=months[0])
    payout.save(months[1], time=START + MONTH)
    assert "the agreement of m1 is no amendment" in verify_bundle(months[1]).difference
    shutil.rmtree(months[1])
    bare = split_revenue(valuation, OWNERS, amount="1.00", policy=POLICY, carried=months[0])
    bare.save(months[1], time=START + MONTH)
    assert verify_bundle(months[1]).difference == "only one of m0 and m1 has an agreement."


def changed(folder, **figures):
    plain = json.loads((folder / "payout.json").read_bytes()) | figures
    (folder / "payout.json").write_text(json.dumps(plain, indent=1))
    rehashed(folder)


def test_who_leaves_keeps_its_shortfall(tmp_path, valuation):
    first = split_revenue(valuation, OWNERS, amount="100.00", policy=POLICY)
    first.save(tmp_path / "one")
    without = Owners(X).assign("ann", rows=[0, 1]).assign("bob", rows=[2, 3])
    second = split_revenue(
        valuation, without, amount="100.00", policy=POLICY, carried=tmp_path / "one"
    )
    second.save(tmp_path / "two")
    assert second.carried == first.carried
    third = split_revenue(
        valuation, OWNERS, amount="100.00", policy=POLICY, carried=tmp_path / "two"
    )
    assert third.values[2] == pytest.approx(2 * first.values[2], rel=1e-12)
    assert "months before" in verify_bundle(tmp_path / "two").checked


def test_a_damaged_bundle_is_not_continued(months, valuation):
    payout = months[0] / "payout.json"
    payout.write_bytes(payout.read_bytes().replace(b"100.00", b"900.00"))
    with pytest.raises(
        ValueError, match=r"a bundle as it was saved, got .*: payout\.json is not the"
    ):
        split_revenue(valuation, OWNERS, amount="1", policy=POLICY, carried=months[0])
    with pytest.raises(ValueError, match="carried must be the folder of a bundle"):
        split_revenue(valuation, OWNERS, amount="1", policy=POLICY, carried=months[0] / "no")


DRAW = ValidationDraw(0.3, "any text")


def delivered(n_rows):
    rng = np.random.default_rng(5)
    table = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    table.index = [f"p{i}" for i in range(200)]
    return table[:n_rows], (table["a"] > 0).astype(int)[:n_rows]


def test_the_draw_takes_its_share_and_later_rows_change_nothing():
    ids = [f"r{i}" for i in range(20_000)]
    drawn = DRAW.select(ids)
    # 4.5 standard errors.
    assert abs(drawn.mean() - 0.3) < 4.5 * np.sqrt(0.3 * 0.7 / len(ids))
    assert np.array_equal(DRAW.select(ids[::-1])[::-1], drawn)
    other = ValidationDraw(0.3, "other text").select(ids)
    assert abs((drawn & other).mean() - 0.09) < 4.5 * np.sqrt(0.09 * 0.91 / len(ids))


@pytest.mark.parametrize("kind", [lambda X: X, lambda X: pl.from_pandas(X), np.asarray])
def test_each_row_is_on_one_side(kind):
    X, y = delivered(60)
    data = DRAW.split(kind(X), kind(y))
    ids = X.index if kind(X) is X else range(60)
    drawn = DRAW.select(ids)
    assert list(data["y_val"]) == y[drawn].tolist()
    assert list(data["y"]) == y[~drawn].tolist()
    train, val = data["X"], data["X_val"]
    assert DRAW.difference(train, val) is DRAW.difference(train, None) is None
    assert DRAW.difference(val, val).startswith("X has rows that")
    assert DRAW.difference(train, train).startswith("X_val has rows that")


def test_an_agreed_draw_is_kept_for_tables_that_come_later(tmp_path):
    data = DRAW.split(*delivered(60))
    owners = Owners(data["X"]).assign("ann", columns="a").assign("bob", columns="b")
    agreement = Agreement.draft(VALUER, owners, POLICY, validation=DRAW, **data)
    agreement.save(tmp_path / "a.toml")
    agreement = Agreement.from_toml(tmp_path / "a.toml")
    assert agreement.validation == DRAW
    later = agreement.validation.split(*delivered(120))
    valuation = VALUER.fit(**later).valuation_
    agreement.split(valuation, later["X"], amount="10.00").save(tmp_path / "b")
    assert verify_bundle(tmp_path / "b", data=later, valuer=VALUER)
    # Validation rows that the rule draws, but not all of them: another hash.
    fewer = later | {"X_val": later["X_val"][:-1], "y_val": later["y_val"][:-1]}
    assert "validation is not the data" in verify_bundle(tmp_path / "b", data=fewer).difference
    everything, _ = delivered(60)
    drawn = "X has rows that the agreed rule draws for validation"
    assert agreement.list_differences_of_table(everything) == [drawn]
    # Nor are validation rows left out, so that folds take their place.
    folded = VALUER.fit(data["X"], data["y"]).valuation_
    differences = agreement.list_differences(folded)
    assert any("but 'drawn' was agreed on" in one for one in differences)


def of_parties(X, names):
    """Each row of the table is of a party; so are the copies that one of them adds."""
    return X.assign(source=[names[i % len(names)] for i in range(len(X))])


def test_who_pads_a_table_or_takes_new_names_differs_from_the_agreement():
    X, y = delivered(160)
    X = of_parties(X, ["ann", "ann", "bo", "cy"])
    data = DRAW.split(X[:80], y[:80])
    owners = Owners.from_column(data["X"], "source")
    data |= {name: owners.features(data[name]) for name in ("X", "X_val")}
    agreement = Agreement.draft(VALUER, owners, POLICY, validation=DRAW, **data)
    assert set(agreement.parties) == {"ann", "bo", "cy"}

    def differences(table):
        data = DRAW.split(table, [0] * len(table))
        return agreement.list_differences_of_table(data["X"], data["X_val"])

    assert differences(X[:80]) == differences(X) == []
    padding = [X[X["source"] == "bo"].rename(lambda name, k=k: f"{name} {k}") for k in range(9)]
    (found,) = differences(pd.concat([X, *padding]))
    assert "'bo' has " in found
    assert "validation rows, but agreed on 2" in found
    (found,) = differences(of_parties(X, ["ann", "bo", "bo 2", "bo 3"]))
    assert found == "source names 'bo 2', 'bo 3', which are no parties of the agreement"
    (found,) = differences(of_parties(X, ["ann", "bo", "cy", "dee"]))
    assert found == "source names 'dee', which is no party of the agreement"
    # Ids that were chosen so that all rows are drawn.
    names = (f"bo{i}" for i in range(10_000))
    chosen = (name for name in names if DRAW.select([name])[0])
    ids = [next(chosen) if X["source"].iloc[i] == "bo" else f"p{i}" for i in range(160)]
    assert len(differences(X.set_axis(ids))) == 1


def test_parties_whose_rows_are_chosen_by_keys_are_compared():
    X, y = delivered(160)
    X = X.assign(region=["north", "north", "south", "west"] * 40)
    data = DRAW.split(X[:80], y[:80])
    owners = Owners(data["X"], keys=["region"])
    for column in ("a", "b"):
        north = {"column": "region", "is": "north"}
        owners = owners.assign("ann", rows=north, columns=column)
        # Values that no validation row may have.
        others = {"column": "region", "is": ["south", "west"]}
        owners = owners.assign(f"bo {column}", rows=others, columns=column)
    agreed = data | {name: owners.features(data[name]) for name in ("X", "X_val")}
    agreement = Agreement.draft(VALUER, owners, POLICY, validation=DRAW, **agreed)
    n_north = (data["X"]["region"] == "north").sum()
    assert agreement.parties["ann"] == n_north / len(data["X"])
    assert agreement.parties["bo a"] == agreement.parties["bo b"] == 1 - agreement.parties["ann"]

    def differences(table):
        data = DRAW.split(table, [0] * len(table))
        assert agreement.list_differences_of_table(data["X"]) == []
        return agreement.list_differences_of_table(data["X"], data["X_val"])

    assert differences(X) == differences(X[X["region"] != "west"]) == []
    padding = [X[X["region"] == "north"].rename(lambda name, k=k: f"{name} {k}") for k in range(9)]
    (found,) = differences(pd.concat([X, *padding]))
    assert found.startswith("'ann' has ")
    # Owners of columns have all rows of any table.
    halves = Owners(agreed["X"]).assign("ann", columns="a").assign("bob", columns="b")
    agreement = Agreement.draft(VALUER, halves, POLICY, validation=DRAW, **agreed)
    assert agreement.parties == {}


def test_honest_parties_are_hardly_ever_refused():
    X, y = delivered(200)
    X, y = of_parties(pd.concat([X] * 3), [f"party {i}" for i in range(20)]), [0, 1] * 300
    draw, n_refused = ValidationDraw(0.5, "half of all"), 0
    for month in range(20):
        delivery = draw.split(X.set_axis([f"{month} {i}" for i in range(600)]), y)
        owners = Owners.from_column(delivery["X"], "source")
        data = delivery | {name: owners.features(delivery[name]) for name in ("X", "X_val")}
        agreement = Agreement.draft(VALUER, owners, POLICY, validation=draw, **data)
        found = agreement.list_differences_of_table(delivery["X"], delivery["X_val"])
        n_refused += len(found) > 0
    # Of parties that draw at random, one delivery of 10,000.
    assert n_refused == 0


def test_validation_rows_of_ones_own_choice_are_rejected(tmp_path):
    data = DRAW.split(*delivered(60))
    owners = Owners(data["X"]).assign("ann")
    agreement = Agreement.draft(VALUER, owners, POLICY, validation=DRAW, **data)
    chosen = data | {"X_val": data["X"][:9] + 0.1, "y_val": data["y"][:9]}
    payout = agreement.split(VALUER.fit(**chosen).valuation_, data["X"], amount="10.00")
    payout.save(tmp_path / "b")
    verdict = verify_bundle(tmp_path / "b", data=chosen)
    assert verdict.difference.endswith("X_val has rows that the agreed rule does not draw.")
    with pytest.raises(ValueError, match="X_val has rows that the agreed rule does not draw"):
        Agreement.draft(VALUER, owners, POLICY, validation=DRAW, **chosen)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ((1.0, "x"), "share must be above 0 and below 1, got 1.0"),
        (("1", "x"), "share must be a number such as 0.25, got '1'"),
        ((0.5, 7), "seed must be text, got 7"),
    ],
)
def test_a_mistake_in_a_draw_gets_one_sentence(given, said):
    with pytest.raises((TypeError, ValueError), match=said):
        ValidationDraw(*given)


def test_a_draw_leaves_rows_on_both_sides():
    with pytest.raises(ValueError, match="there are no validation rows among 2; deliver more"):
        ValidationDraw(1e-9, "x").split([[1.0], [2.0]], [0, 1])
