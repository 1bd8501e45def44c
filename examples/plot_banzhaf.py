"""
Banzhaf against Shapley values
==============================

Semivalues differ in the sizes of coalitions that count. Shapley values add up to the score minus
its baseline; Banzhaf values do not. In return, every fit serves every block. Here both are exact
first, then estimated with the same number of fits.
"""

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_wine
from sklearn.naive_bayes import GaussianNB

from cellworth import ModelValuer, Runtime
from cellworth.runtime import MaxUtilities, Serial
from cellworth.sampling import Banzhaf, Shapley

X, y = load_wine(return_X_y=True)
data = {"X": X[::2], "y": y[::2], "X_val": X[1::2], "y_val": y[1::2]}
data |= {"row_groups": np.arange(89) % 5, "column_groups": np.arange(13) % 4}
runtime = Runtime(executor=Serial(), progress=False)
semivalues = {"Shapley": Shapley(), "Banzhaf": Banzhaf()}

# %%
# Exact values of 20 blocks from all 512 coalitions. Only Shapley values add up.

exact = {
    name: ModelValuer(GaussianNB(), semivalue=semivalue, runtime=runtime, estimator="exact")
    .fit(**data)
    .valuation_
    for name, semivalue in semivalues.items()
}
for name, valuation in exact.items():
    print(f"{name}: the values add up to {valuation.total:.3f}")
agreement = np.corrcoef(exact["Shapley"].values.ravel(), exact["Banzhaf"].values.ravel())[0, 1]
print(f"correlation of the two: {agreement:.3f}")

# %%
# Estimates from 200 fits, five runs each, against the exact values. Values are divided by their
# standard deviation, because Banzhaf values are smaller. Here, neither is estimated better.

figure, panels = pyplot.subplots(
    1, 2, figsize=(7, 3.4), layout="constrained", sharex=True, sharey=True
)
for ax, (name, semivalue) in zip(panels, semivalues.items(), strict=True):
    truth = exact[name].values.ravel()
    runs = [
        ModelValuer(
            GaussianNB(), semivalue=semivalue, stop=MaxUtilities(200), random_state=seed,
            runtime=runtime,
        ).fit(**data).valuation_.values.ravel()
        for seed in range(5)
    ]  # fmt: skip
    scale = truth.std()
    ax.axline((0, 0), slope=1, color="0.6", linewidth=1)
    ax.plot(np.tile(truth, 5) / scale, np.concatenate(runs) / scale, ".", alpha=0.5)
    correlations = [np.corrcoef(truth, run)[0, 1] for run in runs]
    ax.set(title=f"{name}: correlation {np.mean(correlations):.2f}", xlabel="exact value")
panels[0].set_ylabel("estimate from 200 fits")
