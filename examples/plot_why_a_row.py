"""
Why a row is worth what it is
=============================

The cells of a row add up to what the row is worth. Two rows of the same worth may owe it to quite
different cells; a waterfall shows them one by one.
"""

from sklearn.datasets import load_wine

from cellworth import KNNValuer, explain_column, explain_row, plots

X, y = load_wine(return_X_y=True, as_frame=True)
columns = ["alcohol", "malic_acid", "flavanoids", "color_intensity", "hue", "proline"]
X = X[columns]
valuation = KNNValuer(n_neighbors=5, progress=False).fit(X, y).valuation_
print(valuation.rows().lowest(3))

# %%
# The wine of lowest value, cell by cell, beside wines of like value that are most like it.

lowest = int(valuation.rows().lowest(1).labels["row"][0])
explanation = explain_row(valuation, lowest, X=X)
print(explanation)

# %%
# Whiskers are 95 % intervals: how far other wines to be judged on might move a bar.

plots.waterfall(explanation)

# %%
# And the most valuable wine.

highest = int(valuation.rows().highest(1).labels["row"][0])
plots.waterfall(explain_row(valuation, highest, X=X))

# %%
# A column can be taken apart in the same way, into the cells of its rows.

plots.waterfall(explain_column(valuation, "proline"), max_bars=8)
