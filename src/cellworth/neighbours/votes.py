"""The majority vote of the K nearest rows: how likely it is right, in the mean over all ties."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from cellworth.counts import Floats, Wholes
from cellworth.neighbours.rounds import Asked, Ranker, Shard, Summary
from cellworth.neighbours.training import Query, Training, coalition_steps


def vote_of_sorted(training: Training, keys: Wholes, query: Query) -> float:
    """Chance that the vote is right, from one line of sorted keys."""
    from cellworth.neighbours import vote_kernels

    right = int(query.label)
    surely, tied = np.zeros((2, max(int(training.labels.max()), right) + 1), dtype=np.int64)
    places = vote_kernels.sorted_votes(
        keys, training.shift, training.labels, training.n_neighbors, surely, tied
    )
    return right_vote(surely, tied, places, right)


def votes_of_summary(ranker: Ranker, asked: Asked, summary: Summary) -> Floats | None:
    """Chance for each query that the vote of all rows is right, from what shards have counted.

    Shards count matches and other rows, which tells the vote of two classes; of more it is None.
    """
    from cellworth.neighbours import vote_kernels

    if len(ranker.class_counts) > 2:
        return None
    chances = np.empty(len(asked.labels))
    for query, pair in enumerate((asked.pair_starts[1:] - 1).tolist()):
        lists = (each.rows[slice(*each.starts[pair : pair + 2])] for each in summary.near.values())
        near = np.sort(np.concatenate(list(lists)))
        surely, tied = np.zeros((2, 2), dtype=np.int64)
        places = vote_kernels.binned_votes(
            summary.counts[pair].astype(np.int64), near, ranker.n_neighbors, surely, tied
        )
        chances[query] = right_vote(surely, tied, places, 1)
    return chances


def votes_of_rows(ranker: Ranker, asked: Asked, shard: Shard) -> Floats:
    """Chance for each query that the vote of all rows is right, where one shard holds them all."""
    from cellworth.neighbours import kernels

    rulers, n_rows = ranker.rulers, shard.n_rows
    one_player = np.zeros(len(rulers.places), dtype=np.int64)
    no_payload = np.zeros(n_rows, dtype=np.int64)
    n_nearest = min(ranker.n_neighbors, n_rows)
    steps = coalition_steps(np.ones((1, 1), dtype=bool))
    distances = np.empty((1, n_rows), dtype=np.int64)
    chances = np.empty(len(asked.labels))
    for query, label in enumerate(asked.labels.tolist()):
        cells = asked.numbers[query], asked.categories[query], asked.lines[query]
        kernels.fill_keys(
            shard.rows, cells, rulers, one_player, one_player[:1], steps, no_payload, 0, distances
        )
        farthest = np.partition(distances[0], n_nearest - 1)[n_nearest - 1]
        surely, tied = (
            np.diff(np.append(0, np.cumsum(among))[shard.starts])
            for among in (distances[0] < farthest, distances[0] == farthest)
        )
        chances[query] = right_vote(surely, tied, n_nearest - int(surely.sum()), label)
    return chances


def right_vote(surely: Wholes, tied: Wholes, places: int, right: int) -> float:
    """Chance that a class gets most votes; classes with equally many win equally often.

    Parameters
    ----------
    surely, tied : arrays of shape (n_classes,)
        Rows that are surely among the nearest, and rows that compete for the places left.
    places : int
        How many of the tied rows vote; all of them, or any.
    right : int
        The class.
    """
    if tied.sum() == places:
        votes = surely + tied
        best = votes == votes.max()
        return float(best[right]) / int(best.sum())
    return _chance(surely.tobytes(), tied.tobytes(), places, right)


@lru_cache(maxsize=4096)
def _chance(surely: bytes, tied: bytes, places: int, right: int) -> float:
    # Where many rows tie, many queries see the same counts.
    from cellworth.neighbours import vote_kernels

    counts = (np.frombuffer(each, dtype=np.int64) for each in (surely, tied))
    return float(vote_kernels.right_chance(*counts, places, right))
