"""
Values of columns beside SHAP and permutation importance
========================================================

SHAP explains predictions of one trained model; permutation importance breaks one column of the test
rows at a time. Neither says what the training data is worth. Here all three rank the columns of one
LightGBM model, one of which is a copy of another, and one is pure noise.
"""

import numpy as np
from lightgbm import LGBMClassifier
from matplotlib import pyplot
from sklearn.datasets import load_breast_cancer
from sklearn.inspection import permutation_importance
from sklearn.model_selection import train_test_split

from cellworth import ModelValuer, Runtime
from cellworth.runtime import Serial

X, y = load_breast_cancer(return_X_y=True, as_frame=True)
X = X[["worst radius", "worst texture", "worst smoothness", "worst concavity"]]
rng = np.random.default_rng(0)
X = X.assign(copy=X["worst radius"], noise=rng.normal(size=len(X)))
X = X.rename(columns={"copy": "copy of worst radius"})
X, X_val, y, y_val = train_test_split(X, y, train_size=250, stratify=y, random_state=0)
model = LGBMClassifier(
    n_estimators=10, num_leaves=7, min_child_samples=5, n_jobs=1, verbose=-1, random_state=0
)

# %%
# SHAP values of the predictions come from LightGBM itself; the importance of a column is their mean
# absolute value.

trained = model.fit(X, y)
shap_values = trained.predict(X_val, pred_contrib=True)[:, :-1]
permuted = permutation_importance(trained, X_val, y_val, scoring="neg_log_loss", random_state=0)

# %%
# Values of columns: a model is trained on every coalition of columns and of two halves of the rows.

valuer = ModelValuer(
    model, scoring="neg_log_loss", runtime=Runtime(Serial(), progress=False), estimator="exact"
)
validation = {"X_val": X_val, "y_val": y_val}
valuation = valuer.fit(X, y, **validation, row_groups=np.arange(250) % 2).valuation_

# %%
# The model happens to use one of the two equal columns, so SHAP and permutation importance give it
# all the credit. Trained without it, the model would use the other: their values are equal.

measures = {
    "cellworth: value": valuation.columns().values,
    "SHAP: mean |value|": np.abs(shap_values).mean(axis=0),
    "permutation: loss of score": permuted.importances_mean,
}
figure, panels = pyplot.subplots(1, 3, figsize=(8.4, 2.6), layout="constrained", sharey=True)
for ax, (name, sizes) in zip(panels, measures.items(), strict=True):
    ax.barh(X.columns, sizes, color=["#0072b2" if size >= 0 else "#d55e00" for size in sizes])
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_title(name, fontsize=10)
panels[0].invert_yaxis()
print(valuation.columns())
