"""Rounds over shards in whole numbers: any sharding must give what a plain loop gives."""

import hashlib
import json
import os
import sys
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import survivor
from cellworth.runtime import MaxTasks
from cellworth.runtime.progress import BlockErrors
from cellworth.runtime.rounds import run_rounds
from cellworth.runtime.shard_algorithm import RoundResult
from cellworth.sampling.moments import Tally

N_BINS = 16
N_NEAREST = 12


def mixed(*numbers):
    """Whole numbers that look drawn, as a pure function of others."""
    found = np.zeros(1, np.uint64)
    for number in numbers:
        found = (found ^ np.asarray(number, np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(29)
    return found


@dataclass(frozen=True)
class Toy:
    """Rows are numbers. A round counts them by bin, and lists the smallest of all.

    What a row gets depends on all other rows, on the round, and on what it got before: a round that
    is missing, counted twice or out of turn shows.
    """

    n_shards: int
    n_rows: int = 1000
    log: str | None = None
    seconds: float = 0.0
    weight: int = 0

    def open(self, shard):
        with self._logged("open", shard):
            ids = np.array_split(np.arange(self.n_rows, dtype=np.uint64), self.n_shards)[shard]
            return shard, ids, np.zeros(self.weight, np.uint8)

    def prepare(self, number):
        return number

    def count(self, rows, number):
        with self._logged("count", rows[0], number):
            time.sleep(self.seconds)
            drawn = mixed(rows[1], number)
            return np.bincount(bins(drawn), minlength=N_BINS), smallest(drawn, rows[1])

    def merge(self, one, other):
        drawn, ids = (np.concatenate(pair) for pair in zip(one[1], other[1], strict=True))
        return one[0] + other[0], smallest(drawn, ids)

    def finalize(self, number, summary):
        counts, (drawn, ids) = summary
        cuts = np.array_split(np.arange(self.n_rows), self.n_shards)
        firsts = np.array([cut[0] for cut in cuts if len(cut)])
        owners = np.searchsorted(firsts, ids, side="right") - 1
        parts = {
            int(shard): {"near": ids[owners == shard], "ranks": np.flatnonzero(owners == shard)}
            for shard in np.unique(owners)
        }
        return RoundResult(counts.cumsum(), parts, {"round": number, "smallest": drawn})

    def initial_state(self, rows):
        return {
            "got": np.zeros(len(rows[1]), np.uint64),
            "heavy": np.zeros(self.weight, np.uint8),
        }

    def accumulate(self, rows, number, below, part, state):
        shard, ids, _ = rows
        with self._logged("accumulate", shard, number):
            time.sleep(self.seconds)
            got = state["got"]
            got *= np.uint64(31)
            got += below[bins(mixed(ids, number))].astype(np.uint64)
            if part is not None:
                near, ranks = part["near"], part["ranks"]
                got[np.searchsorted(ids, near)] += ranks.astype(np.uint64) * np.uint64(7)
            return state

    def measure(self, state):
        return {"largest": int(state["got"].max(initial=0))}

    def summarize(self, reports, measures):
        largest = None
        if measures is not None:
            largest = BlockErrors(10, max(each["largest"] for each in measures), 0.0)
        return Tally(new=len(reports)), largest

    def write(self, rows, state, shard, folder):
        file = f"{shard:04d}.npy"
        np.save(folder / file, state["got"])
        # Nobody may need it any more.
        state["got"][:] = 0
        return {"shard": shard, "n_rows": len(rows[1]), "file": file}

    def _logged(self, *names):
        if self.log is None:
            return nullcontext()
        return survivor.logged(self.log, "-".join(map(str, names)))


@dataclass(frozen=True)
class Broken(Toy):
    """A toy that fails in one look."""

    def count(self, rows, number):
        if (rows[0], number) == (1, 2):
            raise ZeroDivisionError("nothing to divide by")
        return super().count(rows, number)


@dataclass(frozen=True)
class Elsewhere(Toy):
    """A toy whose workers do not see the folder of the run."""

    hidden: str = ""

    def prepare(self, number):
        Path(self.hidden).rename(f"{self.hidden}-of-another-machine")
        return super().prepare(number)


@dataclass(frozen=True)
class Deadly(Toy):
    """A toy whose first looks kill the process."""

    n_kills: int = 1

    def count(self, rows, number):
        log = Path(f"{self.log}-of-kills")
        n_kills = log.read_text(encoding="utf-8").count("start") if log.exists() else 0
        if n_kills < self.n_kills:
            with survivor.logged(log, "kill"):
                os._exit(1)
        return super().count(rows, number)


class Outgrown(Deadly):
    """A toy whose looks end their process as a nanny does where memory runs out."""

    def count(self, rows, number):
        from distributed import get_worker

        worker = get_worker()
        worker.log_event("worker-restart-memory", {"worker": worker.address, "rss": 5 * 2**10})
        # The event must have gone out.
        time.sleep(0.5)
        return super().count(rows, number)


def bins(drawn):
    return (drawn >> np.uint64(60)).astype(np.int64)


def smallest(drawn, ids):
    order = np.lexsort((ids, drawn))[:N_NEAREST]
    return drawn[order], ids[order]


def truth(n_rows, n_rounds):
    """What rows get, without shards, algorithm or states."""
    got = [0] * n_rows
    for number in range(n_rounds):
        drawn = [int(mixed(row, number)[0]) for row in range(n_rows)]
        ranks = sorted(range(n_rows), key=lambda row: (drawn[row], row))[:N_NEAREST]
        for row in range(n_rows):
            below = sum(other >> 60 <= drawn[row] >> 60 for other in drawn)
            got[row] = (got[row] * 31 + below) % 2**64
        for rank, row in enumerate(ranks):
            got[row] = (got[row] + 7 * rank) % 2**64
    return np.array(got, np.uint64)


def results(folder):
    """What rows got, as shards published it."""
    return np.concatenate([np.load(path) for path in sorted(Path(folder).glob("*.npy"))])


def identify(toy):
    return {"what": "toy", "n_shards": toy.n_shards, "n_rows": toy.n_rows}


def run(toy, n_rounds, executor, folder, checkpoint=None, **given):
    into = Path(folder) / "results"
    stop = given.pop("stop", None) or MaxTasks(n_rounds)
    finished = run_rounds(
        toy,
        stop,
        executor=executor,
        into=into,
        identity=identify(toy),
        checkpoint=checkpoint,
        **given,
    )
    return finished, results(into)


def digest(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def main():
    """Do the run that a line of input asks for, and tell how it ended."""
    given = json.loads(sys.stdin.readline())
    folder = Path(given["folder"])
    toy = Toy(given["n_shards"], log=str(folder / "log"), seconds=given["seconds"])
    with survivor.executor(given["executor"], given["n_workers"]) as executor:
        finished, got = run(toy, given["n_rounds"], executor, folder, folder / "checkpoint")
    ended = {"interrupted": finished.interrupted, "rounds": len(finished.reports)}
    (folder / "ended").write_text(json.dumps(ended | {"digest": digest(got)}))
