"""Column types, distances in columns, and their exact sums."""

import datetime
import time

import numpy as np
import pandas as pd
import polars as pl
import pytest

from cellworth.data.tables import Table
from cellworth.knn import kernels
from cellworth.knn.distances import Distances
from cellworth.knn.draws import QueryBatch, Steps, find_steps
from cellworth.sampling import ExhaustiveSampler, Shapley


def measure(X, X_val, **settings):
    """Return distances of rows to the first query, shape (n_columns, n_rows)."""
    distances = Distances.from_tables(
        Table.from_data(X, called="X"), [Table.from_data(X_val, called="X_val")], **settings
    )
    # The largest distance in a column is a million.
    return distances.measure(0, 0) / (distances.scales.farthest / 1e6)


def column(cells, query, **settings):
    """Return distances of the cells of one column to one query's cell."""
    X, X_val = pd.DataFrame({"c": cells}), pd.DataFrame({"c": [query]})
    return measure(X, X_val, **settings)[0]


def test_distances_of_numbers_are_squared_differences_over_squared_scales():
    cells = [0.0, 1.0, 2.0, 3.0, 4.0]
    np.testing.assert_allclose(column(cells, 1.0, scale=None), [1, 0, 1, 4, 9])
    np.testing.assert_allclose(column(cells, 1.0, scale="std"), np.array([1, 0, 1, 4, 9]) / 2)
    robust = np.array([1, 0, 1, 4, 9]) * (1.349 / 2) ** 2
    np.testing.assert_allclose(column(cells, 1.0), robust, rtol=1e-6)


def test_a_column_of_mostly_one_value_is_scaled_by_wider_quantiles():
    cells = np.where(np.arange(100) < 90, 0.0, np.arange(100.0))
    scale = (np.percentile(cells, 95) - np.percentile(cells, 5)) / 3.290
    np.testing.assert_allclose(column(cells, 0.0)[-1], (99 / scale) ** 2, rtol=1e-6)


def test_no_distance_exceeds_a_thousand_scales():
    distances = column([0.0, 1.0, 2.0, 1e12], 0.0, scale=None)
    np.testing.assert_allclose(distances, [0, 1, 4, 1e6], rtol=1e-9)


def test_the_mean_distance_of_categories_is_two():
    distances = column(["a", "a", "b", "c"], "a")
    assert distances[:2].tolist() == [0, 0]
    new = column(["a", "a", "b", "c"], "z")
    assert new.tolist() == [distances[2]] * 4
    among = [column(["a", "a", "b", "c"], query) for query in ["a", "a", "b", "c"]]
    assert np.mean(among) == pytest.approx(2.0)


@pytest.mark.parametrize(
    "cells", [[0.0, 1.0, 5.0, None], ["a", "b", "b", None], [True, False, False, None]]
)
def test_a_missing_value_has_the_mean_distance_of_the_column(cells):
    known = cells[:3]
    among = [column(cells, query, scale="std")[:3] for query in known]
    assert column(cells, known[0], scale="std")[3] == pytest.approx(np.mean(among))
    np.testing.assert_allclose(column(cells, None, scale="std"), np.mean(among))


DAYS = [datetime.date(2024, 1, d) for d in (1, 2, 4)]


def test_column_types_override_the_guess():
    matches = column([1, 2, 9], 1, column_types={"c": "categorical"})
    assert matches[1] == matches[2] > 0
    np.testing.assert_allclose(
        column(["1", "2", "4"], "1", column_types={"c": "numeric"}, scale=None), [0, 1, 9]
    )


def test_a_column_of_missing_values_has_no_distance():
    assert column([None, None, None], None).tolist() == [0, 0, 0]
    assert column([np.nan, np.nan], 3.0).tolist() == [0, 0]


@pytest.mark.parametrize(
    "X",
    [
        pl.DataFrame({"c": [[1], [2]]}),
        pd.DataFrame({"c": [{"a": 1}, {"a": 2}]}),
    ],
    ids=str,
)
def test_nested_cells_have_no_distance(X):
    with pytest.raises(TypeError, match=r"column 'c' must .*convert it to numbers or strings"):
        measure(X, X)


@pytest.mark.parametrize("dtype", [np.int64, np.uint64])
def test_large_integers_are_distinguished(dtype):
    small = np.array([0, 7, 21], dtype=dtype)
    near = column(small, small[0], scale=None)
    far = column(small + dtype(2**60), small[0] + dtype(2**60), scale=None)
    np.testing.assert_allclose(far, near)


def test_dates_of_different_precision_are_the_same_categories():
    days = pd.Series(pd.to_datetime(DAYS))
    X = pd.DataFrame({"c": days.astype("datetime64[ns]")})
    X_val = pd.DataFrame({"c": days.astype("datetime64[us]")})
    assert measure(X, X_val, column_types={"c": "categorical"})[0][0] == 0


@pytest.mark.parametrize(
    ("cells", "query", "words"),
    [
        (pd.to_datetime(DAYS), 3, "a date .* and a number"),
        (pd.Series([10**400, 1], dtype=object), 1, "must be numbers"),
        ([1e-170, 3e-170, 9e-170], 1e-170, "multiply the column"),
        ([1e160, 3e160, 9e160], 1e160, "multiply the column"),
    ],
)
def test_cells_that_cannot_be_subtracted_are_an_error(cells, query, words):
    with pytest.raises(ValueError, match=f"column 'c' .*{words}"):
        column(cells, query)


@pytest.fixture
def mixed():
    rng = np.random.default_rng(0)
    n_rows = 700

    def with_missing(cells):
        cells = np.asarray(cells, dtype=object)
        cells[rng.random(len(cells)) < 0.1] = None
        return cells

    X = pd.DataFrame(
        {
            "number": rng.normal(size=n_rows),
            "missing": with_missing(rng.integers(0, 9, n_rows).astype(float)),
            "text": with_missing(rng.choice(list("abc"), n_rows)),
            "more": with_missing(rng.choice(["x", "yy", "zzz"], n_rows)),
        }
    ).infer_objects()
    table = Table.from_data(X, called="X")
    return Distances.from_tables(table, [Table.from_data(X.iloc[:30], called="X")])


def kernel_distances(distances, members, query, way):
    """Return a kernel's distances over coalitions of columns."""
    numbers, categories = (np.ascontiguousarray(c[:, [query]].T) for c in distances.queries[0])
    rows, n_rows = distances.rows, distances.rows.numbers.shape[1]
    at_once = len(members) // (2 if way == "in parts" else 1)
    steps = Steps(
        np.array([0, len(members)]),
        *find_steps(members, with_everything=way == "from everything"),
    )
    one = np.zeros(1, dtype=np.int64)
    batch = QueryBatch(
        numbers, categories, one, np.arange(4)[np.newaxis], one, np.array([0, len(members)]),
        np.ones(1),
    )  # fmt: skip
    found, last = [], np.empty(n_rows)
    for first in range(0, len(members), at_once):
        end = min(first + at_once, len(members))
        lines = np.empty((end - first, n_rows))
        kernels.fill_keys(
            rows, distances.scales, distances.scales.positions, batch, steps, (0, 1, first, end),
            np.zeros(n_rows, dtype=np.int64), (0, 40, 11), last, lines,
            np.empty(lines.shape, dtype=np.uint32),
        )  # fmt: skip
        found.append(lines)
    return np.vstack(found)


@pytest.mark.parametrize("way", ["in parts", "from everything", "from nothing"])
def test_the_kernels_compute_distances_by_definition(mixed, way):
    rng = np.random.default_rng(0)
    members = rng.permutation(ExhaustiveSampler().draw(4, Shapley(), rng).members)
    for query in range(30):
        sums = members.astype(np.int64) @ mixed.measure(0, query)
        assert np.array_equal(kernel_distances(mixed, members, query, way), sums)


@pytest.mark.parametrize("n_columns", [1, 3, 40])
def test_scales_are_the_finest_whose_sums_stay_below_2_to_the_51(n_columns):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, n_columns))
    X[0] = 1e9
    distances = Distances.from_tables(
        Table.from_data(X, called="X"), [Table.from_data(X[:2], called="X")]
    )
    unit, largest = distances.scales.unit, n_columns * 1e6
    assert largest * unit < 2**51
    assert unit == 2.0**40 or 2 * largest * unit >= 2**51


def test_timestamps_with_a_time_zone_are_exact_to_the_microsecond():
    moments = pd.date_range("2024-03-01", periods=7, freq="1us", tz="Europe/Berlin")
    cells = pd.Series(moments)
    near = column(cells, moments[0], scale=None)
    np.testing.assert_allclose(near, np.arange(7.0) ** 2)
    as_objects = pd.Series(list(moments.to_pydatetime()), dtype=object)
    np.testing.assert_allclose(column(as_objects, moments[0], scale=None), near)


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="no time zones to set")
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_timestamps_without_a_time_zone_do_not_depend_on_the_local_one(zone, monkeypatch):
    aware = datetime.datetime(2026, 3, 29, 5, tzinfo=datetime.UTC)
    cells = np.array([[aware], [datetime.datetime(2026, 3, 29, 5)], [None]], dtype=object)
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        with pytest.raises(ValueError, match="must all have a time zone, or none of them"):
            Distances.from_tables(Table.from_data(cells, called="X"), [])
        alike = Distances.from_tables(Table.from_data(cells[[0, 0, 2]], called="X"), [])
        assert alike.rows.numbers[0, 0] == alike.rows.numbers[0, 1]
    finally:
        monkeypatch.undo()
        time.tzset()
