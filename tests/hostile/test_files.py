"""Every kind of folder that is written: damage is refused in one sentence, or changes no result."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from cellworth import KNNValuer, Owners, Runtime, ShardedKNNValuer, ShardedTable, load
from cellworth.payouts import Agreement, OwnerValuer, verify_bundle
from cellworth.runtime import MaxTasks, Threads
from cellworth.sampling import PermutationSampler
from in_shards import in_shards, whole
from matrices import rarely
from sharded_tables import write

X = np.random.default_rng(0).normal(size=(12, 3))
Y = X[:, 0] > 0
DATA = {"X": X, "y": Y, "X_val": X[::2] + 0.1, "y_val": Y[::2]}
ROWS = pd.DataFrame(X, columns=list("abc")).assign(c=list("uvuwvuuwvvuw"), y=Y)


def save_in_memory(folder):
    owners = Owners(X).assign("ann", rows=range(6)).assign("bob", rows=range(6, 12))
    valuer = KNNValuer(2).fit(**DATA, owners=owners, row_groups=np.arange(12) // 2)
    valuer.valuation_.save(folder)


def save_in_shards(folder):
    in_shards(whole((12, 3)), folder, 2, validation=np.ones(4))


def read_cells(folder):
    """Single cells of a sharded valuation are read without the rest of their file."""
    loaded = load(folder)
    return [*(loaded.loc[row, "c1"] for row in (0, 4, 11)), repr(loaded.lowest(3))]


def read_all(folder):
    loaded = load(folder)
    lists = loaded.rows(), loaded.columns(), loaded.list_blocks()
    return [repr(loaded), repr(loaded._plain()), *(repr(each._columns()) for each in lists)] + [
        repr((chunk.values.tolist(), chunk.sampling_se.tolist())) for chunk in loaded.iter_rows()
    ]


def read_from_store(folder):
    """Read what an object store has of the files; it has no links and no pipes."""
    store = pytest.importorskip("fsspec").filesystem("memory")
    if store.exists("/hostile"):
        store.rm("/hostile", recursive=True)
    for path in folder.iterdir():
        if path.is_file():
            store.pipe(f"{folder}/{path.name}".replace(str(folder), "/hostile"), path.read_bytes())
    try:
        return read_all("memory://hostile")
    except (ValueError, OSError) as error:
        raise type(error)(str(error).replace("memory://hostile", str(folder))) from error


def start(folder):
    resume(folder, 2)


def resume(folder, n_tasks=3):
    runtime = Runtime(checkpoint=folder, progress=False)
    settings = {"sampler": PermutationSampler(2), "random_state": 0, "runtime": runtime}
    return repr(KNNValuer(2, stop=MaxTasks(n_tasks), **settings).fit(**DATA).values_.tolist())


def start_over_shards(folder):
    write(pa.Table.from_pandas(ROWS), folder.parent / "table", cuts=[6])
    resume_over_shards(folder, 2)


def resume_over_shards(folder, n_tasks=4):
    valuer = ShardedKNNValuer(
        2, sampler=PermutationSampler(2), stop=MaxTasks(n_tasks), random_state=0,
        runtime=Runtime(Threads(1), checkpoint=folder, progress=False),
    )  # fmt: skip
    table = ShardedTable.from_files(folder.parent / "table", target="y")
    X_val, y_val = ROWS.drop(columns="y").iloc[::2], Y[::2]
    return repr(valuer.fit(table, X_val=X_val, y_val=y_val).values_.tolist())


@cache
def agree():
    owners = Owners(X).assign("ann", rows=range(6)).assign("bob", rows=range(6, 12))
    valuer = OwnerValuer(KNNValuer(2), random_state=0)
    return Agreement.draft(valuer, owners, **DATA), valuer, owners


def save_agreement(folder):
    folder.mkdir()
    agree()[0].save(folder / "deal.toml")


def read_agreement(folder):
    # Both parties know the digest; the text may be changed into another agreement.
    found = Agreement.from_toml(folder / "deal.toml")
    return repr(found) if found.digest == agree()[0].digest else "refused"


def save_bundle(folder):
    agreement, valuer, owners = agree()
    valuation = valuer.fit(**DATA, owners=owners).valuation_
    agreement.split(valuation, X, amount="100.00").save(folder)


def read_bundle(folder):
    return "equal" if verify_bundle(folder) else "refused"


@dataclass(frozen=True)
class Kind:
    """A kind of folder, how it is read, and bits that flip in each JSON file and in each other."""

    save: Callable
    read: Callable
    flips: tuple[int, int]


KINDS = {
    "values in memory": Kind(save_in_memory, read_all, (120, 30)),
    "values in shards": Kind(save_in_shards, read_all, (60, 30)),
    "a checkpoint": Kind(start, resume, (20, 20)),
    "an agreement": Kind(save_agreement, read_agreement, (60, 60)),
    "a bundle": Kind(save_bundle, read_bundle, (100, 100)),
    "cells in shards": Kind(save_in_shards, read_cells, (120, 30)),
    "values in a store": Kind(save_in_memory, read_from_store, (30, 10)),
    "a checkpoint over shards": Kind(start_over_shards, resume_over_shards, (3, 3)),
}


def rewrite(change):
    """Return a harm that replaces the content of a file."""

    def harm(path):
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(change(content))

    return harm


def flip(bit):
    def change(content):
        changed = bytearray(content)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    return rewrite(change)


def link_to(target):
    def harm(path):
        path.unlink()
        path.symlink_to(target)

    return harm


def move_out(path):
    """Put a link to the file, elsewhere, in its place."""
    away = path.parent.parent / f"away-{path.name}"
    shutil.move(path, away)
    path.symlink_to(away)


def make_folder(path):
    path.unlink()
    path.mkdir()


def make_pipe(path):
    path.unlink()
    os.mkfifo(path)


def add_files(path):
    """Add what others might leave beside it."""
    for name, content in ((".DS_Store", b"\x00"), ("x.parquet", b"PAR1"), (f"{path.name}~", b"")):
        (path.parent / name).write_bytes(content)


def from_future(content):
    """Raise the version of a JSON file, or the first number of another."""
    try:
        plain = json.loads(content)
    except ValueError:
        return content.replace(b"1", b"9", 1)
    return json.dumps(plain | {"version": 99}).encode() if "version" in plain else b"{}"


def list_harms(path, others, n_flips):
    """Yield everything that is done to one file."""
    size = 8 * path.stat().st_size
    for bit in np.random.default_rng(size).integers(size, size=n_flips).tolist():
        yield f"bit {bit}", flip(bit)
    yield "no file", os.unlink
    yield "empty", rewrite(lambda content: b"")
    yield "first half", rewrite(lambda content: content[: len(content) // 2])
    yield "last byte", rewrite(lambda content: content[:-1])
    yield "more bytes", rewrite(lambda content: content + b"\x00 }")
    yield "twice", rewrite(lambda content: content + content)
    yield "zeros", rewrite(lambda content: bytes(len(content)))
    yield "from the future", rewrite(from_future)
    for other in others[:2]:
        yield f"that of {other.name}", rewrite(lambda _, other=other: other.read_bytes())
    yield "a link to a copy", move_out
    yield "a link to nothing", link_to("nothing")
    yield "a link to itself", link_to(path.name)
    yield "a link to a folder", link_to("..")
    yield "a link to a device", link_to("/dev/null")
    yield "a folder", make_folder
    yield "a pipe", make_pipe
    yield "more files", add_files


def outcome(read, folder):
    """What is read, or the sentence that refuses it."""
    try:
        return read(folder)
    except (ValueError, OSError) as error:
        sentence = str(error)
    plain = str(folder) in sentence and "\n" not in sentence
    return "refused" if plain else sentence


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs links and pipes")
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [*KINDS][:5] + rarely(*[*KINDS][5:]))
def test_a_damaged_file_is_refused_or_changes_no_result(name, tmp_path):
    kind, folder, copy = KINDS[name], tmp_path / "it", tmp_path / "copy"
    kind.save(folder)
    shutil.copytree(folder, copy)
    expected = kind.read(folder)
    files = sorted(path.relative_to(copy) for path in copy.rglob("*") if path.is_file())
    n_refused, wrong = 0, {}
    for file in files:
        n_flips = kind.flips[file.suffix != ".json"]
        for harm, do in list_harms(
            copy / file, [copy / other for other in files if other != file], n_flips
        ):
            shutil.rmtree(folder)
            shutil.copytree(copy, folder)
            do(folder / file)
            found = outcome(kind.read, folder)
            n_refused += found == "refused"
            if found not in ("refused", expected):
                wrong[file.name, harm] = found
    assert wrong == {}
    # Shards that were prepared are prepared again.
    assert n_refused > len(files) * 4
