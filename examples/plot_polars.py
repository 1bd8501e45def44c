"""
Value a polars table and get polars back
========================================

Tables may come from pandas, polars or Arrow. Results have the type of the table, so that they can
be joined with it, filtered and grouped.
"""

import polars as pl
from sklearn.datasets import load_wine

from cellworth import KNNValuer, Runtime, plots

wine = load_wine()
columns = ["alcohol", "malic_acid", "flavanoids", "color_intensity", "hue", "proline"]
table = pl.DataFrame(wine.data, schema=wine.feature_names).select(columns)
grower = pl.Series("grower", [f"grower {label}" for label in wine.target])

# %%
# Missing cells and categories need no preparation.

table = table.with_columns(
    strength=pl.when(pl.col("alcohol") > 13).then(pl.lit("strong")).otherwise(pl.lit("light")),
    hue=pl.when(pl.col("hue") < 0.6).then(None).otherwise(pl.col("hue")),
)
valuer = KNNValuer(n_neighbors=5, random_state=0, runtime=Runtime(progress=False))
valuation = valuer.fit(table, grower).valuation_
print(valuation.column_info)

# %%
# One line per cell, as a polars table.

cells = valuation.to_frame()
print(cells.sort("value").head(5))

# %%
# What are wines of each grower worth? Row labels are positions.

rows = cells.group_by("row").agg(pl.col("value").sum())
print(
    rows.join(pl.DataFrame({"grower": grower}).with_row_index("row"), on="row")
    .group_by("grower")
    .agg(pl.col("value").sum().round(3), worst=pl.col("value").min().round(4))
    .sort("grower")
)

# %%
# One column: what its cells hold against what they are worth.

plots.scatter(valuation, table, "hue", color="color_intensity")
