"""
Value a Pipeline with a ColumnTransformer
=========================================

Preprocessing is part of the model: give the whole Pipeline. Columns that a coalition does not have
are left out of the ColumnTransformer, so nothing leaks from absent columns.
"""

from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from cellworth import ModelValuer, Runtime, plots
from cellworth.data import load_adult
from cellworth.runtime import Serial

people, income = load_adult("train", backend="pandas")
people = people.drop(columns="fnlwgt").assign(income=income).sample(900, random_state=0)
income = people.pop("income")
X, y, X_val, y_val = people[:400], income[:400], people[400:], income[400:]

# %%
# Numbers are scaled, and categories become columns of zeros and ones.

model = make_pipeline(
    make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude="number")),
        remainder=StandardScaler(),
    ),
    LogisticRegression(C=0.1),
)

# %%
# The players: three age groups of people, and four groups of columns. They have 128 coalitions, few
# enough for exact values.

groups = {
    "person": ["age", "sex", "race", "native_country", "marital_status", "relationship"],
    "school": ["education", "education_num"],
    "work": ["workclass", "occupation", "hours_per_week"],
    "capital": ["capital_gain", "capital_loss"],
}
ages = ["below 30" if age < 30 else "30 to 44" if age < 45 else "45 and older" for age in X["age"]]
valuer = ModelValuer(
    model, scoring="neg_log_loss", runtime=Runtime(Serial(), progress=False), estimator="exact"
)
data = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
valuation = valuer.fit(**data, row_groups=ages, column_groups=groups).valuation_
print(valuation)

# %%
# Whiskers are 95% intervals for the choice of the validation rows.

plots.bar(valuation.columns())

# %%
# Which people bring it? Each block is an age group in a column group.

plots.heatmap(valuation)
