from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from cellworth import Owners, ShardedKNNValuer, ShardedTable, load
from cellworth.data.table_files import TableFile
from cellworth.knn import shard_tasks
from cellworth.payouts import Policy, split_revenue
from cellworth.valuation import sharded_valuation as stored_moments
from cellworth.valuation import storage as value_files
from in_shards import in_shards, whole
from sharded_tables import write


def elsewhere(n_rows):
    """Return a table in shards of four columns, whose file is not there."""
    file = TableFile("elsewhere.parquet", "parquet", (n_rows,), "")
    schema = pa.schema([(name, pa.float64()) for name in ("c0", "c1", "c2", "c3", "y")])
    return ShardedTable((file,), schema, (((0, range(1)),),))


CELLS = Policy(game="cells")
TABLE = elsewhere(50)
X = np.zeros((50, 4))


@pytest.fixture(autouse=True)
def groups_of_four_rows(monkeypatch):
    monkeypatch.setattr(value_files, "GROUP_ROWS", 4)
    monkeypatch.setattr(stored_moments, "GROUP_ROWS", 4)


def held(table):
    """Rectangles that meet, a hole, and rows in several stretches."""
    names = (
        ["c0", "c1", "c2", "c3"] if isinstance(table, ShardedTable) else ["x0", "x1", "x2", "x3"]
    )
    owners = Owners(table, overlaps="equal")
    owners = owners.assign("ann", rows=slice(0, 20), columns=names[:2])
    owners = owners.assign("bob", rows=slice(10, 40), columns=names[1:3])
    owners = owners.assign("eve", rows=[3, 4, 5, 49, 12])
    return owners.assign("ann", rows=np.arange(50) % 7 < 2, columns=names[3])


def test_owners_of_rectangles_hold_the_same_cells_without_the_table():
    ours, theirs = held(TABLE), held(X)
    assert repr(ours) == repr(theirs)
    np.testing.assert_array_equal(ours.codes, theirs.codes)
    assert ours.n_unassigned == theirs.n_unassigned == int((theirs.codes == -1).sum())
    held_there, held_here = theirs.project(of_array().blocks), ours.project(whole().blocks)
    np.testing.assert_array_equal(held_here.codes(), held_there.codes())
    assert held_here.keys == held_there.keys
    np.testing.assert_array_equal(held_here.hold_blocks, held_there.hold_blocks)


def of_array():
    """The valuation of an array, whose columns are called x0, x1, ..."""
    valuation = whole()
    columns = replace(valuation.blocks.columns, labels=X_NAMES, ids=X_NAMES)
    return replace(valuation, blocks=replace(valuation.blocks, columns=columns))


X_NAMES = np.array(["x0", "x1", "x2", "x3"], dtype=object)


@pytest.mark.parametrize("n_shards", [1, 3, 7])
def test_money_is_split_to_the_same_cent(n_shards, tmp_path):
    policy = CELLS
    plain = split_revenue(of_array(), held(X), amount="1000.00", policy=policy)
    in_shards(whole(), tmp_path, n_shards)
    stored = split_revenue(load(tmp_path), held(TABLE), amount="1000.00", policy=policy)
    assert stored.amounts == plain.amounts
    np.testing.assert_array_equal(stored.values, plain.values)
    # Sums of the errors of millions of cells would say nothing.
    assert np.isnan(stored.errors.together).all()
    assert "Intervals are not known. Pass owners to fit" in repr(stored)
    mine, wanted = (payout.statement("bob") for payout in (stored, plain))
    assert "(95% interval not known)" in repr(mine)
    unknown = {"interval": [], "amount_interval": None}
    assert mine.to_dict() | unknown == wanted.to_dict() | unknown
    assert set(stored.amount_intervals) == {None}
    names = {f"x{j}": f"c{j}" for j in range(4)}
    called = [names[name] for name in wanted.cells["column"]]
    assert mine.cells == wanted.cells | {"column": called}


def test_owners_of_a_sharded_valuation_are_rejected_with_a_sentence(tmp_path):
    with pytest.raises(ValueError, match="has no owners; pass owners=Owners"):
        in_shards(whole(), tmp_path).owners()


def test_owners_of_another_table_are_rejected(tmp_path):
    stored = in_shards(whole(), tmp_path)
    with pytest.raises(
        ValueError, match=r"the 50 rows of the valuation .*, got 51 \(0, 1, 2, ...\)"
    ):
        Owners(elsewhere(51)).assign("ann").project(stored.blocks)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rows": ["a"]}, "must be positions for a sharded table"),
        ({"rows": [50]}, "must be positions from 0 to 49, got 50"),
        ({"rows": slice(4, 4)}, "must select some row"),
        ({"rows": slice(4, 51)}, "must be positions up to 50"),
        ({"columns": "age"}, "must be columns of X, got 'age'"),
    ],
)
def test_what_needs_the_table_is_rejected(given, words):
    with pytest.raises(ValueError, match=words):
        Owners(TABLE).assign("ann", **given)


def test_a_file_selects_rows_by_position_where_cells_are_absent():
    rule = {"from": 4, "to": 51}
    with pytest.raises(ValueError, match="0 <= from < to <= 50"):
        Owners.from_plain({"owners": [{"name": "ann", "rows": rule}]}, TABLE, called="here")


def test_every_second_row_can_be_held():
    owners = Owners(TABLE).assign("ann", rows=slice(0, 10, 2))
    assert owners.n_cells_of("ann") == 5 * owners.shape[1]


def test_overlaps_are_found_without_the_table():
    owners = Owners(TABLE).assign("ann", rows=slice(0, 20), columns=["c0", "c1"])
    with pytest.raises(ValueError, match=r"both claim the cell \(19, 'c1'\)"):
        repr(owners.assign("bob", rows=range(19, 30), columns="c1"))
    owners.assign("bob", rows=range(20, 30), columns="c1").assign("eve", rows=5, columns="c2")


def test_holdings_come_back_from_plain_text():
    owners = held(TABLE)
    again = Owners.from_plain(owners.to_plain(), TABLE, called="the list")
    np.testing.assert_array_equal(again.codes, owners.codes)


@pytest.mark.slow
def test_a_table_in_shards_is_valued_and_paid_for(tmp_path, monkeypatch):
    monkeypatch.setattr(shard_tasks, "GROUP_ROWS", 4)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(140, 3))
    y = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int)
    columns = {name: X[:, position] for position, name in enumerate("abc")}
    write(pa.table(columns | {"y": y}), tmp_path / "table", cuts=(18, 74))
    table = ShardedTable.from_files(tmp_path / "table", target="y")
    X_val = pa.table({name: cells[:40] for name, cells in columns.items()})
    valuer = ShardedKNNValuer(5, random_state=0, n_passes=2)
    valuation = valuer.fit(table, X_val=X_val, y_val=y[:40]).valuation_
    owners = Owners(table).assign("ann", rows=slice(0, 20)).assign("bob", rows=slice(20, 140))
    payout = split_revenue(valuation, owners, amount="100.00", policy=CELLS)
    rows = valuation.rows().values
    np.testing.assert_allclose(payout.values, [rows[:20].sum(), rows[20:].sum()], atol=1e-12)
    assert sum(payout.amounts) == 100
