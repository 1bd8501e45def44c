"""The gate: copies and bad cells are found, honest tables pass."""

import pickle
import time
import warnings
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.impute import SimpleImputer
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, ModelValuer, Owners, load, value_game
from cellworth.data import Blocks
from cellworth.data.tables import HashedRows, Table
from cellworth.games import TableGame
from cellworth.payouts import Policy, check_owners, split_revenue
from cellworth.payouts.copies import Cells, compare_with_reserve
from cellworth.payouts.fraud_checks import _correlate_ranks, _shuffle_cells

DATA = Path(__file__).parents[2].parent / "shared" / "data"
WINE, LABELS = load_wine(return_X_y=True, as_frame=True)
ORDER = np.random.default_rng(0).permutation(len(WINE))
WINE, LABELS = (part.iloc[ORDER].reset_index(drop=True) for part in (WINE, LABELS))


def rows_of(table, whose):
    owners = Owners(table)
    for name in dict.fromkeys(whose):
        owners = owners.assign(str(name), rows=np.asarray(whose) == name)
    return owners


def column_types(findings):
    return [finding.kind for finding in findings]


def with_copies(table, copies):
    both = pd.concat([table, copies], ignore_index=True)
    return rows_of(both, ["source"] * len(table) + ["copier"] * len(copies))


def test_wine_in_halves_passes():
    for seed in range(20):
        half = np.random.default_rng(seed).permutation(len(WINE)) % 2
        assert check_owners(rows_of(WINE, half)) == []
    by_columns = Owners(WINE).assign("a", columns=WINE.columns[:6])
    assert check_owners(by_columns.assign("b", columns=WINE.columns[6:])) == []


@pytest.mark.parametrize("jitter", [0.0, 1e-9, 0.005])
@pytest.mark.parametrize("share", [0.15, 1.0])
def test_copied_rows_are_found_exact_or_jittered(jitter, share):
    rng = np.random.default_rng(1)
    source, honest = WINE[:89], WINE[89:]
    n_copied = int(share * len(honest))
    copies = honest.copy()
    noise = rng.normal(size=(n_copied, WINE.shape[1])) * jitter * WINE.std().to_numpy()
    copies.iloc[:n_copied] = source.iloc[:n_copied].to_numpy() + noise
    (finding,) = check_owners(with_copies(source, copies))
    assert finding.kind == "copied rows"
    assert set(finding.owners) == {"source", "copier"}
    assert finding.figure == pytest.approx(n_copied / 89, abs=0.03)
    assert f"{finding.figure:.1%} of the rows" in finding.sentence


def test_who_copies_every_row_twice_is_found():
    source = WINE[:60]
    for copied in (source, source[:20]):
        found = check_owners(with_copies(source, pd.concat([copied] * 2)))
        assert column_types(found) == ["repeated rows", "copied rows"]


def people(n_rows, seed=0):
    """People with ages, hours and three categories."""
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n_rows),
            "hours": rng.integers(10, 70, n_rows),
            "work": rng.choice(list("abcdef"), n_rows),
            "school": rng.choice(list("uvwxyz"), n_rows),
            "married": rng.choice(["yes", "no"], n_rows),
        }
    )


def jittered(table, seed=0):
    rng = np.random.default_rng(seed)
    steps = {
        "age": rng.choice([-2, -1, 1, 2], len(table)),
        "hours": rng.integers(-3, 4, len(table)),
    }
    return table.assign(**{name: table[name] + step for name, step in steps.items()})


@pytest.mark.parametrize("change", [lambda rows, _: rows, jittered])
@pytest.mark.parametrize("n_copies", [2, 3, 5])
def test_rows_handed_in_several_times_are_found(change, n_copies):
    table = people(400)
    again = [change(table[:100], seed) for seed in range(n_copies - 1)]
    owners = rows_of(
        pd.concat([table, *again], ignore_index=True),
        np.repeat(list("abcda"), [100, 100, 100, 100, 100 * (n_copies - 1)]),
    )
    (finding,) = check_owners(owners)
    assert (finding.kind, finding.owners) == ("repeated rows", ("a",))
    assert finding.figure > 0.5


def test_twins_with_small_steps_are_found_between_owners():
    table = people(400)
    table.loc[100:199] = jittered(table[:100]).to_numpy()
    (finding,) = check_owners(rows_of(table.infer_objects(), np.repeat(list("abcd"), 100)))
    assert finding.kind == "copied rows"
    assert set(finding.owners) == {"a", "b"}
    assert finding.figure > 0.5


@pytest.mark.parametrize("change", [lambda rows: rows, jittered])
def test_an_owner_of_validation_rows_is_found_from_fit_to_split(change):
    table, validation = people(300), people(100, seed=1)
    X = pd.concat([table, change(validation)], ignore_index=True)
    y, y_val = (rows["age"] > 45 for rows in (X, validation))
    owners = rows_of(X, np.repeat(list("abcd"), 100))
    (finding,) = check_owners(owners, X_val=validation)
    assert (finding.kind, finding.owners) == ("leaked rows", ("d",))
    valuer = KNNValuer(3, n_passes=1, random_state=0)
    with (
        pytest.warns(UserWarning, match="validation rows are also in X")
        if (change(validation) is validation)
        else nullcontext()
    ):
        valuation = valuer.fit(X, y, X_val=validation, y_val=y_val).valuation_
    with pytest.raises(ValueError, match="of the rows of d have a twin among the validation rows"):
        split_revenue(valuation, owners, amount="1.00", policy=Policy(gate="refuse"))


def test_a_loaded_valuation_finds_equal_validation_rows_and_says_what_it_cannot(tmp_path):
    validation = people(100, seed=1)
    honest = people(300)
    leaky = pd.concat([honest[:200], validation], ignore_index=True)
    data = {"X_val": validation, "y_val": validation["age"] > 45}
    for table, kinds in ((honest, []), (leaky, ["leaked rows"])):
        owners = rows_of(table, np.repeat(list("abc"), 100))
        folder = tmp_path / str(len(kinds))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            KNNValuer(3, n_passes=1).fit(table, table["age"] > 45, **data).valuation_.save(folder)
        *found, note = check_owners(owners, load(folder))
        assert column_types(found) == kinds
        assert note.kind == "not checked"
        assert "equal, not for changed ones" in note.sentence
        assert column_types(check_owners(owners, load(folder), X_val=validation)) == kinds
    assert found[0].owners == ("c",)
    assert found[0].figure == 1.0
    with pytest.raises(ValueError, match="of the rows of c have a twin among the validation rows"):
        split_revenue(load(folder), owners, amount="1.00")


def test_a_valuation_without_hashes_asks_for_the_rows():
    table, validation = people(60), people(30, seed=1)
    data = {"X_val": validation, "y_val": validation["age"] > 45}
    valuation = KNNValuer(3, n_passes=1).fit(table, table["age"] > 45, **data).valuation_
    owners = rows_of(table, np.arange(60) % 2)
    (note,) = check_owners(owners, replace(valuation, held_out=None))
    assert "were not checked for copies of validation rows" in note.sentence


def test_pickles_and_folders_have_hashes_in_place_of_validation_rows(tmp_path):
    table, validation = people(60), people(30, seed=1)
    data = {"X_val": validation, "y_val": validation["age"] > 45}
    valuation = KNNValuer(3, n_passes=1).fit(table, table["age"] > 45, **data).valuation_
    valuation.save(tmp_path)
    hashed = HashedRows.of(Table.from_data(validation, called="X_val"))
    for copy in (pickle.loads(pickle.dumps(valuation)), load(tmp_path)):  # noqa: S301
        assert isinstance(copy.held_out, HashedRows)
        assert copy.held_out.key == hashed.key
        assert np.array_equal(copy.held_out.hashes, hashed.hashes)


def draw_with_reserve(seed, n_leaked):
    """Five owners of 120 people; the first hands in some validation rows with other ages."""
    everyone = people(1700, seed)
    X, val, reserve = (everyone[a:b].reset_index(drop=True) for a, b in RANGES)
    ages = np.random.default_rng(seed).choice([-2, -1, 1, 2], n_leaked)
    X = X.copy()
    X.iloc[:n_leaked] = val[:n_leaked].assign(age=val["age"][:n_leaked] + ages)
    labels = [table["hours"] > 40 for table in (X, val, reserve)]
    owners = rows_of(X, np.repeat(list("abcde"), 120))
    return owners, {"y": labels[0], "X_val": val, "y_val": labels[1]}, (reserve, labels[2])


RANGES = ((0, 600), (600, 700), (700, 1700))


def test_a_few_changed_validation_rows_are_found_with_a_reserve():
    owners, data, reserve = draw_with_reserve(0, 10)
    assert check_owners(owners, X_val=data["X_val"]) == []
    (finding,) = check_owners(owners, reserve=reserve, **data)
    assert (finding.kind, finding.owners) == ("too good", ("a",))
    assert finding.figure >= 0.05
    assert "of the validation rows, but" in finding.sentence


def test_a_reserve_is_of_use_if_columns_have_other_owners():
    owners, data, reserve = draw_with_reserve(0, 10)
    X = owners.table.native.assign(source=np.repeat(list("abcde"), 120))
    mixed = Owners.from_column(X, "source").assign("bank", columns=["married"])
    (finding,) = check_owners(mixed, reserve=reserve, **data)
    assert (finding.kind, finding.owners) == ("too good", ("a",))


@pytest.mark.slow
def test_honest_owners_are_as_near_to_validation_rows_as_to_a_reserve():
    for seed in range(12):
        owners, data, reserve = draw_with_reserve(seed, 0)
        assert check_owners(owners, reserve=reserve, **data) == []


def test_the_chance_of_being_too_near_is_exact():
    """Chances are at most uniform for honest owners, also if these hold a part of the table."""
    chances = []
    for seed in range(150):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(230, 2))
        order = np.argsort(X[:50, 0])
        tables = [Table.from_data(part, called="X") for part in (X[:50][order], X[50:80], X[80:])]
        labels = (X[:, 1] > 0).astype(int)
        labels[:50] = labels[:50][order]
        near = compare_with_reserve(
            Cells(*tables), labels, {"left": np.arange(20), "right": np.arange(20, 50)}, 30
        )
        chances.append([one.chance for one in near.values()])
    for limit in (0.3, 0.1, 0.02):
        n_below = (np.array(chances) <= limit).sum(axis=0)
        # Three standard deviations of a binomial distribution above its mean.
        assert (n_below <= 150 * limit + 3 * np.sqrt(150 * limit)).all()
    assert (np.array(chances) <= 0.5).any()


def test_a_reserve_needs_labels_and_validation_rows():
    owners, data, reserve = draw_with_reserve(0, 0)
    with pytest.raises(ValueError, match="reserve needs y, X_val and y_val; pass the labels"):
        check_owners(owners, reserve=reserve)
    with pytest.raises(
        ValueError, match=r"reserve must be a table and its labels, \(X, y\), got D"
    ):
        check_owners(owners, reserve=reserve[0], **data)
    with pytest.raises(
        ValueError, match="labels of reserve must have one label for each row, 1000"
    ):
        check_owners(owners, reserve=(reserve[0], reserve[1][:7]), **data)


def test_owners_of_columns_are_told_of_leaks_together():
    validation = people(100, seed=1)
    X = pd.concat([people(100), validation], ignore_index=True)
    owners = Owners(X).assign("a", columns=["age", "hours", "work"])
    owners = owners.assign("b", columns=["school", "married"])
    (finding,) = check_owners(owners, X_val=validation)
    assert (finding.kind, finding.owners) == ("leaked rows", ("a", "b"))


def test_the_owner_of_the_leaked_rows_is_named_beside_an_owner_of_columns():
    validation = people(100, seed=1)
    X = pd.concat([people(300), validation], ignore_index=True)
    X["source"] = np.repeat(list("abcd"), 100)
    owners = Owners.from_column(X, "source").assign("bank", columns=["married"])
    (finding,) = check_owners(owners, X_val=validation)
    assert (finding.kind, finding.owners) == ("leaked rows", ("d",))


def test_rows_that_both_hold_are_no_copies():
    owners = Owners(WINE, overlaps="equal").assign("a").assign("b")
    assert check_owners(owners) == []


def test_a_crowded_table_is_no_copy():
    few = WINE.round(-2)[["magnesium", "proline"]].assign(kind=LABELS.astype(str))
    assert few.duplicated().mean() > 0.5
    assert check_owners(rows_of(few, np.arange(len(few)) % 2)) == []


def test_a_crowded_corner_is_no_copy():
    """One owner's rows lie where the other's are crowded, though most of the other's are not."""
    rng = np.random.default_rng(0)
    corner = rng.integers(0, 3, (300, 2)).astype(float)
    elsewhere = rng.normal(size=(3000, 2)) * 100
    table = pd.DataFrame(np.vstack([corner, elsewhere]))
    assert check_owners(rows_of(table, ["a"] * 100 + ["b"] * 3200)) == []


@pytest.mark.parametrize(
    "copy",
    [
        lambda column: column * 2.54 + 1,
        lambda column: -np.exp(column / column.max()),
        lambda column: column + np.random.default_rng(0).normal(size=len(column)) * 0.01,
    ],
)
def test_a_copied_column_is_found_whatever_its_scale(copy):
    table = WINE.assign(again=copy(WINE["flavanoids"]))
    owners = Owners(table).assign("a", columns=list(WINE)).assign("b", columns="again")
    (finding,) = check_owners(owners)
    assert (finding.kind, finding.owners) == ("copied columns", ("a", "b"))
    assert "'flavanoids' and 'again' (a and b)" in finding.sentence
    assert finding.figure > 0.95


@pytest.mark.parametrize("n_levels", [4, 60])
def test_a_category_under_other_names_is_found(n_levels):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, n_levels, 500)
    renamed = rng.permutation(n_levels)[codes]
    table = pd.DataFrame({"x": rng.normal(size=500), "a": [f"a{c}" for c in codes], "b": renamed})
    table["c"] = [f"c{c}" for c in renamed]
    owners = Owners(table).assign("one", columns=["x", "a"]).assign("two", columns=["b", "c"])
    found = check_owners(owners)
    assert column_types(found) == ["copied columns"] * 2
    assert [finding.owners for finding in found] == [("one", "two"), ("two",)]


def test_who_pads_the_table_with_own_copies_is_found():
    table = WINE.assign(again=WINE["ash"] * 2)
    owners = Owners(table).assign("a", columns=["ash", "again"])
    owners = owners.assign("b", columns=[c for c in WINE if c != "ash"])
    (finding,) = check_owners(owners)
    assert finding.owners == ("a",)


def test_columns_that_all_owners_hold_are_no_finding():
    table = WINE.assign(again=WINE["ash"] * 2)
    assert check_owners(rows_of(table, np.arange(len(table)) % 3)) == []


def test_many_alike_columns_are_one_finding():
    table = load_breast_cancer(as_frame=True).data
    owners = Owners(table).assign("a", columns=table.columns[:15])
    findings = check_owners(owners.assign("b", columns=table.columns[15:]))
    assert len(findings) == len({finding.owners for finding in findings}) <= 3
    assert "more such pairs" in findings[0].sentence


def test_constants_and_identifiers_are_no_copies():
    table = pd.DataFrame({"one": ["a"] * 40, "two": ["b"] * 40, "id": [f"r{i}" for i in range(40)]})
    table["code"] = [f"s{i}" for i in range(40)]
    table["nothing"] = None
    owners = Owners(table)
    for name in table:
        owners = owners.assign(name, columns=name)
    assert check_owners(owners) == []


def test_a_missing_value_equals_only_missing_values():
    gapped = WINE.mask(np.random.default_rng(0).random(WINE.shape) < 0.3)
    assert check_owners(rows_of(gapped, np.arange(len(gapped)) % 2)) == []
    assert column_types(check_owners(with_copies(gapped[:80], gapped[:40]))) == ["copied rows"]


def test_an_owner_below_zero_is_named_with_its_value():
    labels = LABELS.copy()
    labels[:40] = (labels[:40] + 1) % 3
    data = {"X": WINE[:120], "y": labels[:120], "X_val": WINE[120:], "y_val": LABELS[120:]}
    owners = rows_of(WINE[:120], ["bad"] * 40 + ["good"] * 80)
    valuation = KNNValuer(5, n_passes=2, random_state=0).fit(**data, owners=owners).valuation_
    (finding,) = check_owners(owners, valuation)
    assert (finding.kind, finding.owners) == ("below zero", ("bad",))
    assert finding.figure == pytest.approx(valuation.owners().values[0], rel=1e-9)
    assert "(by more than two standard errors)" in finding.sentence
    with pytest.raises(
        ValueError, match=r"nothing was split: the cells of bad .* pass gate='warn'"
    ):
        split_revenue(valuation, owners, amount="1.00", policy=Policy(negative="floor"))
    with pytest.raises(ValueError, match="or agree on gate='warn' in an amendment"):
        split_revenue(
            valuation, owners, amount="1.00", policy=Policy(negative="floor"), agreement="agreed"
        )
    for policy in (Policy(gate="warn", negative="floor"), Policy(negative="signed")):
        with pytest.warns(UserWarning, match="the cells of bad have a negative value, -"):
            split_revenue(valuation, owners, amount="1.00", policy=policy)


@pytest.mark.parametrize("share", [0.02, 0.3])
def test_a_copied_column_is_found_for_any_sign_and_missing_values(share):
    rng = np.random.default_rng(0)
    table = WINE[["alcohol", "ash"]].assign(copy=-WINE["alcohol"])
    table["letter"] = np.array(list("abcd"))[np.arange(len(table)) % 4]
    table["renamed"] = table["letter"].map(dict(zip("abcd", "wxyz", strict=True)))
    for name in table:
        table.loc[rng.random(len(table)) < share, name] = None
    owners = Owners(table).assign("a", columns=["alcohol", "ash", "letter"])
    found = check_owners(owners.assign("b", columns=["copy", "renamed"]))
    (finding,) = (finding for finding in found if finding.kind == "copied columns")
    assert finding.figure == pytest.approx(1.0)
    assert "and 1 more such pairs" in finding.sentence


def test_columns_that_share_only_missing_values_are_no_copies():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(400, 3))
    table[:320, :2] = np.nan
    table[:200, 2] = np.nan
    owners = Owners(table).assign("a", columns="x0").assign("b", columns=["x1", "x2"])
    assert check_owners(owners) == []


def test_the_correlation_of_ranks_leaves_missing_values_out_in_pairs():
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=(200, 3)) @ rng.normal(size=(3, 4))
    known = rng.random(numbers.shape) > 0.1
    found = _correlate_ranks(numbers, known)
    expected = pd.DataFrame(np.where(known, numbers, np.nan)).corr("spearman").abs()
    assert np.allclose(found, expected, atol=0.02)
    whole = _correlate_ranks(numbers, np.ones(numbers.shape, dtype=bool))
    assert np.allclose(whole, pd.DataFrame(numbers).corr("spearman").abs(), atol=1e-12)


def scored(X, y, n_neighbors=5, n_validation=100, seed=0):
    """Nearest-neighbor values of two columns, one per owner, scored on random rows."""
    rng = np.random.default_rng([seed, 1])
    owners = Owners(X).assign("a", columns="x0").assign("b", columns="x1")
    X_val, y_val = rng.normal(size=(n_validation, 2)), np.arange(n_validation) % 2
    valuer = KNNValuer(n_neighbors)
    return owners, valuer.fit(X, y, X_val=X_val, y_val=y_val, owners=owners).valuation_


def test_rounding_errors_have_no_value():
    rng = np.random.default_rng(0)
    with pytest.warns(UserWarning, match="columns have no effect"):
        owners, valuation = scored(rng.normal(size=(400, 2)), np.arange(400) % 2, 400)
    # This is what money was paid by.
    assert 0 < np.abs(valuation.values).max() < 1e-15
    assert column_types(check_owners(owners, valuation)) == ["within noise"]
    with pytest.raises(ValueError, match="the total of the owners' values must be above 0"):
        split_revenue(valuation, owners, amount="100", policy=Policy(gate="off"))
    owners, valuation = scored(np.ones((50, 2)), np.arange(50) % 2)
    with pytest.raises(ValueError, match="must be above 0 to split an amount"):
        split_revenue(valuation, owners, amount="100", policy=Policy(negative="floor", gate="off"))


def test_values_that_are_small_because_the_score_is_count_as_they_are():
    owners = Owners(np.zeros((2, 2))).assign("a", columns="x0").assign("b", columns="x1")
    sizes = np.array([0, 1, 1, 2])
    game = TableGame(1e-9 * np.outer(sizes, sizes))
    valuation = value_game(game, shape=Blocks.cut([0, 1], ["x0", "x1"]))
    payout = split_revenue(valuation, owners, amount="100", policy=Policy(gate="off"))
    assert list(map(str, payout.amounts)) == ["50.00", "50.00"]


def test_a_total_that_may_be_nothing_is_found_and_rejected():
    rng = np.random.default_rng(1)
    owners, noise = scored(rng.normal(size=(400, 2)), rng.integers(2, size=400))
    finding = check_owners(owners, noise)[-1]
    assert (finding.kind, finding.owners) == ("within noise", ("a", "b"))
    assert abs(finding.figure) < 1.96 * noise.total_error
    for policy in (None, Policy(gate="refuse"), Policy(gate="warn")):
        with pytest.raises(ValueError, match=r"nothing was split: .* shares of it are noise"):
            split_revenue(noise, owners, amount="1000", policy=policy)
    rows = rng.normal(size=(100, 2))
    owners = Owners(rows).assign("a", columns="x0").assign("b", columns="x1")
    labels = (rows.sum(axis=1) > 0).astype(int)
    sound = KNNValuer(3).fit(rows, labels, owners=owners).valuation_
    assert check_owners(owners, sound) == []


def test_owners_of_noise_in_a_good_table_are_not_paid():
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(100, 2))
    owners = Owners(rows).assign("a", columns="x1")
    valuation = KNNValuer(3).fit(rows, (rows[:, 0] > 0).astype(int), owners=owners).valuation_
    assert valuation.total > 4 * valuation.total_error
    with pytest.raises(ValueError, match="the total value of the owners' cells"):
        split_revenue(valuation, owners, amount="1000")


def test_the_gate_cannot_be_shown_another_table():
    data = {"X": WINE[:120], "y": LABELS[:120], "X_val": WINE[120:], "y_val": LABELS[120:]}
    other = WINE[:120].assign(alcohol=1.0)
    valuation = KNNValuer(3, n_passes=1, random_state=0).fit(**data).valuation_
    for rejected in (
        lambda: split_revenue(
            valuation, Owners(other).assign("a"), amount="1", policy=Policy(gate="off")
        ),
        lambda: check_owners(Owners(other).assign("a"), valuation),
        lambda: KNNValuer(3, n_passes=1).fit(**data, owners=Owners(other).assign("a")),
    ):
        with pytest.raises(ValueError, match="the cells of the table that is valued"):
            rejected()
    assert split_revenue(
        valuation, Owners(pl.from_pandas(WINE[:120])).assign("a"), amount="1"
    ).amounts


def test_a_column_of_row_groups_is_no_cell_of_the_owners_table():
    table = WINE[:120].iloc[:, :4].assign(region=["n", "s"] * 60)
    data = {"y": LABELS[:120], "X_val": WINE[120:].iloc[:, :4], "y_val": LABELS[120:]}
    owners = Owners(table.drop(columns="region")).assign("n", rows=slice(0, None, 2))
    owners = owners.assign("s", rows=slice(1, None, 2))
    valuer = KNNValuer(3).fit(table, **data, row_groups="region", owners=owners)
    assert split_revenue(valuer.valuation_, owners, amount="1").owners == ("n", "s")


def poisoned():
    """Three owners of rows, of whom one has flipped labels; rows to score on."""
    rng = np.random.default_rng(3)
    X = pd.DataFrame(rng.normal(size=(500, 3)), columns=["a", "b", "c"])
    y = (X["a"] + 0.1 * rng.normal(size=500) > 0).astype(int)
    X["kind"] = rng.choice(["x", "y"], 500)
    X.loc[::7, "c"] = np.nan
    y_given = y[:300].copy()
    y_given[:110] = 1 - y_given[:110]
    owners = rows_of(X[:300], ["bad"] * 110 + ["good"] * 95 + ["fair"] * 95)
    return owners, {"y": y_given, "X_val": X[300:], "y_val": y[300:]}


@pytest.mark.slow
def test_an_owner_without_whom_the_model_is_better_is_found():
    owners, data = poisoned()
    encoded = make_column_transformer((OneHotEncoder(), ["kind"]), remainder=SimpleImputer())
    model = make_pipeline(encoded, KNeighborsClassifier(1))
    (finding,) = check_owners(owners, model=model, **data)
    assert (finding.kind, finding.owners) == ("better without", ("bad",))
    assert 0 < finding.figure < 1
    assert "better without the cells of bad" in finding.sentence
    assert "(accuracy) changes by +" in finding.sentence


def test_shuffled_cells_are_the_owners_own_column_by_column():
    table = pl.DataFrame({"n": [1, 2, None, 4, 5, 6], "t": list("abcdef"), "z": [0.5] * 6})
    mine = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 0], [0, 1, 0], [1, 1, 0], [1, 0, 0]], bool)
    seen = _shuffle_cells(Owners(table).table, mine).native
    assert seen.schema == table.schema
    for position, name in enumerate(table.columns):
        was, now = table[name].to_list(), seen[name].to_list()
        for held in (True, False):
            rows = np.flatnonzero(mine[:, position] == held)
            parts = [[str(column[row]) for row in rows] for column in (was, now)]
            assert sorted(parts[0]) == sorted(parts[1])
            assert held or parts[0] == parts[1]
    assert not seen.equals(table)


def test_a_model_needs_rows_to_score_on():
    owners, data = poisoned()
    with pytest.raises(ValueError, match="model needs y, X_val and y_val; pass the labels"):
        check_owners(owners, model=DecisionTreeClassifier())
    with pytest.raises(ValueError, match="y needs a model; pass model=, y=, X_val= and"):
        check_owners(owners, **data)
    with pytest.raises(ValueError, match="scoring needs a model"):
        check_owners(owners, scoring="accuracy")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ((WINE,), r"owners must be Owners, got DataFrame; pass Owners\(X\)"),
        (
            (rows_of(WINE, [0] * len(WINE)), WINE),
            "valuation must be a Valuation, got DataFrame; pass",
        ),
    ],
)
def test_what_is_no_owners_and_no_valuation_gets_one_sentence(given, sentence):
    with pytest.raises(TypeError, match=sentence):
        check_owners(*given)


def blocks_valued(table, labels, whose):
    groups = {str(name): np.flatnonzero(np.asarray(whose) == name) for name in set(whose)}
    valuer = ModelValuer(DecisionTreeClassifier(max_depth=2, random_state=0), estimator="exact")
    return valuer.fit(
        table, labels, X_val=WINE[120:], y_val=LABELS[120:], row_groups=groups,
        column_groups={"all": list(table)},
    ).valuation_  # fmt: skip


def test_one_identity_under_two_names_is_found_in_a_game_of_blocks():
    table, labels = WINE[:120], LABELS[:120]
    # One owner's rows are of another kind; the other's are dealt out to two names.
    other = np.asarray(labels == 0)
    whose = np.where(other, "other", np.where(np.arange(120) % 2, "me", "me too"))
    owners = rows_of(table, whose)
    found = check_owners(owners, blocks_valued(table, labels, whose))
    identities = [finding for finding in found if finding.kind == "one identity"]
    assert [set(finding.owners) for finding in identities] == [{"me", "me too"}]
    assert identities[0].figure < 0.65


def test_in_the_game_of_cells_two_names_are_no_finding():
    valuation = KNNValuer(3).fit(WINE.iloc[:, :5], LABELS).valuation_
    owners = rows_of(WINE.iloc[:, :5], np.arange(len(WINE)) % 2)
    assert "one identity" not in column_types(check_owners(owners, valuation))


def test_findings_tell_no_row_and_no_cell():
    table = WINE.set_axis([f"patient {i}" for i in range(len(WINE))])
    table["name"] = [f"secret {i}" for i in range(len(WINE))]
    both = pd.concat([table, table.set_axis([f"again {i}" for i in range(len(WINE))])])
    found = check_owners(rows_of(both, ["a"] * len(WINE) + ["b"] * len(WINE)))
    assert found
    for finding in found:
        assert not any(word in finding.sentence for word in ("patient", "secret", "again"))


@pytest.mark.alone
def test_a_hundred_owners_are_looked_at_in_seconds():
    table = np.random.default_rng(0).normal(size=(10_000, 20))
    begin = time.process_time()
    assert check_owners(rows_of(table, np.arange(10_000) % 100)) == []
    assert time.process_time() - begin < 20


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="needs the data sets")
@pytest.mark.parametrize(
    "group", ["race", "sex", "education", "native_country", "workclass", "columns"]
)
def test_the_census_by_region_and_by_columns_passes(group):
    table = pd.read_csv(DATA / "adult_train.csv.gz").iloc[:8000, :-1]
    if group == "columns":
        owners = Owners(table)
        for position, name in enumerate(table):
            # Two columns that say the same are with one owner, and named.
            owners = owners.assign(f"owner {0 if 'education' in name else position}", columns=name)
        (finding,) = check_owners(owners)
        assert finding.owners == ("owner 0",)
        assert "'education' and 'education_num'" in finding.sentence
    else:
        assert check_owners(rows_of(table.drop(columns=group), table[group])) == []


def test_findings_are_grouped_by_kind_and_owners_with_what_they_would_move():
    """Ann hands in the first 30 rows of each of five rivals, moved."""
    table = people(700)
    names = [f"rival {i}" for i in range(5)]
    parts = [table[100 * i : 100 * i + 30] for i in range(5)]
    X = pd.concat([table[:500], *map(jittered, parts), table[500:560]], ignore_index=True)
    whose = [*np.repeat(names, 100), *["ann"] * 150, *["bob"] * 60]
    owners, y = rows_of(X, whose), X["age"] + X["hours"] > 90
    valuer = KNNValuer(3, n_passes=1, random_state=0)
    val = people(100, seed=1)
    valuation = valuer.fit(X, y, X_val=val, y_val=val["age"] + val["hours"] > 90).valuation_
    terms = {"amount": "10000.00", "policy": Policy(gate="warn", duplicates="pay")}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        payout = split_revenue(valuation, owners, **terms)
    said = [str(one.message) for one in caught]
    assert sum("there are 2 more findings of copied rows, about" in text for text in said) == 1
    grouped = payout.list_findings()
    assert grouped["finding"].count("copied rows") == 5
    assert {line for line in grouped["owners"] if "ann" in line} == {
        f"{name}, ann" if f"{name}, ann" in grouped["owners"] else f"ann, {name}" for name in names
    }
    counts = [int(text.split()[0]) for text in grouped["found"][:5]]
    assert all(20 <= count <= 40 for count in counts)
    moves = [int(text.split()[0].replace(",", "")) for text in grouped["would move"] if text]
    assert moves == sorted(moves, reverse=True)
    assert moves[0] > 0
    sentences = [note for note in payout.notes if note.startswith("Check first: ")]
    assert sum("have a twin" in note for note in sentences) == 3
    for view in (repr(payout), payout._repr_html_()):
        assert "would move" in view
        assert grouped["would move"][0] in view
