"""Comparison with a reference: every corruption is found, and clean tables are left alone."""

import numpy as np
import pandas as pd
import pytest

from cellworth import audit
from cellworth.data.tables import Table
from cellworth.findings.differences import (
    compare_tables,
    find_differences,
    standardize,
)
from cellworth.findings.reference_checks import (
    BothTables,
    compute_counts_p_value,
)
from matrices import rarely

N = 900
# Each comparison trains dozens of models.
pytestmark = pytest.mark.slow


def people(seed, n_rows=N):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n_rows)
    town = rng.choice(["Berlin", "Bonn", "Kiel", "Ulm"], n_rows, p=[0.6, 0.2, 0.15, 0.05])
    pay = (age * 500 + rng.normal(0, 3000, n_rows)).round(-2)
    y = np.where(pay + rng.normal(0, 3000, n_rows) > 24_000, "buys", "leaves")
    return pd.DataFrame({"age": age, "town": town, "pay": pay}), y


def differ(new, old, false_alarms=0.01):
    (X, y), reference = new, old
    return find_differences(Table.from_data(X, called="X"), y, reference, false_alarms)


def find(findings, kind, *columns):
    return [f for f in findings if f.kind == kind and f.columns == columns]


@pytest.fixture(scope="module")
def reference():
    return people(0)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_clean_table_is_not_different(reference, seed):
    assert differ(people(seed), reference) == []


def test_a_unit_in_some_cells_is_found_with_its_rows(reference):
    X, y = people(1)
    wrong = np.arange(0, N, 20)
    X.loc[wrong, "pay"] *= 10
    (found,) = find(differ((X, y), reference), "drift", "pay")
    assert len(np.intersect1d(found.rows, wrong)) > 0.8 * len(found.rows)
    assert len(found.rows) > 0.5 * len(wrong)


def test_a_moved_distribution_is_found(reference):
    X, y = people(1)
    X["age"] += 4
    assert find(differ((X, y), reference), "drift", "age")


def test_other_shares_of_categories_are_found(reference):
    X, y = people(1)
    X.loc[X["town"].eq("Bonn") & (np.arange(N) % 2 == 0), "town"] = "Kiel"
    (found,) = find(differ((X, y), reference), "drift", "town")
    assert "in the reference" in found.sentence


def test_missing_values_are_found_with_both_shares(reference):
    X, y = people(1)
    X["age"] = X["age"].where(np.arange(N) % 5 > 0)
    differences = differ((X, y), reference)
    (found,) = find(differences, "missing values", "age")
    assert found.sentence == "age is missing in 20.00% of rows; in the reference, in 0.00%."
    assert found.rows.tolist() == list(range(0, N, 5))
    # The cells that are left are as in the reference.
    assert not find(differences, "drift", "age")


@pytest.mark.parametrize(("name", "content"), [("town", "Rom"), ("age", -1), ("pay", 999_900)])
def test_new_contents_are_found_with_their_rows(reference, name, content):
    X, y = people(1)
    X.loc[::40, name] = content
    (found,) = find(differ((X, y), reference), "new content", name)
    assert found.rows.tolist() == list(range(0, N, 40))


def test_misspellings_that_all_differ_are_new_contents(reference):
    X, y = people(1)
    X.loc[::50, "town"] = [f"Berlin{n}" for n in range(len(X.iloc[::50]))]
    (found,) = find(differ((X, y), reference), "new content", "town")
    assert found.rows.tolist() == list(range(0, N, 50))


@pytest.mark.parametrize(("name", "content"), [("town", "Bonn"), ("pay", 24_000.0)])
def test_a_constant_column_is_found(reference, name, content):
    X, y = people(1)
    found = differ((X.assign(**{name: content}), y), reference)
    assert [f.kind for f in found if f.columns == (name,)] == ["constant column"]


def test_a_shuffled_column_breaks_dependence_alone(reference):
    X, _ = people(1)
    X["age"] = np.random.default_rng(5).permutation(X["age"])
    found = differ((X, None), (reference[0], None))
    assert {f.kind for f in found} == {"dependence"}


def test_cells_of_some_rows_that_are_swapped_break_dependence(reference):
    X, y = people(1)
    X.loc[:149, "pay"] = np.roll(X["pay"][:150], 7)
    found = differ((X, y), reference)
    assert {f.kind for f in found} & {"dependence", "label drift"}
    assert not find(found, "drift", "pay")


def test_wrong_labels_are_found_without_a_change_of_their_shares(reference):
    X, y = people(1)
    y[:200] = np.roll(y[:200], 11)
    assert "label drift" in {f.kind for f in differ((X, y), reference)}


def test_other_shares_of_labels_are_found(reference):
    X, y = people(1)
    y[:150] = "buys"
    (found,) = [f for f in differ((X, y), reference) if "the label" in f.sentence.lower()][:1]
    assert (found.kind, found.columns) == ("label drift", ())


def test_copies_are_found(reference):
    X, y = people(1)
    X.iloc[:150], y[:150] = X.iloc[-150:].to_numpy(), y[-150:]
    (found,) = [f for f in differ((X, y), reference) if f.kind == "repeated rows"]
    assert set(range(N - 150, N)) <= set(found.rows.tolist())


def test_a_column_that_suddenly_predicts_the_label_is_a_leak(reference):
    X, y = people(1)
    X.loc[np.argsort(y, kind="stable"), "age"] = np.sort(X["age"])
    (found,) = find(differ((X, y), reference), "leak", "age")
    assert "in the reference" in found.sentence


def test_sentences_are_short_and_rates_are_corrected(reference):
    X, y = people(1)
    X = X.assign(town="Bonn", age=X["age"].where(np.arange(N) % 2 == 0), pay=X["pay"] * 1.5)
    found = differ((X, y[::-1]), reference)
    assert len(found) >= 4
    assert max(len(f.sentence.split()) for f in found) <= 25
    assert max(f.false_rate for f in found) <= 0.01


def test_an_audit_lists_differences_first(reference):
    X, y = people(1)
    X.loc[::40, "age"] = -1
    found = audit(X, y, reference=reference, quick=True)
    assert (found[0].kind, found[0].columns) == ("new content", ("age",))
    assert len(audit(X, y, reference=X, quick=True)) == len(audit(X, y, quick=True))


def test_row_order_does_not_matter(reference):
    X, y = people(1)
    X["age"] = np.roll(X["age"], 9)
    order = np.random.default_rng(3).permutation(N)
    one = differ((X, y), reference)
    other = differ(
        (X.iloc[order].reset_index(drop=True), y[order]), (reference[0][::-1], reference[1][::-1])
    )
    assert [f.sentence for f in one] == [f.sentence for f in other] != []


def test_tables_of_different_types_are_compared(reference):
    X, y = people(1)
    as_text = X.astype(str)
    assert differ((as_text.assign(pay=X["pay"]), y), reference) == []
    (found,) = differ((X.iloc[:, :2], None), reference[0].iloc[:, :2].assign(town=None))[:1]
    assert (found.kind, found.columns) == ("missing values", ("town",))


def test_columns_and_types_that_differ_are_named(reference):
    X, y = people(1)
    changed = X.assign(pay=X["pay"].astype(str) + " EUR", zip=1).drop(columns="town")
    found = differ((changed, y), reference)
    assert [f.sentence for f in found] == [
        "The column town of the reference is missing.",
        "The reference has no column zip.",
        "pay holds text such as '10000.0 EUR'; in the reference, numbers.",
    ]
    assert {f.kind for f in found} == {"schema"}
    assert differ((X[["age"]].rename(columns={"age": "a"}), None), reference[0][["pay"]])
    # What is in both is still compared.
    assert find(differ((changed.assign(age=changed["age"] + 9), y), reference), "drift", "age")


def wide_people(seed):
    """Many columns share the probability of a false alarm."""
    X, _ = people(seed, 1000)
    noise = np.random.default_rng(seed).integers(0, 150, (1000, 12))
    return X.join(pd.DataFrame(noise).add_prefix("x"))


def test_lower_case_in_a_few_of_1000_rows_is_found():
    X = wide_people(1)
    X.loc[::40, "town"] = X.loc[::40, "town"].str.lower()
    (found,) = find(differ((X, None), wide_people(0)), "new content", "town")
    assert found.rows.tolist() == list(range(0, 1000, 40))


def test_a_number_below_all_others_in_2_percent_of_1000_rows_is_found():
    X = wide_people(1)
    X.loc[::50, "x0"] = -1
    (found,) = find(differ((X, None), wide_people(0)), "drift", "x0")
    assert found.rows.tolist() == list(range(0, 1000, 50))


def test_the_classifier_names_the_columns_that_it_uses():
    def measure(seed):
        rng = np.random.default_rng(seed)
        a, b, c = rng.normal(size=(3, N))
        return pd.DataFrame({"a": a, "twice": a + 0.1 * b, "b": b, "other": c, "more": -c + b})

    X = measure(1)
    swapped = X.assign(a=X["twice"], twice=X["a"])
    (found,) = [f for f in differ((swapped, None), measure(0)) if "classifier" in f.sentence]
    named = found.sentence.partition("mostly by ")[2].partition(", with AUC")[0]
    assert set(named.split(", ")) <= {"a", "twice", "b"}
    assert named


def test_wrong_arguments_are_named(reference):
    X, y = people(1)
    with pytest.raises(ValueError, match="reference must have the 3 columns of X, got 2"):
        audit(X.to_numpy(), y, reference=reference[0].drop(columns="age").to_numpy())
    with pytest.raises(ValueError, match="false_alarms must be between 0 and 1, got 1"):
        audit(X, y, reference=reference, false_alarms=1)


@pytest.mark.parametrize("rows", [1, 9, 10, 30])
def test_small_tables_are_compared(rows):
    X, y = people(3, rows)
    assert differ((X, y), people(4, rows)) == []


def test_numeric_labels_are_compared():
    rng = np.random.default_rng(0)
    X, ref = (pd.DataFrame({"a": rng.normal(size=800), "b": rng.normal(size=800)}) for _ in "xy")
    y, y_ref = (np.asarray(each["a"]) + rng.normal(0, 0.1, 800) for each in (X, ref))
    assert differ((X, y), (ref, y_ref)) == []
    y[:100] = np.roll(y[:100], 3)
    assert "label drift" in {f.kind for f in differ((X, y), (ref, y_ref))}


def test_labels_that_became_words_are_compared():
    X, _ = people(1, 300)
    rng = np.random.default_rng(0)
    found = differ((X, rng.choice(["no", "yes"], 300)), (people(2, 300)[0], rng.normal(size=300)))
    assert (found[0].kind, found[0].columns) == ("label drift", ())


@pytest.mark.parametrize("n_known", [0, 3])
def test_columns_without_numbers_are_compared(n_known):
    new, old = (
        people(seed, 300)[0].assign(note=np.where(np.arange(300) < 300 - n_known, np.nan, 1.0))
        for seed in (1, 2)
    )
    assert differ((new, None), old) == []


def test_equal_and_empty_columns_have_no_evidence():
    assert compute_counts_p_value(np.array([50]), np.array([40])) == 1.0
    assert standardize(np.ones(9), np.arange(9) < 4) == 0.0


def draw_discrete(rng, n_rows):
    X = pd.DataFrame(
        {
            "few": rng.integers(0, 3, n_rows),
            "zeros": np.where(rng.random(n_rows) < 0.8, 0.0, rng.exponential(size=n_rows).round(1)),
            "rare": rng.choice(list("abcdefghij"), n_rows, p=[0.55, *[0.05] * 9]),
            "holes": np.where(rng.random(n_rows) < 0.2, np.nan, rng.integers(0, 9, n_rows)),
        }
    )
    return X, rng.integers(0, 2, n_rows)


def measure_p_values(n_draws, n_new, n_ref):
    p_values = []
    for seed in range(n_draws):
        X, y = draw_discrete(np.random.default_rng(seed), n_new + n_ref)
        both = BothTables.of(
            Table.from_data(X[:n_new], called="X"), y[:n_new], X[n_new:], y[n_new:]
        )
        checks = list(compare_tables(both))
        assert sum(check.weight for check in checks) <= 1 + 1e-9
        p_values.append([check.p_value for check in checks])
    return np.array(p_values)


@pytest.mark.parametrize("sizes", [(60, 60), *rarely(((30, 99),))], ids=str)
def test_p_values_hold_for_ties_and_discrete_columns(sizes):
    p_values = measure_p_values(300, *sizes)
    assert p_values.shape[1] >= 25
    assert (p_values < 0.05).mean(axis=0).max() <= 0.08
    # Not so careful that nothing could be found.
    assert (p_values < 0.5).mean(axis=0).max() >= 0.3


@pytest.mark.parametrize("n_draws", [8, *rarely(50)])
def test_p_values_of_rows_and_labels_hold_for_discrete_columns(n_draws):
    # The last ones: all cells, four columns, rows and labels.
    p_values = measure_p_values(n_draws, 110, 120)[:, -7:]
    assert (p_values < 0.05).mean(axis=0).max() <= (0.12 if n_draws > 8 else 1 / 8)
    assert (p_values < 0.05).mean() <= 0.07
