"""Two banks and two shops in two regions share what a common table earns.

The first example of the 2D-Shapley paper (Liu et al., ICML 2023), built from the census table
"Adult". Run it with the folder that holds ``adult_train.csv.gz``:

    python examples/plot_institutions.py ../shared/data
"""

import sys
from pathlib import Path

import pandas as pd

from cellworth import Agreement, KNNValuer, Owners, Policy, plots, verify

# From the table to a saved audit.
adult = pd.read_csv(Path(sys.argv[1]) / "adult_train.csv.gz").sample(1200, random_state=0)
banking = ["age", "education_num", "marital_status", "relationship", "capital_gain", "capital_loss"]
shopping = ["hours_per_week", "workclass", "occupation", "sex", "race", "native_country"]
people = adult.reset_index(drop=True)
X, y = people[banking + shopping], people["income"]
data = {"X": X[:1000], "y": y[:1000], "X_val": X[1000:], "y_val": y[1000:]}

owners = (
    Owners(data["X"])
    .assign("bank 1", rows=slice(0, 600), columns=banking)
    .assign("bank 2", rows=slice(600, 1000), columns=banking)
    .assign("shop 1", rows=slice(0, 600), columns=shopping)
    .assign("shop 2", rows=slice(600, 1000), columns=shopping)
)
valuer = KNNValuer(10, scoring="balanced_accuracy", random_state=0)
agreement = Agreement.draft(valuer, owners, Policy(currency="EUR", negative="signed"), **data)
valuation = valuer.fit(**data, owners=owners).valuation_
payout = agreement.split(valuation, data["X"], amount="100000.00")
seal = payout.save("audit")

# What came out, years later too.
print(payout)
print(payout.statement("shop 2"))
print(verify("audit", data=data, valuer=valuer, seal=seal))
plots.owners(payout).figure.savefig("payout.png", bbox_inches="tight")
plots.heatmap(valuation, owners=owners).figure.savefig("cells.png", bbox_inches="tight")
