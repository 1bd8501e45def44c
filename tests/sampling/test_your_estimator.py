"""The estimator of the guide: its intervals cover the exact values of known games."""

import re
from pathlib import Path

import numpy as np

from cellworth.sampling import Shapley
from cellworth.sampling.moments import WIDTH_95, Moments, widening
from experiments.sampling_coverage import SHAPE, exact_values, make_up_games

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "your-estimator.md"
PAIR = Shapley(), Shapley()


def test_the_intervals_of_the_guides_estimator_cover_exact_values():
    names = {}
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    exec(code, names)  # noqa: S102 (our own page)
    estimator = names["Orders"]()
    games = np.stack([*make_up_games(7).values()], axis=-1)
    totals = games[-1, -1] - games[-1, 0] - games[0, -1] + games[0, 0]
    exact = exact_values(games, PAIR)
    numbers = [1 << np.arange(n) for n in SHAPE]
    covered = []
    for seed in range(20):
        sampler = estimator.make_sampler(SHAPE, PAIR, seed)
        tasks = [sampler(task) for task in range(40)]
        utilities = [
            np.array([games[rows @ numbers[0], columns @ numbers[1]] for rows, columns in task])
            for task in tasks
        ]
        seen = estimator.estimate(PAIR, totals)(tasks, utilities)
        assert isinstance(seen, Moments)
        reach = WIDTH_95 * seen.sampling_se * widening(seen.count)
        covered.append(np.abs(seen.values - np.pad(exact, ((0, 1), (0, 1), (0, 0))))[:-1, :-1]
                       <= reach[:-1, :-1] + 1e-12)  # fmt: skip
    # Of each game: the mean block, over 20 runs of 30 blocks that are correlated.
    assert np.mean(covered, axis=(0, 1, 2)).min() > 0.88
