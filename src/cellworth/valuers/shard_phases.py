"""KNNShardAlgorithm: rounds of K-nearest-neighbour values over the shards of a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cellworth.counts import Floats
from cellworth.fixed import as_floats
from cellworth.moments import Moments
from cellworth.neighbours.rounds import Near, Prepared, Ranker, Shard, Summary
from cellworth.neighbours.votes import votes_of_summary
from cellworth.runtime.shard_algorithm import RoundResult, ShardState
from cellworth.sharded.preparing import PreparedShards
from cellworth.value_files import GROUP_ROWS, write_groups
from cellworth.valuers.questions import Questions, Task, judged


class NumberedShard(NamedTuple):
    """Rows of one shard, and which it is."""

    number: int
    shard: Shard


class NumberedRound(NamedTuple):
    """What shards must know of a round, and which it is."""

    number: int
    prepared: Prepared


@dataclass(frozen=True, eq=False)
class KNNShardAlgorithm:
    """What a run over shards does; see :class:`cellworth.runtime.shard_algorithm.ShardAlgorithm`.

    A shard's state holds whole-number sums of the sweep that goes on; of finished sweeps means and
    spreads of its cells and rows, and the sums of its columns.

    Parameters
    ----------
    shards : PreparedShards
    ranker : Ranker
    questions : Questions
    """

    shards: PreparedShards
    ranker: Ranker
    questions: Questions

    @property
    def n_shards(self) -> int:
        """How many shards the table has."""
        return self.shards.table.n_shards

    def open(self, shard: int) -> NumberedShard:
        """Rows of a shard, memory-mapped."""
        return NumberedShard(shard, self.shards.open(shard))

    def prepare(self, number: int) -> NumberedRound:
        """Queries of a round, and where bins begin."""
        task = self.questions(number)
        # Validation rows are one fold.
        (piece,) = task.part.pieces
        orders = self.questions.orders(task)
        return NumberedRound(
            number, self.questions.prepared(piece, task.sweep, orders, self.ranker)
        )

    def count(self, rows: NumberedShard, prepared: NumberedRound) -> Summary:
        """Counts of a shard's rows by bin, and its nearest rows."""
        return self.ranker.look(rows.number, rows.shard, prepared.prepared)

    def merge(self, one: Summary, other: Summary) -> Summary:
        """Summary of both."""
        return one.merge(other)

    def finalize(self, prepared: NumberedRound, summary: Summary) -> RoundResult:
        """What rows are worth, and what the round tells of sums."""
        worths = self.ranker.resolve(summary)
        votes = votes_of_summary(self.ranker, prepared.prepared.asked, summary)
        told = self._told(self.questions(prepared.number), prepared.prepared, worths, votes)
        return RoundResult(worths.far, worths.near, told)

    def initial_state(self, rows: NumberedShard) -> ShardState:
        """Nothing is added yet."""
        return {"rounds": np.array([0])}

    def accumulate(
        self,
        rows: NumberedShard,
        prepared: NumberedRound,
        shared: Floats,
        part: Near,
        state: ShardState,
    ) -> ShardState:
        """Add a round to the sums of a shard; the last of a sweep makes an observation of them."""
        if "sums" not in state:
            shape = self.questions.n_results, rows.shard.n_rows
            state["sums"] = np.zeros(shape, dtype=np.int64)
        self.ranker.settle(rows.shard, prepared.prepared, shared, part, into=state["sums"])
        state["rounds"] = state["rounds"] + 1
        if int(state["rounds"][0]) % len(self.questions.parts) == 0:
            self._close_sweep(state)
        return state

    def write(
        self, rows: NumberedShard, state: ShardState, shard: int, folder: Path
    ) -> dict[str, Any]:
        """Write means and spreads in the order of rows; tell the sums of columns, in units."""
        if "mean" not in state:
            # Broken off in the first sweep: values are of the queries so far.
            self._close_sweep(state)
        elif "sums" in state:
            # What a later sweep has begun does not count.
            del state["sums"]
        entry = write_groups(
            folder,
            shard,
            self.shards.table.rows(shard).start,
            _groups(rows.shard, state),
            durable=self.shards.durable,
        )
        return {**entry, "column_sums": state["column_sums"].tolist()}

    def weight(self, n_rounds: int) -> float:
        """What the queries of the last sweep count together, after so many rounds."""
        n_parts = len(self.questions.parts)
        first = (n_rounds - 1) // n_parts * n_parts
        return reduce(add, (self._weight(self.questions(n)) for n in range(first, n_rounds)))

    def _weight(self, task: Task) -> float:
        (piece,) = task.part.pieces
        counts = self.questions.judges.weights[piece.fold]
        return reduce(add, (float(counts[place]) for place in piece.queries), 0.0)

    def _close_sweep(self, state: ShardState) -> None:
        sums, weight = state.pop("sums"), self.weight(int(state["rounds"][0]))
        of_columns, of_rows = sums.sum(axis=1), as_floats(sums.sum(axis=0)) / weight
        before = state.get("column_sums", np.empty((0, len(sums)), dtype=np.int64))
        state["column_sums"] = np.vstack([before, of_columns])
        # In place, line by line: a shard's values are the largest thing there is.
        seen = sums.view(np.float64)
        for line, whole in zip(seen, sums, strict=True):
            line[:] = as_floats(whole) / weight
        if "mean" not in state:
            state |= {"mean": seen, "row_mean": of_rows}
            return
        if "spread" not in state:
            state |= {"spread": np.zeros_like(seen), "row_spread": np.zeros_like(of_rows)}
        count = len(before)
        for mean, spread, line in zip(state["mean"], state["spread"], seen, strict=True):
            _observe(count, mean, spread, line)
        _observe(count, state["row_mean"], state["row_spread"], of_rows)

    def _told(
        self, task: Task, prepared: Prepared, worths: Any, votes: Floats | None
    ) -> dict[str, Any]:
        """What a round adds to totals, and how sums of columns differ from query to query."""
        asked = prepared.asked
        if votes is None:
            votes = np.full(len(asked.labels), np.nan)
        added = judged(asked.counts, worths.of_everyone(asked), prepared.bases, votes)
        sums = _column_sums(prepared, worths.sums, self.ranker.class_counts)
        judges, (piece,) = self.questions.judges, task.part.pieces
        strata = judges.strata[piece.fold][piece.queries]
        # One line for each stratum, with what its queries count.
        member = (np.arange(judges.n_strata)[:, None] == strata).astype(np.float64)
        squared = member * (asked.counts * judges.n_queries) ** 2
        return {
            **added._asdict(),
            "n_queries": member.sum(axis=1).astype(np.int64),
            "n_ranked": self.questions.n_ranked(task),
            "counts": squared.sum(axis=1),
            "first": squared @ sums,
            "second": squared @ sums**2,
        }


def _observe(count: int, mean: Floats, spread: Floats, seen: Floats) -> None:
    """Add one observation to the Moments of others, in place."""
    before = Moments(np.full(len(mean), count, dtype=np.int64), mean, spread)
    after = before.merge(Moments.of(seen))
    mean[:], spread[:] = after.mean, after.spread


def _column_sums(prepared: Prepared, sums: Floats, class_counts: NDArray[np.int64]) -> Floats:
    """Sums of each column and of all of them, query by query; what the query counts left out."""
    asked, designs = prepared.asked, prepared.designs
    found = np.empty((len(asked.labels), designs.weights.shape[1] + 1))
    for query, (label, draw) in enumerate(zip(asked.labels, asked.draws, strict=True)):
        pairs = slice(*asked.pair_starts[query : query + 2])
        coalitions = slice(*designs.steps.starts[draw : draw + 2])
        matches = class_counts[label] if label < len(class_counts) else 0
        alone = prepared.nothing[query] @ [class_counts.sum() - matches, matches]
        by_name = sums[pairs] @ designs.weights[coalitions] + alone * designs.nothing[draw]
        found[query, asked.orders[query]] = by_name
        found[query, -1] = by_name.sum()
    return found


def _groups(shard: Shard, state: ShardState) -> Iterator[dict[str, Floats]]:
    """Figures of a shard's rows in the order of the table, some rows at a time."""
    order = np.argsort(shard.places, kind="stable")
    for start in range(0, shard.n_rows, GROUP_ROWS):
        some = order[start : start + GROUP_ROWS]
        figures = [n for n in ("mean", "spread", "row_mean", "row_spread") if n in state]
        yield {name: state[name][..., some].T for name in figures}
