import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from cellworth import Owners, ShardedKNNValuer, ShardedTable
from cellworth.knn import NeighborAgreement
from cellworth.payouts import Agreement, Policy, split_revenue, verify_bundle
from cellworth.payouts.replay import restore_owners
from cellworth.valuation import sharded_valuation as stored_moments
from sharded_tables import write

CELLS = Policy(game="cells")
VALUER = ShardedKNNValuer(5, random_state=0, n_passes=2)
BANKS = {"north": (0, 200), "east": (200, 350), "south": (350, 600), "west": (600, 900)}


def cells(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(900, 3))
    columns = {name: X[:, position] for position, name in enumerate("abc")}
    return pa.table(columns | {"y": (X[:, 0] + 0.4 * X[:, 1] > 0).astype(int)})


def in_files(folder, table):
    write(table, folder, cuts=(200, 350, 600))
    return ShardedTable.from_files(folder, target="y")


def scored(table):
    rows = cells(seed=1).slice(0, 40)
    return {"X": table, "X_val": rows.drop_columns("y"), "y_val": rows["y"].to_pylist()}


def four_banks(table):
    owners = Owners(table)
    for name, (start, end) in BANKS.items():
        owners = owners.assign(name, rows=slice(start, end))
    return owners


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("banks")
    table = in_files(folder / "table", cells())
    data, owners = scored(table), four_banks(table)
    agreement = Agreement.draft(VALUER, owners, CELLS, **data)
    payout = agreement.split(VALUER.fit(**data).valuation_, table, amount="1000.00")
    return folder / "bundle", payout.save(folder / "bundle"), data


@pytest.mark.slow
def test_a_sharded_table_has_a_problem_spec(bundle):
    *_, data = bundle
    assert VALUER.problem_spec(**data) == VALUER.fit(**data).valuation_.provenance.problem_spec


@pytest.mark.slow
def test_a_payout_of_shards_is_replayed_with_all_values_anew(bundle):
    folder, digest, data = bundle
    verdict = verify_bundle(folder, data=data, valuer=VALUER, digest=digest)
    assert repr(verdict) == "yes: files, split, agreement, data, values agree"
    with pytest.raises(ValueError, match="data in shards need the valuer"):
        verify_bundle(folder, data=data)


@pytest.mark.slow
def test_a_payout_of_shards_by_radius_is_replayed(bundle, tmp_path):
    *_, data = bundle
    valuer = ShardedKNNValuer(scoring=NeighborAgreement(radius=1.0), random_state=0, n_passes=2)
    agreement = Agreement.draft(valuer, four_banks(data["X"]), CELLS, **data)
    payout = agreement.split(valuer.fit(**data).valuation_, data["X"], amount="1000.00")
    payout.save(tmp_path / "bundle")
    verdict = verify_bundle(tmp_path / "bundle", data=data, valuer=valuer)
    assert repr(verdict) == "yes: files, split, agreement, data, values agree"


@pytest.mark.slow
def test_a_replay_never_holds_all_values(bundle, monkeypatch):
    folder, digest, data = bundle
    monkeypatch.setattr(stored_moments, "MAX_HELD", 899)
    with pytest.raises(MemoryError):
        VALUER.fit(**data).valuation_.column(0)
    assert verify_bundle(folder, data=data, valuer=VALUER, digest=digest)


def test_one_cell_of_one_file_that_was_changed_is_found(bundle, tmp_path):
    folder, _, data = bundle
    table = cells()
    column = table["b"].to_numpy().copy()
    column[450] += 1e-9
    other = in_files(tmp_path / "table", table.set_column(1, "b", pa.array(column)))
    verdict = verify_bundle(folder, data={**data, "X": other}, valuer=VALUER)
    assert not verdict
    assert "X is not the data that was valued" in verdict.difference


def test_a_file_of_values_that_was_changed_is_found(bundle, tmp_path):
    folder, digest, _ = bundle
    copy = shutil.copytree(folder, tmp_path / "bundle")
    file = copy / "values.zip"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    assert "is not the file that was saved" in verify_bundle(copy, digest=digest).difference


@pytest.mark.slow
def test_other_values_with_all_that_follows_are_found_by_valuing_again(bundle, tmp_path):
    *_, data = bundle
    mine, other = (
        ShardedKNNValuer(k, random_state=0, n_passes=2).fit(**data).valuation_ for k in (5, 4)
    )
    forged = replace(other, provenance=mine.provenance)
    split_revenue(forged, four_banks(data["X"]), amount="9.00", policy=CELLS).save(
        tmp_path / "bundle"
    )
    verdict = verify_bundle(tmp_path / "bundle", data=data, valuer=VALUER)
    assert "values differ when they are recomputed" in verdict.difference


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y": [0]}, "without y for a table in shards, got X, X_val, y_val, y"),
        ({"row_groups": [0]}, "data must be the arguments of fit"),
    ],
)
def test_what_shards_do_without_is_rejected(bundle, change, words):
    folder, _, data = bundle
    with pytest.raises(ValueError, match=words):
        verify_bundle(folder, data=data | change)


def test_a_table_in_memory_is_not_the_one_in_shards(bundle):
    folder, _, data = bundle
    table = cells()
    memory = data | {"X": table.drop_columns("y"), "y": table["y"].to_pylist()}
    assert (
        "a is 'number', but 'double' was agreed on" in verify_bundle(folder, data=memory).difference
    )


@pytest.mark.slow
def test_owners_come_back_from_what_they_hold(bundle):
    *_, data = bundle
    valuation = VALUER.fit(**data).valuation_
    owners = Owners(data["X"], overlaps="equal").assign("ann", rows=[1, 2, 9], columns=["a", "c"])
    owners = owners.assign("bob", columns="a").assign("ann", rows=slice(5, 900), columns="b")
    again = restore_owners(owners.table, owners.project(valuation.blocks), valuation)
    assert again.names == owners.names
    np.testing.assert_array_equal(again.codes, owners.codes)
    assert split_revenue(valuation, owners, amount="9.00", policy=CELLS)
