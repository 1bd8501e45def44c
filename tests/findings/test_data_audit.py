"""audit: findings in order, fixed, listed and saved."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cellworth import KNNValuer, Runtime, audit
from cellworth.findings import Action, Audit, Finding


def people(n_rows=400, seed=0):
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 80, n_rows)
    job = np.array(["clerk", "cook", "driver", "teacher"])[rng.integers(0, 4, n_rows)]
    pay = (age * 500 + rng.normal(0, 2000, n_rows)).round()
    rich = np.where(pay > np.median(pay), "yes", "no")
    return pd.DataFrame({"age": age, "job": job, "pay": pay}), rich


def spoiled():
    X, y = people()
    X.loc[[3, 30, 90], "age"] = 999
    X.loc[[5], "job"] = "techer"
    X.loc[[8, 9], "job"] = "?"
    X.loc[[12], "pay"] *= 1000
    return X, y


def find(found, kind):
    return [finding for finding in found if finding.kind == kind]


def test_planted_mistakes_come_first():
    X, y = spoiled()
    found = audit(X, y)
    listed = {(f.kind, f.columns, tuple(f.rows.tolist())) for f in found.findings[:5]}
    assert listed == {
        ("leak", ("pay",), ()),
        ("missing code", ("age",), (3, 30, 90)),
        ("missing mark", ("job",), (8, 9)),
        ("misspelling", ("job",), (5,)),
        ("scale", ("pay",), (12,)),
    }


@pytest.mark.slow
def test_a_clean_table_has_few_findings():
    X, y = people(1000)
    assert [finding.kind for finding in audit(X, y)] == ["leak"]


@pytest.mark.parametrize(
    "make", [pd.DataFrame, pl.from_pandas, np.array], ids=["pandas", "polars", "numpy"]
)
def test_by_default_a_fix_loses_nothing_and_named_proposals_are_applied(make):
    X, y = spoiled()
    clean, _ = people()
    X.loc[20, "job"] = "Cook"
    clean.loc[20, "job"] = "cook"
    given = make(X)
    found = audit(given, y, quick=True)
    fixed = found.fix()
    assert type(fixed.X) is type(given)
    changed = {(c.row, c.column): (c.before, c.after) for c in fixed.changes}
    codes = {(row, 0): (999, None) for row in (3, 30, 90)}
    marks = {(row, 1): ("?", None) for row in (8, 9)}
    assert changed == codes | marks | {(20, 1): ("Cook", "cook")}
    named = found.fix(kinds=["misspelling", "scale"])
    assert {(c.row, c.after) for c in named.changes} == {(5, "teacher"), (12, clean["pay"][12])}
    (scale,) = (i for i, f in enumerate(found) if f.kind == "scale")
    assert [c.row for c in found.fix(findings=[scale]).changes] == [12]
    np.testing.assert_array_equal(np.asarray(fixed.undo()), np.asarray(given))


def test_by_default_capitals_of_names_and_of_codes_stay():
    towns = ["Lafayette"] * 30 + ["LaFayette", "lafayette"] + ["Bonn"] * 8
    units = ["s"] * 30 + ["S"] * 2 + ["kg"] * 8
    titles = ["Science"] * 30 + ["JAMA", "Jama"] + ["Nature"] * 8
    found = audit(pd.DataFrame({"town": towns, "unit": units, "title": titles}), quick=True)
    changes = {(change.before, change.after) for change in found.fix().changes}
    assert changes == {("lafayette", "Lafayette")}


def test_what_cannot_be_fixed_is_skipped_and_said():
    postcode = np.random.default_rng(0).integers(0, 8, 400)
    X = pd.DataFrame({"place": [f"place {n}" for n in postcode], "number": postcode.astype(str)})
    X.loc[7, "number"] = "n.a"
    X["size"] = [f"{n} oz" for n in range(400)]
    found = audit(X, quick=True)
    kinds = [finding.kind for finding in found]
    fixed = found.fix(findings=range(len(found)))
    assert any(
        "numbers as text" in reason and "a person must" in reason for reason in fixed.skipped
    )
    assert "text among numbers" in kinds
    twice = Audit(found.table, (
        Finding("one", ("place",), np.array([3]), "One.", Action("replace", ["a"])),
        Finding("other", ("place",), np.array([3]), "Other.", Action("replace", ["b"])),
        Finding("unfit", ("size",), np.array([4]), "Unfit.", Action("replace", [2.5])),
    ), (), np.zeros(X.shape))  # fmt: skip
    fixed = twice.fix(findings=[0, 1, 2])
    assert fixed.skipped == ("row 3, place: findings 0 and 1 replace it with 'a' and 'b'.",)
    assert fixed.X["place"].equals(X["place"])
    # A number is written as the strings of its column are.
    assert fixed.X["size"][4] == "2.5"


def test_a_proposal_that_a_column_cannot_hold_is_skipped():
    X = pd.DataFrame({"day": pd.date_range("2020", periods=40)})
    wrong = Finding("wrong", ("day",), np.array([3]), "Wrong.", Action("replace", ["soon"]))
    fixed = Audit(audit(X, quick=True).table, (wrong,), (), np.zeros(X.shape)).fix(findings=[0])
    assert fixed.skipped[0].startswith("finding 0 (wrong): values of column 'day' must be")
    assert fixed.X.equals(X)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_contents_of_findings_are_listed_once_with_what_replaces_them(make):
    X, y = spoiled()
    found = audit(make(X), y)
    cells = found.cells(backend="pandas").astype({"cell": str})
    (code,) = cells[(cells["column"] == "age") & (cells["finding"] >= 0)].to_dict("records")
    assert (code["cell"], code["row"], code["n_cells"], code["new"]) == ("999", 3, 3, None)
    word = cells[(cells["column"] == "job") & (cells["row"] == 5)].iloc[0]
    assert (word["kind"], word["cell"], word["new"]) == ("misspelling", X["job"][5], "teacher")
    # Then come unusual cells.
    assert len(found.cells()) == 100
    assert found.cells(3)["finding"].to_list() == [0, 1, 2]


def test_ids_of_rows_are_shown_and_need_not_be_unique_to_be_fixed():
    X, y = spoiled()
    wrong = np.flatnonzero(X["age"] == 999)
    X.index = [f"p{i % 200}" for i in range(len(X))]
    found = audit(X, y, quick=True)
    names = ", ".join(f"p{i % 200}" for i in wrong[:3].tolist())
    assert f" Rows {names}." in repr(found)
    assert np.flatnonzero(found.fix().X["age"].isna()).tolist() == wrong.tolist()


def test_a_table_without_findings_is_fixed_by_a_copy():
    X, _ = people(1000)
    fixed = audit(X, quick=True).fix().X
    fixed.loc[0, "job"] = "pilot"
    assert X.loc[0, "job"] != "pilot"


def test_rows_and_columns_are_dropped_only_if_they_are_named():
    X, y = people()
    X = pd.concat([X, X.iloc[:5]], ignore_index=True).assign(same=1)
    found = audit(X, np.append(y, y[:5]))
    assert found.fix().X.shape == X.shape
    fixed = found.fix(kinds=["repeated rows", "constant column"])
    assert fixed.X.shape == (400, 3)
    assert fixed.rows.tolist() == list(range(400))


def test_a_fix_that_does_not_exist_is_refused():
    found = audit(pd.DataFrame({"size": [f"{n} oz" for n in range(40)]}))
    with pytest.raises(ValueError, match="findings must hold positions of findings, 0 to"):
        found.fix(findings=[99])
    with pytest.raises(ValueError, match="kinds must hold kinds of findings"):
        found.fix(kinds=["scales"])


def test_checks_of_ones_own_are_run_with_the_others():
    X, y = people()

    def too_young(X, y):
        rows = np.flatnonzero(X["age"] < 19)
        yield Finding("rule", ("age",), rows, "Nobody is younger than 19.")

    (found,) = find(audit(X, y, checks=[too_young], quick=True), "rule")
    assert X["age"][found.rows].eq(18).all()
    assert found.false_rate is None
    for wrong, error in (
        ("age", TypeError), (Finding("rule", ("size",), np.array([0]), "Unknown."), ValueError),
        (Finding("rule", ("age",), np.array([400]), "Too far."), ValueError),
    ):  # fmt: skip
        with pytest.raises(error):
            audit(X, y, checks=[lambda X, y, wrong=wrong: [wrong]], quick=True)


def test_protected_columns_are_not_called_odd_because_they_are_rare():
    X, y = people()
    X["group"] = np.where(np.arange(400) == 17, "rare", "frequent")
    shielded = audit(X, y, protected=["group", "job"])
    found = (*shielded, *shielded.unusual)
    kinds = {f.kind for f in found if {"group", "job"} & set(f.columns)}
    assert not kinds & {"odd cell", "misspelling", "wrong column", "dependency"}
    with pytest.raises(ValueError, match="protected must be a list of columns of X"):
        audit(X, y, protected="group")


def test_findings_tell_what_their_cells_are_worth():
    X, y = spoiled()
    valuation = KNNValuer(random_state=0, runtime=Runtime(progress=False)).fit(X, y).valuation_
    found = audit(X, y, valuation=valuation)
    (code, *_) = find(found, "missing code")
    rows, columns = code.cells(found.table)
    assert code.value == pytest.approx(valuation.values[rows, columns].sum())
    cells = found.cells()
    line = cells[cells["kind"] == "missing code"].iloc[0]
    assert line["value"] == pytest.approx(code.value)
    assert "value" not in audit(X, y, quick=True).cells().columns
    assert "worth" in repr(found)


def test_labels_of_validation_rows_are_compared_with_those_of_the_table():
    X, y = people()
    other = np.where(y == "yes", "no", "yes")
    (found,) = find(audit(X, y, X_val=X[:9], y_val=other[:9], quick=True), "validation rows in X")
    assert "9 of 9 validation rows are also in X, 9 of them with another label" in found.sentence
    with pytest.raises(ValueError, match="y_val needs X_val"):
        audit(X, y, y_val=y)


def test_row_order_does_not_matter():
    X, y = spoiled()
    order = np.random.default_rng(3).permutation(len(X))
    one, other = audit(X, y), audit(X.iloc[order].reset_index(drop=True), y[order])
    assert [f.sentence for f in one] == [f.sentence for f in other]


def test_views_and_files_have_every_finding(tmp_path):
    X, y = spoiled()
    found = audit(X, y)
    assert "999 in 3 cells of age" in repr(found)
    assert "999 in 3 cells of age" in found._repr_html_()
    listed = found.to_frame()
    assert listed["finding"].tolist() == [f.sentence for f in found]
    found.to_csv(tmp_path / "audit.csv")
    assert len(pd.read_csv(tmp_path / "audit.csv")) == len(found)
    found.to_json(tmp_path / "audit.json")
    saved = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert [each["rows"] for each in saved["findings"]] == [f.rows.tolist() for f in found]


def test_a_table_without_findings_says_so():
    found = Audit(audit(pd.DataFrame({"a": [1.0, 2.0]})).table, (), (), np.zeros((2, 1)))
    assert repr(found) == "Nothing looks wrong in 2 rows x 1 columns."


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_tiny_tables_are_audited(rows):
    assert isinstance(audit(pd.DataFrame({"a": range(rows), "b": ["x"] * rows})), Audit)


N = 60
ODD_COLUMNS = {
    "infinite": [np.inf, -np.inf, *range(N - 2)],
    "empty": [None] * N,
    "nan": [np.nan] * N,
    "booleans": [True, False] * (N // 2),
    "mixed": [1, "two", 3.0, None, True, "six"] * (N // 6),
    "huge": [10**300, 1e-300, *map(float, range(N - 2))],
    "integers": [2**62 + i for i in range(N)],
    "decimals": [decimal.Decimal(i) / 7 for i in range(N)],
    "dates": [datetime.date(2020, 1, 1) + datetime.timedelta(days=i) for i in range(N)],
    "zones": pd.date_range("2020", periods=N, tz="Europe/Berlin"),
    "durations": pd.timedelta_range("1h", periods=N, freq="7min"),
    "categories": pd.Categorical(["a", "b", None] * (N // 3)),
    "long": ["x" * 5000 + str(i) for i in range(N)],
    "emoji": ["🙂", "\u202eabc", "\x00", "a\nb"] * (N // 4),
    "nothing": ["", " "] * (N // 2),
}


@pytest.mark.filterwarnings("error")
def test_any_column_is_audited_shown_and_fixed():
    X = pd.DataFrame({"plain": np.arange(N) % 7, **ODD_COLUMNS})
    found = audit(X)
    assert repr(found)
    assert found._repr_html_()
    assert found.fix().X.shape == X.shape


def test_names_of_columns_need_not_be_strings():
    X = pd.DataFrame({0: [*range(18, 57), 999], 1: ["x", "y"] * 20})
    found = audit(X)
    assert found[0].columns == ("0",)
    assert found.fix().X[0].isna().sum() == 1


def test_a_numeric_target_is_used():
    X, _ = people()
    y = X.pop("pay").to_numpy(copy=True)
    X.loc[7, "age"] = 999
    assert audit(X, y)[0].rows.tolist() == [7]


def test_gross_errors_are_found_however_many_there_are():
    rng = np.random.default_rng(0)
    X = rng.normal(50, 10, size=(2000, 10))
    wrong = rng.choice(X.size, 50, replace=False)
    X.ravel()[wrong] *= 100
    found = audit(X, quick=True)
    listed = (*found.findings, *found.unusual)
    cells = [np.ravel_multi_index(f.cells(found.table), X.shape) for f in listed]
    listed = np.concatenate(cells)
    assert np.isin(wrong, listed).mean() >= 0.97
    assert np.isin(listed, wrong).mean() >= 0.97
