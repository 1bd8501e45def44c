"""Values and scores by other packages, in their own environments, where cellworth is not installed.

python experiments/rival_programs.py PROGRAM in.npz out.npz

Reads arrays, writes the answer and the CPU seconds that it took (the best of some runs).
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def pydvl_rows(given: Any) -> np.ndarray:
    """Return row values of pyDVL's KNNShapleyValuation."""
    from pydvl.valuation import Dataset, KNNShapleyValuation
    from sklearn.neighbors import KNeighborsClassifier

    train, test = Dataset(given["X"], given["y"]), Dataset(given["X_val"], given["y_val"])
    model = KNeighborsClassifier(int(given["n_neighbors"]))
    result = KNNShapleyValuation(model, test, progress=False).fit(train).result
    return np.asarray(result.values)[np.argsort(result.indices)]


def shapiq_rows(given: Any) -> np.ndarray:
    """Return row values of shapiq's ExactComputer, which enumerates the game that it is given."""
    import shapiq

    n_rows, n_neighbors = len(given["X"]), int(given["n_neighbors"])
    distances = ((given["X_val"][:, None] - given["X"]) ** 2).sum(axis=2)
    match = given["y"] == given["y_val"][:, None]

    def agreement(coalitions: np.ndarray) -> np.ndarray:
        utilities = []
        for members in np.atleast_2d(coalitions).astype(bool):
            near = distances[:, members]
            closer = (near[:, None, :] < near[:, :, None]).sum(axis=2)
            equal = (near[:, None, :] == near[:, :, None]).sum(axis=2)
            votes = np.clip((n_neighbors - closer) / equal, 0, 1) * match[:, members]
            utilities.append(votes.sum(axis=1).mean() / n_neighbors)
        return np.array(utilities)

    found = shapiq.ExactComputer(game=agreement, n_players=n_rows)("SV")
    return np.array([found[(row,)] for row in range(n_rows)])


def pyod_terms(given: Any) -> np.ndarray:
    """Return the terms of PyOD's ECOD or COPOD."""
    name = str(given["name"])
    module = importlib.import_module(f"pyod.models.{name.lower()}")
    return np.asarray(getattr(module, name)().fit(given["X"]).O)


def pydvl_sampled(given: Any) -> np.ndarray:
    """Return Shapley values by a sampler of pyDVL, for each budget and seed.

    A run ends once it has looked up so many different coalitions.
    """
    from pydvl.utils.status import Status
    from pydvl.valuation import Dataset, ShapleyValuation, samplers
    from pydvl.valuation.stopping import StoppingCriterion
    from pydvl.valuation.utility.base import UtilityBase

    utilities = given["utilities"]
    n_players = int(np.log2(len(utilities)))
    players = Dataset(np.zeros((n_players, 1)), np.zeros(n_players))

    class Lookup(UtilityBase):
        seen: set[int]

        def __call__(self, sample: Any) -> float:
            number = 0 if sample is None else int((1 << np.asarray(sample.subset, int)).sum())
            self.seen.add(number)
            return float(utilities[number])

    class Spent(StoppingCriterion):
        def __init__(self, seen: set[int], budget: int) -> None:
            super().__init__()
            self._seen, self._budget = seen, budget

        def _check(self, result: Any) -> Status:
            return Status.Converged if len(self._seen) >= self._budget else Status.Pending

        def completion(self) -> float:
            return min(len(self._seen) / self._budget, 1.0)

    def run(budget: int, seed: int) -> np.ndarray:
        lookup, sampler = Lookup(), getattr(samplers, str(given["method"]))(seed=seed)
        lookup.seen = set()
        found = ShapleyValuation(lookup, sampler, Spent(lookup.seen, budget)).fit(players).result
        return np.asarray(found.values)[np.argsort(found.indices)]

    return np.array([[run(b, s) for s in given["seeds"].tolist()] for b in given["budgets"]])


def shapiq_sampled(given: Any) -> np.ndarray:
    """Return Shapley values by an approximator of shapiq, for each budget and seed."""
    from shapiq import approximator

    utilities = given["utilities"]
    n_players = int(np.log2(len(utilities)))

    def look_up(coalitions: np.ndarray) -> np.ndarray:
        # Some approximators ask for one coalition as a line of its own.
        asked = np.atleast_2d(np.asarray(coalitions, int))
        return utilities[asked @ (1 << np.arange(n_players))]

    def run(budget: int, seed: int) -> list[float]:
        kind = getattr(approximator, str(given["method"]))
        found = kind(n=n_players, random_state=seed).approximate(budget, look_up)
        return [found[(player,)] for player in range(n_players)]

    return np.array([[run(int(b), int(s)) for s in given["seeds"]] for b in given["budgets"]])


PROGRAMS: dict[str, tuple[str, Callable[[Any], np.ndarray]]] = {
    "pydvl_rows": ("pyDVL", pydvl_rows),
    "shapiq_rows": ("shapiq", shapiq_rows),
    "pydvl_sampled": ("pyDVL", pydvl_sampled),
    "shapiq_sampled": ("shapiq", shapiq_sampled),
    "pyod_terms": ("pyod", pyod_terms),
}


def main(program: str, source: str, target: str) -> None:
    """Run one program on the arrays of a file."""
    from importlib.metadata import version

    package, compute = PROGRAMS[program]
    given = dict(np.load(source))
    seconds = []
    for _ in range(int(given.get("repeats", 1))):
        began = time.process_time()
        answer = compute(given)
        seconds.append(time.process_time() - began)
    np.savez(target, answer=answer, seconds=min(seconds), version=version(package))


if __name__ == "__main__":
    main(*sys.argv[1:])
