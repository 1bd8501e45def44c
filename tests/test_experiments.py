"""Experiments run by name, and pages have the figures that their results have."""

import importlib
import json
import math
from pathlib import Path

import numpy as np
import pytest

import paper
from experiments import frame, paper_outliers, paper_rows, paper_verdicts
from experiments.frame import Mean

DATA = Path(__file__).parents[2] / "shared" / "data"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}")
# Packages that only these need.
OTHERS = {"wrong_labels": "cleanlab", "verdicts": "lightgbm"}
# Those that CI runs each time; the others are run with "long".
OFTEN = {"detection", "paper_verdicts", "what_values_reveal"}


def parameter(name):
    return pytest.param(name, marks=[] if name in OFTEN else [pytest.mark.long])


@pytest.mark.slow
@with_data
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [parameter(name) for name in frame.names()])
def test_an_experiment_runs_and_writes_its_figures(name, tmp_path, capsys):
    if name in OTHERS:
        pytest.importorskip(OTHERS[name])
    frame.main([name, "--quick", "--out", str(tmp_path)])
    result = json.loads((tmp_path / f"{name}.json").read_text())
    printed = capsys.readouterr().out
    assert result["quick"]
    for title, rows in result["tables"].items():
        assert rows, title
        assert frame.render(rows) in printed


@pytest.mark.parametrize("page", frame.pages(), ids=lambda page: page.name)
def test_tables_of_results_in_pages_are_those_of_their_files(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("<!-- result:") == text.count("<!-- end of result -->")
    assert frame.update_page(text) == text


def test_results_in_the_docs_are_complete_runs_of_experiments_that_exist():
    for path in frame.RESULTS.glob("*.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        assert result["experiment"] in frame.names()
        assert not result["quick"]


def test_verdicts_have_the_figures_of_the_results():
    written = json.loads((frame.RESULTS / "paper_verdicts.json").read_text(encoding="utf-8"))
    assert frame.measure("paper_verdicts", {})["tables"] == written["tables"]


def test_a_verdict_needs_exactly_one_row():
    rows = [{"a": 1, "b": 0.5}, {"a": 2, "b": 0.25}]
    assert paper_verdicts.figure(rows, "b", a=2) == "0.250"
    with pytest.raises(KeyError, match="0 rows have"):
        paper_verdicts.figure(rows, "b", a=3)


def test_close_rows_are_different_rows_of_like_value():
    X = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    values = np.array([[1.0, 2.0], [1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [8.0, 9.0]])
    pairs, alike = paper_rows.close_pairs(X, values)
    assert pairs.tolist() == [[0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    np.testing.assert_allclose(alike, [-1, 1, -1, 1, -1])


def test_means_within_tables_come_first():
    rows = [("a", 1.0), ("a", 1.2), ("a", 0.8), ("b", 5.0)]
    found = frame.means([{"x": 0, "set": name, "y": y} for name, y in rows], ["x"], "set")
    assert found == [{"x": 0, "y": Mean(3.0, 2.0, 2)}]


def test_a_mean_leaves_out_nan_and_one_number_has_no_error():
    assert Mean.of([1.0, math.nan, 3.0]) == (2.0, 1.0, 2)
    assert math.isnan(Mean.of([1.0]).se)


def test_a_page_gets_the_table_that_it_names(tmp_path):
    cell = {"mean": 0.9124, "se": 0.0104, "n": 5}
    tables = {"two words": [{"name": "x", "area": cell, "count": 1200}]}
    (tmp_path / "made.json").write_text(json.dumps({"tables": tables}))
    page = "Before\n<!-- result: made two words -->\nold\n<!-- end of result -->\nAfter\n"
    updated = frame.update_page(page, tmp_path)
    assert "| x    | 0.912 ± 0.010 | 1,200 |" in updated
    assert "old" not in updated
    assert frame.update_page(updated, tmp_path) == updated
    with pytest.raises(KeyError, match=r"made\.json has no table 'three'; it has two words"):
        frame.update_page(page.replace("two words", "three"), tmp_path)


@pytest.mark.parametrize(
    ("flags", "seeds"),
    [([], [0]), (["--seeds", "2"], [0, 1]), (["--seeds", "2", "--first-seed", "7"], [7, 8])],
)
def test_flags_are_the_parameters_of_run(flags, seeds, tmp_path, monkeypatch, capsys):
    typos = importlib.import_module("experiments.typos")

    def run(data, seeds=range(5), rows=3000, sets=("a", "b")):
        return {"all": [{"seeds": len(seeds), "rows": rows, "sets": " ".join(sets)}]}

    monkeypatch.setattr(typos, "run", run)
    monkeypatch.setattr(typos, "QUICK", {"seeds": range(1), "rows": 10})
    frame.main(["typos", "--quick", "--out", str(tmp_path), "--as", "x", "--sets", "c", *flags])
    result = json.loads((tmp_path / "x.json").read_text())
    assert result["options"] == {"seeds": seeds, "rows": 10, "sets": ["c"]}
    assert result["tables"] == {"all": [{"seeds": len(seeds), "rows": 10, "sets": "c"}]}
    assert set(result["versions"]) == {"cellworth", "numpy", "scikit-learn", "numba", "Python"}


def test_another_name_is_rejected(capsys):
    with pytest.raises(SystemExit, match="'nothing' is no experiment"):
        frame.main(["nothing"])
    assert "detection\n" in capsys.readouterr().out


def test_the_authors_sort_is_a_sort():
    numbers = np.random.default_rng(0).integers(0, 9, 200).astype(float)
    order = paper_outliers.introsort(numbers)
    assert sorted(order) == list(range(200))
    assert (np.diff(numbers[order]) >= 0).all()


def test_a_transcription_has_the_papers_row_values():
    rng = np.random.default_rng(0)
    distances, match = rng.random((3, 25)), rng.integers(0, 2, (3, 25))
    given = [paper.knn_values(d, m, 10) for d, m in zip(distances, match, strict=True)]
    found = paper_outliers.knn_values(np.argsort(distances, axis=1), match.astype(float))
    np.testing.assert_allclose(found, np.mean(given, axis=0), atol=1e-15)


@pytest.mark.slow
@pytest.mark.long
@with_data
def test_the_published_values_are_reproduced():
    given, published = paper_outliers.read_clean(DATA), paper_outliers.read_values(DATA, "clean")
    found = paper_outliers.transcribe(given, paper_outliers.sort_like_the_authors, 1000)
    np.testing.assert_allclose(found, published, atol=1e-15)
