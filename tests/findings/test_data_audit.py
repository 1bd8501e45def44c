"""audit: findings in order, fixed, listed and saved."""

import datetime
import decimal
import json

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cellworth import KNNValuer, Runtime, audit
from cellworth.findings import Audit


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
    listed = {(f.kind, f.columns, tuple(f.rows.tolist())) for f in found.findings[:4]}
    assert listed == {
        ("missing code", ("age",), (3, 30, 90)),
        ("missing code", ("job",), (8, 9)),
        ("misspelling", ("job",), (5,)),
        ("scale", ("pay",), (12,)),
    }


@pytest.mark.slow
def test_a_clean_table_has_few_findings():
    X, y = people(1000)
    assert [finding.kind for finding in audit(X, y)] == ["leak"]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_a_fixed_table_has_the_right_cells_and_its_own_library(make):
    X, y = spoiled()
    clean, _ = people()
    fixed = audit(make(X), y).fix()
    assert type(fixed) is type(make(X))
    back = fixed if isinstance(fixed, pd.DataFrame) else fixed.to_pandas()
    assert back["age"].isna().tolist() == X["age"].eq(999).tolist()
    assert back["job"][5] == "teacher"
    assert back["job"].isna().tolist() == X["job"].eq("?").tolist()
    assert back["pay"][12] == clean["pay"][12]
    assert X["age"][3] == 999


@pytest.mark.parametrize("make", [pd.DataFrame, pl.from_pandas], ids=["pandas", "polars"])
def test_the_cells_of_findings_are_listed_with_what_replaces_them(make):
    X, y = spoiled()
    found = audit(make(X), y)
    cells = found.cells("pandas").astype({"cell": str})
    ages = cells[cells["column"] == "age"]
    assert ages["row"].tolist() == X.index[X["age"] == 999].tolist()
    assert set(ages["cell"]) == {"999"}
    assert ages["new"].isna().all()
    word = cells[(cells["column"] == "job") & (cells["row"] == 5)].iloc[0]
    assert (found[word["finding"]].kind, word["cell"], word["new"]) == (
        "misspelling", X["job"][5], "teacher",
    )  # fmt: skip
    assert len(found.cells()) == len(cells)


def test_ids_of_rows_are_shown_and_need_not_be_unique_to_be_fixed():
    X, y = spoiled()
    wrong = np.flatnonzero(X["age"] == 999)
    X.index = [f"p{i % 200}" for i in range(len(X))]
    found = audit(X, y, quick=True)
    names = ", ".join(f"p{i % 200}" for i in wrong[:3].tolist())
    assert f"certain). Rows {names}" in repr(found)
    assert np.flatnonzero(found.fix()["age"].isna()).tolist() == wrong.tolist()


def test_a_table_without_findings_is_fixed_by_a_copy():
    X, _ = people(1000)
    fixed = audit(X, quick=True).fix()
    fixed.loc[0, "job"] = "pilot"
    assert X.loc[0, "job"] != "pilot"


def test_rows_and_columns_are_dropped_only_if_they_are_named():
    X, y = people()
    X = pd.concat([X, X.iloc[:5]], ignore_index=True).assign(same=1)
    found = audit(X, np.append(y, y[:5]))
    assert found.fix().shape == X.shape
    numbers = [i for i, f in enumerate(found) if f.kind in ("repeated rows", "constant column")]
    assert found.fix(numbers).shape == (400, 3)


def test_a_fix_that_does_not_exist_is_refused():
    found = audit(pd.DataFrame({"size": [f"{n} oz" for n in range(40)]}))
    with pytest.raises(ValueError, match=r"finding 0 \(numbers as text\) has no automatic fix"):
        found.fix([0])
    with pytest.raises(ValueError, match="which must hold positions of findings, 0 to"):
        found.fix([99])


def test_protected_columns_are_not_called_odd_because_they_are_rare():
    X, y = people()
    X["group"] = np.where(np.arange(400) == 17, "rare", "frequent")
    shielded = audit(X, y, protected=["group", "job"])
    kinds = {f.kind for f in shielded if {"group", "job"} & set(f.columns)}
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
    at = X.index.get_indexer(cells["row"]), X.columns.get_indexer(cells["column"])
    of_cells = cells["column"].notna()
    worth = np.where(of_cells, valuation.values[at], valuation.values[at[0]].sum(axis=1))
    np.testing.assert_allclose(cells["value"], worth)
    ordered = cells.groupby("finding")["value"].apply(lambda part: part.is_monotonic_increasing)
    assert ordered.all()
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
    assert repr(found) == "Audit of 2 rows x 1 columns: nothing found"


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
@pytest.mark.parametrize("name", ODD_COLUMNS)
def test_any_column_is_audited_shown_and_fixed(name):
    X = pd.DataFrame({"plain": np.arange(N) % 7, name: ODD_COLUMNS[name]})
    found = audit(X)
    assert repr(found)
    assert found._repr_html_()
    assert found.fix().shape == X.shape


def test_names_of_columns_need_not_be_strings():
    X = pd.DataFrame({0: [*range(18, 57), 999], 1: ["x", "y"] * 20})
    found = audit(X)
    assert found[0].columns == ("0",)
    assert found.fix()[0].isna().sum() == 1


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
    cells = [np.ravel_multi_index(f.cells(found.table), X.shape) for f in found.findings[:100]]
    listed = np.concatenate(cells)
    assert np.isin(wrong, listed).mean() >= 0.97
    assert np.isin(listed, wrong).mean() >= 0.97
