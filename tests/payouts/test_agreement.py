"""Agreements: fixed beforehand, kept to the letter, read with one sentence for each mistake."""

import hashlib
import tomllib
from dataclasses import replace
from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, ModelValuer, OutOfBagValuer, Owners, Runtime
from cellworth.payouts import Agreement, Policy, split_revenue, verify_bundle
from cellworth.runtime import MaxTasks, Serial
from cellworth.sampling import LeaveOneOut, PermutationSampler
from fit_settings import split_settings

X, y = load_wine(return_X_y=True, as_frame=True)
ORDER = np.random.default_rng(0).permutation(len(X))[:90]
X, y = (part.iloc[ORDER].reset_index(drop=True) for part in (X.iloc[:, [0, 6, 9, 12]], y))
DATA = {"X": X[:60], "y": y[:60], "X_val": X[60:], "y_val": y[60:]}
NAMES = list(X)
OWNERS = Owners(X[:60]).assign("ann", columns=NAMES[:2]).assign("bob", columns=NAMES[2:])
SETTINGS = {"sampler": PermutationSampler(3), "n_passes": 2, "random_state": 7}
POLICY = Policy(negative="signed", minimum="5", currency="CHF")


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
    assert again.difference(valuation) is None
    payout = again.split(valuation, X[:60], amount="100.00")
    alone = split_revenue(
        valuation, OWNERS, amount="100.00", policy=Policy(negative="signed", minimum="5")
    )
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
    assert agreement.difference(valued()) is None
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
        ({"column_types": {NAMES[0]: "categorical"}}, "column_types is"),
        (
            {"sampler": PermutationSampler(4)},
            r"sampler of the valuer is PermutationSampler\(.*=4\), but Permut",
        ),
        ({"n_passes": 3}, "n_passes of the valuer is 3, but 2 was agreed on"),
        ({"stop": MaxTasks(99)}, r"stop of the valuer is MaxTasks\(n_tasks=99\), but none was"),
    ],
)
def test_a_valuation_of_another_problem_is_rejected(changed, where):
    with pytest.raises(ValueError, match=f"this valuation differs from the agreement: {where}"):
        drafted().split(valued(**changed), X[:60], amount="100.00")


def test_other_validation_rows_are_rejected():
    other = DATA | {"X_val": X[61:], "y_val": y[61:]}
    assert drafted().difference(valued(other)).startswith("validation_sha256 is ")


def test_runs_that_were_picked_and_merged_are_rejected():
    merged = valued().merge(valued(random_state=8))
    assert drafted().difference(merged) == "seed is [7, 8], but 7 was agreed on."


def test_exact_values_have_no_seed_to_differ_in():
    agreement = drafted(KNNValuer(3, random_state=0))
    assert agreement.difference(KNNValuer(3, random_state=1).fit(**DATA).valuation_) is None


def test_where_a_valuer_runs_and_what_type_its_numbers_have_is_not_agreed_on(tmp_path):
    changed = {
        "runtime": Runtime(executor=Serial(), checkpoint=tmp_path / "run"),
        "n_neighbors": np.int64(3),
    }
    assert drafted().difference(valued(**changed)) is None


def test_a_valuation_without_its_valuer_is_rejected():
    bare = valued()
    method = {
        name: reported for name, reported in bare.provenance.method.items() if name != "valuer"
    }
    unknown = replace(bare, provenance=replace(bare.provenance, method=method))
    assert "of the valuer is not known, but" in drafted().difference(unknown)


def test_runs_of_other_seeds_still_merge():
    one, other = valued(), valued(random_state=8, n_passes=3)
    assert one.merge(other).counts.max() == one.counts.max() + other.counts.max()


def test_what_an_agreement_leaves_open_is_not_agreed(tmp_path):
    text = drafted().text.replace("n_neighbors = 3\n", "")
    (tmp_path / "a.toml").write_text(text)
    difference = Agreement.from_toml(tmp_path / "a.toml").difference(valued())
    assert difference == "n_neighbors is 3, but the agreement says nothing about it."


HEAD = 'format = "cellworth agreement"\nversion = 1\n'
TERMS = '[valuation]\nvalidation_sha256 = "0"\n'
SOMEBODY = "[[owners]]\nname = 'ann'\n"
WRONG = {
    "": "must be an agreement of format 'cellworth agreement', version 1; write one",
    HEAD.replace("1", "2"): "must be an agreement of format",
    HEAD: r"does not say what is valued; add \[valuation\] with validation_sha256",
    HEAD + "valuation = 5": "does not say what is valued",
    HEAD
    + TERMS
    + SOMEBODY
    + "[policy]\ncolour = 'red'": r"\[policy\] of .* must have only .*, got colour",
    HEAD + "policy = 5\n" + TERMS + SOMEBODY: r"\[policy\] of .* must have only .*, got 5",
    HEAD + TERMS + SOMEBODY + "[policy]\nnegative = 'no'": "negative must be 'floor' .*, got 'no'",
    HEAD + TERMS + SOMEBODY + "[policy]\nunit = 0.01": "unit must be a string, .*, got 0.01; pass",
    HEAD + TERMS: "must have at least one",
    HEAD + "owners = 5\n" + TERMS: "must have at least one",
    HEAD + "owners = [5]\n" + TERMS: "tables, got 5",
    HEAD + TERMS + "valuer = 'knn'\n" + SOMEBODY: "must be a table, got 'knn'; add",
    "[": "is not valid TOML",
    HEAD + "contract = 5\n" + TERMS + SOMEBODY: "contract of .* must be text on one line, got 5",
    HEAD
    + "parties = 'ann'\n"
    + TERMS
    + SOMEBODY: "parties of .* must be a list of names, got 'ann'",
    HEAD
    + "created = 2026-01-01\n"
    + TERMS
    + SOMEBODY: "created of .* must be a time with its zone",
    HEAD
    + "payout_date = 'now'\n"
    + TERMS
    + SOMEBODY: "payout_date of .* must be a date, got 'now'",
    HEAD
    + TERMS
    + SOMEBODY
    + "[period]\nfrom = 2026-02-01\nto = 2026-01-01": "period of .* a first",
    HEAD + TERMS + SOMEBODY + "[period]\nfrom = 2026-02-01": "period of .* must have a first and a",
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
    with pytest.raises(ValueError, match="X and y must not be None; pass the arguments of fit"):
        drafted(data={})
    with pytest.raises(FileNotFoundError, match=r"but nope\.toml does not exist"):
        Agreement.from_toml("nope.toml")
    with pytest.raises(ValueError, match="owners must have the cells of the table that is valued"):
        drafted().split(valued(), X[:60].assign(alcohol=1.0), amount="1")


def test_holdings_of_every_shape_survive_the_file(tmp_path):
    ids = [f"r{i % 30}" for i in range(60)]
    table = X[:60].set_axis(ids).set_axis([3, 1, 4, 2], axis=1)
    cells = np.random.default_rng(0).random(table.shape) < 0.3
    owners = Owners(table, overlaps="equal").assign("ann", cells=cells)
    owners = owners.assign("bob", columns=[1, "(label)"]).assign_rest(None)
    data = {"X": table, "y": y[:60].set_axis(ids), "value_labels": True}
    valuer = KNNValuer(3, random_state=0)
    agreement = Agreement.draft(valuer, owners, **data)
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
    (ModelValuer(LogisticRegression(), scoring="neg_log_loss", stop=MaxTasks(1)), SMALL),
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
    "parties": ["ann", "bob", "the buyer"],
    "period": (date(2026, 1, 1), date(2026, 1, 31)),
    "payout_date": date(2026, 2, 15),
    "created": datetime(2025, 12, 1, 12, tzinfo=UTC),
}


def headed(**changed):
    return Agreement.draft(KNNValuer(3, **SETTINGS), OWNERS, POLICY, **(HEADED | changed), **DATA)


def test_contract_parties_period_and_dates_survive_the_file(tmp_path):
    headed().save(tmp_path / "a.toml")
    again = Agreement.from_toml(tmp_path / "a.toml")
    assert {name: getattr(again, name) for name in HEADED} == HEADED | {
        "parties": tuple(HEADED["parties"])
    }
    assert again.difference(valued()) is None


def strings(plain):
    if isinstance(plain, dict | list):
        for part in plain.values() if isinstance(plain, dict) else plain:
            yield from strings(part)
    elif isinstance(plain, str):
        yield plain


@pytest.mark.parametrize(
    ("valuer", "data"),
    [
        (KNNValuer(3, **SETTINGS), DATA | {"column_types": {NAMES[0]: "categorical"}}),
        (
            ModelValuer(
                DecisionTreeClassifier(max_depth=2), stop=MaxTasks(2) | MaxTasks(3), random_state=0
            ),
            DATA,
        ),
    ],
)
def test_a_file_holds_plain_toml_and_no_python(valuer, data):
    plain = tomllib.loads(Agreement.draft(valuer, OWNERS, POLICY, **data).text)
    odd = [text for text in strings(plain) if text == "None" or set("'()") & set(text)]
    assert odd == []
    assert plain["valuation"]["valuer"]["empty"] == "prior"


def test_settings_that_differ_stay_different_in_toml():
    stops = [MaxTasks(2), MaxTasks(3), MaxTasks(2) | MaxTasks(3), MaxTasks(2) & MaxTasks(3), None]
    texts = [drafted(KNNValuer(3, **SETTINGS, stop=stop)).terms["valuer"]["stop"] for stop in stops]
    assert all(texts[i] != texts[j] for i in range(5) for j in range(i))


def test_an_amendment_names_the_agreement_before_it_and_changes_only_what_is_given():
    first = headed()
    second = first.amend(policy=Policy(minimum="9"), payout_date=date(2026, 3, 15))
    assert second.previous == first.digest == hashlib.sha256(first.text.encode()).hexdigest()
    assert (second.contract, second.parties) == (first.contract, first.parties)
    assert (second.period, second.terms) == (first.period, first.terms)
    assert (second.policy.minimum, second.payout_date) == ("9", date(2026, 3, 15))
    assert second.describe_change_of_contract(first) is None
    third = second.amend(owners=OWNERS.assign("eve", columns=["(label)"]))
    assert third.parties == (*first.parties, "eve")
    assert third.describe_change_of_contract(first).startswith("it does not name the digest")


def test_an_amendment_is_not_written_before_its_agreement():
    with pytest.raises(ValueError, match="was written before the agreement that it amends"):
        headed().amend(created=datetime(2025, 11, 1, tzinfo=UTC))
    with pytest.raises(ValueError, match="valuer and the arguments of fit must be given together"):
        headed().amend(valuer=KNNValuer(3, random_state=0))


def test_the_readable_page_has_every_term_and_no_markup_of_others():
    page = headed(parties=["ann", "<b>|bob"]).to_markdown()
    for text in ("# Agreement C-7", "2026-01-01 to 2026-01-31", "PermutationSampler(orders=3)"):
        assert text in page
    assert all(f"| {name} |" in page for name in ("n_neighbors", "minimum", "seed", "ann"))
    assert "<b>" not in page
