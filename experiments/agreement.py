"""Compare neighbor agreement with the accuracy of the same neighbors.

At most 2,000 rows of each table, five-fold cross-validation, five neighbors: the score of
KNNValuer, its baseline, the accuracy of the majority vote, and that of always guessing the most
frequent class.
"""

from __future__ import annotations

from pathlib import Path

from cellworth import KNNValuer, Runtime
from cellworth.sampling import PermutationSampler
from experiments.frame import Tables
from experiments.tables import draw_samples, load

QUICK = {"sets": ("wine",)}
SETS = ("wine", "breast 30", "heart", "credit", "adult")
MAX_ROWS = 2000


def figures(name: str, folder: Path) -> dict[str, float]:
    """Return the figures of the whole table, which do not depend on the sampled coalitions."""
    full = load(name, folder)
    table, *_ = draw_samples(full, min(MAX_ROWS, len(full.y)), seed=0)
    valuer = KNNValuer(
        sampler=PermutationSampler(1), n_passes=1, random_state=0, runtime=Runtime(progress=False)
    )
    valuation = valuer.fit(table.X, table.y).valuation_
    scores = valuation.scores
    return {
        "rows": len(table.y),
        "neighbor agreement": valuation.score,
        "baseline": valuation.baseline,
        "accuracy of the vote": scores.accuracy,
        "most frequent class": scores.majority,
    }


def run(data: Path, sets: tuple[str, ...] = SETS) -> Tables:
    """Return the figures of each table."""
    return {"agreement and accuracy": [{"table": name} | figures(name, data) for name in sets]}
