"""Measure how often the gate flags honest splits of real tables, and how often it finds copies.

    python experiments/honest_splits.py --data ../shared/data

Honest: rows are distributed at random (2 or 10 owners, or one with a twentieth), or in the order of
the file (4 owners), with all columns or with the first 3. Copies: of 2 owners, one replaces some of
its rows by rows of the other, with some noise (in standard deviations of each column).
"""

import argparse
from pathlib import Path

import numpy as np

from cellworth import Owners
from cellworth.payouts import check_owners
from tables import load

TABLES = ("wine", "heart", "breast 30", "breast original", "adult", "credit", "electricity")
MOST_ROWS = 4000


def owners_of(table, whose):
    """Return one owner for each code."""
    owners = Owners(table)
    for code in np.unique(whose):
        owners = owners.assign(f"owner {code}", rows=whose == code)
    return owners


def count_copied(table, whose):
    """Return the number of pairs flagged for copied rows, and of pairs."""
    n_owners = len(np.unique(whose))
    found = [f for f in check_owners(owners_of(table, whose)) if f.kind == "copied rows"]
    return len(found), n_owners * (n_owners - 1) // 2


def honest_ways(n_rows, rng):
    """Yield ways to distribute rows."""
    yield "2 owners", rng.integers(0, 2, n_rows)
    yield "10 owners", rng.integers(0, 10, n_rows)
    yield "a twentieth", (rng.random(n_rows) < 0.05).astype(int)
    yield "4 in order", np.arange(n_rows) * 4 // n_rows


def with_copies(table, share, noise, rng):
    """Return two owners; some rows of the second are copies of rows of the first."""
    half = len(table) // 2
    table = table.iloc[rng.permutation(len(table))[: 2 * half]].reset_index(drop=True)
    n_copied = max(int(share * half), 1)
    for name in table:
        cells = table[name].to_numpy().copy()
        source = cells[:n_copied]
        if noise and cells.dtype.kind == "f":
            source = source + noise * np.nanstd(cells) * rng.normal(size=n_copied)
        cells[half : half + n_copied] = source
        table[name] = cells
    return table, np.repeat([0, 1], half)


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sets", nargs="*", default=TABLES)
    given = parser.parse_args()
    honest, caught = {}, {}
    for name in given.sets:
        table = load(name, given.data).X
        for seed in range(given.seeds):
            rng = np.random.default_rng(seed)
            some = np.sort(rng.permutation(len(table))[:MOST_ROWS])
            part = table.iloc[some].reset_index(drop=True)
            for way, whose in honest_ways(len(part), rng):
                for columns in (part.shape[1], 3):
                    key = name, way, "all columns" if columns > 3 else "3 columns"
                    counts = honest.setdefault(key, np.zeros(2, int))
                    counts += count_copied(part.iloc[:, :columns], whose)
            for share in (0.02, 0.05, 0.2, 1.0):
                for noise in (0.0, 0.005):
                    counts = caught.setdefault((share, noise), np.zeros(2, int))
                    counts += count_copied(*with_copies(part, share, noise, rng))
    print("honest splits: flagged pairs of all pairs")
    for key, (flagged, pairs) in honest.items():
        if flagged:
            print(f"  {key[0]:34} {key[1]:12} {key[2]:12} {flagged:4} of {pairs}")
    print(
        f"  {'all tables':60} {sum(f for f, _ in honest.values()):4} of "
        f"{sum(p for _, p in honest.values())}"
    )
    print("copies: found of all runs")
    for (share, noise), (found, runs) in caught.items():
        print(f"  {share:.0%} of rows, noise {noise}: {found} of {runs}")


if __name__ == "__main__":
    main()
