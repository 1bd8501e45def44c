"""The mixture for benchmarks has the same rows for any files and row groups."""

import pyarrow.parquet as pq
import pytest

from cellworth import ShardedTable
from experiments import mixture


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(mixture, "CHUNK", 1000)


@pytest.mark.usefixtures("small")
def test_rows_do_not_depend_on_files_and_row_groups(tmp_path):
    one = pq.read_table(mixture.write(tmp_path / "one", 2500, 1))
    many = pq.read_table(mixture.write(tmp_path / "many", 2500, 7, rows_per_group=130))
    longer = pq.read_table(mixture.write(tmp_path / "longer", 3200, 2))
    assert many.equals(one)
    assert longer.slice(0, 2500).equals(one)
    assert not pq.read_table(mixture.write(tmp_path / "other", 2500, 1, seed=1)).equals(one)


@pytest.mark.usefixtures("small")
def test_it_has_twenty_columns_some_missing_values_and_two_classes(tmp_path):
    folder = mixture.write(tmp_path, 2000, 2)
    table = ShardedTable.from_files(folder, target="label")
    assert table.shape == (2000, 20)
    rows = pq.read_table(folder)
    missing = {name: rows[name].null_count for name in rows.column_names if rows[name].null_count}
    assert set(missing) == {"number0", "text0"}
    assert all(20 < count < 110 for count in missing.values())
    assert set(rows["label"].to_pylist()) == {"low", "high"}
    X_val, y_val = mixture.queries(50)
    assert (len(X_val), len(y_val)) == (50, 50)
