"""The context of a run over shards: which round comes next, and what is noted on the way."""

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

# Asked with what all rounds so far told; True ends the run after these rounds.
Enough = Callable[[Sequence[Plain]], bool]
_TOLD = "told"
_SECONDS = "seconds"


@dataclass(frozen=True, eq=False)
class RunContext:
    """One attempt at a run, until it is done, broken off, or something is found to be lost.

    Parameters
    ----------
    algorithm : ShardAlgorithm
    n_rounds : int
    enough : callable or None
    checkpoint : RoundsCheckpoint
    progress : ShardProgress
        How far the shards are.
    bar : tqdm
        Counts algorithm of shards.
    interrupts : Interrupts
        Signals are let in while others work.
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
        """Whether a round is to be done, once those before it have told."""
        if number < self.progress.earliest:
            return True
        if number >= self.n_rounds:
            return False
        return not (number and self.enough and self.enough(self.checkpoint.told(number)))

    def may_need_round(self, number: int) -> bool:
        """Whether a round may come, as far as is known before others have told."""
        return number < max(self.progress.earliest, self.n_rounds)

    def begin(self) -> None:
        """Let the bar know how much there is to do."""
        n_rounds = max(self.n_rounds, self.progress.earliest) - self.progress.complete
        self.bar.total = self.bar.n + 2 * max(n_rounds, 0) * self.algorithm.n_shards

    def record_count(self) -> None:
        """Note that a shard has been looked at."""
        self.bar.update(1)

    def record_accumulated(self, shard: int, number: int) -> None:
        """Note that a shard has settled a round."""
        self.progress.record(shard, number)
        self.bar.update(1)


class RoundsCheckpoint:
    """A run in a folder, which goes on where an earlier session ended.

    Parameters
    ----------
    folder : Path
        Made if it is not there; one that holds another run is refused.
    identity : mapping
        Names the run: all that decides what rounds do and tell, as JSON.
    n_shards : int
    durable : bool
        Whether the folder shall outlive the run.
    """

    def __init__(
        self, folder: Path, identity: Mapping[str, Any], n_shards: int, *, durable: bool
    ) -> None:
        """Read what earlier sessions left."""
        self._checkpoint = DirectoryJournal(folder)
        self._checkpoint.open(identity)
        self._began, self._seconds_before = time.perf_counter(), 0.0
        self._told: dict[int, Plain] = {}
        # As the checkpoint names it: as it will be read.
        run = fingerprint(json.loads(json.dumps(identity)))
        self.states = ShardCheckpoint(folder.absolute(), run, durable)
        self._n_shards = n_shards
        self._read()

    def _read(self) -> None:
        for number, load in self._checkpoint.answers():
            record = load()
            if record is not None:
                self._told[number] = unprefixed(_TOLD, record)
                self._seconds_before = max(self._seconds_before, float(record[_SECONDS]))

    @property
    def seconds(self) -> float:
        """Time spent so far, earlier sessions included."""
        return self._seconds_before + time.perf_counter() - self._began

    def record(self, number: int, told: Plain) -> None:
        """Write down what a round told, before any shard settles it."""
        if number not in self._told:
            self._checkpoint.keep(number, prefixed(_TOLD, told) | {_SECONDS: self.seconds})
            self._checkpoint.flush()
            self._told[number] = told

    def told(self, n_rounds: int) -> tuple[Plain, ...]:
        """What the first rounds told."""
        return tuple(self._told[number] for number in range(n_rounds))

    def read_progress(self) -> ShardProgress:
        """How far the shards are, by their states in the folder."""
        return ShardProgress(self.states.found(self._n_shards), self._told)


class ShardProgress:
    """How far the shards are while a run goes on.

    Parameters
    ----------
    found : list of range
        By shard, the numbers of rounds after which there is a state.
    told : mapping
        What rounds told, by number.
    """

    def __init__(self, found: list[range], told: Mapping[int, Plain]) -> None:
        """Begin with what was found."""
        self._settled = [rounds[-1] for rounds in found]
        unknown = next(number for number in range(len(told) + 1) if number not in told)
        # Rounds that all shards have settled and that have told.
        self.complete = min(*self._settled, unknown)
        # Before that, some shard has no state any more.
        self.earliest = max(rounds[0] for rounds in found)

    def settled(self, shard: int) -> int:
        """Rounds that a shard has settled."""
        return self._settled[shard]

    def unsettled(self, number: int) -> list[int]:
        """Shards that have not settled a round."""
        return [shard for shard, rounds in enumerate(self._settled) if rounds <= number]

    def record(self, shard: int, number: int) -> None:
        """Note that a shard has settled a round."""
        self._settled[shard] = max(self._settled[shard], number + 1)

    def finish(self, number: int) -> None:
        """Note that a round is done."""
        self.complete = max(self.complete, number + 1)
