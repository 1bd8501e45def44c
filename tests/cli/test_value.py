"""From a file to a folder of values, which are those of the library."""

import json
import os
import re
import shutil

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from cellworth import DataWarning, KNNValuer, ModelValuer, load
from cellworth.cli.input_files import read_input
from cellworth.cli.request import RunRequest
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
aged = make_pipeline(
    make_column_transformer(("passthrough", ["age"])), DecisionTreeClassifier(random_state=0)
)
nothing = 3


def make():
    return DecisionTreeClassifier(random_state=0)


def make_of(depth):
    return DecisionTreeClassifier(max_depth=depth)


def leaves():
    raise SystemExit(1)
"""


def test_the_values_are_those_of_the_library(home):
    read = read_input(home.table, target="label", row_id="name")
    ours = load(home.values)
    again = KNNValuer(3, random_state=0).fit(read.X, read.y).valuation_
    np.testing.assert_array_equal(ours.values, again.values)
    assert ours.row_labels.tolist() == [f"p{i}" for i in range(24)]
    assert ours.column_labels.tolist() == ["age", "town", "debt"]
    assert ours.owners().labels["owner"].tolist() == ["bank", "shop"]


def test_a_validation_file_is_scored_on(home, tmp_path):
    (tmp_path / "val.csv").write_text(TABLE)
    fine("value", *home.asked, "--val", tmp_path / "val.csv", "-o", tmp_path / "v")
    read = read_input(home.table, target="label", row_id="name")
    with pytest.warns(DataWarning, match="24 of 24 validation rows are also in X"):
        again = KNNValuer(3).fit(read.X, read.y, X_val=read.X, y_val=read.y).valuation_
    np.testing.assert_array_equal(load(tmp_path / "v").values, again.values)


def test_some_rows_of_a_validation_file_are_drawn(home, tmp_path):
    (tmp_path / "val.csv").write_text(TABLE)
    fine(
        "value", *home.asked, "--val", tmp_path / "val.csv", "--val-rows", "7", "-o", tmp_path / "v"
    )
    read = read_input(home.table, target="label", row_id="name")
    drawn = np.sort(np.random.default_rng(0).permutation(len(read.y))[:7])
    X_val = read.X.keep(drawn)
    again = KNNValuer(3).fit(read.X, read.y, X_val=X_val, y_val=read.y[drawn]).valuation_
    np.testing.assert_array_equal(load(tmp_path / "v").values, again.values)
    assert RunRequest.load(tmp_path / "v").data()[1].X.row_ids.tolist() == X_val.row_ids.tolist()


def test_without_a_folder_it_is_named_after_the_table(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = cellworth("value", *home.asked)
    assert "people.values" in done.err
    assert "people.values" not in done.out
    assert load("people.values").shape == (24, 3)


def test_nothing_is_overwritten_without_force(home, tmp_path):
    shutil.copytree(home.values, tmp_path / "v")
    rejected = cellworth("value", *home.asked, "-o", tmp_path / "v")
    assert rejected.code == 2
    assert "--force" in rejected.err
    fine("value", *home.asked, "--val", 4, "-o", tmp_path / "v", "--force")
    assert RunRequest.load(tmp_path / "v").cv == 4
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    rejected = cellworth("value", *home.asked, "-o", tmp_path / "mine", "--force")
    assert rejected.code == 2
    assert "holds other files" in rejected.err


def test_a_table_that_changed_since_is_rejected(home, tmp_path):
    other = tmp_path / "people.csv"
    other.write_text(TABLE.replace("p3,", "p33,"))
    done = cellworth("explain", home.values, "--row", "p1", "--table", other)
    assert done.code == 2
    assert "sha256 differs" in done.err
    other.write_text(TABLE)
    fine("explain", home.values, "--row", "p1", "--table", other)


def test_numbers_that_are_names_are_categories(home, tmp_path):
    fine("value", *home.asked, "--categorical", "age", "-o", tmp_path / "v")
    valuation = load(tmp_path / "v")
    assert valuation.provenance.problem_spec["column_types"] == {"age": "'categorical'"}
    read = read_input(home.table, target="label", row_id="name")
    again = KNNValuer(3).fit(read.X, read.y, column_types={"age": "categorical"}).valuation_
    np.testing.assert_array_equal(valuation.values, again.values)


def test_categories_and_ids_with_zeros_in_front_stay_apart(tmp_path):
    rows = [f"0{i},{code},{i % 2}" for i, code in enumerate(["01", "1"] * 12)]
    (tmp_path / "t.csv").write_text("\n".join(["id,code,label", *rows, ""]))
    asked = ["--target", "label", "--id", "id", "--categorical", "code", "-k", 3]
    fine("value", tmp_path / "t.csv", *asked, "--val", tmp_path / "t.csv", "-o", tmp_path / "v")
    # The category tells the label, as long as 01 is not 1.
    assert load(tmp_path / "v").total > 0.4
    assert "row '03' is worth" in fine("explain", tmp_path / "v", "--row", "03")


@pytest.fixture
def models(tmp_path, monkeypatch):
    (tmp_path / "mymodels.py").write_text(MODELS)
    (tmp_path / "torn.py").write_text("x = (\n")
    monkeypatch.chdir(tmp_path)
    # Another test's module of this name must not be taken for this one.
    monkeypatch.delitem(__import__("sys").modules, "mymodels", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def few(home, folder):
    """Words that ask for values of the first six rows."""
    (folder / "few.csv").write_text("\n".join(TABLE.splitlines()[:7]))
    return ["few.csv", *home.asked[1:], "--val", 2]


def test_a_model_of_the_users_own_is_valued_exactly_on_few_blocks(home, models):
    asked = [*few(home, models), "--drop", "town", "--workers", 1]
    fine("value", *asked, "--model", "mymodels:make", "-o", "v")
    read = read_input("few.csv", target="label", row_id="name", drop=["town"])
    tree = DecisionTreeClassifier(random_state=0)
    again = ModelValuer(tree, estimator="exact", n_jobs=1).fit(read.X, read.y, cv=2).valuation_
    np.testing.assert_array_equal(load("v").values, again.values)


@pytest.mark.slow
def test_a_pipeline_that_names_columns_gets_them(home, models):
    asked = [*few(home, models), "--stop", "fits=60", "--workers", 1, "--json"]
    found = json.loads(fine("value", *asked, "--model", "mymodels:tree", "-o", "v"))
    assert found["shape"] == [6, 3]


@pytest.mark.slow
def test_dates_that_a_model_was_given_are_known_again(models):
    rows = [f"{i},2020-01-{i + 1:02},{'yes' if i % 2 else 'no'}" for i in range(8)]
    (models / "t.csv").write_text("\n".join(["age,day,label", *rows, ""]))
    asked = ["t.csv", "--target", "label", "--val", 2, "--stop", "fits=60", "--workers", 1]
    fine("value", *asked, "--model", "mymodels:aged", "-o", "v")
    assert "age" in fine("explain", "v", "--row", "3")
    fine("report", "v")


@pytest.mark.parametrize(
    ("model", "reported"),
    [
        ("forest", "give knn, or module:object"),
        ("mymodels:nosuch", "cannot be imported"),
        ("mymodels:nothing", "give an estimator, its class or a function"),
        ("mymodels:make_of", "missing 1 required positional argument"),
        ("mymodels:leaves", "cannot be imported (SystemExit: 1)"),
        ("torn:x", "cannot be imported (SyntaxError"),
        ("collections:Counter", "without fit"),
        ("mymodels:plain", "could not be trained and scored on the whole table"),
    ],
)
def test_what_is_no_model_for_the_table_is_reported_in_a_sentence(home, models, model, reported):
    asked = [*home.asked, "--model", model, "--stop", "fits=50", "-o", models / "v", "--workers", 1]
    done = cellworth("value", *asked)
    assert done.code == 2
    assert reported in done.err


def test_a_budget_that_buys_nothing_gives_no_values(home, models):
    asked = [*home.asked, "--drop", "town", "--val", 2, "--stop", "fits=1", "--workers", 1]
    done = cellworth("value", *asked, "--model", "mymodels:make", "-o", "v")
    assert done.code == 2
    assert done.err.strip().endswith("nothing was written; give --stop a larger limit.")
    assert not (models / "v").exists()


def test_a_sampled_run_ends_with_its_passes_or_its_error(home, tmp_path):
    # Columns are sampled where there are many.
    names = [f"c{j}" for j in range(25)]
    lines = [",".join([*names, "label"])]
    rng = np.random.default_rng(0)
    lines += [",".join([*map(str, rng.integers(0, 9, 25)), str(i % 2)]) for i in range(12)]
    (tmp_path / "wide.csv").write_text("\n".join(lines) + "\n")
    asked = ["value", tmp_path / "wide.csv", "--target", "label", "-k", 1, "--val", 2]
    asked += ["--workers", 1]
    fine(*asked, "--stop", "passes=3", "-o", tmp_path / "three")
    three = load(tmp_path / "three")
    assert three.status == "estimated"
    assert three.provenance.method["n_passes"] == 3
    fine(*asked, "--stop", "error=0.5", "-o", tmp_path / "error")
    assert load(tmp_path / "error").sampling_se.max() < 0.5
    fine(*asked, "--stop", "time=1s", "--stop", "passes=2", "-o", tmp_path / "deadline")
    assert load(tmp_path / "deadline").provenance.method["n_passes"] == 2
    # Two seeds merge into one better estimate.
    fine(*asked, "--stop", "passes=3", "--seed", 1, "-o", tmp_path / "other")
    into = tmp_path / "both"
    found = json.loads(
        fine("merge", tmp_path / "three", tmp_path / "other", "--into", into, "--json")
    )
    assert found["values"]["status"] == "estimated"
    assert load(into).moments.count.max() == 2 * three.moments.count.max()
    same = cellworth("merge", tmp_path / "three", tmp_path / "three", "--into", tmp_path / "no")
    assert same.code == 2
    assert "used seed 0" in same.err


@pytest.mark.slow
def test_a_model_gets_an_array_of_numbers_where_no_data_frames_are_installed(
    home, models, monkeypatch
):
    asked = [*few(home, models), "--stop", "fits=60", "--workers", 1, "--model", "mymodels:make"]
    fine("value", *asked, "--drop", "town", "-o", "frame")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    fine("value", *asked, "--drop", "town", "-o", "array")
    frame, array = load("frame"), load("array")
    np.testing.assert_array_equal(frame.values, array.values)
    assert array.column_labels.tolist() == ["age", "debt"]
    done = cellworth("value", *asked, "-o", "text")
    assert done.code == 2
    assert "install pandas" in done.err


def test_a_dry_run_says_what_would_be_run_and_writes_nothing(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = [*home.asked, "--dry-run", "--checkpoint", tmp_path / "run"]
    found = json.loads(fine("value", *asked, "--json"))
    assert (found["shape"], found["utilities"]) == ([24, 3], 24 * 7)
    assert 0 < found["seconds"] < 1
    reported = fine("value", *asked)
    assert "24 x 3 cells, 24 validation rows, at most 168 utilities, about " in reported
    taken = {line["name"]: line["read_as"] for line in found["column_info"]}
    assert taken == {"age": "number", "town": "category", "debt": "number"}
    assert all(re.search(rf"^{name} +{kind} ", reported, re.M) for name, kind in taken.items())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "torn", ["cellworth.Valuation.save", "cellworth.cli.request.RunRequest.save"]
)
def test_a_kill_while_values_are_replaced_leaves_none_beside_an_old_request(
    home, tmp_path, monkeypatch, torn
):
    shutil.copytree(home.values, tmp_path / "v")

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(torn, killed)
        cellworth("value", *home.asked, "--val", 4, "-o", tmp_path / "v", "--force")
    done = cellworth("explain", tmp_path / "v", "--row", "p3")
    assert done.code == 2
    assert "value the table again with --force" in done.err
    fine("value", *home.asked, "--val", 4, "-o", tmp_path / "v", "--force")
    fine("explain", tmp_path / "v", "--row", "p3")


def test_a_path_that_cannot_be_written_to_is_rejected_before_anything_is_read(
    home, tmp_path, monkeypatch
):
    def never(*_):
        raise AssertionError

    monkeypatch.setattr("cellworth.cli.request.LoadedRequest.from_request", never)
    monkeypatch.setattr("os.access", lambda path, mode: not mode & os.W_OK)
    done = cellworth("value", *home.asked, "-o", tmp_path / "deep" / "v")
    assert done.code == 2
    assert f"{tmp_path} is not writable" in done.err
    done = cellworth("agree", home.terms, "-o", tmp_path / "d.toml")
    assert done.code == 2
    assert "is not writable" in done.err


def test_a_request_leads_to_its_table_through_links(home, tmp_path):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    (tmp_path / "link").symlink_to(deep, target_is_directory=True)
    (tmp_path / "people.csv").write_text(TABLE)
    asked = [tmp_path / "people.csv", *home.asked[1:]]
    fine("value", *asked, "-o", tmp_path / "link" / "v")
    fine("explain", tmp_path / "link" / "v", "--row", "p3")
    fine("explain", deep / "v", "--row", "p3")
    fine("value", tmp_path / "link" / ".." / ".." / "people.csv", *home.asked[1:], "-o",
         tmp_path / "w")  # fmt: skip
    fine("explain", tmp_path / "w", "--row", "p3")


def test_a_request_that_was_changed_is_rejected(home, tmp_path):
    shutil.copytree(home.values, tmp_path / "v")
    path = tmp_path / "v" / "request.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"seed": 1}))
    done = cellworth("explain", tmp_path / "v", "--row", "p3")
    assert done.code == 2
    assert f"{path} was changed after it was written (its sha256 differs)" in done.err
