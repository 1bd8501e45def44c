"""From a file to a folder of values, which are those of the library."""

import json
import shutil

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from cellworth import ExactValuer, KNNValuer, Valuation
from cellworth.cli.reading import read_delivery
from cellworth.cli.requests import Request
from shell import TABLE, cellworth, fine

MODELS = """
from sklearn.tree import DecisionTreeClassifier
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

tree = make_pipeline(
    make_column_transformer((OrdinalEncoder(), ["town"]), remainder="passthrough"),
    DecisionTreeClassifier(random_state=0),
)
plain = DecisionTreeClassifier
nothing = 3


def make():
    return DecisionTreeClassifier(random_state=0)


def make_of(depth):
    return DecisionTreeClassifier(max_depth=depth)


def breaks():
    return 1 / 0


def leaves():
    raise SystemExit(1)
"""


def test_the_values_are_those_of_the_library(home):
    read = read_delivery(home.table, target="label", row_id="name")
    ours = Valuation.load(home.values)
    again = KNNValuer(3, random_state=0).fit(read.X, read.y).valuation_
    np.testing.assert_array_equal(ours.values, again.values)
    assert ours.row_labels.tolist() == [f"p{i}" for i in range(24)]
    assert ours.column_labels.tolist() == ["age", "town", "debt"]
    assert ours.owners().labels["owner"].tolist() == ["bank", "shop"]


def test_a_validation_file_judges(home, tmp_path):
    (tmp_path / "val.csv").write_text(TABLE)
    fine("value", *home.asked, "--val", tmp_path / "val.csv", "-o", tmp_path / "v")
    read = read_delivery(home.table, target="label", row_id="name")
    again = KNNValuer(3).fit(read.X, read.y, X_val=read.X, y_val=read.y).valuation_
    np.testing.assert_array_equal(Valuation.load(tmp_path / "v").values, again.values)


def test_some_rows_of_a_validation_file_judge(home, tmp_path):
    (tmp_path / "val.csv").write_text(TABLE)
    fine(
        "value", *home.asked, "--val", tmp_path / "val.csv", "--val-rows", "7", "-o", tmp_path / "v"
    )
    read = read_delivery(home.table, target="label", row_id="name")
    judges = read.drawn(7, seed=0)
    assert len(set(judges.X.row_ids.tolist())) == 7
    again = KNNValuer(3).fit(read.X, read.y, X_val=judges.X, y_val=judges.y).valuation_
    np.testing.assert_array_equal(Valuation.load(tmp_path / "v").values, again.values)
    assert Request.load(tmp_path / "v").data()[1].X.row_ids.tolist() == judges.X.row_ids.tolist()


def test_without_a_folder_it_is_named_after_the_table(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cellworth("value", *home.asked)
    assert "people.values" in done.err
    assert "people.values" not in done.out
    assert Valuation.load("people.values").shape == (24, 3)


def test_nothing_is_overwritten_without_force(home, tmp_path):
    shutil.copytree(home.values, tmp_path / "v")
    refused = cellworth("value", *home.asked, "-o", tmp_path / "v")
    assert refused.code == 2
    assert "--force" in refused.err
    fine("value", *home.asked, "--cv", 4, "-o", tmp_path / "v", "--force")
    assert Request.load(tmp_path / "v").cv == 4
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    refused = cellworth("value", *home.asked, "-o", tmp_path / "mine", "--force")
    assert refused.code == 2
    assert "holds other files" in refused.err


def test_the_request_lies_beside_the_values_and_may_move_with_the_table(home, tmp_path):
    moved = tmp_path / "moved"
    shutil.copytree(home.folder, moved)
    request = Request.load(moved / "values")
    assert request.table == str(moved / "people.csv")
    assert request.rounds[-1]["total"] == pytest.approx(Valuation.load(home.values).total)
    assert "p7" in fine("explain", moved / "values", "--row", "p7")


def test_a_table_that_changed_since_is_refused(home, tmp_path):
    other = tmp_path / "people.csv"
    other.write_text(TABLE.replace("p3,", "p33,"))
    done = cellworth("suspects", home.values, "--table", other)
    assert done.code == 2
    assert "sha256 differs" in done.err
    other.write_text(TABLE)
    fine("suspects", home.values, "--table", other)


def test_groups_of_rows_and_columns_are_the_players(home, tmp_path):
    (tmp_path / "groups.toml").write_text('person = ["age"]\nmoney = ["debt"]\n')
    asked = ["--row-groups", "town", "--column-groups", tmp_path / "groups.toml"]
    fine("value", *home.asked, *asked, "-o", tmp_path / "v")
    valuation = Valuation.load(tmp_path / "v")
    assert valuation.row_labels.tolist() == ["south", "north"]
    assert valuation.column_labels.tolist() == ["person", "money"]
    assert "south" in fine("explain", tmp_path / "v", "--row", "south")


def test_numbers_that_are_names_are_categories(home, tmp_path):
    fine("value", *home.asked, "--categorical", "age", "-o", tmp_path / "v")
    question = Valuation.load(tmp_path / "v").provenance.question
    assert question["kinds"] == {"age": "'categorical'"}


def test_labels_may_play(home, tmp_path):
    fine("value", *home.asked, "--labels", "-o", tmp_path / "v")
    assert Valuation.load(tmp_path / "v").column_labels.tolist()[-1] == "(label)"


@pytest.fixture
def models(tmp_path, monkeypatch):
    (tmp_path / "mymodels.py").write_text(MODELS)
    (tmp_path / "torn.py").write_text("x = (\n")
    (tmp_path / "leaving.py").write_text("import sys\nsys.exit(1)\n")
    monkeypatch.chdir(tmp_path)
    # Another test's module of this name must not be taken for this one.
    monkeypatch.delitem(__import__("sys").modules, "mymodels", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_a_model_of_the_users_own_is_valued_exactly_on_few_blocks(home, models):
    asked = [*home.asked, "--row-groups", "town", "--drop", "age"]
    fine("value", *asked, "--model", "mymodels:make", "-o", "v")
    read = read_delivery(home.table, target="label", row_id="name", drop=["age"])
    tree = DecisionTreeClassifier(random_state=0)
    again = ExactValuer(tree).fit(read.X, read.y, row_groups="town").valuation_
    np.testing.assert_array_equal(Valuation.load("v").values, again.values)


def test_a_budget_counts_fits(home, models):
    asked = [*home.asked, "--drop", "town", "--cv", 2]
    fine("value", *asked, "--model", "mymodels:make", "--budget", 300, "-o", "v", "--jobs", 1)
    valuation = Valuation.load("v")
    assert 0 < valuation.provenance.tally.new <= 300
    assert valuation.status == "estimated"
    assert valuation.provenance.seed == 0


def test_a_pipeline_that_names_columns_gets_them(home, models):
    asked = [*home.asked, "--cv", 2, "--budget", 200, "--jobs", 1, "--json"]
    found = json.loads(fine("value", *asked, "--model", "mymodels:tree", "-o", "v"))
    assert found["shape"] == [24, 3]


@pytest.mark.parametrize(
    ("model", "told"),
    [
        ("forest", "give knn, or module:object"),
        ("mymodels:", "give knn, or module:object"),
        ("nomodule:x", "cannot be imported (No module named 'nomodule')"),
        ("mymodels:nobody", "cannot be imported"),
        ("mymodels:nothing", "give an estimator or what makes one"),
        ("mymodels:make_of", "cannot be called without arguments"),
        ("mymodels:breaks", "fails when it is called (ZeroDivisionError"),
        ("mymodels:leaves", "fails when it is called (SystemExit: 1)"),
        ("torn:x", "cannot be imported (SyntaxError"),
        ("leaving:x", "cannot be imported (SystemExit: 1)"),
        ("collections:Counter", "without fit"),
        ("mymodels:plain", "could not be trained and scored on the whole table"),
    ],
)
def test_what_is_no_model_for_the_table_is_told_in_a_sentence(home, models, model, told):
    asked = [*home.asked, "--model", model, "--budget", 50, "-o", models / "v", "--jobs", 1]
    done = cellworth("value", *asked)
    assert done.code == 2
    assert told in done.err


def test_a_budget_that_buys_nothing_gives_no_values(home, models):
    asked = [*home.asked, "--drop", "town", "--cv", 2, "--budget", 1, "--jobs", 1]
    done = cellworth("value", *asked, "--model", "mymodels:make", "-o", "v")
    assert done.code == 3
    assert done.err.strip().endswith("nothing was written; give a larger --budget or --deadline.")
    assert not (models / "v").exists()


def test_a_sampled_run_ends_with_its_sweeps_or_its_error(home, tmp_path):
    # Columns are sampled where there are many.
    names = [f"c{j}" for j in range(25)]
    lines = [",".join([*names, "label"])]
    rng = np.random.default_rng(0)
    lines += [",".join([*map(str, rng.integers(0, 9, 25)), str(i % 2)]) for i in range(12)]
    (tmp_path / "wide.csv").write_text("\n".join(lines) + "\n")
    asked = ["value", tmp_path / "wide.csv", "--target", "label", "-k", 1, "--cv", 2, "--jobs", 1]
    fine(*asked, "--sweeps", 3, "-o", tmp_path / "three")
    three = Valuation.load(tmp_path / "three")
    assert three.status == "estimated"
    assert three.moments.count.max() == 3
    fine(*asked, "--error", 0.5, "-o", tmp_path / "error")
    assert Valuation.load(tmp_path / "error").moments.count.max() == 10
    fine(*asked, "--deadline", "1s", "--sweeps", 2, "-o", tmp_path / "deadline")
    assert Valuation.load(tmp_path / "deadline").moments.count.max() <= 2
    # Two seeds merge into one better estimate.
    fine(*asked, "--sweeps", 3, "--seed", 1, "-o", tmp_path / "other")
    into = tmp_path / "both"
    found = json.loads(
        fine("merge", tmp_path / "three", tmp_path / "other", "--into", into, "--json")
    )
    assert found["values"]["status"] == "estimated"
    assert Valuation.load(into).moments.count.max() == 6
    same = cellworth("merge", tmp_path / "three", tmp_path / "three", "--into", tmp_path / "no")
    assert same.code == 2
    assert "used seed 0" in same.err


def test_a_model_gets_an_array_of_numbers_where_no_data_frames_are_installed(
    home, models, monkeypatch
):
    asked = [*home.asked, "--cv", 2, "--budget", 200, "--jobs", 1, "--model", "mymodels:make"]
    fine("value", *asked, "--drop", "town", "-o", "frame")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    fine("value", *asked, "--drop", "town", "-o", "array")
    frame, array = Valuation.load("frame"), Valuation.load("array")
    np.testing.assert_array_equal(frame.values, array.values)
    assert array.column_labels.tolist() == ["age", "debt"]
    done = cellworth("value", *asked, "-o", "text")
    assert done.code == 2
    assert "install pandas" in done.err


def test_a_plan_tells_the_cost_of_the_run(home):
    found = json.loads(fine("plan", *home.asked, "--json"))
    assert found["utilities"] == 24 * 7
    assert found["seconds"] > 0
    assert "24 x 3 blocks" in fine("plan", *home.asked)
