"""
Value blocks of data for LightGBM
=================================

Any scikit-learn model can be valued, gradient boosting too. A model is trained on every coalition
of blocks, so blocks should be few: here four clinics times three kinds of measurements.
"""

import numpy as np
from lightgbm import LGBMClassifier
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

from cellworth import ModelValuer, Runtime, plots
from cellworth.runtime import Serial

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X, X_val, y, y_val = train_test_split(X, y, train_size=200, stratify=y, random_state=0)
clinics = np.array([f"clinic {1 + i % 4}" for i in range(len(X))])
parts = [name.split()[0] if name.split()[0] in ("mean", "worst") else "error" for name in X]

# %%
# The third clinic mixed up its labels.

rng = np.random.default_rng(0)
y = y.copy()
y[clinics == "clinic 3"] = rng.permutation(y[clinics == "clinic 3"])

# %%
# Twelve blocks have 2**4 * 2**3 coalitions: few enough for exact values.

model = LGBMClassifier(
    n_estimators=10, num_leaves=7, min_child_samples=5, n_jobs=1, verbose=-1, random_state=0
)
valuer = ModelValuer(
    model, scoring="neg_log_loss", runtime=Runtime(Serial(), progress=False), estimator="exact"
)
data = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
data |= {"row_groups": clinics, "column_groups": parts}
valuation = valuer.fit(**data).valuation_

# %%
# What the clinic with the wrong labels measured hurts the model or adds nothing.

plots.heatmap(valuation)

# %%
# Sums of blocks value whole clinics. Whiskers are 95% intervals for the choice of the validation
# rows.

plots.bar(valuation.rows())
print(valuation.rows().lowest(1))
