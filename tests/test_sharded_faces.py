"""What people see of values in shards: reports, explanations, plots, the command line."""

import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from cellworth import (
    Runtime,
    ShardedKNNValuer,
    ShardedTable,
    audit,
    explain_column,
    explain_row,
    load,
    report,
)
from cellworth.cli.commands import main
from cellworth.knn import shard_tasks
from cellworth.plots.heatmap_plot import ValueGrid
from cellworth.valuation import sharded_valuation as stored_moments
from cellworth.valuation import storage as value_files
from in_shards import in_shards, whole
from sharded_tables import write


@pytest.fixture(autouse=True)
def groups_of_four_rows(monkeypatch):
    monkeypatch.setattr(value_files, "GROUP_ROWS", 4)
    monkeypatch.setattr(stored_moments, "GROUP_ROWS", 4)


@pytest.fixture
def both(tmp_path):
    in_shards(whole(), tmp_path / "values")
    return whole(), load(tmp_path / "values")


def called():
    return [f"c{j}" for j in range(4)]


@pytest.mark.parametrize("cells", [False, True])
def test_a_report_says_the_same_of_values_in_shards(both, cells):
    one, other = (report.summarize(v, None, k=7, cells=cells) for v in both)
    origins = [summary.pop("provenance") for summary in (one, other)]
    assert one == other
    assert origins[0]["method"] == origins[1]["method"]
    assert "<table" in report.render(report.summarize(both[1], None, cells=cells))


def test_a_report_without_cells_holds_little(both, monkeypatch):
    monkeypatch.setattr(stored_moments, "MAX_HELD", 49)
    assert report.summarize(both[1], None, cells=False)["figures"]["n_cells"] == 200
    with pytest.raises(MemoryError, match="are held at once"):
        explain_column(both[1], "c1")


def test_rows_and_columns_are_explained_alike(both):
    for row in (0, 17, 49):
        assert repr(explain_row(both[0], row)) == repr(explain_row(both[1], row))
    assert repr(explain_column(both[0], "c2")) == repr(explain_column(both[1], "c2"))


def test_findings_in_a_table_in_memory_have_their_worth(both):
    import pandas as pd

    rng = np.random.default_rng(1)
    X, y = pd.DataFrame(rng.normal(size=(50, 4)), columns=called()), np.arange(50) % 2
    X.loc[3, "c1"] = 999.0
    one, other = (audit(X, y, valuation=v).cells() for v in both)
    assert len(one) > 0
    pd.testing.assert_frame_equal(one, other)
    told = [report.summarize(v, X, y, k=5)["cells"] for v in both]
    assert told[0] == told[1]
    with pytest.raises(ValueError, match="rows"):
        audit(X[:20], y[:20], valuation=both[1])


def test_a_heat_map_has_the_same_bins(both):
    one, other = (ValueGrid.from_valuation(v, 7) for v in both)
    np.testing.assert_array_equal(one.values, other.values)
    np.testing.assert_array_equal(one.errors, other.errors)
    assert one.row_names == other.row_names


def run(*words):
    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, result.output


@pytest.mark.parametrize(
    "command",
    [
        "explain {V} --row 3",
        "merge {V} {V} -o {V}-both",
    ],
)
def test_commands_that_need_the_table_name_what_to_call(both, tmp_path, command):
    code, text = run(*command.format(V=tmp_path / "values").split())
    assert code == 2
    assert "use them in Python: cellworth.load(" in text


@pytest.mark.slow
def test_info_tells_a_run_over_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_tasks, "GROUP_ROWS", 4)
    X = np.random.default_rng(0).normal(size=(60, 2))
    cells = pa.table({"a": X[:, 0], "b": X[:, 1]})
    write(cells.append_column("y", pa.array(X[:, 0] > 0)), tmp_path / "table", [20])
    table = ShardedTable.from_files(tmp_path / "table", target="y")
    valuer = ShardedKNNValuer(3, runtime=Runtime(checkpoint=tmp_path / "k"), random_state=0)
    valuation = valuer.fit(table, X_val=cells.slice(0, 9), y_val=X[:9, 0] > 0).valuation_
    for folder in (tmp_path / "k", tmp_path / "k" / "run"):
        code, text = run("info", folder)
        assert code == 0
        assert "cellworth checkpoint\n" in text
        assert re.search(
            r"  done        100% \(\d+ of \d+ rounds\)\n  last write .* \(ended\)", text
        )
        assert "holds no request.json" in run("resume", folder)[1]
    assert json.loads(run("info", tmp_path / "k", "--json")[1])["holds"] == "cellworth checkpoint"
    assert "Valuation of 60 x 2" in run("info", tmp_path / "k" / "values")[1]
    shutil.rmtree(tmp_path / "k")
    with pytest.raises(FileNotFoundError, match="the folder was removed, or holds a later result"):
        valuation.lowest(1)


def test_what_is_not_known_of_single_cells_is_said(tmp_path):
    judged = np.array([0.1, 0.2, 0.3, 0.4, 0.25])
    stored = in_shards(whole(), tmp_path / "values", validation=judged)
    assert "up to 0.4 from the choice of validation rows (of columns; of cells not known)" in repr(
        stored
    )
    alone = "by sampling errors alone, as validation errors of single blocks are not known"
    assert alone in stored._repr_html_()
    assert alone not in whole()._repr_html_()
    page = report.render(report.summarize(stored, None, cells=False))
    assert "covers sampling alone; validation errors of single cells are unknown" in page
