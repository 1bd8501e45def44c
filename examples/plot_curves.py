"""
Compare methods by detection
============================

This example compares three rankings of the cells of one table: which one finds cells that were
altered on purpose?
"""

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_wine
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import train_test_split

from cellworth import KNNValuer, OutOfBagValuer, Runtime
from cellworth.findings import anomaly_scores

X, y = load_wine(return_X_y=True, as_frame=True)
X, X_rest, y, y_rest = train_test_split(X, y, train_size=90, stratify=y, random_state=0)
X_val, _, y_val, _ = train_test_split(X_rest, y_rest, train_size=40, random_state=0)

quiet = {"runtime": Runtime(progress=False)}
valuers = {
    "2D-KNN": KNNValuer(5, **quiet),
    "2D-OOB": OutOfBagValuer(n_trees=200, random_state=0, **quiet),
}


def value_table(valuer, table):
    validation = {"X_val": X_val, "y_val": y_val} if isinstance(valuer, KNNValuer) else {}
    return valuer.fit(table, y, **validation).valuation_


# %%
# 3% of the cells get the value of the same column in a row of another class: ordinary numbers
# in the wrong row. Low values, or high anomaly scores, should find them.

rng = np.random.default_rng(0)
wrong = rng.random(X.shape) < 0.03
swapped = X.to_numpy().copy()
for i, j in np.argwhere(wrong):
    swapped[i, j] = rng.choice(X.to_numpy()[y != y.iloc[i], j])
swapped = X.copy().assign(**{name: swapped[:, j] for j, name in enumerate(X.columns)})

scores = {name: -value_table(valuer, swapped).values for name, valuer in valuers.items()}
scores["anomaly score"] = anomaly_scores(swapped, y)
ax = pyplot.subplots(figsize=(5.6, 4.4), layout="constrained")[1]
for name, score in scores.items():
    found = wrong.ravel()[np.argsort(-score, axis=None)].cumsum()
    ax.plot(100 * found / wrong.sum(), label=name)
ax.set(xlabel="cells checked", ylabel="wrong cells found, %")
ax.legend()

# %%
# One table and one seed do not show which method is better. For that, see the experiments of the
# repository, with many tables and seeds.

for name, score in scores.items():
    area = roc_auc_score(wrong.ravel(), score.ravel())
    precision = average_precision_score(wrong.ravel(), score.ravel())
    print(f"{name:13}  area {area:.3f}, average precision {precision:.3f}")
