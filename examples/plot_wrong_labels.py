"""
Find wrong labels
=================

A row with a wrong label hurts the model, so its value is low. With ``value_labels=True`` the label
gets a value of its own, which tells whether the label is to blame or a measurement.
"""

import numpy as np
from matplotlib import pyplot
from sklearn.datasets import load_breast_cancer

from cellworth import KNNValuer, Runtime, explain_row, plots

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X, y = X.iloc[:, :10], y.to_numpy()

# %%
# Twenty of 300 labels are flipped.

rng = np.random.default_rng(0)
flipped = rng.choice(300, 20, replace=False)
noisy = y[:300].copy()
noisy[flipped] = 1 - noisy[flipped]

# %%
# Rows with a wrong label have low values. The curve shows how many must be checked, lowest first.

valuer = KNNValuer(n_neighbors=5, random_state=0, runtime=Runtime(progress=False))
validation = {"X_val": X[300:], "y_val": y[300:]}
rows = valuer.fit(X[:300], noisy, **validation).valuation_.rows().values
wrong = np.isin(np.arange(300), flipped)
found = wrong[np.argsort(rows)].cumsum()
ax = pyplot.subplots(layout="constrained")[1]
ax.plot(np.arange(1, 301), found)
ax.set(xlabel="rows checked, lowest value first", ylabel="wrong labels found")
print(f"{np.searchsorted(found, 16) + 1} rows to check to find 16 of 20")

# %%
# But what is wrong with such a row? With the label as one more player, its value can be compared
# with those of the measurements.

valuation = valuer.fit(X[:300], noisy, **validation, value_labels=True).valuation_
worst = valuation.column_labels[valuation.values.argmin(axis=1)]
print(f"the label has the lowest value in {(worst[wrong] == '(label)').sum()} of the 20 rows")
print(f"and in {(worst[~wrong] == '(label)').sum()} of the 280 others")

# %%
# One of them, cell by cell.

lowest = flipped[rows[flipped].argmin()]
plots.waterfall(explain_row(valuation, lowest))
