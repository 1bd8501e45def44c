"""Draws of coalitions of columns, and queries for which they are drawn, as arrays for kernels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cellworth.data.arguments import Codes, Floats, Integers, Mask
from cellworth.sampling.column_samplers import Coalitions

# As in kernels, which are imported when they are needed.
_EVERYTHING = 2
# Bases, first entries and toggles of coalitions; see Steps.
StepArrays = tuple[Integers, Integers, Integers]


class Steps(NamedTuple):
    """Steps from coalition to coalition, for concatenated draws."""

    starts: Integers  # (n_draws + 1,): first coalition of each draw
    bases: Integers  # Base of each coalition: kernels.NOTHING, PREVIOUS or EVERYTHING
    firsts: Integers  # (n_coalitions + 1,): first toggle of each coalition
    toggles: Integers  # p if player p joins, ~p if it leaves


@dataclass(frozen=True, eq=False)
class DrawnCoalitions:
    """Concatenated draws of coalitions of a pass, with their weights."""

    steps: Steps
    weights: Floats  # (n_coalitions of all draws, n_results)
    nothing: Floats  # (n_draws, n_results): weights of the empty coalition

    @classmethod
    def concatenate(cls, draws: Sequence[tuple[Coalitions, Floats]]) -> DrawnCoalitions:
        """Concatenate draws; the last line of their weights is for the empty coalition."""
        members = [coalitions.members for coalitions, _ in draws]
        steps = [find_fewest_steps(each) for each in members]
        bases, toggles = (np.concatenate([each[k] for each in steps]) for k in (0, 2))
        lengths = np.concatenate([np.diff(each[1]) for each in steps])
        starts = np.cumsum([0] + [len(each) for each in members])
        firsts = np.concatenate([[0], np.cumsum(lengths)])
        weights = np.vstack([weights[:-1] for _, weights in draws])
        nothing = np.array([weights[-1] for _, weights in draws])
        return cls(Steps(starts, bases, firsts, toggles), weights, nothing)


class QueryBatch(NamedTuple):
    """Queries of a round. A pair is a query with one of its coalitions."""

    # (n_queries, n_columns of the type): cells as in Columns.
    numbers: Floats
    categories: Codes
    # (n_queries,): codes of classes, or targets minus the mean target of the training rows
    labels: Integers | Floats
    # (n_queries, n_results): column player at each position of the query's draw.
    orders: Integers
    draws: Integers  # (n_queries,): number of each query's draw
    pair_starts: Integers  # (n_queries + 1,): first pair of each query
    weights: Floats  # (n_queries,): weight of each query

    @property
    def n_pairs(self) -> int:
        """Number of pairs of all queries."""
        return int(self.pair_starts[-1])

    def of_full_table(self, utilities: Floats) -> Floats:
        """Return each query's utility of the full table; the last coalition has all columns."""
        return utilities[self.pair_starts[1:] - 1]


def find_steps(members: Mask, *, with_everything: bool = True) -> StepArrays:
    """Return the fewest steps to each coalition from nothing, the previous one, or everything."""
    before = np.vstack([members[:1], members[:-1]])
    sources = np.stack([np.zeros_like(members), before, np.ones_like(members)])
    lengths = (sources != members).sum(axis=2)
    lengths[1, 0] = members.shape[1] + 1
    bases = lengths[: 3 if with_everything else 2].argmin(axis=0)
    changed = sources[bases, np.arange(len(members))] != members
    coalition, player = np.nonzero(changed)
    toggles = np.where(members[coalition, player], player, ~player)
    firsts = np.concatenate([[0], np.cumsum(changed.sum(axis=1))])
    return bases.astype(np.int64), firsts.astype(np.int64), toggles.astype(np.int64)


def find_fewest_steps(members: Mask) -> StepArrays:
    """Return steps that start from everything only if that saves more than it takes to add up."""
    return min(
        (find_steps(members, with_everything=choice) for choice in (False, True)),
        key=lambda steps: len(steps[2]) + (_EVERYTHING in steps[0]) * members.shape[1],
    )
