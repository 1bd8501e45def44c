"""The estimator of the guide: its intervals cover the exact values of known games."""

import re
from pathlib import Path

import numpy as np

from cellworth.sampling import Shapley
from experiments.sampling_coverage import make_up_games, measure

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "extending.md"
PAIR = Shapley(), Shapley()


def test_the_intervals_of_the_guides_estimator_cover_exact_values():
    names = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (code,) = (block for block in blocks if "class Orders" in block)
    exec(code, names)  # noqa: S102 (our own page)
    estimator = names["Orders"]()
    games = [*make_up_games(7).values()]
    runs = [measure(estimator, PAIR, games, (40,), seed) for seed in range(20)]
    covered = [[game[0]["covers"] for game in run] for run in runs]
    # Of each game: the mean block, over 20 runs of 30 blocks that are correlated.
    assert np.mean(covered, axis=(0, 2, 3)).min() > 0.88
