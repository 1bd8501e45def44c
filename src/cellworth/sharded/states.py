"""States of shards in a folder: each in a file that says whose it is and how far it has come."""

from __future__ import annotations

import re
import socket
import warnings
from dataclasses import dataclass
from pathlib import Path

from cellworth.execution.checkpoints import failing_disk_explained
from cellworth.files import written_atomically
from cellworth.packing import PlainFile, prefixed, write_plain
from cellworth.sharded.phases import State, as_arrays

# Rounds that may be in flight at a time, so that a shard may be so far ahead of another.
MOST_IN_FLIGHT = 3

_NAME = re.compile(r"shard-(?P<shard>\d{6})-(?P<rounds>\d{8})\.npz")
_CONTENT = "state"


class Setback(Exception):  # noqa: N818 (the run goes on)
    """Something was lost that can be had again: look around and go on from there."""


class DamagedState(Setback):
    """A file does not hold the state that its name promises."""

    def __init__(self, path: Path, reason: str) -> None:
        """Remember where and why."""
        super().__init__(path, reason)
        self.path, self.reason = path, reason


class MissingState(Setback):
    """A state is not there, which was seen a moment ago."""


@dataclass(frozen=True)
class States:
    """States of the shards of one run; any number of processes may read and write them.

    A state that has settled n rounds is written once, under a name of its own, and never changed:
    who finds it there need not settle again. So a round counts once, whoever is killed.

    Parameters
    ----------
    folder : Path
    run : str
        Fingerprint of the run, which stands in every file.
    durable : bool
        Whether states shall outlive a machine that stops, and not only killed processes.
    """

    folder: Path
    run: str
    durable: bool

    def holds(self, shard: int, rounds: int) -> bool:
        """Whether a shard has settled so many rounds."""
        path = self._path(shard, rounds)
        try:
            return self._head(path) == (self.run, shard, rounds)
        except (FileNotFoundError, DamagedState):
            return False

    def read(self, shard: int, rounds: int) -> State:
        """State after so many rounds; its checksums are looked at."""
        path = self._path(shard, rounds)
        try:
            if self._head(path) != (self.run, shard, rounds):
                raise DamagedState(path, "it belongs to another run, shard or round")
            (state,) = PlainFile(path).read(_CONTENT)
        except FileNotFoundError as error:
            raise MissingState(f"{path} is gone; has somebody deleted it?") from error
        except ValueError as error:
            raise DamagedState(path, str(error)) from error
        return state

    def write(self, shard: int, rounds: int, state: State, complete: int) -> None:
        """Keep a state; those before the rounds that all shards have settled go."""
        head = {"run": self.run, "shard": shard, "rounds": rounds}
        with (
            failing_disk_explained(self.folder),
            written_atomically(self._path(shard, rounds), durable=self.durable) as file,
        ):
            write_plain(file, head | prefixed(_CONTENT, as_arrays(state)))
        # The one before stays, even if all are as far: should this one be damaged, one round is
        # lost and not the run.
        before = min(complete, rounds - 1)
        for old in range(max(before - MOST_IN_FLIGHT - 1, 1), before):
            self._path(shard, old).unlink(missing_ok=True)

    def found(self, n_shards: int) -> list[range]:
        """By shard, the numbers of rounds after which there is a state: without gaps, latest last.

        A shard without any has settled 0 rounds.
        """
        kept: list[list[int]] = [[] for _ in range(n_shards)]
        for path in sorted(self.folder.iterdir()):
            match = _NAME.fullmatch(path.name)
            if match is None:
                continue
            shard, rounds = int(match["shard"]), int(match["rounds"])
            if self._is_sound(path, shard, rounds):
                kept[shard].append(rounds)
        found = [_latest_without_gaps(rounds) for rounds in kept]
        for shard, there in enumerate(kept):
            for old in set(there).difference(found[shard]):
                # Left by a process that was thought to be dead.
                self._path(shard, old).unlink(missing_ok=True)
        return found

    def require_folder(self) -> None:
        """Refuse to work where the folder cannot be seen."""
        require_folder(self.folder)

    def _is_sound(self, path: Path, shard: int, rounds: int) -> bool:
        try:
            head = self._head(path)
        except FileNotFoundError:
            return False
        except DamagedState as damaged:
            set_aside(damaged)
            return False
        if head != (self.run, shard, rounds):
            raise ValueError(
                f"{path} belongs to another run than manifest.json beside it; take it out of the "
                "folder."
            )
        return True

    def _head(self, path: Path) -> tuple[str, int, int]:
        try:
            head = PlainFile(path).rest
            return head["run"], int(head["shard"]), int(head["rounds"])
        except (ValueError, KeyError, TypeError) as error:
            raise DamagedState(path, str(error)) from error

    def _path(self, shard: int, rounds: int) -> Path:
        return self.folder / f"shard-{shard:06d}-{rounds:08d}.npz"


def require_folder(folder: Path) -> None:
    """Refuse to work where a folder cannot be seen: a cluster's machines must share it."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"{socket.gethostname()} does not see the folder {folder} of the run; give a "
            "checkpoint in a folder that all workers of the cluster share."
        )


def _latest_without_gaps(rounds: list[int]) -> range:
    if not rounds:
        return range(1)
    first = last = rounds[-1]
    while first - 1 in rounds:
        first -= 1
    return range(first, last + 1)


def set_aside(damaged: DamagedState) -> bool:
    """Give a damaged file another name, if it is there: the shard goes on from the state before."""
    other = damaged.path.with_name(f"damaged-{damaged.path.name}")
    try:
        damaged.path.rename(other)
    except FileNotFoundError:
        # It was deleted, or another process was faster.
        return False
    warnings.warn(
        f"{damaged.path} is damaged ({damaged.reason}); it is set aside as {other.name}, and its "
        "round is done again.",
        stacklevel=2,
    )
    return True
