"""Measure how well real errors of cells are found in four tables with a clean copy.

The tables hospital, rayyan, beers and flights are those of Raha (Mahdavi and others, 2019): a dirty
and a clean copy of each; a cell is wrong where they differ. No label is given to any method.
Reports AUROC and average precision over all cells of a table. Rarity is minus the logarithm of how
often a content occurs in its column; ECOD (Li and others,
2022), COPOD (Li and others, 2020) and DDC (Rousseeuw and Van den Bossche, 2018) get strings coded
by how often they occur.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import average_precision_score, roc_auc_score

from cellworth import audit
from cellworth.findings import anomaly_scores
from experiments.cell_scores import copod, ddc, ecod
from experiments.frame import Tables, log
from experiments.tables import find

QUICK = {"sets": ("hospital",)}
TABLES = ("hospital", "rayyan", "beers", "flights")


def load(name: str, folder: Path) -> tuple[pd.DataFrame, np.ndarray]:
    """Return the dirty table, and a mask of its wrong cells."""
    dirty, clean = (
        pd.read_csv(find(f"raha_{name}_{copy}", folder), dtype=str, keep_default_na=False)
        for copy in ("dirty", "clean")
    )
    return dirty, dirty.to_numpy() != clean.to_numpy()


def count_contents(X: pd.DataFrame) -> np.ndarray:
    """Return how often each content occurs in its column."""
    return np.column_stack([X[name].map(X[name].value_counts()) for name in X]).astype(float)


METHODS = {
    "audit": lambda X: audit(X).scores,
    "anomaly scores": lambda X: anomaly_scores(X, np.zeros(len(X), dtype=int)),
    "rarity": lambda X: -np.log(count_contents(X)),
    "ECOD, by frequency": lambda X: ecod(count_contents(X)),
    "COPOD, by frequency": lambda X: copod(count_contents(X)),
    "DDC, by frequency": lambda X: ddc(count_contents(X)),
}


def run(data: Path, sets: tuple[str, ...] = TABLES) -> Tables:
    """Return AUROC and average precision of every method on every table."""
    found: Tables = {"AUROC": [], "average precision": []}
    for method, score in METHODS.items():
        areas, precisions, began = {}, {}, time.process_time()
        for name in sets:
            X, wrong = load(name, data)
            scores = score(X).ravel()
            areas[name] = roc_auc_score(wrong.ravel(), scores)
            precisions[name] = average_precision_score(wrong.ravel(), scores)
        seconds = {"seconds": time.process_time() - began}
        found["AUROC"].append({"method": method} | areas | seconds)
        found["average precision"].append({"method": method} | precisions)
        log(method)
    return found
