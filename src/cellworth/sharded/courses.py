"""The course of a run over shards: which round comes next, and what is noted on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cellworth.execution.signals import Interrupts
from cellworth.packing import Plain
from cellworth.sharded.ledgers import Ledger, Standing
from cellworth.sharded.phases import Phases

# Asked with what all rounds so far told; True ends the run after these rounds.
Enough = Callable[[Sequence[Plain]], bool]


@dataclass(frozen=True, eq=False)
class Course:
    """One attempt at a run, until it is done, broken off, or something is found to be lost.

    Parameters
    ----------
    phases : Phases
    n_rounds : int
    enough : callable or None
    ledger : Ledger
    standing : Standing
        How far the shards are.
    bar : tqdm
        Counts phases of shards.
    interrupts : Interrupts
        Signals are let in while others work.
    title : str
    """

    phases: Phases
    n_rounds: int
    enough: Enough | None
    ledger: Ledger
    standing: Standing
    bar: Any
    interrupts: Interrupts
    title: str

    def goes_on(self, number: int) -> bool:
        """Whether a round is to be done, once those before it have told."""
        if number < self.standing.earliest:
            return True
        if number >= self.n_rounds:
            return False
        return not (number and self.enough and self.enough(self.ledger.told(number)))

    def may_go_on(self, number: int) -> bool:
        """Whether a round may come, as far as is known before others have told."""
        return number < max(self.standing.earliest, self.n_rounds)

    def begin(self) -> None:
        """Let the bar know how much there is to do."""
        n_rounds = max(self.n_rounds, self.standing.earliest) - self.standing.complete
        self.bar.total = self.bar.n + 2 * max(n_rounds, 0) * self.phases.n_shards

    def note_look(self) -> None:
        """Note that a shard has been looked at."""
        self.bar.update(1)

    def note_settled(self, shard: int, number: int) -> None:
        """Note that a shard has settled a round."""
        self.standing.settle(shard, number)
        self.bar.update(1)
