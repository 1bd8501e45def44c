"""removal_curve: which cells go, what comes in their place, and what a model makes of it."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, value_game
from cellworth.data.blocks import Blocks
from cellworth.data.tables import Table
from cellworth.findings import RemovalCurve, removal_curve
from cellworth.findings.curves import _make_filler

SEEN = []


class Witness(RegressorMixin, BaseEstimator):
    """Keeps the table that it is trained on."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        self.X_ = np.asarray(X, dtype=float)
        SEEN.append(self.X_)
        return self

    def predict(self, X):
        return np.zeros(len(X))


def what_is_left(model, X, y):
    """The sum of all known cells."""
    return float(np.nansum(model.X_))


# Cells 0 to 39, in an order that has nothing to do with their place.
CELLS = np.random.default_rng(0).permutation(np.arange(40.0)).reshape(10, 4)
TARGET = np.linspace(0, 1, 10)
GIVEN = {"X": CELLS, "y": TARGET, "X_test": CELLS[:2] + 0.5, "y_test": [0.0, 1.0]}


@pytest.fixture(autouse=True)
def nothing_seen_yet():
    SEEN.clear()


@pytest.mark.filterwarnings("ignore:fill='missing' leaves a missing value")
@pytest.mark.parametrize("order", ["highest", "lowest"])
def test_cells_go_in_the_order_of_the_ranking(order):
    curve = removal_curve(
        Witness(), ranking=CELLS, **GIVEN, order=order, shares=(0, 0.25, 0.5, 1), fill="missing",
        scoring=what_is_left, n_repeats=2,
    )  # fmt: skip
    ranked = np.arange(40) if order == "highest" else np.arange(40)[::-1]
    left = [ranked[: 40 - n].sum() for n in (0, 10, 20, 40)]
    np.testing.assert_array_equal(curve.scores, [left, left])


@pytest.mark.filterwarnings("ignore:fill='missing' leaves a missing value")
def test_random_removal_takes_as_many_cells_of_any_score():
    curve = removal_curve(
        Witness(), ranking=CELLS, **GIVEN, shares=(0.5,), fill="missing", scoring=what_is_left,
        n_repeats=100,
    )  # fmt: skip
    random = [np.isnan(table) for table in SEEN[1::2]]
    assert {mask.sum() for mask in random} == {20}
    # Half of the sum of all cells, within four standard errors.
    error = curve.random_scores.std() / 10
    assert abs(curve.random_scores.mean() - 390) < 4 * error
    assert len({mask.tobytes() for mask in random}) == 100


def test_a_draw_comes_from_the_cells_of_the_column_that_are_kept():
    removal_curve(
        Witness(), ranking=CELLS, **GIVEN, shares=(0.5,), scoring=what_is_left, n_repeats=3
    )
    for table in SEEN[::2]:
        removed = CELLS >= 20
        np.testing.assert_array_equal(table[~removed], CELLS[~removed])
        for position in range(4):
            kept = CELLS[~removed[:, position], position]
            assert np.isin(table[removed[:, position], position], kept).all()
    assert len({table.tobytes() for table in SEEN[::2]}) == 3


def test_a_column_that_keeps_nothing_is_drawn_from_itself():
    ranking = np.zeros((10, 4))
    ranking[:, 2] = 1
    removal_curve(
        Witness(), ranking=ranking, **GIVEN, shares=(0.25,), scoring=what_is_left, n_repeats=1
    )
    assert np.isin(SEEN[0][:, 2], CELLS[:, 2]).all()
    assert not np.array_equal(SEEN[0][:, 2], CELLS[:, 2])
    np.testing.assert_array_equal(np.delete(SEEN[0], 2, 1), np.delete(CELLS, 2, 1))


@pytest.mark.parametrize("fill", ["mean", "missing"])
def test_a_fill_that_can_be_seen_is_warned_of(fill):
    with pytest.warns(UserWarning, match=f"fill='{fill}' leaves .* reveals the label"):
        curve = removal_curve(
            Witness(), ranking=CELLS, **GIVEN, shares=(0.5,), fill=fill, scoring=what_is_left
        )
    assert "hides removed cells among" in repr(curve)
    expected = np.where(CELLS >= 20, np.nan, CELLS)
    if fill == "mean":
        expected = np.where(CELLS >= 20, np.nanmean(expected, axis=0), CELLS)
    np.testing.assert_allclose(SEEN[0], expected)


@pytest.mark.filterwarnings("ignore:fill='missing' leaves a missing value")
def test_equal_scores_go_in_random_order_and_unknown_ones_last():
    ranking = np.ones((10, 4))
    ranking[3, 1] = np.nan
    for order in ("highest", "lowest"):
        SEEN.clear()
        removal_curve(
            Witness(), ranking=ranking, **GIVEN, order=order, shares=(0.5, 0.975), fill="missing",
            scoring=what_is_left, n_repeats=2,
        )  # fmt: skip
        halves = [np.isnan(SEEN[position]) for position in (0, 4)]
        assert not np.array_equal(*halves)
        for table in (SEEN[1], SEEN[5]):
            assert np.flatnonzero(~np.isnan(table)).tolist() == [3 * 4 + 1]


class Sum:
    """Every block is worth what stands in it."""

    def __init__(self, cells):
        self.cells = np.asarray(cells, dtype=float)

    def value(self, rows, columns):
        return float(self.cells[np.ix_(rows, columns)].sum())


@pytest.mark.filterwarnings("ignore:fill='missing' leaves a missing value")
def test_cells_of_a_group_take_the_value_of_their_block():
    groups = np.arange(10) % 2
    blocks = Blocks.cut(range(10), ["x3", "x1", "x2", "x0"], row_groups=groups.tolist())
    valuation = value_game(Sum([[1, 2, 3, 4], [5, 6, 7, 8]]), blocks)
    removal_curve(
        Witness(), ranking=valuation, **GIVEN, shares=(0.125,), fill="missing", scoring=what_is_left
    )
    gone = np.isnan(SEEN[0])
    # The block of odd rows and of the column that the valuation has last and the table first.
    assert gone[groups == 1, 0].all()
    assert gone.sum() == 5


def test_the_table_must_be_the_one_that_was_valued():
    valuation = value_game(Sum(CELLS[:3, :2]), Blocks.cut([5, 6, 7], ["x0", "x1"]))
    with pytest.raises(ValueError, match=r"the 3 rows of the valuation \(5, 6, 7\), got 10 "):
        removal_curve(Witness(), ranking=valuation, **GIVEN)
    valuation = value_game(Sum(CELLS[:, :2]), Blocks.cut(range(10), ["x0", "b"]), estimator="exact")
    with pytest.raises(
        ValueError, match="X must have the columns of the valuation, got no column 'b'"
    ):
        removal_curve(Witness(), ranking=valuation, **GIVEN)


def data(seed, n_rows=80):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_rows, 3))
    return X, (X[:, 0] > 0).astype(int)


X, y = data(0)
X_TEST, Y_TEST = data(1, 200)
TEST = {"X_test": X_TEST, "y_test": Y_TEST}
# The first column alone tells the label.
BY_COLUMN = np.tile([1.0, 0.0, 0.0], (80, 1))


def test_cells_that_a_model_needs_hurt_it_and_others_do_not():
    model, shares = DecisionTreeClassifier(), (0, 0.2, 0.3)
    needed = removal_curve(model, X, y, ranking=BY_COLUMN, **TEST, shares=shares)
    assert needed.scores[0, 0] == DecisionTreeClassifier(random_state=0).fit(X, y).score(
        X_TEST, Y_TEST
    )
    others = removal_curve(model, X, y, ranking=BY_COLUMN, **TEST, shares=shares, order="lowest")
    assert needed.difference((0.3,)).high < 0
    assert others.difference((0.3,)).low > 0
    assert (others.scores == others.scores[:, :1]).all()
    np.testing.assert_array_equal(needed.scores[:, 0], needed.random_scores[:, 0])


@pytest.mark.parametrize("library", [pd.DataFrame, lambda d: pa.table(d)])
def test_tables_of_any_library_give_the_same_curve_and_stay_as_they_are(library):
    table, test = (
        library({name: array[:, j] for j, name in enumerate("abc")}) for array in (X, X_TEST)
    )
    model, settings = DecisionTreeClassifier(random_state=0), {"shares": (0, 0.3), "n_repeats": 2}
    curve = removal_curve(
        model, table, y, ranking=BY_COLUMN, X_test=test, y_test=Y_TEST, **settings
    )
    plain = removal_curve(model, X, y, ranking=BY_COLUMN, **TEST, **settings)
    np.testing.assert_array_equal(curve.scores, plain.scores)
    np.testing.assert_array_equal(curve.random_scores, plain.random_scores)
    kept = table.to_pandas() if isinstance(table, pa.Table) else table
    np.testing.assert_array_equal(kept.to_numpy(), X)
    assert type(curve.to_frame()) is type(table)
    assert curve.to_frame().shape == (4, 4)


def test_rows_that_valued_the_cells_are_warned_of_when_they_score():
    valuer = KNNValuer().fit(X, y, X_val=X_TEST, y_val=Y_TEST)
    settings = {"shares": (0.1,), "n_repeats": 2}
    with pytest.warns(UserWarning, match="are the validation rows of the valuation") as reported:
        removal_curve(LogisticRegression(), X, y, ranking=valuer.valuation_, **TEST, **settings)
    assert len(reported) == 1
    removal_curve(
        LogisticRegression(), X, y, ranking=valuer.valuation_, X_test=X_TEST[1:], y_test=Y_TEST[1:],
        **settings,
    )  # fmt: skip


def curve_of(scores, random_scores):
    shares = np.array([0.0, 0.1, 0.2])
    return RemovalCurve(shares, np.array(scores), np.array(random_scores), "lowest", "draw", "acc")


SMALL = curve_of([[0.9, 0.8, 0.7], [0.9, 0.9, 0.5]], [[0.9, 0.7, 0.7], [0.9, 0.7, 0.6]])


def test_bands_are_students_intervals_over_seeds():
    differences = np.array([0.1, 0.2])
    difference = SMALL.difference((0.1,))
    assert difference.mean == pytest.approx(0.15)
    half = stats.t.ppf(0.975, 1) * differences.std(ddof=1) / np.sqrt(2)
    assert difference.high - difference.mean == pytest.approx(half)
    assert difference.mean - difference.low == pytest.approx(half)
    np.testing.assert_allclose(SMALL.band.mean, [0.9, 0.85, 0.6])
    np.testing.assert_allclose(SMALL.random_band.low[0], 0.9)
    assert SMALL.difference().mean == pytest.approx(np.mean([[0.1, 0.0], [0.2, -0.1]]))


def test_a_single_seed_has_no_interval():
    single = curve_of([[0.9, 0.8, 0.7]], [[0.9, 0.7, 0.7]])
    assert np.isnan(single.difference().low)
    assert "0.8000  0.7000     +0.1000" in repr(single)


def test_shares_that_the_curve_has_not_are_rejected():
    for shares in ((0.15,), ()):
        with pytest.raises(ValueError, match="shares must be some of"):
            SMALL.difference(shares)


def test_the_same_seed_gives_the_same_curve():
    one, same, other = (
        removal_curve(
            LogisticRegression(), X, y, ranking=BY_COLUMN, **TEST, shares=(0.3,), random_state=s
        )
        for s in (0, 0, 1)
    )
    np.testing.assert_array_equal(one.scores, same.scores)
    assert not np.array_equal(one.scores, other.scores)


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"order": "best"}, "order must be one of 'highest', 'lowest', got 'best'"),
        ({"fill": "zero"}, "fill must be one of .*, got 'zero'"),
        ({"shares": (0.2, 0.1)}, "shares must be increasing numbers between 0 and 1"),
        ({"shares": (0, 1.5)}, "shares must be increasing numbers between 0 and 1"),
        ({"shares": 0.5}, "shares must be increasing numbers between 0 and 1"),
        ({"X_test": X, "y_test": y}, "X_test must have other rows than X; pass rows"),
        (
            {"ranking": BY_COLUMN[:5]},
            "ranking must have X's shape \\(80, 3\\), got shape \\(5, 3\\)",
        ),
        ({"X_test": None}, "X_test must not be None"),
        ({"y_test": None}, "y_test must not be None"),
    ],
)
def test_each_mistake_gets_one_sentence(changed, sentence):
    given = {"ranking": BY_COLUMN, "model": LogisticRegression(), "X": X, "y": y, **TEST} | changed
    with pytest.raises(ValueError, match=sentence):
        removal_curve(given.pop("model"), ranking=given.pop("ranking"), **given)


@pytest.mark.filterwarnings("ignore:fill='missing' leaves a missing value")
def test_a_model_that_takes_no_missing_values_says_so():
    with pytest.raises(RuntimeError, match=r"failed with 20% of the cells removed .*NaN"):
        removal_curve(
            LogisticRegression(), X, y, ranking=BY_COLUMN, **TEST, shares=(0.2,), fill="missing"
        )


def test_scores_in_another_order_are_rejected():
    X = pd.DataFrame(CELLS, columns=list("abcd"))
    given = GIVEN | {"X": X, "X_test": X[:2] + 0.5}
    for other in (X[list("dcba")], X[::-1]):
        with pytest.raises(ValueError, match=r"ranking must have the (columns|row ids) "):
            removal_curve(Witness(), ranking=other, **given)


def test_means_leave_missing_values_and_whole_columns_as_they_are():
    table = Table.from_data(
        pl.DataFrame({"a": [1, 2, 3, None], "b": [4, 5, 6, 7], "c": ["x", None, "x", "y"]}),
        called="X",
    )
    fill = _make_filler("mean", table, np.random.default_rng(0))
    nothing = np.zeros((4, 3), dtype=bool)
    assert fill(nothing).native.equals(table.native, null_equal=True)
    mask = nothing.copy()
    mask[0, 0] = True
    filled = fill(mask).native
    assert filled["a"].to_list() == [2.5, 2, 3, None]
    assert filled[["b", "c"]].equals(table.native[["b", "c"]], null_equal=True)
