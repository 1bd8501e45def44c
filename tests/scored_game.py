"""A game whose utilities are means of scores; a module of its own, which processes import."""

import numpy as np

from cellworth.sampling import DetailedUtility


class Scored:
    """A game whose utilities are means of the scores of 32 validation rows."""

    shape = (5, 4)

    def __init__(self):
        rng = np.random.default_rng(3)
        weights = rng.random((32, 5)), rng.random((32, 4))
        self.weights = weights
        # Noise of single rows, and of all alike.
        self.rough = rng.normal(size=(32, 32, 16)) / 4 + rng.normal(size=(32, 16)) / 16

    def value(self, rows, columns):
        by_rows, by_columns = (
            np.sqrt(weights @ members)
            for weights, members in zip(self.weights, (rows, columns), strict=True)
        )
        code = rows @ (1 << np.arange(5)), columns @ (1 << np.arange(4))
        scores = by_rows * by_columns + self.rough[:, code[0], code[1]]
        return DetailedUtility(scores.mean(), (scores - scores.mean()) / np.sqrt(32 * 31))

    def problem_spec(self):
        return {"game": "scored"}
