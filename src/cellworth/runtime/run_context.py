"""RunContext: which round of a run over shards comes next, and the checkpoint of its rounds."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellworth.packing import Plain, prefixed, unprefixed
from cellworth.provenance import fingerprint
from cellworth.runtime.checkpoint import DirectoryJournal
from cellworth.runtime.shard_algorithm import ShardAlgorithm, ShardCheckpoint
from cellworth.runtime.workers import Interrupts

# Called with the reports of all rounds so far; True ends the run after these rounds.
Enough = Callable[[Sequence[Plain]], bool]

_REPORT = "report"
_SECONDS = "seconds"


@dataclass(frozen=True, eq=False)
class RunContext:
    """One attempt at a run, until it is done, is interrupted, or finds something lost.

    Parameters
    ----------
    algorithm : ShardAlgorithm
    n_rounds : int
    enough : callable or None
    checkpoint : RoundsCheckpoint
    progress : ShardProgress
        How many rounds the shards have accumulated.
    bar : tqdm
        Counts phases of shards.
    interrupts : Interrupts
        Signals are allowed while workers are busy.
    title : str
    """

    algorithm: ShardAlgorithm
    n_rounds: int
    enough: Enough | None
    checkpoint: RoundsCheckpoint
    progress: ShardProgress
    bar: Any
    interrupts: Interrupts
    title: str

    def needs_round(self, number: int) -> bool:
        """Return whether a round is to be done, given the reports of all rounds before it."""
        if number < self.progress.earliest:
            return True
        if number >= self.n_rounds:
            return False
        return not (number and self.enough and self.enough(self.checkpoint.reports(number)))

    def may_need_round(self, number: int) -> bool:
        """Return whether a round may be needed, as long as earlier reports are missing."""
        return number < max(self.progress.earliest, self.n_rounds)

    def begin(self) -> None:
        """Set the length of the progress bar."""
        n_rounds = max(self.n_rounds, self.progress.earliest) - self.progress.complete
        self.bar.total = self.bar.n + 2 * max(n_rounds, 0) * self.algorithm.n_shards

    def record_count(self) -> None:
        """Record that a shard has been counted."""
        self.bar.update(1)

    def record_accumulated(self, shard: int, number: int) -> None:
        """Record that a shard has accumulated a round."""
        self.progress.record(shard, number)
        self.bar.update(1)


class RoundsCheckpoint:
    """Checkpoint of a run over shards: reports of rounds, states of shards.

    Parameters
    ----------
    folder : Path
        Created if missing; the checkpoint of another run raises an error.
    identity : mapping
        Everything that determines what rounds compute and report, as JSON.
    n_shards : int
    durable : bool
        Whether the folder must outlive the run.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, Any], n_shards: int, *, durable: bool
    ) -> None:
        """Read what earlier sessions wrote."""
        self._journal = DirectoryJournal(folder)
        self._journal.open(identity)
        self._began, self._seconds_before = time.perf_counter(), 0.0
        self._reports: dict[int, Plain] = {}
        # Hash the identity as it will be read back from JSON.
        run = fingerprint(json.loads(json.dumps(identity)))
        self.states = ShardCheckpoint(folder.absolute(), run, durable)
        self._n_shards = n_shards
        self._read()

    def _read(self) -> None:
        for number, load in self._journal.answers():
            record = load()
            if record is not None:
                self._reports[number] = unprefixed(_REPORT, record)
                self._seconds_before = max(self._seconds_before, float(record[_SECONDS]))

    @property
    def seconds(self) -> float:
        """Time spent so far, earlier sessions included."""
        return self._seconds_before + time.perf_counter() - self._began

    def record(self, number: int, report: Plain) -> None:
        """Write the report of a round, before any shard accumulates the round."""
        if number not in self._reports:
            self._journal.keep(number, prefixed(_REPORT, report) | {_SECONDS: self.seconds})
            self._journal.flush()
            self._reports[number] = report

    def reports(self, n_rounds: int) -> tuple[Plain, ...]:
        """Return the reports of the first rounds."""
        return tuple(self._reports[number] for number in range(n_rounds))

    def read_progress(self) -> ShardProgress:
        """Find out how far the shards are, from their states in the folder."""
        return ShardProgress(self.states.find(self._n_shards), self._reports)


class ShardProgress:
    """How many rounds each shard has accumulated during a run.

    Parameters
    ----------
    found : list of range
        By shard, the numbers of rounds after which there is a state.
    reports : mapping
        Reports of rounds, by number.
    """

    def __init__(self, found: list[range], reports: Mapping[int, Plain]) -> None:
        """Begin with what was found."""
        self._accumulated = [rounds[-1] for rounds in found]
        unknown = next(number for number in range(len(reports) + 1) if number not in reports)
        # Rounds that all shards have accumulated and that have a report.
        self.complete = min(*self._accumulated, unknown)
        # Before that, the state of some shard has been deleted.
        self.earliest = max(rounds[0] for rounds in found)

    def count_accumulated(self, shard: int) -> int:
        """Return the number of rounds that a shard has accumulated."""
        return self._accumulated[shard]

    def find_pending(self, number: int) -> list[int]:
        """Return the shards that have not accumulated a round."""
        return [shard for shard, rounds in enumerate(self._accumulated) if rounds <= number]

    def record(self, shard: int, number: int) -> None:
        """Record that a shard has accumulated a round."""
        self._accumulated[shard] = max(self._accumulated[shard], number + 1)

    def finish(self, number: int) -> None:
        """Record that a round is done."""
        self.complete = max(self.complete, number + 1)
