"""Tables for reports: small, hostile, and the Census."""

from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from cellworth import KNNValuer, Owners

DATA = Path(__file__).parents[2] / "shared" / "data"

# What tables can hold that a page must not run, and must not be broken by.
HOSTILE = [
    "</script><script>window.injected = 1</script>",
    "<img src=x onerror=window.injected=1>",
    "\"'><svg onload=window.injected=1>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:window.injected=1",
    '=HYPERLINK("http://example.com","x")',
    "@SUM(1+1)|cmd",
    "line\u2028separator\u2029\r\nend",
    "nul\x00bell\x07escape\x1b[31m",
    "right\u202eto left\u2066",
    "-->]]><!--",
    "&lt;b&gt;&#0;",
    "long " * 400,
    "' onmouseover='window.injected=1",
    "\\u003cimg src=x onerror=window.injected=1>",
]


@cache
def flowers():
    """A valuation of 24 x 3 cells with text, numbers, dates and gaps, its table and labels."""
    rng = np.random.default_rng(5)
    y = np.repeat(["red", "blue"], 12)
    X = pd.DataFrame(
        {
            "size": rng.normal(size=24) + 2.0 * (y == "red"),
            "leaf": rng.choice(["oval", "round", None], size=24),
            "seen": pd.date_range("2024-03-01", periods=24),
        },
        index=[f"{i:03d}" for i in range(24)],
    )
    valuation = KNNValuer(n_neighbors=3).fit(X, y, cv=3).valuation_
    return valuation, X, y


@cache
def hostile():
    """A valuation of a table whose ids, names, cells and labels are all hostile."""
    rng = np.random.default_rng(6)
    n = len(HOSTILE)
    names = HOSTILE[:4] + HOSTILE[5:7]
    X = pd.DataFrame(
        {name: [HOSTILE[(i + j) % n] for i in range(n)] for j, name in enumerate(names)},
        index=HOSTILE,
    )
    X["number"] = rng.normal(size=n) + 9.0 * (np.arange(n) % 2)
    y = ([HOSTILE[0], HOSTILE[1]] * n)[:n]
    owners = (
        Owners(X)
        .assign(HOSTILE[0], columns=names[:3])
        .assign(HOSTILE[1], columns=[*names[3:], "number"])
    )
    valuation = KNNValuer(n_neighbors=2).fit(X, y, owners=owners, cv=2).valuation_
    return valuation, X, y, owners


@cache
def quirks():
    """A valuation of 30 x 5 cells: ids like formulas, a name from right to left, long text."""
    rng = np.random.default_rng(7)
    y = np.tile(["red", "blue"], 15)
    X = pd.DataFrame(
        {
            "=sum": np.round(rng.normal(size=30), 2),
            "\u05de\u05d7\u05d9\u05e8": rng.choice(["oval", "round", None, ""], size=30),
            "seen": pd.date_range("2024-03-01", periods=30),
            "count": rng.integers(-20, 2000, size=30),
            "text": ["short", "plain"] * 15,
        },
        index=["=1+1", "'=2", "'three", "+four", "NA", *(f"r{i}" for i in range(5, 30))],
    )
    X.iloc[5, 4] = "wide " * 1000
    valuation = KNNValuer(n_neighbors=3).fit(X, y, cv=3).valuation_
    return valuation, X, y


@cache
def census():
    """The Census, 32,561 x 14 cells, valued in a short run, with owners."""
    train, test = (pd.read_csv(DATA / f"adult_{side}.csv.gz") for side in ("train", "test"))
    X, y = train.drop(columns="income"), train["income"]
    judges = test.sample(20, random_state=0)
    owners = Owners(X).assign("registry", columns=["age", "sex", "race", "native_country"])
    valuer = KNNValuer(n_passes=3, random_state=0)
    X_val, y_val = judges.drop(columns="income"), judges["income"]
    valuation = valuer.fit(X, y, X_val=X_val, y_val=y_val, owners=owners).valuation_
    return valuation, X, y, owners
