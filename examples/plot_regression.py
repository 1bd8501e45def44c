"""
Value the cells of a regression table
=====================================

The target may be a number. The score of a nearest-neighbor model is then minus the mean squared
error, and a cell's value is by how much it reduces that error.
"""

from sklearn.datasets import load_diabetes

from cellworth import KNNValuer, Runtime, explain_row, plots

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
train, val = slice(0, 300), slice(300, None)
valuer = KNNValuer(n_neighbors=10, random_state=0, runtime=Runtime(progress=False))
valuation = valuer.fit(X[train], y[train], X_val=X[val], y_val=y[val]).valuation_
print(valuation)

# %%
# Which measurements help to predict the progression of diabetes? ``s5`` is the logarithm of the
# triglycerides level.

plots.bar(valuation.columns())

# %%
# One point per cell of a column, colored by another column. Points above zero reduce the error;
# most cells of the body mass index do, many by little.

plots.scatter(valuation, X[train], "bmi", color="s5")

# %%
# The patient that hurts most, cell by cell.

lowest = int(valuation.rows().lowest(1).labels["row"][0])
plots.waterfall(explain_row(valuation, lowest, X=X[train]))
print(f"its target is {y[lowest]:.0f}; the mean is {y[train].mean():.0f}")
