"""
Two banks and two shops share what a table earns
================================================

The first example of the 2D-Shapley paper (Liu et al., ICML 2023), built from the census table
"Adult": two banks hold some columns and two shops the others, each for the people of its region.
Named a folder, it keeps the audit and the pictures there::

    python examples/plot_institutions.py here
"""

import sys
import tempfile
from pathlib import Path

from cellworth import Agreement, KNNValuer, Owners, Policy, datasets, plots, verify

folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())

# %%
# From the table to a saved audit.
census, income = datasets.load_adult(backend="pandas")
people = census.assign(income=income).sample(1200, random_state=0).reset_index(drop=True)
banking = ["age", "education_num", "marital_status", "relationship", "capital_gain", "capital_loss"]
shopping = ["hours_per_week", "workclass", "occupation", "sex", "race", "native_country"]
X, y = people[banking + shopping], people["income"]
data = {"X": X[:1000], "y": y[:1000], "X_val": X[1000:], "y_val": y[1000:]}

owners = (
    Owners(data["X"])
    .assign("bank 1", rows=slice(0, 600), columns=banking)
    .assign("bank 2", rows=slice(600, 1000), columns=banking)
    .assign("shop 1", rows=slice(0, 600), columns=shopping)
    .assign("shop 2", rows=slice(600, 1000), columns=shopping)
)
valuer = KNNValuer(10, scoring="balanced_neighbor_agreement", random_state=0)
agreement = Agreement.draft(valuer, owners, Policy(currency="EUR", negative="signed"), **data)
valuation = valuer.fit(**data, owners=owners).valuation_
payout = agreement.split(valuation, data["X"], amount="100000.00")
seal = payout.save(folder / "audit")

# %%
# What came out. The ranking of some owners may be undecided, and that is said.
print(payout)

# %%
# What one owner is shown: totals, and its own cells only.
print(payout.statement("shop 2"))

# %%
# Years later, whoever has the seal and the data can have it all computed anew.
print(verify(folder / "audit", data=data, valuer=valuer, seal=seal))

# %%
# What each owner is worth and gets, with intervals.
plots.owners(payout).figure.savefig(folder / "payout.png", bbox_inches="tight")

# %%
# What every cell is worth: people from top to bottom, owners framed.
plots.heatmap(valuation, owners=owners).figure.savefig(folder / "cells.png", bbox_inches="tight")
