"""Agreements: fixed beforehand, kept to the letter, read with one sentence for each mistake."""

import hashlib
from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, ModelValuer, OutOfBagValuer, Owners, Runtime
from cellworth.payouts import Agreement, Policy, split_revenue, verify_bundle
from cellworth.runtime import MaxTasks, Serial
from cellworth.sampling import LeaveOneOut, PermutationSampler
from fit_settings import split_settings
from owned_cells import assign_cells

X, y = load_wine(return_X_y=True, as_frame=True)
ORDER = np.random.default_rng(0).permutation(len(X))[:90]
X, y = (part.iloc[ORDER].reset_index(drop=True) for part in (X.iloc[:, [0, 6, 9, 12]], y))
DATA = {"X": X[:60], "y": y[:60], "X_val": X[60:], "y_val": y[60:]}
NAMES = list(X)
OWNERS = Owners(X[:60]).assign("ann", columns=NAMES[:2]).assign("bob", columns=NAMES[2:])
SETTINGS = {"sampler": PermutationSampler(3), "n_passes": 2, "random_state": 7}
POLICY = Policy(game="cells", negative="signed", currency="CHF")


def drafted(valuer=None, owners=OWNERS, policy=POLICY, data=DATA):
    return Agreement.draft(valuer or KNNValuer(3, **SETTINGS), owners, policy, **data)


def valued(data=DATA, **changed):
    settings, of_fit = split_settings({"n_neighbors": 3} | SETTINGS | changed)
    owners = Owners(data["X"]).assign("all")
    return KNNValuer(**settings).fit(**data, **of_fit, owners=owners).valuation_


def test_a_draft_is_saved_read_and_kept(tmp_path):
    agreement = drafted()
    agreement.save(tmp_path / "agreement.toml")
    again = Agreement.from_toml(tmp_path / "agreement.toml")
    assert (again.text, again.policy, again.terms) == (agreement.text, POLICY, agreement.terms)
    valuation = valued()
    assert again.list_differences(valuation) == []
    payout = again.split(valuation, X[:60], amount="100.00")
    alone = split_revenue(valuation, OWNERS, amount="100.00", policy=POLICY)
    assert payout.amounts == alone.amounts
    assert (payout.currency, payout.agreement) == ("CHF", agreement.text)
    payout.save(tmp_path / "bundle")
    assert verify_bundle(tmp_path / "bundle", data=DATA).checked == (
        "files",
        "split",
        "agreement",
        "data",
    )


def test_rows_may_be_delivered_after_the_agreement():
    placeholder = DATA | {"X": X[:10], "y": y[:10]}
    owners = Owners(X[:10]).assign("ann", columns=NAMES[:2]).assign("bob", columns=NAMES[2:])
    agreement = drafted(owners=owners, data=placeholder)
    assert agreement.list_differences(valued()) == []
    assert agreement.split(valued(), X[:60], amount="10").owners == ("ann", "bob")


@pytest.mark.parametrize(
    ("changed", "where"),
    [
        ({"n_neighbors": 5}, "n_neighbors is 5, but 3 was agreed on"),
        (
            {"scoring": "balanced_neighbor_agreement"},
            "scoring is 'balanced_neighbor_agreement', but 'neighbor_agreement'",
        ),
        ({"scale": None}, "scale is 'none', but 'robust' was agreed on"),
        ({"empty": "zero"}, "empty is 'zero', but 'prior' was agreed on"),
        ({"random_state": 8}, "seed is 8, but 7 was agreed on"),
        ({"value_labels": True}, "value_labels is True, but False was agreed on"),
        ({"column_types": {NAMES[0]: "categorical"}}, "column_types.alcohol is"),
        (
            {"sampler": PermutationSampler(4)},
            r"valuer.sampler is 'PermutationSampler\(.*=4\)', but 'Permut",
        ),
        ({"n_passes": 3}, "valuer.n_passes is '3', but '2' was agreed on"),
        ({"stop": MaxTasks(99)}, r"valuer.stop is 'MaxTasks\(n_tasks=99\)', but 'none' was"),
    ],
)
def test_a_valuation_of_another_problem_is_rejected(changed, where):
    with pytest.raises(ValueError, match=f"differs from the agreement: .*{where}"):
        drafted().split(valued(**changed), X[:60], amount="100.00")


def test_other_validation_rows_are_rejected():
    other = DATA | {"X_val": X[61:], "y_val": y[61:]}
    assert drafted().list_differences(valued(other))[0].startswith("validation_sha256 is ")


def test_runs_that_were_picked_and_merged_are_rejected():
    merged = valued().merge(valued(random_state=8))
    assert drafted().list_differences(merged) == ["seed is [7, 8], but 7 was agreed on"]


def test_exact_values_have_no_seed_to_differ_in():
    agreement = drafted(KNNValuer(3, random_state=0))
    valuation = KNNValuer(3, random_state=1).fit(**DATA).valuation_
    assert agreement.list_differences(valuation) == []


def test_where_a_valuer_runs_and_what_type_its_numbers_have_is_not_agreed_on(tmp_path):
    changed = {
        "runtime": Runtime(executor=Serial(), checkpoint=tmp_path / "run"),
        "n_neighbors": np.int64(3),
    }
    assert drafted().list_differences(valued(**changed)) == []


def test_runs_of_other_seeds_still_merge():
    one, other = valued(), valued(random_state=8, n_passes=3)
    assert one.merge(other).counts.max() == one.counts.max() + other.counts.max()


def test_what_an_agreement_leaves_open_is_not_agreed(tmp_path):
    text = drafted().text.replace("n_neighbors = 3\n", "")
    (tmp_path / "a.toml").write_text(text)
    differences = Agreement.from_toml(tmp_path / "a.toml").list_differences(valued())
    assert differences == ["n_neighbors is 3, but missing was agreed on"]


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda X: X.drop(columns=NAMES[1]), f"columns.{NAMES[1]} is missing, but 'number'"),
        (lambda X: X.assign(more=1.0), "columns.more is 'number', but missing was agreed on"),
        (lambda X: X.assign(**{NAMES[2]: "red"}), f"columns.{NAMES[2]} is 'category', but 'num"),
    ],
)
def test_a_table_with_other_columns_is_rejected_before_and_after_it_is_valued(change, where):
    data = {name: change(part) if name in ("X", "X_val") else part for name, part in DATA.items()}
    agreement, valuer = drafted(), KNNValuer(3, **SETTINGS)
    assert any(where in one for one in agreement.list_differences_of_data(valuer, **data))
    with pytest.raises(ValueError, match=where):
        agreement.split(valuer.fit(**data).valuation_, data["X"], amount="1.00")


def test_labels_of_another_name_are_another_target():
    data = DATA | {"y": DATA["y"].rename("sex")}
    agreement = drafted(data=DATA | {"y": DATA["y"].rename("income")})
    (difference,) = agreement.list_differences_of_data(KNNValuer(3, **SETTINGS), **data)
    assert difference == "target is 'sex', but 'income' was agreed on"


HEAD = 'format = "cellworth agreement"\nversion = 3\n'
TERMS = '[valuation]\nvalidation_sha256 = "0"\n'
SOMEBODY = "[[owners]]\nname = 'ann'\n"
WRONG = {
    "": "must be an agreement of format 'cellworth agreement', version 3; write one",
    HEAD.replace("1", "2"): "must be an agreement of format",
    HEAD: r"does not say what is valued; add \[valuation\] with validation_sha256",
    HEAD + "valuation = 5": "does not say what is valued",
    HEAD
    + TERMS
    + SOMEBODY
    + "[policy]\ncolour = 'red'": r"\[policy\] of .* must have .*, got colour",
    HEAD + "policy = 5\n" + TERMS + SOMEBODY: r"\[policy\] of .* must have .*, got 5",
    HEAD + TERMS + SOMEBODY + "[policy]\nnegative = 'no'": "negative must be 'floor' .*, got 'no'",
    HEAD + TERMS + SOMEBODY + "[policy]\nunit = 0.01": "unit must be a string, .*, got 0.01; pass",
    HEAD + TERMS: "must have at least one",
    HEAD + "owners = 5\n" + TERMS: "must have at least one",
    HEAD + "owners = [5]\n" + TERMS: "tables, got 5",
    "[": "is not valid TOML",
    HEAD + "contract = 5\n" + TERMS + SOMEBODY: "contract of .* must be text on one line, got 5",
    HEAD + TERMS + SOMEBODY + "[validation]\nshare = 0.5": r"\[validation\] of .* must have seed",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_in_a_file_gets_one_sentence(text, tmp_path):
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises((ValueError, TypeError), match=WRONG[text]):
        Agreement.from_toml(tmp_path / "a.toml")


def test_wrong_arguments_get_one_sentence():
    with pytest.raises(ValueError, match="random_state of the valuer must be an integer, got None"):
        drafted(KNNValuer(3))
    with pytest.raises(TypeError, match=r"valuer must be a valuer such as .*, got 'knn'"):
        drafted("knn")
    with pytest.raises(TypeError, match=r"owners must be Owners, got dict; pass Owners\(X\)"):
        drafted(owners={"ann": [0]})
    with pytest.raises(ValueError, match="owners must have an owner"):
        drafted(owners=Owners(X[:60]))
    with pytest.raises(TypeError, match="policy must be a Policy or None, got str"):
        drafted(policy="floor")
    with pytest.raises(TypeError, match=r"missing .* 'X'"):
        drafted(data={})
    with pytest.raises(FileNotFoundError, match=r"must be a file, got nope\.toml"):
        Agreement.from_toml("nope.toml")
    with pytest.raises(ValueError, match="owners must have the cells of the table that is valued"):
        drafted().split(valued(), X[:60].assign(alcohol=1.0), amount="1")


def test_holdings_of_every_shape_survive_the_file(tmp_path):
    ids = [f"r{i % 30}" for i in range(60)]
    table = X[:60].set_axis(ids).set_axis([3, 1, 4, 2], axis=1)
    cells = np.random.default_rng(0).random(table.shape) < 0.3
    owners = assign_cells(Owners(table, overlaps="equal"), "ann", cells)
    owners = owners.assign("bob", columns=[1, "(label)"]).assign_rest(None)
    data = {"X": table, "y": y[:60].set_axis(ids), "value_labels": True}
    valuer = KNNValuer(3, random_state=0)
    agreement = Agreement.draft(valuer, owners, POLICY, **data)
    agreement.save(tmp_path / "a.toml")
    again = Agreement.from_toml(tmp_path / "a.toml").owners_of(table)
    assert np.array_equal(again.codes, owners.codes)
    valuation = valuer.fit(**data).valuation_
    agreement.split(valuation, table, amount="10").save(tmp_path / "bundle")
    assert verify_bundle(tmp_path / "bundle", data=data, valuer=valuer)


SMALL = {name: part[:12] if name in ("X", "y") else part for name, part in DATA.items()}
TREE = DecisionTreeClassifier(max_depth=2, random_state=0)
VALUERS = [
    (KNNValuer(3, random_state=0), DATA),
    (KNNValuer(3), {"X": X, "y": y, "cv": 3, "value_labels": True}),
    (KNNValuer(3), DATA | {"row_groups": [0, 1] * 30, "column_types": {NAMES[0]: "categorical"}}),
    (ModelValuer(TREE, estimator="exact"), SMALL | {"row_groups": [0, 1, 2] * 4}),
    (ModelValuer(TREE, stop=MaxTasks(1), random_state=0), SMALL),
    (ModelValuer(TREE, scoring="neg_log_loss", stop=MaxTasks(1)), SMALL),
    (
        ModelValuer(TREE, estimator="exact"),
        SMALL | {"row_groups": [0, 1, 2] * 4, "sample_weight": range(12)},
    ),
    (ModelValuer(TREE, semivalue=LeaveOneOut()), SMALL),
    (OutOfBagValuer(random_state=0, n_trees=20), {"X": X, "y": y}),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("valuer", "data"), VALUERS, ids=[f"{i} {type(v).__name__}" for i, (v, _) in enumerate(VALUERS)]
)
def test_the_problem_spec_before_a_fit_is_that_of_the_fit(valuer, data):
    before = valuer.problem_spec(**data)
    assert before == dict(valuer.fit(**data).valuation_.provenance.problem_spec)
    assert not pd.isna(before["data_sha256"]["X"])


HEADED = {
    "contract": "C-7",
    "created": datetime(2025, 12, 1, 12, tzinfo=UTC),
}


def headed(**changed):
    return Agreement.draft(KNNValuer(3, **SETTINGS), OWNERS, POLICY, **(HEADED | changed), **DATA)


def test_contract_and_time_survive_the_file(tmp_path):
    headed().save(tmp_path / "a.toml")
    again = Agreement.from_toml(tmp_path / "a.toml")
    assert {name: getattr(again, name) for name in HEADED} == HEADED
    assert again.list_differences(valued()) == []


def test_an_amendment_names_the_agreement_before_it():
    first = headed()
    second = headed(amends=first, contract=None, created=None)
    assert second.previous == first.digest == hashlib.sha256(first.text.encode()).hexdigest()
    assert second.contract == first.contract
    third = headed(amends=second, created=None)
    assert third.describe_change_of_contract(first).startswith("it does not name the digest")
