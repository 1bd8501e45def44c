"""
Values of all cells of a table
==============================

The Wine table has 178 wines, 13 measurements and three growers. A nearest-neighbor model predicts
the grower from the measurements, and every cell gets its share of the score.
"""

from sklearn.datasets import load_wine

from cellworth import KNNValuer, Runtime, plots

X, y = load_wine(return_X_y=True, as_frame=True)
valuation = KNNValuer(n_neighbors=5, runtime=Runtime(progress=False)).fit(X, y).valuation_
print(valuation)

# %%
# The heat map shows all cells, with wines sorted by grower. Blue cells help, orange cells hurt,
# and pale cells are indistinguishable from zero: other validation rows could change their sign.

plots.heatmap(valuation)

# %%
# The beeswarm has one point per cell, colored by its content. In ``proline`` both low and high
# numbers have high values; those in between help less.

plots.beeswarm(valuation, X=X)

# %%
# The columns add up to the score minus its baseline, the share of right labels among random rows.

print(valuation.columns().highest(13))
print(f"together {valuation.total:.3f}; {valuation.baseline:.3f} is there without any cell")
