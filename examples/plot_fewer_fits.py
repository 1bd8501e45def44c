"""
Estimates with fewer fits
=========================

Six groups of rows and five groups of columns make 30 blocks, valued with a naive Bayes model.
Exact values take 1,953 fits. How good are estimates with fewer fits, and with which estimator?
"""

import numpy as np
from sklearn.datasets import load_wine
from sklearn.naive_bayes import GaussianNB

from cellworth import ModelValuer, Runtime, plots
from cellworth.runtime import MaxTasks, MaxUtilities, Serial
from cellworth.sampling import AntitheticPermutations, GaussianProcess

X, y = load_wine(return_X_y=True)
data = {"X": X[::2], "y": y[::2], "X_val": X[1::2], "y_val": y[1::2]}
data |= {"row_groups": np.arange(89) % 6, "column_groups": np.arange(13) % 5}
quiet = Runtime(executor=Serial(), progress=False)

# %%
# Pairs of orders, which need no assumptions.

settings = {"stop": MaxTasks(160), "random_state": 0, "runtime": quiet}
valuer = ModelValuer(GaussianNB(), estimator=AntitheticPermutations(), **settings)
valuation = valuer.fit(**data).valuation_
print(valuation)

# %%
# A Gaussian process with a fifth of the fits.

valuer.set_params(estimator=GaussianProcess(), stop=MaxUtilities(400)).fit(**data)

# %%
# Compare both estimates with the exact values.

exact = ModelValuer(GaussianNB(), runtime=quiet, estimator="exact").fit(**data).valuation_
for name, estimate in (
    ("antithetic permutations", valuation),
    ("Gaussian process", valuer.valuation_),
):
    off = np.sqrt(np.mean((estimate.values - exact.values) ** 2))
    print(f"{name:23}: RMSE {off:.4f}")
print(f"standard deviation of the exact values: {exact.values.std():.4f}")

# %%
# The values of the blocks.

plots.heatmap(exact)
