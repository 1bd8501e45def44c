"""How many labels of others an owner can work out from its own values.

The attacker knows all features, its own labels, the validation rows and the values of its own
cells. A score that counts neighbors with the right label is linear in labels, and so are the
values: the attacker values the table with one label changed at a time and solves for all of them.
"""

from __future__ import annotations

import warnings

import numpy as np

from cellworth import KNNValuer
from experiments.frame import Tables, means

QUICK = {"seeds": range(1), "neighbors": (1,)}
N_OWN, N_OTHERS, N_VALIDATION = 20, 20, 30


def attack(n_neighbors: int, seed: int) -> dict[str, float]:
    """Return shares of others' labels that are guessed right, by what the attacker sees."""
    rng = np.random.default_rng(seed)
    X, X_val = rng.normal(size=(N_OWN + N_OTHERS, 2)), rng.normal(size=(N_VALIDATION, 2))
    # Labels do not depend on features: without values, a guess is right half the time.
    y, y_val = rng.integers(0, 2, len(X)), rng.integers(0, 2, N_VALIDATION)

    def own_values(others):
        labels = np.concatenate([y[:N_OWN], others])
        valuer = KNNValuer(n_neighbors, random_state=0)
        return valuer.fit(X, labels, X_val=X_val, y_val=y_val).valuation_.values[:N_OWN].ravel()

    seen, base = own_values(y[N_OWN:]), own_values(np.zeros(N_OTHERS, dtype=int))
    effects = np.array([own_values(one) - base for one in np.eye(N_OTHERS, dtype=int)]).T

    def share_right(known, effects, base):
        found = np.linalg.lstsq(effects, known - base, rcond=None)[0]
        # One equation has many solutions, of which the shortest is found: all near 0.
        above = 0.5 if len(known) >= N_OTHERS else np.median(found)
        return float(((found > above) == y[N_OWN:]).mean())

    return {
        "cells": share_right(seen, effects, base),
        "two digits": share_right(seen.round(2), effects, base),
        "total": share_right(seen.sum(keepdims=True), effects.sum(0, keepdims=True), base.sum()),
    }


def run(seeds: range = range(10), neighbors: tuple[int, ...] = (1, 5)) -> Tables:
    """Return the share of labels that are guessed right."""
    warnings.simplefilter("ignore")
    found = [
        {"neighbors": n_neighbors} | attack(n_neighbors, seed)
        for n_neighbors in neighbors
        for seed in seeds
    ]
    return {"labels guessed right": means(found, ["neighbors"])}
