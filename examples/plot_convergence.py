"""
How errors shrink: blocks and a model of yours
==============================================

Six groups of rows, five groups of columns and a naive Bayes model make 30 blocks. Exact values take
2,048 fits. What do estimates know after fewer, and by which design?
"""

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_wine
from sklearn.naive_bayes import GaussianNB

from cellworth import (
    AfterTasks,
    ExactValuer,
    MemoryCache,
    MonteCarloValuer,
    PlainGrids,
    Serial,
    plots,
)

X, y = load_wine(return_X_y=True)
data = {"X": X[::2], "y": y[::2], "X_val": X[1::2], "y_val": y[1::2]}
data |= {"row_groups": np.arange(89) % 6, "column_groups": np.arange(13) % 5}
shared = {"cache": MemoryCache(), "executor": Serial(), "progress": False}

# %%
# What would it cost? ``plan`` times a few fits and tells.

print(ExactValuer(GaussianNB(), **shared).plan(**data))

# %%
# An estimate reports after every round of 16 tasks.

history = []
valuer = MonteCarloValuer(GaussianNB(), stop=AfterTasks(160), random_state=0, **shared)
valuation = valuer.set_params(on_round=history.append).fit(**data).valuation_
print(valuation)
plots.convergence(history)

# %%
# The same number of tasks with the random orders of the 2D-Shapley paper. The cache knows most fits
# by now.

paper = []
valuer.set_params(design=PlainGrids(), on_round=paper.append).fit(**data)
figure, axes = pyplot.subplots(1, 2, figsize=(9.0, 3.8), sharey=True, layout="constrained")
for ax, rounds, title in zip(axes, (history, paper), ("centred grids", "plain grids"), strict=True):
    plots.convergence(rounds, ax=ax)
    ax.set_title(title)

# %%
# Exact values, from the same cache: how far off was each?

exact = ExactValuer(GaussianNB(), **shared).fit(**data).valuation_
for name, estimate in (("centred", valuation), ("plain", valuer.valuation_)):
    off = np.sqrt(np.mean((estimate.values - exact.values) ** 2))
    print(f"{name:8} grids: off by {off:.4f}, values spread by {exact.values.std():.4f}")

# %%
# What the blocks are worth.

plots.heatmap(exact)
