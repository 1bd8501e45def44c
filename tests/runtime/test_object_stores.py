"""Checkpoints and results in object stores: the same bits as in a local folder."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import object_store
from cellworth import KNNValuer, Runtime, load
from cellworth.runtime import DirectoryCheckpoint, Processes, Serial
from cellworth.runtime.checkpoint import AnotherRunError
from cellworth.runtime.engine import CheckpointWriter
from cellworth.sampling import PermutationSampler
from matrices import rarely
from object_store import digest, run_in_memory, run_over_shards

fsspec = pytest.importorskip("fsspec")
SECONDS_TO_END = 400
N_PASSES = 3


ROWS = np.random.default_rng(0).normal(size=(30, 4))


def value(checkpoint, n_passes=4, seed=0):
    runtime = Runtime(executor=Serial(), checkpoint=checkpoint, progress=False)
    valuer = KNNValuer(
        3, sampler=PermutationSampler(1), n_passes=n_passes, random_state=seed, runtime=runtime
    )
    valuer.fit(ROWS, (ROWS.sum(axis=1) > 0).astype(int), cv=2)
    return valuer.valuation_


def start_together(*runs):
    """Run functions in threads; return their results."""
    with ThreadPoolExecutor(len(runs)) as pool:
        return [each.result() for each in [pool.submit(run) for run in runs]]


def test_a_run_resumes_from_a_store(memory_store):
    value("memory://box/run", 2)
    names = [Path(name).name for name in memory_store.find("/box/run")]
    assert names == ["manifest.json", "progress.json", "state.npz"]
    assert digest(value("memory://box/run")) == digest(value(None))


def test_two_drivers_in_one_store_get_the_same_values(memory_store):
    drivers = [partial(value, "memory://box/run")] * 2
    assert [digest(each) for each in start_together(*drivers)] == [digest(value(None))] * 2


def test_another_run_on_the_same_store_is_refused(memory_store):
    value("memory://box/run", 2)
    with pytest.raises(AnotherRunError, match=r"^memory://box/run holds another run"):
        value("memory://box/run", seed=1)


def test_damaged_answers_in_a_store_are_set_aside(memory_store):
    with mock.patch.object(CheckpointWriter, "_write"):
        value("memory://box/run")
    damaged, *_ = memory_store.glob("/box/run/answers-*")
    memory_store.pipe_file(damaged, memory_store.cat_file(damaged)[:-9])
    with pytest.warns(UserWarning, match="is damaged .* renamed to damaged-answers"):
        again = value("memory://box/run")
    assert digest(again) == digest(value(None))
    assert memory_store.glob("/box/run/damaged-*")


@pytest.mark.nightly
def test_a_store_inside_a_process_is_not_for_other_processes(memory_store, tmp_path):
    object_store.write_shards(fsspec.filesystem("file"), tmp_path)
    with pytest.raises((FileNotFoundError, ValueError), match=r"does not see the folder|Serial"):
        run_over_shards(str(tmp_path), "memory://box/run", 1, executor=Processes(2))


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """The hash of a run without any checkpoint, by its kind and number of passes."""
    folder = tmp_path_factory.mktemp("table")
    object_store.write_shards(fsspec.filesystem("file"), folder)

    @cache
    def of(kind, n_passes=N_PASSES):
        if kind == "memory":
            return digest(run_in_memory(None, n_passes))
        return digest(run_over_shards(str(folder), None, n_passes))

    return of


@pytest.fixture(scope="module")
def table(s3_session):
    """The address of a table on the server."""
    store = fsspec.filesystem("s3", **s3_session[1])
    object_store.write_shards(store, "bucket/table")
    return "s3://bucket/table"


def begin(kind, environment, *addresses, n_passes=N_PASSES, n_kills=0, seconds=0.0):
    """Start a run, or a storm of kills, in a process of its own."""
    settings = [kind, str(n_passes), str(n_kills), str(seconds)]
    return subprocess.Popen(  # noqa: S603 (our own script)
        [sys.executable, "-W", "ignore", object_store.__file__, *settings, *addresses],
        env=os.environ | environment, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def end(driver):
    printed, _ = driver.communicate(timeout=SECONDS_TO_END)
    assert driver.returncode == 0
    return printed.strip()


def kill(driver):
    """Kill a run; return its hash, if it was done."""
    driver.send_signal(signal.SIGKILL)
    return driver.communicate()[0].strip()


def list_run(store, folder):
    store.invalidate_cache()
    return [Path(name).name for name in store.find(folder)] if store.exists(folder) else []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", *rarely("shards")])
def test_a_driver_killed_on_s3_is_resumed_by_another(kind, s3, table, known):
    environment, options = s3
    store, run = fsspec.filesystem("s3", **options), f"bucket/killed-{kind}"
    addresses = [table] if kind == "shards" else []
    driver = begin(kind, environment, *addresses, f"s3://{run}")
    while not any(name.startswith(("answers", "state")) for name in list_run(store, run)):
        assert driver.poll() is None
        time.sleep(0.05)
    kill(driver)
    assert end(begin(kind, environment, *addresses, f"s3://{run}")) == known(kind)


@pytest.mark.slow
def test_results_are_saved_to_s3_without_its_options_and_read_there(s3, table, known, tmp_path):
    _, options = s3
    in_store = run_over_shards(table, DirectoryCheckpoint("s3://bucket/results", options), N_PASSES)
    store = fsspec.filesystem("s3", **options)
    files = store.find("bucket/results")
    assert len(files) > 5
    assert not [file for file in files if options["secret"].encode() in store.cat_file(file)]
    loaded = load("s3://bucket/results/values", options)
    assert digest(loaded) == digest(in_store) == known("shards")
    assert loaded.lowest(3).values.tolist() == in_store.lowest(3).values.tolist()
    loaded.save("s3://bucket/copy")
    load("s3://bucket/copy").save(tmp_path / "local")
    assert digest(load(tmp_path / "local")) == known("shards")
    small = run_in_memory(None, N_PASSES)
    small.save("s3://bucket/small", options)
    assert digest(load("s3://bucket/small")) == known("memory")
    with pytest.raises(FileNotFoundError, match=r"^s3://bucket/none holds no manifest.json"):
        load("s3://bucket/none")


@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "n_passes"), [("memory", 200), ("shards", 20)])
def test_a_storm_of_kills_on_s3_loses_nothing(kind, n_passes, s3, table, known):
    environment, options = s3
    store, folder = fsspec.filesystem("s3", **options), f"bucket/storm-{kind}"
    addresses = [table] if kind == "shards" else []
    driver = begin(
        kind, environment, *addresses, f"s3://{folder}", n_passes=n_passes, n_kills=20, seconds=6.0
    )
    assert set(end(driver).split()) == {known(kind, n_passes)}
    assert not [name for name in list_run(store, folder) if name.startswith("damaged-")]
