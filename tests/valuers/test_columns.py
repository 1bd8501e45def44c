"""What columns are taken for: the truth of what distances do with them, counted once."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from cellworth import DataWarning, KNNValuer, ModelValuer, OutOfBagValuer, load
from cellworth.valuation.column_info import ColumnTable
from fit_settings import split_settings

# What is clean gets no warning here, whatever other tests make of their tables.
pytestmark = pytest.mark.filterwarnings("error::cellworth.DataWarning")

N = 60
LABELS = np.arange(N) % 2


def shuffled(n=N, seed=0):
    return np.random.default_rng(seed).permutation(n)


def infos(X, *, ignore=True, **settings):
    """Columns as KNNValuer takes them, without a fit."""
    of_valuer, of_fit = split_settings(settings)
    valuer = KNNValuer(3, **of_valuer)
    return valuer._inspect_columns(valuer._make_game(X, LABELS, **of_fit))


def info(cells, **settings):
    return infos(pd.DataFrame({"c": cells, "other": shuffled(seed=1) / 7}), **settings)["c"]


def cycled(values, dtype=object):
    return pd.Series([values[i % len(values)] for i in shuffled()], dtype=dtype)


CLEAN = {
    "floats": (shuffled() / 3, "number", ()),
    "ages": (shuffled() % 40 + 18, "number", ()),
    "ids": (shuffled() + 1000, "number", ("nearly all different",)),
    "text ids": ([f"user {i}" for i in shuffled()], "category", ("nearly all different",)),
    "digits that are ids": ([str(i) for i in shuffled()], "category", ("nearly all different",)),
    "categories": (cycled(["a", "b", "c"]), "category", ()),
    "dates": (pd.Timestamp("2024-01-31") + pd.to_timedelta(shuffled(), "D"), "date", ()),
    "constant": ([7] * N, "number", ("constant",)),
    "constant with gaps": (
        cycled([None, 7.0]),
        "number",
        ("constant (except for missing values)",),
    ),
    "all missing": ([None] * N, "category", ("all missing",)),
    "postcodes": ([f"0{1000 + i % 30}" for i in shuffled()], "category", ()),
    "seats": ([f"{i % 30}{'ABCDEF'[i % 6]}" for i in shuffled()], "category", ()),
    "addresses": ([f"10.0.0.{i % 30}" for i in shuffled()], "category", ()),
    "question marks": (cycled(["a", "b", "?"]), "category", ()),
}
STRANGE = {
    "numbers": [f"{i % 30 / 4}" for i in shuffled()],
    "thousands": [f"{i % 30},250.5" for i in shuffled()],
    "with N/A": [f"{i % 30}" if i < 40 else "N/A" for i in shuffled()],
    "a typo": [f"{i % 30}" if i else "12o" for i in shuffled()],
    "dates": [f"2024-01-{i % 28 + 1:02d}" for i in shuffled()],
}


@pytest.mark.parametrize("name", CLEAN)
def test_columns_are_told_for_what_they_are_without_a_warning(name):
    cells, read_as, notes = CLEAN[name]
    own = info(cells)
    assert (own.read_as, own.notes) == (read_as, notes)
    raw = pd.Series(cells, dtype=object)
    assert (own.missing, own.distinct) == (raw.isna().sum(), raw.nunique())


@pytest.mark.parametrize("name", STRANGE)
def test_numbers_and_dates_as_text_are_warned_of_once(name):
    with pytest.warns(DataWarning) as warned:
        own = info(STRANGE[name])
    assert (own.read_as, own.notes) == ("category", ())
    said = str(warned[0].message)
    assert "column_types={'c': 'categorical'}" in said
    # Whoever has said what is meant is not told again.
    assert info(STRANGE[name], column_types={"c": "categorical"}) == own


def test_the_first_cell_that_is_no_number_is_shown():
    cells = [f"{i % 30}" for i in range(N)]
    cells[7] = "12 or so"
    with pytest.warns(DataWarning) as warned:
        info(cells)
    assert [str(one.message).partition(".")[0] for one in warned] == [
        "'12 or so' in one cell of c is no number; the others are numbers stored as text",
    ]


def test_kinds_are_the_truth_of_what_plays():
    X = pd.DataFrame(
        {"code": shuffled() % 5, "grade": cycled(["low", "high"]), "x": shuffled() / 7}
    )
    taken = infos(X, column_types={"code": "categorical"})
    assert [own.read_as for own in taken] == ["category", "category", "number"]
    assert taken.summary == "1 number, 2 categories"


@pytest.mark.parametrize("scale", ["robust", "std", None])
def test_distances_in_words_are_those_that_are_measured(scale):
    X = pd.DataFrame({"x": np.sqrt(shuffled()), "c": cycled(["a", "b", "c"])})
    game = KNNValuer(3, scale=scale)._make_game(X, LABELS)
    taken = infos(X, scale=scale)
    unit = game.distances.scales.farthest / 1e6
    numbers, categories = game.distances.measure(0, 0) / unit
    judged = game.problem.folds[0].table.native
    differences = (X["x"] - judged["x"].iloc[0]) ** 2
    spread = 1.0 if scale is None else float(taken["x"].distance.split("/ ")[1].split(")")[0])
    assert np.allclose(numbers, differences / spread**2, rtol=0.01)
    differ = X["c"] != judged["c"].iloc[0]
    assert np.allclose(categories, differ * float(taken["c"].distance.split()[-1]), rtol=0.01)


@pytest.mark.parametrize(
    "valuer",
    [
        ModelValuer(LogisticRegression(), estimator="exact"),
        OutOfBagValuer(n_trees=5, random_state=0),
        OutOfBagValuer(DecisionTreeClassifier(), n_trees=5, random_state=0),
    ],
)
def test_every_valuer_tells_its_columns(valuer):
    X = pd.DataFrame({"x": shuffled() / 7, "n": shuffled() % 5, "one": [1] * N})
    groups = {"row_groups": np.arange(N) % 2}
    columns = valuer.fit(X, LABELS, **groups).columns_
    assert [own.read_as for own in columns] == ["number"] * 3
    assert [column.name for column in columns if column.has("constant")] == ["one"]
    assert {own.distance for own in columns} == {""}
    assert valuer.valuation_.column_info == columns


def test_columns_are_kept_with_the_values_and_hold_no_cells(tmp_path):
    X = pd.DataFrame({"x": shuffled() / 7, "secret": cycled(["Alice", "Bob", "?"])})
    valuer = KNNValuer(3).fit(X, LABELS)
    valuer.valuation_.save(tmp_path / "values")
    loaded = load(tmp_path / "values").column_info
    assert loaded == valuer.columns_
    told = repr(loaded) + loaded._repr_html_() + repr(loaded.to_plain()) + loaded.summary
    assert "Alice" not in told
    assert ColumnTable.from_plain(loaded.to_plain()) == loaded
    with pytest.raises(KeyError, match="no column 'y'"):
        loaded["y"]
