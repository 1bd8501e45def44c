"""
What every cell of a table is worth
===================================

178 wines, 13 measurements, three growers. A nearest-neighbour model tells the grower from the
measurements; every cell gets its share of how well it does so.
"""

from sklearn.datasets import load_wine

from cellworth import KNNValuer, plots

X, y = load_wine(return_X_y=True, as_frame=True)
valuation = KNNValuer(n_neighbors=5, progress=False).fit(X, y).valuation_
print(valuation)

# %%
# All cells at once. Wines are sorted by grower. Blue cells help, orange ones hurt, and pale ones
# cannot be told from zero: other wines to be judged on might turn their sign.

plots.heatmap(valuation)

# %%
# One point for each cell, coloured by what stands in it. In ``proline`` both low and high numbers
# are worth much; those in between help less.

plots.beeswarm(valuation, X=X)

# %%
# The columns add up to the score above its baseline, which is the share of right labels among rows
# that are drawn at random.

print(valuation.columns().highest(13))
print(f"together {valuation.total:.3f}; {valuation.unearned:.3f} is there without any cell")
