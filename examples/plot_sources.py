"""
Choose a data source to buy
===========================

A bank knows the age and the school of its customers. Three sellers offer more columns for the same
people. What would each add to the bank's model, alone and if it buys them all?
"""

import numpy as np
from matplotlib import pyplot

from cellworth import KNNValuer, Owners, Runtime
from cellworth.data import load_adult
from cellworth.payouts import compare_sources, measure_owner_interactions

people, income = load_adult("train", backend="pandas")
offers = {
    "bank": ["age", "education_num"],
    "registry": ["marital_status", "relationship"],
    "employer": ["occupation", "hours_per_week"],
    "broker": ["capital_gain", "capital_loss"],
}
X = people[[column for columns in offers.values() for column in columns]]
data = {"X": X[:1500], "y": income[:1500], "X_val": X[1500:2000], "y_val": income[1500:2000]}
owners = Owners(data["X"])
for owner, columns in offers.items():
    owners = owners.assign(owner, columns=columns)

# %%
# The gain of a source alone is an offer's worth today; its share of the whole counts what the
# others would bring as well.

valuer = KNNValuer(
    10, scoring="balanced_neighbor_agreement", random_state=0, runtime=Runtime(progress=False)
)
sources = compare_sources(valuer, owners, **data, base=["bank"])
print(sources)

# %%
# Whiskers are 95% intervals. An interval that includes zero is a reason to ask for a sample first.

ax = pyplot.subplots(figsize=(6.4, 2.8), layout="constrained")[1]
lines = np.arange(len(sources.owners))
parts = {"added alone": (sources.alone, sources.alone_se)}
parts["share if all are bought"] = (sources.shared, sources.shared_se)
for shift, (name, (gain, error)) in zip((-0.15, 0.15), parts.items(), strict=True):
    ax.errorbar(gain, lines + shift, xerr=1.96 * error, fmt="o", capsize=3, label=name)
ax.axvline(0, color="0.6", linewidth=1)
ax.set_yticks(lines, sources.owners)
ax.invert_yaxis()
ax.set_xlabel("gain in balanced neighbor agreement")
ax.legend(frameon=False)

# %%
# Below zero, two owners tell the model similar things; above, they need each other.

print(measure_owner_interactions(valuer, owners, **data))
