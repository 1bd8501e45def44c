"""
Compare methods by removal and by detection
===========================================

Four ways to rank the cells of one table, and two questions. Which cells can a model not do without?
And which cells are wrong, where some were made wrong on purpose?
"""

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.naive_bayes import GaussianNB

from cellworth import (
    KNNValuer,
    OutOfBagValuer,
    RandomValuer,
    cell_suspicion,
    detection_curve,
    plots,
    removal_curve,
)

X, y = load_wine(return_X_y=True, as_frame=True)
X, X_rest, y, y_rest = train_test_split(X, y, train_size=90, stratify=y, random_state=0)
X_val, X_test, y_val, y_test = train_test_split(X_rest, y_rest, train_size=40, random_state=0)

# %%
# Remove the cells of highest value first; a removed cell becomes a random draw from its column. A
# good ranking falls below the grey line of random removal. Test rows have judged nothing before.

quiet = {"progress": False}
valuers = {
    "2D-KNN": KNNValuer(5, **quiet),
    "2D-OOB": OutOfBagValuer(n_trees=200, random_state=0, **quiet),
    "random": RandomValuer(random_state=0),
}
model = GaussianNB()


def fitted(valuer, table):
    validation = {"X_val": X_val, "y_val": y_val} if isinstance(valuer, KNNValuer) else {}
    return valuer.fit(table, y, **validation).valuation_


curves = [
    removal_curve(
        fitted(valuer, X), model, X, y, X_test=X_test, y_test=y_test, n_seeds=5, progress=False
    )
    for valuer in valuers.values()
]
plots.removal(*curves, labels=list(valuers))

# %%
# Now 3 % of the cells get what a row of another class has there: ordinary numbers, at the wrong
# place. Low values, or high suspicion, should point at them.

rng = np.random.default_rng(0)
wrong = rng.random(X.shape) < 0.03
swapped = X.to_numpy().copy()
for i, j in np.argwhere(wrong):
    swapped[i, j] = rng.choice(X.to_numpy()[y != y.iloc[i], j])
swapped = X.copy().assign(**{name: swapped[:, j] for j, name in enumerate(X.columns)})

rankings = {name: detection_curve(fitted(v, swapped), wrong) for name, v in valuers.items()}
rankings["suspicion"] = detection_curve(cell_suspicion(swapped, y), wrong)
ax = pyplot.subplots(figsize=(5.6, 4.4), layout="constrained")[1]
plots.detection(*rankings.values(), labels=list(rankings), ax=ax)

# %%
# One table and one seed show how it is done, not which method is better; for that see the
# experiments of the repository, with many tables and seeds.

for name, curve in rankings.items():
    print(f"{name:10}  area {curve.area:.3f}, average precision {curve.average_precision:.3f}")
