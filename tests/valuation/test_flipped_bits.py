"""A single bit that flips in a file is refused with one sentence, or leaves all results equal."""

import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cellworth import KNNValuer, Owners, Runtime, ShardedKNNValuer, ShardedTable, load
from cellworth.knn import shard_data
from cellworth.payouts import Agreement, OwnerValuer, verify_bundle
from cellworth.runtime import MaxTasks, Threads
from cellworth.sampling import PermutationSampler
from in_shards import in_shards, whole
from sharded_tables import write

X = np.random.default_rng(0).normal(size=(12, 3))
Y = X[:, 0] > 0
DATA = {"X": X, "y": Y, "X_val": X[::2] + 0.1, "y_val": Y[::2]}


def in_memory(folder):
    owners = Owners(X).assign("ann", rows=range(6)).assign("bob", rows=range(6, 12))
    valuer = KNNValuer(2).fit(**DATA, owners=owners, row_groups=np.arange(12) // 2)
    valuer.valuation_.save(folder)


def sharded(folder):
    in_shards(whole((12, 3)), folder, 2, validation=np.ones(4))


def cells(folder):
    """Single cells of a sharded valuation are read without the rest of their file."""
    loaded = load(folder)
    return [*(loaded.loc[row, "c1"] for row in (0, 4, 11)), repr(loaded.lowest(3))]


def everything(folder):
    loaded = load(folder)
    lists = loaded.rows(), loaded.columns(), loaded.list_blocks()
    return [repr(loaded), repr(loaded._plain()), *(repr(each._columns()) for each in lists)] + [
        repr((chunk.values.tolist(), chunk.sampling_se.tolist())) for chunk in loaded.iter_rows()
    ]


def flip(content, n_flips):
    """Yield a content with one bit flipped, at random bits."""
    for bit in np.random.default_rng(len(content)).integers(8 * len(content), size=n_flips):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


def outcome(read, folder):
    """What is read, or the sentence that refuses it."""
    try:
        return read(folder)
    except (ValueError, FileNotFoundError, FileExistsError) as error:
        sentence = str(error)
    return "refused" if str(folder) in sentence and sentence.endswith(".") else sentence


@pytest.mark.parametrize(
    ("save", "reads"), [(in_memory, [everything]), (sharded, [cells, everything])]
)
def test_a_saved_valuation(save, reads, tmp_path):
    save(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        original = path.read_bytes()
        for read in reads:
            expected, found = read(tmp_path), []
            for changed in flip(original, 120 if path.suffix == ".json" else 30):
                path.write_bytes(changed)
                found.append(outcome(read, tmp_path))
            path.write_bytes(original)
            assert [each for each in found if each not in ("refused", expected)] == [], path.name
            # Page headers and unread pages of a file of values are harmless.
            assert found.count("refused") > len(found) / (5 if read is cells else 2)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_checkpoint(tmp_path):
    def resume(folder, n_tasks=3):
        runtime = Runtime(checkpoint=folder, progress=False)
        settings = {"sampler": PermutationSampler(2), "random_state": 0, "runtime": runtime}
        return repr(KNNValuer(2, stop=MaxTasks(n_tasks), **settings).fit(**DATA).values_.tolist())

    resume(tmp_path, 2)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    expected = resume(tmp_path)
    for path, original in before.items():
        for changed in flip(original, 20):
            for other in tmp_path.iterdir():
                other.unlink()
            for other, content in before.items():
                other.write_bytes(content)
            path.write_bytes(changed)
            assert outcome(resume, tmp_path) in ("refused", expected), path.name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_checkpoint_over_shards(tmp_path):
    rows = pd.DataFrame(X, columns=list("abc")).assign(c=list("uvuwvuuwvvuw"), y=Y)
    write(pa.Table.from_pandas(rows), tmp_path / "table", cuts=[6])
    table = ShardedTable.from_files(tmp_path / "table", target="y")
    folder = tmp_path / "run"

    def resume(folder, n_tasks=4):
        # As a process that has not seen the files.
        shard_data._verified.clear()
        valuer = ShardedKNNValuer(
            2, sampler=PermutationSampler(2), stop=MaxTasks(n_tasks), random_state=0,
            runtime=Runtime(Threads(1), checkpoint=folder, progress=False),
        )  # fmt: skip
        X_val, y_val = rows.drop(columns="y").iloc[::2], Y[::2]
        return repr(valuer.fit(table, X_val=X_val, y_val=y_val).values_.tolist())

    resume(folder, 2)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert {path.suffix for path in before} == {".json", ".npy", ".npz", ".parquet"}
    expected = resume(folder)
    for path, original in before.items():
        for changed in flip(original, 3):
            shutil.rmtree(folder)
            for other, content in before.items():
                other.parent.mkdir(parents=True, exist_ok=True)
                other.write_bytes(changed if other == path else content)
            assert outcome(resume, folder) in ("refused", expected), path.name


def test_a_bundle_of_a_payout(tmp_path):
    owners = Owners(X).assign("ann", rows=range(6)).assign("bob", rows=range(6, 12))
    valuer = OwnerValuer(KNNValuer(2), random_state=0)
    agreement = Agreement.draft(valuer, owners, **DATA)
    valuation = valuer.fit(**DATA, owners=owners).valuation_
    agreement.split(valuation, X, amount="100.00").save(tmp_path / "bundle")
    files = sorted((tmp_path / "bundle").iterdir())
    assert len(files) == 4
    for path in files:
        original = path.read_bytes()
        for changed in flip(original, 100):
            path.write_bytes(changed)
            assert not verify_bundle(tmp_path / "bundle"), path.name
        path.write_bytes(original)
    assert verify_bundle(tmp_path / "bundle", data=DATA, valuer=valuer)
