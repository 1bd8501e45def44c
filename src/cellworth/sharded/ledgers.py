"""What the driver of a run knows and writes down: what rounds told, how far shards are."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cellworth.execution.checkpoints import DirectoryJournal
from cellworth.packing import Plain, prefixed, unprefixed
from cellworth.provenance import fingerprint
from cellworth.sharded.states import States

_TOLD = "told"
_SECONDS = "seconds"


class Ledger:
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
        self._journal = DirectoryJournal(folder)
        self._journal.open(identity)
        self._began, self._seconds_before = time.perf_counter(), 0.0
        self._told: dict[int, Plain] = {}
        # As the journal names it: as it will be read.
        run = fingerprint(json.loads(json.dumps(identity)))
        self.states = States(folder.absolute(), run, durable)
        self._n_shards = n_shards
        self._read()

    def _read(self) -> None:
        for number, load in self._journal.answers():
            record = load()
            if record is not None:
                self._told[number] = unprefixed(_TOLD, record)
                self._seconds_before = max(self._seconds_before, float(record[_SECONDS]))

    @property
    def seconds(self) -> float:
        """Time spent so far, earlier sessions included."""
        return self._seconds_before + time.perf_counter() - self._began

    def note(self, number: int, told: Plain) -> None:
        """Write down what a round told, before any shard settles it."""
        if number not in self._told:
            self._journal.keep(number, prefixed(_TOLD, told) | {_SECONDS: self.seconds})
            self._journal.flush()
            self._told[number] = told

    def told(self, n_rounds: int) -> tuple[Plain, ...]:
        """What the first rounds told."""
        return tuple(self._told[number] for number in range(n_rounds))

    def look_around(self) -> Standing:
        """How far the shards are, by their states in the folder."""
        return Standing(self.states.found(self._n_shards), self._told)


class Standing:
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

    def settle(self, shard: int, number: int) -> None:
        """Note that a shard has settled a round."""
        self._settled[shard] = max(self._settled[shard], number + 1)

    def finish(self, number: int) -> None:
        """Note that a round is done."""
        self.complete = max(self.complete, number + 1)
