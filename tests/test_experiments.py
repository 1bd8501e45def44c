"""Experiments run by name, and pages have the figures that their results have."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from experiments import (
    cell_scores,
    estimators_race,
    frame,
    race_estimators,
    rivals,
    tables,
)
from experiments.frame import Mean

DATA = Path(__file__).parents[2] / "shared" / "data"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}")
# Packages that only these need.
OTHERS = {"wrong_labels": "cleanlab", "verdicts": "lightgbm", "installed_sizes": "pip",
          "reports": "playwright"}  # fmt: skip


def parameter(name):
    return pytest.param(name, marks=[pytest.mark.browser] if name == "reports" else [])


@pytest.mark.nightly
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


def test_claims_stand_on_at_least_twenty_tables_that_chose_nothing():
    chose = {"breast original", "wine", "breast 30", "credit", "electricity", "adult", "jannis"}
    assert len(set(tables.HELD_OUT)) >= 20
    assert not chose & set(tables.HELD_OUT)
    for name in ("detection", "removal"):
        result = json.loads((frame.RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        assert result["options"]["sets"] == list(tables.HELD_OUT)
        assert len(result["options"]["seeds"]) >= 30


def test_sign_tests_count_tables_and_correct_for_their_number():
    always, mixed = [1.0] * 10, [1.0, -1.0] * 4 + [0.0, math.nan]
    made = pd.DataFrame({"x": always + mixed, "y": mixed + mixed})
    made.index = pd.MultiIndex.from_product([["p", "q"], range(10)], names=["rival", "table"])
    found = frame.sign_tests(made)
    # The smallest of four p-values counts four times: 4 * 2 / 2**10.
    assert found.loc["p", "x"] == "10 of 10 (p = 0.0078)"
    assert found.loc["q", "x"] == found.loc["p", "y"] == "4 of 8 (p = 1)"


def test_means_within_tables_come_first():
    rows = [("a", 1.0), ("a", 1.2), ("a", 0.8), ("b", 5.0)]
    found = frame.means([{"x": 0, "set": name, "y": y} for name, y in rows], ["x"], "set")
    assert found == [{"x": 0, "y": Mean(3.0, 2.0, 2)}]


def test_a_kept_part_is_computed_again_by_other_code(tmp_path, monkeypatch):
    computed = []
    for digest in ("one", "one", "other"):
        monkeypatch.setattr(frame, "digest_of_code", lambda digest=digest: digest)
        part = frame.compute_part(str(tmp_path), "name", lambda: computed.append(1) or [{"x": 1}])
        assert part["rows"] == [{"x": 1}]
    assert len(computed) == 2


@pytest.mark.parametrize("commit", ["", "0123+"])
def test_what_is_published_names_its_commit(commit, monkeypatch):
    monkeypatch.setattr(frame, "find_commit", lambda: commit)
    with pytest.raises(SystemExit, match="names its commit"):
        frame.main(["installed_sizes", "--quick", "--out", str(frame.RESULTS)])


def test_a_page_gets_the_table_that_it_names(tmp_path):
    cell = {"mean": 0.9124, "se": 0.0104, "n": 5}
    tables = {"two words": [{"name": "x", "area": cell, "count": 1200}]}
    (tmp_path / "made.json").write_text(json.dumps({"tables": tables}))
    page = "Before\n<!-- result: made two words -->\nold\n<!-- end of result -->\nAfter\n"
    updated = frame.update_page(page, tmp_path)
    assert "| x    | 0.912 ± 0.010 | 1,200 |" in updated
    assert "old" not in updated
    assert frame.update_page(updated, tmp_path) == updated
    some = frame.update_page(page.replace("words -->", "words > area -->"), tmp_path)
    assert "| 0.912 ± 0.010 |\n" in some
    assert "1,200" not in some
    line = "It is <!-- figure: made two words > x > area -->old<!-- -->, <!-- -->"
    assert frame.update_page(line, tmp_path) == line.replace("old", "0.912 ± 0.010")
    of_second_row = "<!-- figure: made two words > x > 2 > count -->old<!-- -->"
    rows = [{"name": "x", "n": n, "count": 10 * n} for n in (1, 2)]
    (tmp_path / "made.json").write_text(json.dumps({"tables": {"two words": rows}}))
    assert "-->20<!--" in frame.update_page(of_second_row, tmp_path)
    with pytest.raises(KeyError, match=r"made\.json has no table 'three'; it has two words"):
        frame.update_page(page.replace("two words", "three"), tmp_path)


def test_a_table_that_is_missing_in_a_folder_comes_from_its_home(tmp_path, monkeypatch):
    cells = pd.DataFrame({"f1": [1, 2], "y": ["P", "N"]})
    answer = SimpleNamespace(frame=cells, target_names=["y"])
    asked = []
    monkeypatch.setattr(
        tables.datasets, "fetch_openml", lambda **options: asked.append(options) or answer
    )
    for _ in range(2):
        table = tables.load("pol", tmp_path)
        assert (table.X.columns.tolist(), table.y.tolist()) == (["f1"], ["P", "N"])
    assert asked == [{"data_id": 722, "as_frame": True}]
    with pytest.raises(FileNotFoundError, match=r"heart.*has no public home"):
        tables.find("heart", tmp_path)


def additive_interactions(values):
    rows, columns = map(race_estimators.masks, values.shape)
    return rows @ values @ columns.T


@pytest.mark.parametrize("name", ["KernelSHAP regression", "OddSHAP", "TMC permutations"])
def test_estimators_of_the_race_are_exact_for_a_sum_of_blocks(name):
    values = np.random.default_rng(0).normal(size=(4, 3))
    game = race_estimators.Asked(additive_interactions(values), 90, seed=0)
    found, _ = estimators_race.OTHERS[name](game)
    np.testing.assert_allclose(found, values, atol=1e-8)
    assert len(game.seen) <= 90


def test_ddc_finds_a_cell_that_contradicts_its_correlated_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 1)) + 0.2 * rng.normal(size=(200, 4))
    # An ordinary value of the column, but not beside these others.
    X[7] = [1.5, 1.5, 1.5, -1.5]
    X = np.column_stack([X, np.arange(200) % 2])
    scores = cell_scores.ddc(X)
    assert np.unravel_index(scores.argmax(), scores.shape) == (7, 3)
    # A column of two values is set aside.
    assert not scores[:, 4].any()
    assert 0 < (scores[:, :4] > 2.5758).mean() < 0.05


def test_tail_scores_are_logarithms_of_empirical_tails():
    X = np.array([[1.0], [2.0], [2.0], [9.0]])
    np.testing.assert_allclose(cell_scores.ecod(X)[:, 0], -np.log([0.25, 0.75, 0.75, 0.25]))
    # Skewed to the right, so that only the right tail, or the mean of both, counts.
    left, right = -np.log([0.25, 0.75, 0.75, 1]), -np.log([1, 0.75, 0.75, 0.25])
    np.testing.assert_allclose(
        cell_scores.copod(X)[:, 0], np.maximum(right, (left + right) / 2), atol=1e-15
    )


@pytest.mark.filterwarnings("ignore:n_neighbors should be less")
@pytest.mark.parametrize(("n_neighbors", "twice"), [(3, True), (15, False)])
def test_row_values_equal_enumeration_with_ties_and_more_neighbors_than_rows(n_neighbors, twice):
    case = rivals.draw_case(5, n_neighbors)
    given = rivals.repeat_rows(case) if twice else case
    np.testing.assert_allclose(rivals.ours(given), rivals.enumerate_rows(given), atol=1e-14)
