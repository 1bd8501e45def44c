"""What a run over the shards of a table is made of: rounds of two phases, and what they leave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cellworth.packing import Plain

# Arrays by name, which belong to one shard and are about as large as its values.
State = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Resolved:
    """What all shards together know of a round.

    Parameters
    ----------
    shared : object
        Goes to every shard; some megabytes.
    parts : mapping
        From shards to what only they need; a shard may have none.
    told : dict
        Small arrays and plain values for the process that drives the run.
    """

    shared: Any
    parts: Mapping[int, Any]
    told: Plain

    def __sizeof__(self) -> int:
        """Bytes of the most of it: a cluster asks, to keep work where most of it is."""
        return int(getattr(self.shared, "nbytes", 0))


class Phases(Protocol):
    """The plan of one run; it travels to workers, and all of it is pure.

    Rounds are numbered from 0. In a round every shard is looked at, what was seen is merged and
    resolved, and every shard settles: it adds what the round brought to a state of its own. Only
    that state may be changed: anything else may be in use elsewhere, and its arrays read-only.
    """

    @property
    def n_shards(self) -> int:
        """How many shards the table has."""
        ...

    def open(self, shard: int, /) -> Any:
        """Rows of a shard, from their file; they are kept between rounds where there is room."""
        ...

    def prepare(self, number: int, /) -> Any:
        """What every shard needs to know before a round of this number; some megabytes."""
        ...

    def look(self, rows: Any, prepared: Any, /) -> Any:
        """First phase: a summary of a shard's rows."""
        ...

    def merge(self, one: Any, other: Any, /) -> Any:
        """Two summaries as one: the same in any order and any tree."""
        ...

    def resolve(self, prepared: Any, summary: Any, /) -> Resolved:
        """Make of the summary of all shards what they need to settle."""
        ...

    def blank(self, rows: Any, /) -> State:
        """State of a shard before its first round."""
        ...

    def settle(self, rows: Any, prepared: Any, shared: Any, part: Any, state: State, /) -> State:
        """Second phase: a shard's state after the round; it may change the one it gets."""
        ...

    def publish(self, rows: Any, state: State, shard: int, folder: Path, /) -> dict[str, Any]:
        """Write the result of a shard into a folder; what is returned can be written as JSON.

        It may change the state that it gets. Asked again for the same, it writes the same.
        """
        ...


@dataclass(frozen=True, eq=False)
class Finished:
    """How a run over shards ended.

    Parameters
    ----------
    told : tuple of dict
        What each round told, in order; earlier sessions included.
    entries : tuple of dict
        What publishing each shard returned.
    interrupted : bool
        Whether the user broke the run off; the rounds told are in the results all the same.
    seconds : float
        Time spent, earlier sessions included.
    """

    told: tuple[Plain, ...]
    entries: tuple[dict[str, Any], ...]
    interrupted: bool
    seconds: float


def as_arrays(state: Mapping[str, Any]) -> State:
    """Refuse what is not a state: it would be written otherwise than it is."""
    for name, array in state.items():
        if not isinstance(array, np.ndarray):
            raise TypeError(f"{name} of a state is {type(array).__name__}; give an array.")
    return dict(state)
