"""
Explain the value of a row
==========================

The values of a row's cells add up to the value of the row. Two rows with the same value may owe
it to different cells; a waterfall plot shows them one by one.
"""

from sklearn.datasets import load_wine

from cellworth import KNNValuer, Runtime, explain_column, explain_row, plots

X, y = load_wine(return_X_y=True, as_frame=True)
columns = ["alcohol", "malic_acid", "flavanoids", "color_intensity", "hue", "proline"]
X = X[columns]
valuation = KNNValuer(n_neighbors=5, runtime=Runtime(progress=False)).fit(X, y).valuation_
print(valuation.rows().lowest(3))

# %%
# The wine with the lowest value, cell by cell. With ``y``, a sentence tells how many wines with
# like cells are of its class.

lowest = int(valuation.rows().lowest(1).labels["row"][0])
explanation = explain_row(valuation, lowest, X=X, y=y)
print(explanation)

# %%
# Whiskers are 95% intervals: the uncertainty due to the choice of validation rows.

plots.waterfall(explanation)

# %%
# The wine with the highest value.

highest = int(valuation.rows().highest(1).labels["row"][0])
plots.waterfall(explain_row(valuation, highest, X=X))

# %%
# A column can be broken down in the same way, into the cells of its rows.

plots.waterfall(explain_column(valuation, "proline"), max_bars=8)
