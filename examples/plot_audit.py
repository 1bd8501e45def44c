"""
Audit a table before training
=============================

``audit`` needs no model and no settings. It lists what is wrong with a table, worst first, and what
to do about it.
"""

import tempfile
from pathlib import Path

import numpy as np
from matplotlib import pyplot

from cellworth import audit, report
from cellworth.data import load_adult

people, income = load_adult("train", backend="pandas")
people, income = people.drop(columns="fnlwgt")[:800].copy(), income[:800]

# %%
# Some everyday accidents: a code for "unknown", misspelled categories, hours typed twice, and years
# of school that do not fit the degree.

rng = np.random.default_rng(0)
chosen = iter(rng.permutation(800))


def take(n):
    return [next(chosen) for _ in range(n)]


people.loc[take(6), "age"] = 999
people.loc[take(4), "sex"] = "femlae"
people.loc[take(4), "hours_per_week"] = 4040
swapped = take(6)
people.loc[swapped, "education_num"] = 17 - people.loc[swapped, "education_num"]

found = audit(people, income)
print(found)

# %%
# Every finding has its rows, columns, a sentence and an action.

for finding in found:
    print(f"{finding.action.kind:12}  {finding.n_rows:5,} rows  {', '.join(finding.columns)}")

# %%
# Where in the table? One dot per cell of a finding.

ax = pyplot.subplots(figsize=(7, 3.4), layout="constrained")[1]
names = people.columns.tolist()
for finding in found:
    if len(finding.rows) and len(finding.columns) == 1:
        line = [names.index(finding.columns[0])] * len(finding.rows)
        ax.plot(finding.rows, line, "|", markersize=11, label=finding.kind)
ax.set_yticks(range(len(names)), names)
ax.set_ylim(len(names) - 0.5, -0.5)
ax.set_xlabel("row")
ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)

# %%
# The page to send around is one HTML file.

folder = Path(tempfile.mkdtemp())
report.write_audit(found, folder / "audit.html")
