import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgba

from cellworth import KNNValuer, plots
from cellworth.plots.figure_style import PALE_GRAY, sequential
from drawing import assert_readable, normal, tick_names, valuation_of


def points(ax):
    return np.vstack([part.get_offsets() for part in ax.collections])


def line(ax, i):
    """Points of a line, by rising value."""
    seen = points(ax)
    mine = seen[np.abs(seen[:, 1] - i) < 0.5]
    return mine[np.argsort(mine[:, 0], kind="stable")]


def test_every_cell_is_a_point_at_its_value_on_its_columns_line():
    values = normal(60, 4)
    ax = plots.beeswarm(valuation_of(values))
    order = np.argsort(-values.sum(axis=0))
    for i, column in enumerate(order):
        np.testing.assert_allclose(line(ax, i)[:, 0], np.sort(values[:, column]))
    assert tick_names(ax.yaxis) == [f"x{j}" for j in order]
    assert_readable(ax)


def test_of_many_cells_some_are_drawn_evenly_by_rank_with_both_ends():
    values = normal(10_001, 2)
    ax = plots.beeswarm(valuation_of(values), max_points=101)
    top = np.argmax(values.sum(axis=0))
    np.testing.assert_allclose(line(ax, 0)[:, 0], np.sort(values[:, top])[::100])
    assert "101 of 10,001 cells per column, evenly by rank" in ax.get_xlabel()


def test_of_many_columns_those_of_largest_value_are_drawn():
    values = np.array([[1.0, -5.0, 0.1, 3.0, -0.2]])
    ax = plots.beeswarm(valuation_of(values), max_columns=3)
    assert tick_names(ax.yaxis) == ["x3", "x0", "x1"]
    assert "3 of 5 columns, those of largest absolute value" in ax.get_xlabel()


@pytest.mark.parametrize(
    "values",
    [np.zeros((6, 2)), np.full((3, 2), np.nan), [[np.nan, 1.0]]],
    ids=["zero", "unvisited", "one unvisited"],
)
def test_odd_tables_are_drawn(values):
    ax = plots.beeswarm(valuation_of(values))
    assert len(points(ax)) == np.count_nonzero(~np.isnan(values))
    assert ("not sampled" in ax.get_xlabel()) == np.isnan(values).any()
    assert_readable(ax)


# What stands in the cells ---------------------------------------------------------------------


COLUMNS = {
    "age": [30.0, 20.0, np.nan, 40.0, 20.0],
    "town": ["Ulm", "Bonn", "Ulm", None, "Bonn"],
    "day": pd.to_datetime(["2026-01-03", "2026-01-01", "2026-01-02", "2026-01-05", "2026-01-04"]),
}
TABLES = {
    "pandas": pd.DataFrame(COLUMNS),
    "polars": pl.DataFrame(COLUMNS, nan_to_null=True),
    "pyarrow": pa.table(pd.DataFrame(COLUMNS)),
}
MIXED = valuation_of(normal(5, 3), columns=["age", "town", "day"])


def color_of(ax, value):
    for part in ax.collections:
        positions = part.get_offsets()[:, 0]
        # One color may stand for all.
        colors = np.broadcast_to(part.get_facecolors(), (len(positions), 4))
        if np.isclose(positions, value).any():
            return tuple(colors[np.isclose(positions, value)][0])
    return None


@pytest.mark.parametrize("library", TABLES)
def test_numbers_and_dates_are_colored_by_rank_and_categories_by_frequency(library):
    ax = plots.beeswarm(MIXED, X=TABLES[library])
    assert_readable(ax)
    # Of the ages two share the lowest: their ranks are 1.5, 1.5, 3 and 4, one has none.
    # Two towns are equally frequent.
    ranks = {
        "age": [0.6, 0.0, None, 1.0, 0.0],
        "town": [0.0, 1.0, 0.0, None, 1.0],
        "day": [0.5, 0.0, 0.25, 1.0, 0.75],
    }
    for j, name in enumerate(ranks):
        for i, rank in enumerate(ranks[name]):
            expected = to_rgba(PALE_GRAY) if rank is None else sequential(ax)(rank)
            assert color_of(ax, MIXED.values[i, j]) == pytest.approx(expected)


# Content against value ------------------------------------------------------------------------


def test_scatter_draws_each_cell_at_its_content_and_value():
    ax = plots.scatter(MIXED, TABLES["pandas"], "age", color="day")
    seen = points(ax)
    known = ~np.isnan(COLUMNS["age"])
    expected = np.column_stack([COLUMNS["age"], MIXED.values[:, 0]])[known]
    seen = seen[~np.isnan(seen).any(axis=1)]
    np.testing.assert_allclose(sorted(seen.tolist()), sorted(expected.tolist()))
    assert ax.get_xlabel() == "age"
    assert_readable(ax)


def test_scatter_names_categories_and_keeps_their_cells_apart():
    ax = plots.scatter(MIXED, TABLES["pyarrow"], "town")
    seen = points(ax)
    places = dict(zip(seen[:, 1].tolist(), seen[:, 0].tolist(), strict=True))
    at = [places.get(value, np.nan) for value in MIXED.values[:, 1].tolist()]
    assert np.abs(np.array(at)[[0, 2]] - 0).max() < 0.3
    assert np.abs(np.array(at)[[1, 4]] - 1).max() < 0.3
    assert tick_names(ax.xaxis) == ["Ulm", "Bonn"]


def test_scatter_draws_rare_categories_together_and_says_how_many():
    X = pd.DataFrame({"town": [f"town {i // 2}" for i in range(40)], "a": np.arange(40.0)})
    valuation = KNNValuer(1).fit(X, np.arange(40) % 2, cv=2, column_types={"a": "numeric"})
    ax = plots.scatter(valuation.valuation_, X, "town")
    assert len(tick_names(ax.xaxis)) == 12
    assert tick_names(ax.xaxis)[-1] == "9 others"
    seen = points(ax)
    assert len(seen) == 40
    assert (seen[:, 0].round() == 11).sum() == 18


@pytest.mark.parametrize("dark", [False, True])
def test_no_point_vanishes_on_its_paper(dark):
    with plots.style(dark=dark):
        ax = plots.beeswarm(MIXED, X=TABLES["pandas"])
    colors = [ax.get_facecolor(), *np.vstack([part.get_facecolors() for part in ax.collections])]
    # Relative luminance, as contrast is defined for the web.
    light = 0.05 + np.array(colors)[:, :3] ** 2.2 @ [0.2126, 0.7152, 0.0722]
    assert np.maximum(light[1:] / light[0], light[0] / light[1:]).min() > 1.4


def test_columns_are_found_by_name_and_the_label_column_is_grey():
    X = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "b": [5.0, 5.0, 1.0, 0.0]})
    y = [0, 0, 1, 1]
    valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, value_labels=True).valuation_
    one, other = plots.beeswarm(valuation, X=X), plots.beeswarm(valuation, X=X[["b", "a"]])
    for first, second in zip(one.collections, other.collections, strict=True):
        np.testing.assert_array_equal(first.get_facecolors(), second.get_facecolors())
    assert len(one.collections[0].get_offsets()) == 4
    assert len(one.collections[1].get_offsets()) == 8


GROUPED = valuation_of(normal(2, 3), rows=range(4), row_groups=[0, 0, 1, 1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"valuation": [1]}, "valuation must be a Valuation, got list"),
        ({"X": np.ones((4, 3))}, "X must have the 5 rows of the valuation"),
        ({"X": np.ones((5, 2))}, "X must have the columns of the valuation, got no column 'age'"),
        ({"X": pd.DataFrame(np.ones((5, 3)))}, "got no column 'age'"),
        (
            {"X": TABLES["pandas"][::-1]},
            r"\(0, 1, 2, ...\), got 5 \(4, 3, 2, ...\); give the table",
        ),
        ({"valuation": GROUPED, "X": np.ones((4, 3))}, "X must be None for a valuation of groups"),
        ({"max_points": 0}, r"max_points .*\b0\b"),
        ({"max_columns": 1.5}, r"max_columns .*1\.5"),
    ],
)
def test_wrong_inputs_get_one_sentence(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        plots.beeswarm(**({"valuation": MIXED} | given))
    assert pyplot.get_fignums() == []
