import hashlib
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cellworth import KNNValuer, Valuation, load, value_game
from cellworth.data.blocks import Blocks
from cellworth.data.io import hash_json
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks
from cellworth.sampling import Banzhaf, Moments
from cellworth.sampling.moments import Tally, append_margins, widening
from cellworth.valuation import storage
from cellworth.valuation.provenance import Provenance, Session
from cellworth.valuation.values import ValueList
from experiments.baselines import PlainPermutations

GAME = TableGame(np.random.default_rng(8).normal(size=(16, 8)))
BLOCKS = Blocks.cut(
    ["r1", "r2", "r3", "r4", "r5"],
    ["age", "pay", "sex"],
    row_groups=["a", "b", "a", "c", "d"],
)


def estimated(seed=0, tasks=20, **changed):
    run = {"game": GAME, "shape": BLOCKS, "stop": MaxTasks(tasks), "random_state": seed}
    return value_game(**(run | changed))


@pytest.fixture(scope="module")
def exact():
    return value_game(GAME, BLOCKS)


@pytest.fixture(scope="module")
def estimate():
    return estimated()


def test_functions_of_numpy_take_a_valuation_as_its_values(exact):
    np.testing.assert_array_equal(np.asarray(exact), exact.values)
    assert np.array(exact, dtype=np.float32).dtype == np.float32
    assert np.abs(exact).sum() == np.abs(exact.values).sum()


def test_values_carry_the_users_labels(exact):
    assert exact.shape == exact.values.shape == (4, 3)
    assert exact.row_labels.tolist() == ["a", "b", "c", "d"]
    assert exact.column_labels.tolist() == ["age", "pay", "sex"]
    assert exact.blocks.rows.ids[exact.blocks.rows.codes == 0].tolist() == ["r1", "r3"]


def test_arrays_cannot_be_changed(exact):
    for array in (exact.values, exact.sampling_se, exact.counts):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1
    with pytest.raises(AttributeError):
        exact.status = "estimated"


def test_semivalues_report_the_total_that_they_miss():
    banzhaf = value_game(GAME, BLOCKS, semivalue=Banzhaf())
    assert banzhaf.total == pytest.approx(banzhaf.values.sum())
    assert abs(banzhaf.efficiency_residual) > 1e-3


def test_lowest_and_highest_rank_all_blocks(exact):
    ordered = np.sort(exact.values.ravel())
    np.testing.assert_array_equal(exact.lowest(4).values, ordered[:4])
    np.testing.assert_array_equal(exact.highest(4).values, ordered[::-1][:4])
    assert len(exact.lowest(1000)) == 12
    first = next(iter(exact.lowest()))
    assert exact.loc[first["row"], first["column"]] == first["value"] == ordered[0]
    assert first["rank"] == 1


def test_ties_rank_in_the_datas_order_and_unvisited_blocks_do_not_rank():
    labels = {"row": np.array([10, 11, 12, 13])}
    values = np.array([1.0, np.nan, 0.0, 1.0])
    listing = ValueList(labels, values, np.full(4, np.nan), np.array([1, 0, 1, 1]))
    assert listing.highest().labels["row"].tolist() == [10, 13, 12]
    assert listing.lowest(2).labels["row"].tolist() == [12, 10]


def test_labels_and_positions_are_never_confused():
    game = TableGame(np.arange(16.0).reshape(4, 4) ** 2)
    crossed = value_game(game, Blocks.cut([1, 0], [1, 0]))
    assert crossed.loc[0, 1] == crossed.values[1, 0]
    assert isinstance(crossed.loc[0, 1], float)
    for both in ([0, 1], range(2), pd.Index([0, 1]), np.array([0, 1])):
        np.testing.assert_array_equal(crossed.loc[both, 1], crossed.values[[1, 0], 0])
    np.testing.assert_array_equal(crossed.loc[0, :], crossed.values[1])
    np.testing.assert_array_equal(crossed.loc[:, [0, 1]], crossed.values[:, [1, 0]])
    np.testing.assert_array_equal(crossed.loc[[0, 1], 1], crossed.values[[1, 0], 0])
    np.testing.assert_array_equal(crossed.loc[[0, 1], [0, 1]], crossed.values[::-1, ::-1])


@pytest.mark.parametrize(
    ("backend", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("pyarrow", pa.Table)]
)
def test_frames_come_in_any_library(estimate, backend, kind):
    long, wide = estimate.to_frame(backend=backend), estimate.to_frame(wide=True, backend=backend)
    assert isinstance(long, kind)
    assert isinstance(wide, kind)
    columns = pa.table(long).to_pydict()
    assert list(columns) == ["row", "column", "value", "sampling_se", "count"]
    assert columns["value"] == estimate.values.ravel().tolist()
    assert columns["row"][:4] == ["a", "a", "a", "b"]
    assert pa.table(wide).to_pydict()["pay"] == estimate.values[:, 1].tolist()
    assert isinstance(estimate.lowest(2).to_frame(backend), kind)


def test_a_wide_frame_keeps_row_ids_apart_from_columns_called_row():
    named = value_game(GAME, Blocks.cut([5, 6, 7, 8], ["row", "row_id", "c"]))
    frame = named.to_frame(wide=True, backend="pandas")
    assert list(frame) == ["row_id_id", "row", "row_id", "c"]
    assert frame["row_id_id"].tolist() == [5, 6, 7, 8]


def test_dates_can_be_looked_up():
    days = pd.date_range("2026-01-01", periods=4)
    dated = value_game(GAME, Blocks.cut(days, ["a", "b", "c"]))
    for key in (days[2], np.datetime64("2026-01-03"), days[2].to_pydatetime()):
        assert dated.loc[key, "b"] == dated.values[2, 1]


# merging ------------------------------------------------------------------------------------


def test_merging_two_seeds_is_like_one_longer_run():
    one, other = estimated(1, 30), estimated(2, 50)
    both = one.merge(other)
    assert (both.counts == 80).all()
    means = [valuation.moments.mean for valuation in (one, other, both)]
    np.testing.assert_allclose(means[2], (30 * means[0] + 50 * means[1]) / 80)
    assert both.sampling_se.mean() < one.sampling_se.mean()
    assert [session.seed for session in both.provenance.sessions] == [1, 2]
    utilities = [v.provenance.tally.utilities for v in (one, other, both)]
    assert utilities[2] == utilities[0] + utilities[1]


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: estimated(0, 5), "used seed 0"),
        (lambda: value_game(GAME, BLOCKS), "exact values cannot be improved"),
        (lambda: estimated(1, shape=(4, 3)), "different rows or columns"),
        (lambda: estimated(1, semivalue=(Banzhaf(), None)), "differ in row_semivalue"),
        (lambda: estimated(1, game=TableGame(GAME.table + 1)), "differ in table"),
        (lambda: replace(estimated(1), expected_total=7.0), "should add up to"),
        (
            lambda: replace(estimated(1), expected_total=estimated(1).expected_total * (1 + 1e-6)),
            "should add up to",
        ),
        (lambda: estimated(1, estimator=PlainPermutations()), "estimated in different ways"),
        (lambda: "values", "takes a Valuation, not str"),
    ],
)
def test_only_independent_answers_to_one_question_merge(estimate, other, message):
    with pytest.raises((ValueError, TypeError), match=message):
        estimate.merge(other())


# saving -------------------------------------------------------------------------------------


def assert_equal(one, other):
    assert one.blocks == other.blocks
    for name in ("count", "mean", "sum_sq"):
        assert getattr(one.moments, name).tobytes() == getattr(other.moments, name).tobytes()
    assert one.provenance == other.provenance
    for name in ("expected_total", "empty", "status", "backend"):
        assert getattr(one, name) == getattr(other, name)


@pytest.mark.parametrize("which", ["exact", "estimate"])
def test_a_saved_valuation_comes_back_whole(which, request, tmp_path):
    valuation = request.getfixturevalue(which)
    valuation.save(tmp_path / "deep" / "folder")
    assert_equal(load(tmp_path / "deep" / "folder"), valuation)


@pytest.mark.parametrize(
    "ids",
    [
        np.array([3, 5, 7, 9]),
        np.array([0.5, 1.5, 2.5, 3.5]),
        np.array(["w", "x", "y", "é"], dtype=object),
        np.arange("2026-01-01", "2026-01-05", dtype="M8[D]"),
        pd.date_range("2026-01-01", periods=4, freq="h"),
    ],
    ids=lambda ids: str(ids.dtype),
)
def test_row_ids_of_every_kind_come_back(ids, tmp_path):
    valuation = value_game(GAME, Blocks.cut(ids, ["a", "b", "c"]))
    valuation.save(tmp_path)
    loaded = load(tmp_path)
    assert loaded.row_labels.tolist() == valuation.row_labels.tolist()


def test_saving_again_replaces_the_result_and_leaves_nothing_behind(exact, estimate, tmp_path):
    exact.save(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    estimate.save(tmp_path)
    assert_equal(load(tmp_path), estimate)
    names = sorted(path.name.split("-")[0] for path in tmp_path.iterdir())
    assert names == ["columns", "manifest.json", "notes.txt", "row_groups", "rows", "total"]


def rewrite(folder, *, forged=False, **changed):
    """Change a manifest; a forger also writes its hash anew."""
    manifest = json.loads((folder / "manifest.json").read_text()) | changed
    if forged:
        content = {name: manifest[name] for name in list(manifest)[3:]}
        manifest["sha256"] = hash_json(content)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def rewrite_files(folder, **changed):
    """Change what a forged manifest says of files; None leaves one out."""
    files = json.loads((folder / "manifest.json").read_text())["files"] | changed
    rewrite(folder, forged=True, files={name: files[name] for name in files if files[name]})


def tear(folder):
    path = next(folder.glob("rows-*"))
    path.write_bytes(path.read_bytes()[:-10])


def remove(folder):
    next(folder.glob("columns-*")).unlink()


def reach_out(folder):
    rewrite_files(folder, rows={"file": "../secret.parquet", "sha256": ""})


def put_nan(folder):
    (file,) = folder.glob("rows-*")
    table = pq.read_table(file)
    cells = pa.array([[math.nan] * 3] * 4, table.schema.field("mean").type)
    pq.write_table(table.set_column(table.column_names.index("mean"), "mean", cells), file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    rewrite_files(folder, rows={"file": file.name, "sha256": digest})


DAMAGE = {
    "torn file": (tear, "sha256 differs"),
    "missing file": (remove, "lacks the file"),
    "file elsewhere": (reach_out, "lacks the file"),
    "missing table": (lambda f: rewrite_files(f, total=None), "do not fit together"),
    "no manifest": (lambda f: (f / "manifest.json").unlink(), "holds no manifest.json"),
    "torn manifest": (lambda f: (f / "manifest.json").write_text('{"a"'), "not valid JSON"),
    "foreign manifest": (lambda f: (f / "manifest.json").write_text("[1]"), "does not describe"),
    "forged values": (put_nan, "not finite"),
    "forged total": (lambda f: rewrite(f, forged=True, expected_total=5.0), "add up to"),
    "infinite total": (lambda f: rewrite(f, forged=True, expected_total=math.inf), "inf"),
    "nested manifest": (lambda f: (f / "manifest.json").write_text("[" * 10**5), "not valid JSON"),
    "later version": (lambda f: rewrite(f, version=99), "format version 99"),
    "other status": (lambda f: rewrite(f, status="estimated"), "sha256 differs"),
    "list of files": (lambda f: rewrite(f, forged=True, files=[]), "do not fit together"),
    "no provenance": (lambda f: rewrite(f, forged=True, provenance={}), "do not fit together"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_refused_in_one_sentence(damage, exact, tmp_path):
    harm, message = DAMAGE[damage]
    exact.save(tmp_path)
    harm(tmp_path)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load(tmp_path)


def test_a_reader_who_meets_a_new_save_halfway_reads_the_new_result(
    exact, estimate, tmp_path, monkeypatch
):
    exact.save(tmp_path)
    is_inside = storage._is_inside

    def overtaken(name):
        monkeypatch.undo()
        estimate.save(tmp_path)
        return is_inside(name)

    monkeypatch.setattr(storage, "_is_inside", overtaken)
    assert_equal(load(tmp_path), estimate)


def test_saving_over_a_damaged_folder_mends_it(exact, tmp_path):
    exact.save(tmp_path)
    reach_out(tmp_path)
    secret = tmp_path.parent / "secret.parquet"
    secret.write_text("not ours to delete")
    exact.save(tmp_path)
    assert secret.exists()
    assert_equal(load(tmp_path), exact)


@pytest.mark.parametrize("text", ['{"name": "my extension"}', '{"torn'])
def test_saving_over_a_foreign_manifest_is_refused(exact, tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(FileExistsError, match="give another folder"):
        exact.save(tmp_path)
    assert (tmp_path / "manifest.json").read_text() == text


def test_saving_onto_a_file_is_refused(exact, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="must be a folder, got the file"):
        exact.save(tmp_path / "file")


def test_a_save_that_fails_leaves_the_old_result(exact, estimate, tmp_path, monkeypatch):
    exact.save(tmp_path)
    before = sorted(path.name for path in tmp_path.iterdir())

    def full(*arguments):
        raise OSError("No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(OSError, match="No space"):
        estimate.save(tmp_path)
    monkeypatch.undo()
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert_equal(load(tmp_path), exact)


def test_iter_rows_yields_all_values_from_top_to_bottom(estimate):
    chunks = list(estimate.iter_rows(3))
    assert [strip.rows for strip in chunks] == [slice(0, 3), slice(3, 4)]
    assert np.array_equal(np.vstack([strip.values for strip in chunks]), estimate.values)
    errors = np.vstack([strip.sampling_se for strip in chunks])
    assert np.array_equal(errors, estimate.sampling_se)


@pytest.mark.parametrize("n_seen", [2, 3, 10])
def test_intervals_of_few_observations_hold_as_often_as_they_say(n_seen):
    """Student's t: 1.96 plain standard errors of two normal observations hold 70 times in 100."""
    blocks, rng = Blocks.from_shape((40, 50)), np.random.default_rng(0)
    seen = [append_margins(rng.normal(size=(40, 50))) for _ in range(n_seen)]
    came = Provenance.now({}, {"name": "noise"}, Session(0, n_seen), Tally(), 0.0)
    valuation = Valuation(blocks, Moments.of_all(seen), 0.0, "game", "estimated", came)
    inside = np.abs(valuation.values) <= 1.96 * valuation.sampling_se
    # The share of 2,000 has a standard deviation of .005.
    assert abs(inside.mean() - 0.95) < 0.02


def test_the_error_of_the_total_joins_both_kinds():
    X = np.random.default_rng(0).normal(size=(30, 3))
    y = (X[:, 0] > 0).astype(int)
    data = {"X": X[:20], "y": y[:20], "X_val": X[20:], "y_val": y[20:]}
    exact = KNNValuer(3).fit(**data).valuation_
    scores = [
        KNNValuer(3).fit(X[:20], y[:20], X_val=X[[q]], y_val=y[[q]]).valuation_.total
        for q in range(20, 30)
    ]
    expected = np.std(scores, ddof=1) / np.sqrt(10) * widening(10)
    assert exact.total_error == pytest.approx(expected, rel=1e-9)
    bare = replace(exact, validation=None)
    assert bare.total_error == 0.0
    count = np.full((21, 4), 2, dtype=np.int64)
    moments = replace(exact.moments, count=count, sum_sq=np.ones((21, 4)))
    drawn = replace(exact, moments=moments, status="estimated")
    sampling = np.sqrt(0.5) * float(widening(2))
    assert drawn.total_error == pytest.approx(np.hypot(sampling, exact.total_error))
