"""
Find wrong cells, correct them and measure the effect
=====================================================

In this census table some ages are reversed: 71 instead of 17. Which cells need checking? And does
correcting them matter? Untouched rows give the answer.
"""

import numpy as np
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder

from cellworth import KNNValuer, Runtime, audit
from cellworth.data import load_adult
from cellworth.findings import anomaly_scores, compare_models

people, income = load_adult("train", backend="pandas")
# Duplicate people must not be in both the training and the test set.
people = people.drop(columns="fnlwgt").assign(income=income).drop_duplicates()
people = people.sample(3000, random_state=0)
income = people.pop("income")
X, y = people[:1500], income[:1500]
X_test, y_test = people[1500:], income[1500:]

# %%
# Reverse the digits of ten of the youngest.

young = X.index[X["age"] < 20][:10]
wrong = X.copy()
wrong.loc[young, "age"] = [int(str(age)[::-1]) for age in X.loc[young, "age"]]
print(wrong.loc[young, "age"].tolist())

# %%
# An audit lists what is probably wrong, with the value of the cells for a nearest-neighbor model,
# validated on 200 rows of the other half, and what is unusual.

validation = {"X_val": X_test[:200], "y_val": y_test[:200]}
valuer = KNNValuer(
    scoring="balanced_neighbor_agreement",
    n_passes=2,
    random_state=0,
    runtime=Runtime(progress=False),
)
valuation = valuer.fit(wrong, y, **validation).valuation_
audit(wrong, y, valuation=valuation)

# %%
# How many cells must be checked? The anomaly score needs few. Values are not made for this: they
# measure the effect of a cell on the model, and these ages do little harm.

typos = np.zeros(X.shape, dtype=bool)
typos[X.index.isin(young), X.columns.get_loc("age")] = True
scores = {"anomaly score": anomaly_scores(wrong, y), "value": -valuation.values}
for name, score in scores.items():
    found = typos.ravel()[np.argsort(-score, axis=None)].cumsum()
    print(f"{name}: {np.searchsorted(found, 8) + 1} of {typos.size:,} cells to find 8 of 10")

# %%
# A person checks the hundred cells of highest anomaly score and corrects the wrong ages. Nothing
# else changes. Then a model is trained on both tables and scored on held-out rows, other than the
# validation rows.

checked = np.zeros(typos.size, dtype=bool)
checked[np.argsort(-scores["anomaly score"], axis=None)[:100]] = True
right = X.index[(typos & checked.reshape(typos.shape)).any(axis=1)]
print(f"{len(right)} of the 10 are among the first hundred")
corrected = wrong.copy()
corrected.loc[right, "age"] = X.loc[right, "age"]
model = make_pipeline(
    make_column_transformer(
        (
            OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1),
            make_column_selector(dtype_exclude="number"),
        ),
        remainder="passthrough",
    ),
    RandomForestClassifier(random_state=0),
)
held_out = {"X_test": X_test[200:], "y_test": y_test[200:]}
print(compare_models(model, wrong, y, X_repaired=corrected, **held_out, progress=False))
