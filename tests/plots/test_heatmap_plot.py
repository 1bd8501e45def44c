import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure

from cellworth import Owners, plots
from cellworth.plots import heatmap_plot
from cellworth.plots.figure_style import ZERO, diverging
from cellworth.plots.heatmap_plot import MIXED, ValueGrid, find_borders, find_largest_rectangles
from drawing import assert_readable, draw, normal, tick_names, valuation_of

TO = "\N{EN DASH}"
HOLES = np.array([[1.0, np.nan, -1.0], [0.0, 0.5, np.nan]])


def painted(ax):
    return np.asarray(ax.images[0].get_array())


def color_bar(ax):
    return next(other for other in ax.figure.axes if other is not ax)


def test_every_cell_has_the_color_of_its_value():
    values = normal(9, 5)
    limit = np.abs(values).max()
    expected = diverging()(0.5 + values / (2 * limit))
    np.testing.assert_allclose(painted(plots.heatmap(valuation_of(values))), expected)


def written(ax):
    return [text.get_text() for text in ax.texts]


def test_rows_and_columns_may_be_ordered_by_value():
    values = np.array([[1.0, 5.0], [2.0, 7.0], [np.nan, 1.0]])
    ax = plots.heatmap(valuation_of(values), order="value")
    assert written(ax) == ["+7.00", "+2.00", "+5.00", "+1.00", "+1.00"]
    draw(ax)
    assert tick_names(ax.xaxis) == ["x1", "x0"]
    assert tick_names(ax.yaxis) == ["1", "0", "2"]


def test_owners_keep_their_cells_in_another_order():
    owned = owners_of([[0, 0], [0, 0], [1, 1]], ["ann", "bob"])
    values = np.array([[1.0, 5.0], [2.0, 7.0], [8.0, 9.0]])
    ax = plots.heatmap(valuation_of(values), owners=owned, order="value")
    assert {text.get_text(): text.get_position()[1] for text in ax.texts} == {"bob": 0, "ann": 1.5}


@pytest.mark.parametrize(("error", "opacity"), [(0.4, 1.0), (2.0, 0.25), (99.0, 0.15)])
def test_values_are_paler_the_closer_they_are_to_zero_in_errors(error, opacity):
    ax = plots.heatmap(valuation_of([[1.0, -1.0]], errors=[[error, 0.1]]))
    expected = opacity * np.array(diverging()(1.0)) + (1 - opacity) * np.array(to_rgba(ZERO))
    np.testing.assert_allclose(painted(ax)[0, 0], expected)
    np.testing.assert_allclose(painted(ax)[0, 1], diverging()(0.0))


def test_standard_and_validation_errors_count_together():
    both = plots.heatmap(valuation_of([[5.0]], errors=3.0, validation=4.0))
    one = plots.heatmap(valuation_of([[5.0]], validation=5.0))
    other = plots.heatmap(valuation_of([[5.0]], errors=5.0))
    np.testing.assert_allclose(painted(both), painted(one))
    np.testing.assert_allclose(painted(both), painted(other))
    assert "pale" in color_bar(both).get_ylabel()


def test_a_single_outlier_does_not_wash_out_all_others():
    values = np.linspace(-1, 1, 1000).reshape(100, 10)
    values[0, 0] = 1000.0
    ax = plots.heatmap(valuation_of(values))
    np.testing.assert_allclose(painted(ax)[-1, -1], diverging()(1.0))
    assert color_bar(ax).get_ylim()[1] < 1.1
    assert len(color_bar(ax).patches) == 2


@pytest.mark.parametrize(
    "values",
    [np.zeros((3, 2)), np.full((3, 2), np.nan), [[0.3]]],
    ids=["zero", "unvisited", "one cell"],
)
def test_odd_tables_are_drawn(values):
    ax = plots.heatmap(valuation_of(values))
    assert painted(ax).shape[:2] == np.shape(values)
    assert_readable(ax)


# Names --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1000, 60), (5, 300)])
def test_labels_never_overlap_and_nothing_leaves_the_figure(shape):
    ax = plots.heatmap(valuation_of(normal(*shape)))
    assert_readable(ax)
    ax.figure.set_size_inches(4, 3)
    draw(ax)
    assert_readable(ax)


def test_dollars_in_names_are_no_formulas():
    ax = plots.heatmap(valuation_of(normal(2, 2), columns=["$a$ {", r"b $ \frac"]))
    assert_readable(ax)
    assert tick_names(ax.xaxis) == [r"\$a\$ {", r"b \$ \frac"]


# Tall tables --------------------------------------------------------------------------------


def test_tall_tables_are_drawn_as_means_of_bins(monkeypatch):
    monkeypatch.setattr(heatmap_plot, "_ROWS_AT_ONCE", 10)
    values = normal(50, 3)
    values[4:9, 1] = np.nan
    grid = ValueGrid.from_valuation(valuation_of(values, errors=np.abs(values)), 12)
    assert grid.rows_per_bin == 5
    means = [np.nanmean(values[i : i + 5], axis=0) for i in range(0, 45, 5)]
    np.testing.assert_allclose(grid.values[:9], means)
    sizes = [np.nanmean(np.abs(values[i : i + 5]), axis=0) for i in range(0, 45, 5)]
    np.testing.assert_allclose(grid.errors[:9], sizes)
    assert grid.row_names[:2] == ["0" + TO + "4", "5" + TO + "9"]


# Owners -------------------------------------------------------------------------------------


def owners_of(codes, names=None):
    codes = np.asarray(codes)
    owners = Owners(np.zeros(codes.shape))
    for code in set(codes.ravel().tolist()) - {-1}:
        name = names[code] if names else f"owner {code}"
        for j in range(codes.shape[1]):
            rows = np.flatnonzero(codes[:, j] == code).tolist()
            owners = owners.assign(name, rows=rows, columns=f"x{j}") if rows else owners
    return owners


def edges_between(codes):
    n_rows, n_columns = codes.shape
    across = {
        (j + 0.5, float(i))
        for i in range(n_rows)
        for j in range(n_columns - 1)
        if codes[i, j] != codes[i, j + 1]
    }
    down = {
        (float(j), i + 0.5)
        for i in range(n_rows - 1)
        for j in range(n_columns)
        if codes[i, j] != codes[i + 1, j]
    }
    return across | down


@pytest.mark.parametrize("shape", [(1, 6), (6, 1), (7, 9)])
def test_lines_lie_between_owners_and_nowhere_else(shape):
    codes = np.random.default_rng(3).integers(-1, 3, size=shape)
    upright, level = (lines for lines, _ in find_borders(codes))
    middles = [tuple(np.mean(line, axis=0).tolist()) for line in upright + level]
    assert sorted(middles) == sorted(edges_between(codes))


def best_by_trying(codes, code):
    n_rows, n_columns = codes.shape
    return max(
        (b - t) * (r - left)
        for t in range(n_rows)
        for b in range(t + 1, n_rows + 1)
        for left in range(n_columns)
        for r in range(left + 1, n_columns + 1)
        if (codes[t:b, left:r] == code).all()
    )


@pytest.mark.parametrize("seed", range(6))
def test_the_largest_rectangle_of_each_owner_is_found(seed):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2 + seed % 2, size=(rng.integers(1, 7), rng.integers(1, 7)))
    found = find_largest_rectangles(codes)
    assert set(found) == set(np.unique(codes).tolist())
    for code, box in found.items():
        assert (codes[box.top : box.bottom, box.left : box.right] == code).all()
        assert box.n_cells == best_by_trying(codes, code)


def test_a_bin_belongs_to_whoever_has_two_thirds_of_it():
    grid = ValueGrid.from_valuation(valuation_of(normal(6, 3)), 2)
    codes = np.array([[0, 0, 1], [0, 1, 2], [1, 1, 0], [2, 2, 2], [2, 0, 2], [2, 0, 2]])
    np.testing.assert_array_equal(grid.owners(codes), [[0, 1, MIXED], [2, 0, 2]])
    ten = ValueGrid.from_valuation(valuation_of(normal(10, 2)), 1)
    six_and_seven = np.arange(10)[:, np.newaxis] >= [6, 7]
    np.testing.assert_array_equal(ten.owners(six_and_seven.astype(int)), [[MIXED, 0]])


# Axes and wrong inputs ----------------------------------------------------------------------


def test_the_given_axes_come_back_and_pyplot_is_not_asked(monkeypatch):
    monkeypatch.setattr(pyplot, "subplots", lambda **_: pytest.fail("a figure was made"))
    ax = Figure(figsize=(6, 4), layout="constrained").subplots()
    owners = owners_of(np.zeros((9, 4), dtype=int))
    assert plots.heatmap(valuation_of(normal(9, 4)), owners=owners, ax=ax) is ax
    assert pyplot.get_fignums() == []
    assert_readable(ax)


def test_a_missing_matplotlib_gets_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.axes", None)
    with pytest.raises(ImportError, match=r"plots need matplotlib; pip install 'cellworth\[plots"):
        plots.heatmap(valuation_of(normal(2, 2)))


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (np.ones((2, 2)), {}, "valuation must be a Valuation, got ndarray"),
        (valuation_of(HOLES), {"max_rows": 0}, r"max_rows .*\b0\b"),
        (valuation_of(HOLES), {"order": 3}, 'order must be "table" or "value", got 3'),
        (valuation_of(HOLES), {"owners": ["a"]}, "must be Owners, got list"),
    ],
)
def test_wrong_inputs_get_one_sentence(given, settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        plots.heatmap(given, **settings)


def test_what_rounding_leaves_is_no_color():
    dust = replace(valuation_of([[1e-17, -1e-17]]), expected_total=0.0, baseline=0.6)
    np.testing.assert_allclose(
        painted(plots.heatmap(dust))[0, :, :3], [to_rgba(ZERO)[:3]] * 2, atol=0.01
    )


def test_sums_of_columns_are_above_and_those_of_rows_beside():
    values = np.array([[1.0, 5.0], [2.0, -7.0], [np.nan, 1.0]])
    above, beside = plots.heatmap(valuation_of(values)).child_axes
    assert [bar.get_height() for bar in above.patches] == [3.0, -1.0]
    assert [bar.get_width() for bar in beside.patches] == [6.0, -5.0, 1.0]
    assert plots.heatmap(valuation_of(values), sums=False).child_axes == []
    narrow = Figure(figsize=(1.5, 1.5)).subplots()
    assert plots.heatmap(valuation_of(values), ax=narrow).child_axes == []
