"""Quadrature: the Shapley values of a Gaussian process that runs through known utilities."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import comb

from cellworth.counts import Floats, Mask

# Chosen on three data sets and checked on others (benchmarks/designs.py).
_FALL_PER_RADIAN = 0.3
_LINEAR_VARIANCE = 1000.0
_NOISE = 1e-3


def quadrature_weights(members: Mask) -> Floats:
    """Weights of coalitions in the Shapley values of the process that runs through them.

    The process has a covariance that falls with the angle between coalitions, conditioned on what
    everyone is worth, plus a strong linear part and a little noise.

    Parameters
    ----------
    members : array of shape (n_coalitions, n_players)
        True where the player belongs to the coalition; neither the empty nor the full one.

    Returns
    -------
    array of shape (n_coalitions, n_players)
        What each coalition's deviation from an equal share counts.
    """
    n_players = members.shape[1]
    sizes = members.sum(axis=1)
    centred = members - (sizes / n_players)[:, None]
    overlaps = (members.astype(np.float64) @ members.T).round()
    with_everyone = _correlation(sizes, n_players, sizes)
    covariance = _correlation(sizes[:, None], sizes, overlaps)
    covariance -= np.outer(with_everyone, with_everyone)
    covariance += _LINEAR_VARIANCE / n_players * (centred @ centred.T)
    covariance[np.diag_indices_from(covariance)] += _NOISE
    integrals = _integrals(n_players)
    target = integrals[sizes[:, None], members.astype(np.intp)]
    target -= target.mean(axis=1, keepdims=True)
    target += _LINEAR_VARIANCE / n_players * centred
    return np.linalg.solve(covariance, target)


def _correlation(one: Any, other: Any, overlap: Any) -> Floats:
    """Correlation of the utilities of two coalitions, given their sizes and their overlap."""
    cosine = np.minimum(overlap / np.sqrt(one * other), 1.0)
    correlation: Floats = np.exp(-_FALL_PER_RADIAN * np.arccos(cosine))
    return correlation


@lru_cache(maxsize=8)
def _integrals(n_players: int) -> Floats:
    """Shapley value of a player in the game F -> correlation(F, G), shape (n_players, 2).

    By the size of G, for players outside and inside of G; without the empty and the full F.
    """
    integrals = np.zeros((n_players, 2))
    size = np.arange(1, n_players)[:, None]
    joined = 1.0 / (n_players * comb(n_players - 1, size - 1))
    absent = 1.0 / (n_players * comb(n_players - 1, size))
    for given in range(1, n_players):
        overlap = np.arange(given + 1)
        correlation = _correlation(size, given, overlap)
        # Ways to pick F of a size and an overlap with G, with the player and without.
        outside, inside = n_players - given, given
        rest = size - overlap
        for is_in in (0, 1):
            with_player = (
                comb(inside - 1, overlap - 1) * comb(outside, rest)
                if is_in
                else comb(inside, overlap) * comb(outside - 1, rest - 1)
            )
            without = (
                comb(inside - 1, overlap) * comb(outside, rest)
                if is_in
                else comb(inside, overlap) * comb(outside - 1, rest)
            )
            marginal = with_player * joined - without * absent
            integrals[given, is_in] = (correlation * marginal).sum()
    return integrals
