"""
Split revenue among two banks and two shops
===========================================

This is the first example of the 2D-Shapley paper (Liu et al., ICML 2023), built from the census
table "Adult". Two banks hold some columns and two shops the others, each for the people of its
region.
"""

import tempfile
from pathlib import Path

from cellworth import KNNValuer, Owners, plots
from cellworth.data import load_adult
from cellworth.payouts import Agreement, Policy, verify_bundle

folder = Path(tempfile.mkdtemp())

# %%
# From the table to a saved bundle:
census, income = load_adult(backend="pandas")
banking = ["age", "education_num", "marital_status", "relationship", "capital_gain", "capital_loss"]
shopping = ["hours_per_week", "workclass", "occupation", "sex", "race", "native_country"]
people = census[banking + shopping].assign(income=income).drop_duplicates()
people = people.sample(1200, random_state=0).reset_index(drop=True)
X, y = people.drop(columns="income"), people["income"]
data = {"X": X[:1000], "y": y[:1000], "X_val": X[1000:], "y_val": y[1000:]}

owners = (
    Owners(data["X"])
    .assign("bank 1", rows=slice(0, 600), columns=banking)
    .assign("bank 2", rows=slice(600, 1000), columns=banking)
    .assign("shop 1", rows=slice(0, 600), columns=shopping)
    .assign("shop 2", rows=slice(600, 1000), columns=shopping)
)
valuer = KNNValuer(10, scoring="balanced_neighbor_agreement", random_state=0)
agreement = Agreement.draft(valuer, owners, Policy(game="cells", negative="signed"), **data)

valuation = valuer.fit(**data, owners=owners).valuation_
payout = agreement.split(valuation, data["X"], amount="100000.00")
digest = payout.save(folder / "bundle")

# %%
# The payout. It says if the ranking of some owners is undecided.
print(payout)

# %%
# The statement of one owner: totals, and only its own cells.
print(payout.statement("shop 2"))

# %%
# Later, anyone with the digest and the data can recompute and verify everything.
print(verify_bundle(folder / "bundle", data=data, valuer=valuer, digest=digest))

# %%
# Values and amounts of the owners, with intervals.
plots.owners(payout)

# %%
# Values of all cells: people from top to bottom, with a frame per owner.
plots.heatmap(valuation, owners=owners)
