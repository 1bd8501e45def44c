"""Columns of every type that libraries have: valued and audited, or refused in one sentence."""

import datetime
import decimal
import fractions

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth import KNNValuer, audit

N_ROWS = 12
Y = [0, 1] * (N_ROWS // 2)
COUNT = list(range(N_ROWS))
SPARSE_UNION = pa.UnionArray.from_sparse(
    pa.array([0] * N_ROWS, pa.int8()), [pa.array(COUNT), pa.array(["text"] * N_ROWS)]
)


def repeat(*cells):
    return pd.Series(cells * (N_ROWS // len(cells)), dtype=object)


# Columns that are read, and columns that are refused.
READ = {
    "polars Decimal": pl.Series([decimal.Decimal("1.5")] * N_ROWS),
    "polars Time": pl.Series([datetime.time(1, minute) for minute in COUNT]),
    "polars UInt64": pl.Series([2**63 + count for count in COUNT], dtype=pl.UInt64),
    "Arrow string_view": pa.array(["x", "y"] * 6, type=pa.string_view()),
    "Arrow run-end encoded": pa.RunEndEncodedArray.from_arrays(
        pa.array([6, 12], pa.int32()), pa.array([1, 2])
    ),
    "Arrow duration": pa.array(COUNT, pa.duration("s")),
    "uint64": np.array([2**63 + count for count in COUNT], dtype=np.uint64),
    "half floats": np.arange(N_ROWS, dtype=np.float16),
    "long doubles": np.arange(N_ROWS, dtype=np.longdouble),
    "lone surrogate": repeat("\ud800", "x"),
    "NUL": repeat("\x00", "x\x00"),
    "NaN of decimals": repeat(decimal.Decimal("NaN"), decimal.Decimal(1)),
    "fractions": repeat(fractions.Fraction(1, 3), 1),
    "first and last day": repeat(datetime.date.min, datetime.date.max),
    "missing values of three libraries": repeat(pd.NA, None, np.nan, "x"),
    "tuples": repeat((1, 2), (3, 4)),
    "categories that are tuples": pd.Categorical([(1, 2), (3, 4)] * 6),
    "periods": pd.period_range("2020", periods=N_ROWS, freq="M"),
    "intervals": pd.interval_range(0, N_ROWS),
    "sparse": pd.arrays.SparseArray(Y),
}
REFUSED = {
    "polars Int128": pl.Series(COUNT, dtype=pl.Int128),
    "polars Array": pl.Series([[1, 2]] * N_ROWS, dtype=pl.Array(pl.Int64, 2)),
    "polars Struct": pl.Series([{"x": 1}] * N_ROWS),
    "Arrow union": SPARSE_UNION,
    "signalling NaN": repeat(decimal.Decimal("sNaN"), decimal.Decimal(1)),
    "integers beyond floats": repeat(10**400, 1),
    "sets": repeat({1}, {2}),
    "complex numbers": np.arange(N_ROWS) * 1j,
    "infinity": repeat(float("inf"), 1),
}


def make_table(column):
    """Put a column into a table of its library, beside a plain one."""
    if isinstance(column, pl.Series):
        return pl.DataFrame({"odd": column, "plain": COUNT})
    if isinstance(column, pa.Array):
        return pa.table({"odd": column, "plain": COUNT})
    return pd.DataFrame({"odd": column, "plain": COUNT})


def fit(table):
    return KNNValuer(2, random_state=0).fit(table, Y, X_val=table, y_val=Y)


@pytest.mark.filterwarnings("ignore::cellworth.DataWarning")
@pytest.mark.parametrize("name", READ)
def test_a_rare_type_is_valued_and_audited(name):
    table = make_table(READ[name])
    valuation = fit(table).valuation_
    assert np.isfinite(valuation.values).all()
    assert valuation.values.sum() == pytest.approx(valuation.expected_total)
    assert str(audit(table, Y))


@pytest.mark.parametrize("name", REFUSED)
def test_a_type_without_distances_is_refused_in_one_sentence(name):
    with pytest.raises((TypeError, ValueError), match="odd") as caught:
        fit(make_table(REFUSED[name]))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", REFUSED)
def test_an_audit_reads_it_or_refuses_it_in_one_sentence(name):
    """Lists and the like can be equal, so some of them are read."""
    message = "odd"
    try:
        assert str(audit(make_table(REFUSED[name]), Y))
    except (TypeError, ValueError) as error:
        message = str(error)
    assert "odd" in message
    assert "\n" not in message


def test_a_column_without_a_name_is_refused():
    table = pd.DataFrame(np.c_[COUNT, COUNT], columns=[np.nan, None])
    for use in (fit, lambda table: audit(table, Y)):
        with pytest.raises(ValueError, match="name for every column"):
            use(table)


LONE = pd.Index(["\ud800", "x"], dtype=object)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (pd.Index([("a", 1), "b"], tupleize_cols=False), "got str and tuple"),
        (pd.Index(["b", ("a", 1)], tupleize_cols=False), "got str and tuple"),
        (LONE, "column labels must be whole characters, got half of one .*ud800"),
    ],
)
def test_names_of_several_kinds_or_with_half_a_character_are_refused(names, message):
    table = pd.DataFrame(np.c_[COUNT, COUNT])
    table.columns = names
    for use in (fit, lambda table: audit(table, Y)):
        with pytest.raises((TypeError, ValueError), match=message):
            use(table)


@pytest.mark.parametrize("name", ["Arrow string_view", "Arrow run-end encoded"])
def test_a_type_of_which_arrow_takes_no_rows_is_refused_in_folds(name):
    with pytest.raises(TypeError, match="rows of X cannot be taken"):
        KNNValuer(2).fit(make_table(READ[name]), Y, cv=2)


def test_a_signalling_nan_is_missing():
    given = pl.Series([decimal.Decimal("sNaN"), decimal.Decimal(1)] * 6, dtype=pl.Object)
    assert np.isfinite(fit(make_table(given)).valuation_.values).all()


def test_labels_that_are_lists_are_refused():
    lists = pa.array([[1, 2], [3, 4]] * 6)
    with pytest.raises(TypeError, match="y must have labels of one type, got ndarray"):
        KNNValuer(2).fit(make_table(pl.Series(Y)), lists)


def test_row_ids_with_half_a_character_are_refused():
    table = pd.DataFrame({"a": COUNT}, index=pd.Index([*LONE] * 6, dtype=object))
    with pytest.raises(ValueError, match="row labels must be whole"):
        fit(table)
