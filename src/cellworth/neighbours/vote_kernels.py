"""Numba kernels of the majority vote: how likely the nearest rows outvote every wrong label.

Rows at equal distance may compete for the last places among the K nearest: the chance is the mean
over all their orders, and classes with equally many votes win equally often. Chances are added,
multiplied and divided only, so that they are the same bits on every machine. This module is
imported where it is used.
"""
# mypy: ignore-errors

from __future__ import annotations

import numpy as np

from cellworth.neighbours.kernels import kernel


@kernel
def sorted_votes(keys, shift, labels, n_neighbors, surely, tied):
    """Count the labels of the nearest rows, from sorted keys; return the places left for ties.

    Parameters
    ----------
    keys : (n_rows,) int64
        Distance, row and whether its label matches, as Training makes them.
    shift : int
        Bits below the distance.
    labels : (n_rows,) float64
        Codes of classes.
    surely, tied : (n_classes,) int64
        Added to: rows that are surely among the nearest, and those that compete for the rest.
    """
    n_nearest = min(n_neighbors, keys.shape[0])
    farthest = keys[n_nearest - 1] >> shift
    below = (np.int64(1) << shift) - 1
    places = n_nearest
    for i in range(keys.shape[0]):
        distance = keys[i] >> shift
        if distance > farthest:
            break
        label = np.int64(labels[(keys[i] & below) >> 1])
        if distance < farthest:
            surely[label] += 1
            places -= 1
        else:
            tied[label] += 1
    return places


@kernel
def binned_votes(counts, near, n_neighbors, surely, tied):
    """Count other rows and matches among the nearest; return the places left for ties.

    Parameters
    ----------
    counts : (2, n_bins) int64
        Other rows and matches, by bin; rows of a bin tie.
    near : (n_near,) int64
        Twice the distances of the nearest rows plus matches, sorted.
    surely, tied : (2,) int64
        Added to.
    """
    left, begin = n_neighbors, 0
    while begin < near.shape[0] and left > 0:
        end, matches = begin, 0
        while end < near.shape[0] and near[end] >> 1 == near[begin] >> 1:
            matches += near[end] & 1
            end += 1
        into = surely if end - begin <= left else tied
        into[0] += end - begin - matches
        into[1] += matches
        if end - begin > left:
            return left
        left -= end - begin
        begin = end
    for b in range(counts.shape[1]):
        rows = counts[0, b] + counts[1, b]
        into = surely if rows <= left else tied
        if left > 0:
            into[0] += counts[0, b]
            into[1] += counts[1, b]
            if rows > left:
                return left
            left -= rows
    return 0


@kernel
def right_chance(surely, tied, places, right):
    """Chance that a class gets more votes than every other one.

    Parameters
    ----------
    surely : (n_classes,) int64
        Votes that each class has in any case.
    tied : (n_classes,) int64
        Rows of each class, of which any ``places`` are drawn to vote as well.
    places : int
    right : int
        The class.
    """
    n_classes = surely.shape[0]
    drawn = np.empty(places + 1)
    mine = np.empty(places + 1)
    # By places that are left, and by other classes that have as many votes.
    chances = np.zeros((places + 1, n_classes + 1))
    later = np.zeros((places + 1, n_classes + 1))
    rows = tied.sum()
    _draw(tied[right], rows, places, mine)
    found = 0.0
    for votes in range(places + 1):
        most = surely[right] + votes
        if mine[votes] == 0.0 or most == 0:
            continue
        chances[:] = 0.0
        chances[places - votes, 0] = mine[votes]
        left = rows - tied[right]
        for other in range(n_classes):
            if other == right or surely[other] + tied[other] == 0:
                continue
            later[:] = 0.0
            for open_places in range(places - votes + 1):
                if chances[open_places].sum() == 0.0:
                    continue
                _draw(tied[other], left, open_places, drawn)
                for more in range(min(open_places, tied[other]) + 1):
                    if surely[other] + more > most:
                        break
                    equal = 1 if surely[other] + more == most else 0
                    for shared in range(n_classes):
                        later[open_places - more, shared + equal] += (
                            chances[open_places, shared] * drawn[more]
                        )
            chances, later = later, chances
            left -= tied[other]
        for shared in range(n_classes):
            found += chances[0, shared] / (shared + 1)
    return found


@kernel
def _draw(marked, rows, n_drawn, chances):
    """Chances that 0, 1, ... of ``n_drawn`` among ``rows`` are marked ones."""
    chances[:] = 0.0
    first, last = max(0, n_drawn - (rows - marked)), min(n_drawn, marked)
    # From the likeliest number outwards: nothing overflows, and what underflows does not matter.
    top = min(max((n_drawn + 1) * (marked + 1) // (rows + 2), first), last)
    chances[top] = 1.0
    total = 1.0
    for k in range(top, last):
        ratio = (marked - k) * (n_drawn - k) / ((k + 1) * (rows - marked - n_drawn + k + 1))
        chances[k + 1] = chances[k] * ratio
        total += chances[k + 1]
    for k in range(top, first, -1):
        ratio = k * (rows - marked - n_drawn + k) / ((marked - k + 1) * (n_drawn - k + 1))
        chances[k - 1] = chances[k] * ratio
        total += chances[k - 1]
    for k in range(first, last + 1):
        chances[k] /= total
