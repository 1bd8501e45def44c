"""Values and scores by other packages, in their own environments, where cellworth is not installed.

python experiments/rival_programs.py PROGRAM in.npz out.npz

Reads arrays, writes the answer and the CPU seconds that it took (the best of some runs).
"""

from __future__ import annotations

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


def pyod_ecod(given: Any) -> np.ndarray:
    """Return the terms of PyOD's ECOD."""
    from pyod.models.ecod import ECOD

    return np.asarray(ECOD().fit(given["X"]).O)


def pyod_copod(given: Any) -> np.ndarray:
    """Return the terms of PyOD's COPOD."""
    from pyod.models.copod import COPOD

    return np.asarray(COPOD().fit(given["X"]).O)


PROGRAMS: dict[str, tuple[str, Callable[[Any], np.ndarray]]] = {
    "pydvl_rows": ("pyDVL", pydvl_rows),
    "shapiq_rows": ("shapiq", shapiq_rows),
    "pyod_ecod": ("pyod", pyod_ecod),
    "pyod_copod": ("pyod", pyod_copod),
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
