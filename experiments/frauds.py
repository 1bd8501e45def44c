"""Measure what frauds gain before and after the gate, and how often honest owners are reported.

    python -m experiments frauds --parts issue
    python -m experiments frauds --parts honest
    python -m experiments frauds --parts power
    python -m experiments frauds --parts attacks
    python -m experiments frauds --parts reserve

issue: 600 people and 9 columns of Adult, five owners, 100,000 EUR, 100 validation rows; what an
operator first tried, before and after (see attacks), how much amounts differ between six draws of
validation rows, and a second month with rows without an owner.
honest: samples of twelve tables, distributed at random (2, 5 or 10 owners) or by a column (its
categories or quarters), with all columns or with six; each owner alone, each pair of owners and
each owner with 100 validation rows is one chance of a false alarm. power: 600 people of Adult, five
owners; a share of one owner's rows are copies, equal or with age +-1 or 2 and hours +-3. attacks:
the same people, 100 validation rows and 100,000 EUR; what the cheating party gains before (no gate,
negative values cut off, equal rows paid) and after (default policy; 0 if not paid). reserve: the
same people; how often owner 0 is reported by a comparison with a reserve of rows if some of its
rows are validation rows, moved, and how often others are; honest owners of the tables above (every
fourth draw).
"""

from __future__ import annotations

import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from cellworth import KNNValuer, Owners
from cellworth.payouts import (
    Agreement,
    Policy,
    check_owners,
    share_copies,
    split_revenue,
    verify_chain,
)
from experiments import tables
from experiments.frame import Mean, Row, Tables, log

QUICK = {
    "seeds": range(1), "sets": ("wine",), "shares": (1.0,),
    "attacks": ("120 junk rows, rare class",),
}  # fmt: skip
TABLES = (
    "wine", "heart", "breast 30", "breast original", "adult", "credit", "electricity", "lawschool",
    "pol", "fried", "2dplanes", "jannis",
)  # fmt: skip
SIZES = (200, 600, 1500)
N_VALIDATION = 100
COMPARISONS = {"repeated rows": "alone", "copied rows": "pair", "leaked rows": "validation"}
COLUMNS = [
    "age", "workclass", "education_num", "marital_status", "occupation", "relationship", "sex",
    "capital_gain", "hours_per_week",
]  # fmt: skip
N_PEOPLE, N_OWNERS = 600, 5


def assign(X: pd.DataFrame, whose: np.ndarray) -> Owners:
    """Return one owner for each code of the rows."""
    owners = Owners(X)
    for code in np.unique(whose):
        owners = owners.assign(f"owner {code}", rows=whose == code)
    return owners


def divide(X: pd.DataFrame, rng: np.random.Generator) -> Iterator[tuple[str, np.ndarray]]:
    """Yield honest ways to distribute rows; codes of small owners are merged."""
    n_rows = len(X)
    for n_owners in (2, 5, 10):
        if n_rows >= 15 * n_owners:
            yield "random", rng.permutation(n_rows) % n_owners
    for name in rng.choice(X.columns, 2, replace=False):
        cells = X[name]
        if pd.api.types.is_numeric_dtype(cells) and cells.nunique() > 8:
            codes = pd.qcut(cells, 4, duplicates="drop").cat.codes.to_numpy()
        else:
            codes = cells.astype("category").cat.codes.to_numpy()
        counts = np.bincount(codes)
        codes = np.where(counts[codes] < 15, len(counts), codes)
        if len(np.unique(codes)) > 1:
            yield "by column", codes


def measure_honest(data: Path, seeds: range, sets: tuple[str, ...]) -> list[Row]:
    """Return how many honest comparisons are reported."""
    found, chances = Counter(), Counter()
    for name in sets:
        table = tables.load(name, data).X
        for seed in seeds:
            rng = np.random.default_rng([seed, 11])
            rows = rng.permutation(len(table))
            n_val = min(N_VALIDATION, len(table) // 4)
            val = table.iloc[rows[:n_val]].reset_index(drop=True)
            part = table.iloc[rows[n_val : n_val + SIZES[seed % 3]]].reset_index(drop=True)
            if seed % 2 and table.shape[1] > 6:
                some = rng.choice(table.columns, 6, replace=False)
                part, val = part[some], val[some]
            for way, whose in divide(part, rng):
                n_owners = len(np.unique(whose))
                n_pairs = n_owners * (n_owners - 1) // 2
                for kind, n_chances in zip(
                    COMPARISONS.values(), (n_owners, n_pairs, n_owners), strict=True
                ):
                    chances[way, kind] += n_chances
                for finding in check_owners(assign(part, whose), X_val=val):
                    if finding.kind in COMPARISONS:
                        found[way, COMPARISONS[finding.kind]] += 1
                        log(f"{name}, {way}, {part.shape}: {finding.sentence}")
    rows = [
        {"owners": way, "comparison": kind, "reported": found[way, kind], "of": n_chances}
        for (way, kind), n_chances in sorted(chances.items())
    ]
    every = {"owners": "all", "comparison": "all", "reported": found.total()}
    return [*rows, every | {"of": chances.total()}]


@cache
def load_adult(data: Path) -> tables.Table:
    """Load the table once."""
    return tables.load("adult", data)


def draw_people(data: Path, seed: int) -> tuple[tables.Table, tables.Table]:
    """Return 600 people and 100 others to validate on."""
    adult = load_adult(data)
    rows = np.random.default_rng(seed).permutation(len(adult.y))
    drawn = tables.Table(adult.X[COLUMNS], adult.y)
    return drawn.part(rows[:N_PEOPLE]), drawn.part(rows[N_PEOPLE : N_PEOPLE + N_VALIDATION])


def jitter(X: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return the rows with ages moved by 1 or 2 and hours by up to 3."""
    age = X["age"] + rng.choice([-2, -1, 1, 2], len(X))
    hours = X["hours_per_week"] + rng.integers(-3, 4, len(X))
    return X.assign(age=age, hours_per_week=hours)


def measure_power(data: Path, seeds: range, shares: tuple[float, ...]) -> list[Row]:
    """Return how often copies are found."""
    found: Counter[tuple[str, float, bool]] = Counter()
    whose = np.repeat(np.arange(N_OWNERS), N_PEOPLE // N_OWNERS)
    n_own = N_PEOPLE // N_OWNERS
    for seed in seeds:
        people, val = draw_people(data, seed)
        rng = np.random.default_rng([seed, 3])
        for share in shares:
            n_copied = round(share * n_own)
            for moved in (False, True):
                change = jitter if moved else (lambda X, _: X)
                ours = people.X[n_own:]
                copies = change(people.X[:n_copied], rng)
                pair = pd.concat([people.X[:n_own], copies, ours[n_copied:]], ignore_index=True)
                alone = pd.concat([people.X, change(people.X[:n_copied], rng)], ignore_index=True)
                leaked = change(val.X[: min(n_copied, len(val.X))], rng)
                leaky = pd.concat([leaked, people.X[len(leaked) :]], ignore_index=True)
                tried = {
                    "copied rows": assign(pair, whose),
                    "repeated rows": assign(alone, np.append(whose, np.zeros(n_copied, int))),
                    "leaked rows": assign(leaky, whose),
                }
                for kind, owners in tried.items():
                    listed = check_owners(owners, X_val=val.X)
                    found[kind, share, moved] += any(one.kind == kind for one in listed)
    return [
        {"kind": kind, "share": f"{share:.0%}", "draws": len(seeds)}
        | {"equal": found[kind, share, False], "moved": found[kind, share, True]}
        for kind, share in product(COMPARISONS, shares)
    ]


class Deal:
    """The table that is delivered, its owners, and rows to validate on; owner 0 cheats."""

    def __init__(self, data: Path, seed: int) -> None:
        people, self.val = draw_people(data, seed)
        self.X, self.y = people.X, people.y
        self.whose = np.repeat(np.arange(N_OWNERS), N_PEOPLE // N_OWNERS)
        self.rng = np.random.default_rng([seed, 5])
        # Owners who are one party with owner 0.
        self.friends = {0}

    @property
    def own(self) -> np.ndarray:
        """Rows of owner 0."""
        return np.flatnonzero(self.whose == 0)

    def add(self, X: pd.DataFrame, y: np.ndarray, owner: int = 0) -> None:
        """Add rows to an owner."""
        self.X = pd.concat([self.X, X], ignore_index=True)
        self.y = np.append(self.y, y)
        self.whose = np.append(self.whose, np.full(len(y), owner))

    def put(self, rows: np.ndarray, X: pd.DataFrame, y: np.ndarray) -> None:
        """Replace rows."""
        self.X = self.X.copy()
        for name in self.X:
            cells = self.X[name].to_numpy().copy()
            cells[rows] = X[name].to_numpy()
            self.X[name] = cells
        self.y = self.y.copy()
        self.y[rows] = y

    def copy(self, rows: np.ndarray, *, moved: bool = False, owner: int = 0) -> None:
        """Add copies of rows to an owner."""
        X = self.X.iloc[rows]
        self.add(jitter(X, self.rng) if moved else X, self.y[rows], owner)

    def hold(self) -> Owners:
        """Return who holds what."""
        return assign(self.X, self.whose)

    def pay(self, n_neighbors: int, *, guarded: bool, negative: str) -> tuple[float, str]:
        """Return what the party gets, or the most that an owner gets, and what stopped it."""
        X, y, owners = self.X, self.y, self.hold()
        gate, duplicates = ("refuse", "share") if guarded else ("off", "pay")
        policy = Policy(negative=negative, gate=gate, duplicates=duplicates)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if guarded:
                owners, X, y = share_copies(owners, X, y)
            valuer = KNNValuer(n_neighbors, n_passes=1, random_state=0)
            valued = valuer.fit(X, y, X_val=self.val.X, y_val=self.val.y, owners=owners).valuation_
            try:
                payout = split_revenue(valued, owners, amount="100000.00", policy=policy)
            except ValueError:
                found = dict.fromkeys(one.kind for one in check_owners(owners, valued))
                return 0.0, ", ".join(kind for kind in found if "below zero" not in kind)
        names = {f"owner {code}" for code in self.friends}
        paid = dict(zip(payout.owners, map(float, payout.amounts), strict=True))
        if not names:
            return max(paid.values()), ""
        return sum(paid.get(name, 0.0) for name in names), ""


def leak(deal: Deal, n_rows: int, *, moved: bool, owner: int = 0) -> None:
    """Replace rows of an owner by validation rows."""
    rows = np.flatnonzero(deal.whose == owner)[:n_rows]
    X = deal.val.X[: len(rows)]
    deal.put(rows, jitter(X, deal.rng) if moved else X, deal.val.y[: len(rows)])


def rename_own(deal: Deal, names: np.ndarray) -> None:
    """Give the rows of owner 0 to several names."""
    deal.whose = deal.whose.copy()
    deal.whose[deal.own] = names
    deal.friends |= set(np.unique(names).tolist())


def find_bad(deal: Deal, *, share: float = 0.3) -> np.ndarray:
    """Return which of the own rows disagree most with the validation rows."""
    own = deal.own
    columns = ["education_num", "age"]
    theirs, ours = (X[columns].to_numpy(float) / [2.5, 13.0] for X in (deal.val.X, deal.X))
    near = [np.argsort(((theirs - ours[i]) ** 2).sum(axis=1))[:5] for i in own]
    agreement = np.array(
        [(deal.val.y[r] == deal.y[i]).mean() for r, i in zip(near, own, strict=True)]
    )
    return agreement <= np.quantile(agreement, share)


def junk(deal: Deal, n_rows: int) -> pd.DataFrame:
    """Return rows whose cells are drawn column by column."""
    return pd.DataFrame(
        {c: deal.X[c].to_numpy()[deal.rng.integers(0, 600, n_rows)] for c in deal.X}
    )


def flip_rival(deal: Deal, n_rows: int) -> None:
    """Add a rival's rows with other labels."""
    rows = np.flatnonzero(deal.whose == 1)[:n_rows]
    labels = np.where(
        deal.y[rows] == deal.y[0], next(v for v in np.unique(deal.y) if v != deal.y[0]), deal.y[0]
    )
    deal.add(jitter(deal.X.iloc[rows], deal.rng), labels)


def pick(deal: Deal, label: object) -> np.ndarray:
    """Return the own rows with a label."""
    return deal.own[deal.y[deal.own] == label]


RIVAL = slice(120, 240)
ATTACKS = {
    "own rows 3 times": lambda d: [d.copy(d.own[:120]) for _ in range(2)],
    "own rows 10 times": lambda d: [d.copy(d.own[:120]) for _ in range(9)],
    "own rows 3 times, moved": lambda d: [d.copy(d.own[:120], moved=True) for _ in range(2)],
    "10% of own rows again, moved": lambda d: d.copy(d.own[:12], moved=True),
    "20% of own rows again, moved": lambda d: d.copy(d.own[:24], moved=True),
    "rare class of own rows again": lambda d: d.copy(pick(d, ">50K")),
    "rare class of own rows again, moved": lambda d: d.copy(pick(d, ">50K"), moved=True),
    "a rival's rows copied": lambda d: d.copy(np.arange(600)[RIVAL]),
    "a rival's rows copied, moved": lambda d: d.copy(np.arange(600)[RIVAL], moved=True),
    "20% of a rival's rows copied, moved": lambda d: d.copy(np.arange(120, 144), moved=True),
    "12 rows of each rival copied, moved": lambda d: d.copy(
        np.concatenate([np.arange(12) + 120 * i for i in range(1, 5)]), moved=True
    ),
    "all validation rows as own": lambda d: leak(d, 100, moved=False),
    "all validation rows as own, moved": lambda d: leak(d, 100, moved=True),
    "10 validation rows as own, moved": lambda d: leak(d, 10, moved=True),
    "30 validation rows added, moved": lambda d: d.add(jitter(d.val.X[:30], d.rng), d.val.y[:30]),
    "validation rows leaked to a friend": lambda d: (
        d.friends.add(1), leak(d, 100, moved=False, owner=1)
    ),
    "two colluders copy each other's rows": lambda d: (
        d.friends.add(1), d.copy(np.arange(120, 240)), d.copy(np.arange(120), owner=1)
    ),
    "two colluders copy, moved": lambda d: (
        d.friends.add(1), d.copy(np.arange(120, 240), moved=True),
        d.copy(np.arange(120), moved=True, owner=1),
    ),
    "bad rows to a shell": lambda d: rename_own(d, np.where(find_bad(d), 9, 0)),
    "bad rows left out": lambda d: setattr(
        d, "whose", np.where(np.isin(np.arange(600), d.own[find_bad(d)]), 8, d.whose)
    ),
    "five names for one owner": lambda d: rename_own(d, 10 + np.arange(120) % 5),
    "a rival's rows with other labels": lambda d: flip_rival(d, 60),
    "120 junk rows, rare class": lambda d: d.add(junk(d, 120), np.full(120, ">50K")),
    "120 junk rows, frequent class": lambda d: d.add(junk(d, 120), np.full(120, "<=50K")),
    "typical rows of the frequent class": lambda d: d.add(
        jitter(d.X.iloc[d.rng.choice(np.flatnonzero(d.y == "<=50K"), 120)], d.rng),
        np.full(120, "<=50K"),
    ),
}  # fmt: skip


def measure_reserve(data: Path, seeds: range) -> list[Row]:
    """Return how often moved validation rows are found with a reserve."""
    rows = []
    adult = load_adult(data)
    drawn = tables.Table(adult.X[COLUMNS], adult.y)
    for n_reserve, n_leaked in product((100, 300, 1_000, 3_000), (5, 10, 20)):
        found, others = 0, 0
        for seed in seeds:
            deal = Deal(data, seed)
            leak(deal, n_leaked, moved=True)
            order = np.random.default_rng(seed).permutation(len(adult.y))
            start = N_PEOPLE + N_VALIDATION
            reserve = drawn.part(order[start : start + n_reserve])
            listed = _list_too_good(deal.hold(), deal.y, deal.val, reserve)
            found += "owner 0" in listed
            others += len(listed - {"owner 0"})
        rows.append(
            {"reserve": n_reserve, "moved rows": n_leaked, "found": found, "draws": len(seeds)}
            | {"others reported": others, "of": (N_OWNERS - 1) * len(seeds)}
        )
        log("reserve", n_reserve, n_leaked)
    return rows


def _list_too_good(
    owners: Owners, y: np.ndarray, val: tables.Table, reserve: tables.Table
) -> set[str]:
    listed = check_owners(
        owners, y=y, X_val=val.X, y_val=val.y, reserve=(reserve.X, reserve.y)
    )  # fmt: skip
    return {one.owners[0] for one in listed if one.kind == "too good"}


def measure_honest_with_reserve(data: Path, seeds: range, sets: tuple[str, ...]) -> list[Row]:
    """Return how many honest owners are reported by a comparison with a reserve."""
    found, chances, n_tables = Counter(), Counter(), Counter()
    for name in sets:
        table = tables.load(name, data)
        n_val = min(N_VALIDATION, len(table.y) // 4)
        for seed in seeds:
            rng = np.random.default_rng([seed, 13])
            rows = rng.permutation(len(table.y))
            val, rest = table.part(rows[:n_val]), rows[n_val:]
            n_reserve = min(500, len(rest) // 2)
            reserve, part = table.part(rest[:n_reserve]), table.part(rest[n_reserve:][:600])
            X = part.X.reset_index(drop=True)
            for way, whose in divide(X, rng):
                reported = _list_too_good(assign(X, whose), part.y, val, reserve)
                found[way] += len(reported)
                chances[way] += len(np.unique(whose))
                n_tables[way] += 1
        log(name)
    return [
        {"owners": way, "reported": found[way], "of": chances[way], "splits": n_tables[way]}
        for way in sorted(chances)
    ]


@cache
def pay_honest(data: Path, seed: int, n_neighbors: int, friends: frozenset[int]) -> list[float]:
    """Return what the party gets without the attack, before and after."""
    deal = Deal(data, seed)
    deal.friends = set(friends)
    before = deal.pay(n_neighbors, guarded=False, negative="floor")[0]
    after, stopped = deal.pay(n_neighbors, guarded=True, negative="signed")
    return [before, before if stopped else after]


def measure_attacks(data: Path, seeds: range, names: tuple[str, ...]) -> list[Row]:
    """Return gains of the cheating party in EUR, means over draws."""
    rows = []
    for name in names:
        for n_neighbors in (1, 5) if "validation" in name else (5,):
            lines, stopped = [], Counter()
            for seed in seeds:
                deal = Deal(data, seed)
                ATTACKS[name](deal)
                friends = frozenset(deal.friends & set(range(N_OWNERS)))
                honest = pay_honest(data, seed, n_neighbors, friends)
                before = deal.pay(n_neighbors, guarded=False, negative="floor")[0]
                after, why = deal.pay(n_neighbors, guarded=True, negative="signed")
                stopped[why] += bool(why)
                lines.append((honest[0], before - honest[0], 0.0 if why else after - honest[1]))
            columns = zip(("honest", "before", "after"), np.transpose(lines), strict=True)
            why = "; ".join(f"{n} x {text}" for text, n in stopped.items() if n)
            row = {"attack": name, "K": n_neighbors} | {key: Mean.of(each) for key, each in columns}
            rows.append(row | {"stopped by": why})
            log(name, n_neighbors)
    return rows


class ShellDeal(Deal):
    """Owner 0 gives its cells of negative value to a shell."""

    def __init__(self, data: Path, seed: int) -> None:
        super().__init__(data, seed)
        valuer = KNNValuer(5, n_passes=1, random_state=0)
        honest = valuer.fit(self.X, self.y, X_val=self.val.X, y_val=self.val.y).valuation_
        mine = (self.whose == 0)[:, np.newaxis]
        self.parts = {0: mine & (honest.values >= 0), 9: mine & (honest.values < 0)}
        self.friends = set(self.parts)

    def hold(self) -> Owners:
        """Return who holds what; rows of owner 0 are divided by cells."""
        owners = Owners(self.X)
        for code, cells in self.parts.items():
            owners = owners.assign(f"owner {code}", cells=cells)
        for code in range(1, N_OWNERS):
            owners = owners.assign(f"owner {code}", rows=self.whose == code)
        return owners


class NoiseDeal(Deal):
    """Cells and labels are noise, and no one cheats."""

    def __init__(self, data: Path, seed: int) -> None:
        super().__init__(data, seed)
        rng = np.random.default_rng([seed, 7])
        noise = [
            tables.Table(
                pd.DataFrame(rng.normal(size=(n, len(COLUMNS))), columns=COLUMNS),
                rng.integers(0, 2, n),
            )
            for n in (N_PEOPLE, N_VALIDATION)
        ]
        self.X, self.y, self.val = noise[0].X, noise[0].y, noise[1]
        self.friends = set()


# What was tried, the table it is tried on, one of the attacks, and numbers of neighbors.
TRIED = (
    ("own rows three times", Deal, "own rows 3 times", (5,)),
    ("validation rows as own rows", Deal, "all validation rows as own", (1, 5)),
    ("a rival's rows, age and hours moved", Deal, "a rival's rows copied, moved", (5,)),
    ("bad cells to a shell", ShellDeal, None, (5,)),
    ("a table of pure noise: the largest amount", NoiseDeal, None, (5,)),
)


def measure_issue(data: Path, seeds: range) -> list[Row]:
    """Return what owner 0 gets if it is honest, and with a fraud before and after."""
    rows = []
    for name, make, attack, neighbors in TRIED:
        for n_neighbors in neighbors:
            lines, stopped = [], Counter()
            for seed in seeds:
                deal = make(data, seed)
                if attack:
                    ATTACKS[attack](deal)
                honest = [np.nan, np.nan]
                if deal.friends:
                    honest = pay_honest(data, seed, n_neighbors, frozenset({0}))
                before = deal.pay(n_neighbors, guarded=False, negative="floor")[0]
                after, why = deal.pay(n_neighbors, guarded=True, negative="signed")
                stopped[f"refused ({why})" if why else "paid"] += 1
                # If nothing is paid, there is nothing to compare.
                lines.append((honest[0], before, honest[1], np.nan if why else after))
            columns = ("honest, before", "before", "honest, now", "now")
            figures = zip(columns, np.transpose(lines), strict=True)
            row = {"tried": name, "K": n_neighbors}
            row |= {key: Mean.of(each) for key, each in figures}
            why = "; ".join(f"{n} x {text}" for text, n in stopped.items())
            rows.append(row | {"outcome": why})
            log(name, n_neighbors)
    return rows


def measure_draws(data: Path, seeds: range, n_draws: int = 6) -> list[Row]:
    """Return how much owner 0's amount depends on the validation rows, and what intervals say."""
    rows = []
    adult = load_adult(data)
    drawn = tables.Table(adult.X[COLUMNS], adult.y)
    for seed in seeds:
        order = np.random.default_rng(seed).permutation(len(adult.y))
        people = drawn.part(order[:N_PEOPLE])
        whose = np.repeat(np.arange(N_OWNERS), N_PEOPLE // N_OWNERS)
        owners, X, y = share_copies(assign(people.X, whose), people.X, people.y)

        def split(val: tables.Table, owners: Owners = owners, X=X, y=y):
            valuer = KNNValuer(5, n_passes=1, random_state=0)
            valued = valuer.fit(X, y, X_val=val.X, y_val=val.y, owners=owners).valuation_
            policy = Policy(gate="off")
            return split_revenue(valued, owners, amount="100000.00", policy=policy)

        start = N_PEOPLE + n_draws * N_VALIDATION
        truth = np.array(split(drawn.part(order[start : start + 1_000])).amounts, dtype=float)
        amounts, covered, widths = [], 0, []
        for i in range(n_draws):
            first = N_PEOPLE + i * N_VALIDATION
            payout = split(drawn.part(order[first : first + N_VALIDATION]))
            ends = np.array(payout.amount_intervals, dtype=float)
            amounts.append(float(payout.amounts[0]))
            widths.append(np.diff(ends, axis=1).mean())
            covered += int(((ends[:, 0] <= truth) & (truth <= ends[:, 1])).sum())
        rows.append(
            {"people": seed, "lowest": min(amounts), "highest": max(amounts)}
            | {"by 1,000 rows": truth[0], "mean width": float(np.mean(widths))}
            | {"intervals that hold it": covered, "of": n_draws * N_OWNERS}
        )
        log("six draws", seed)
    return rows


def measure_second_month(data: Path, seeds: range) -> list[Row]:
    """Return what happens to 60 rows without an owner, and whether two months make a chain."""
    outcomes: Counter[tuple[str, str]] = Counter()
    n_first = N_PEOPLE - 60
    for seed in seeds:
        people, val = draw_people(data, seed)
        whose = np.where(np.arange(N_PEOPLE) < n_first, np.arange(N_PEOPLE) // 120, N_OWNERS)
        X, y, on = people.X, people.y, {"X_val": val.X, "y_val": val.y}
        valuer, policy = KNNValuer(5, n_passes=1, random_state=0), Policy(negative="carry")
        began = datetime.now(UTC).replace(microsecond=0) - timedelta(days=60)
        agreement = Agreement.draft(
            valuer, assign(X[:n_first], whose[:n_first]), policy,
            created=began, X=X[:n_first], y=y[:n_first], **on,
        )  # fmt: skip

        def pay(agreed, X, y, carried=None, *, valuer=valuer, on=on):
            owners, rows, labels = agreed.prepare(X, y)
            valued = valuer.fit(rows, labels, **on, owners=owners).valuation_
            return agreed.split(valued, X, y, amount="100000.00", carried=carried)

        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            months = [Path(folder) / "january", Path(folder) / "february"]
            first = pay(agreement, X[:n_first], y[:n_first])
            first.save(months[0], time=began + timedelta(days=1))
            try:
                pay(agreement, X, y, months[0])
                outcomes["60 new rows without an owner", "paid"] += 1
            except ValueError as error:
                said = "refused" if "owner" in str(error) else str(error)
                outcomes["60 new rows without an owner", said] += 1
            amended = agreement.amend(owners=assign(X, whose), created=began + timedelta(days=30))
            payout = pay(amended, X, y, months[0])
            payout.save(months[1], time=began + timedelta(days=31))
            got = dict(zip(payout.owners, payout.amounts, strict=True))[f"owner {N_OWNERS}"]
            outcomes["amended: they have an owner", "it is paid" if got > 0 else "not paid"] += 1
            verdict = verify_chain(months)
            outcomes["chain of both months", "verified" if verdict else verdict.difference] += 1
        log("second month", seed)
    return [
        {"tried": what, "outcome": outcome, "draws": n_draws}
        for (what, outcome), n_draws in outcomes.items()
    ]


def run(
    data: Path,
    *,
    seeds: range = range(10),
    parts: tuple[str, ...] = ("issue", "honest", "power", "attacks", "reserve"),
    sets: tuple[str, ...] = TABLES,
    shares: tuple[float, ...] = (1.0, 0.5, 0.2, 0.1, 0.05),
    attacks: tuple[str, ...] = tuple(ATTACKS),
) -> Tables:
    """Run some parts."""
    measured = {
        "issue": lambda: {
            "issue": measure_issue(data, seeds),
            "validation draws": measure_draws(data, seeds),
            "second month": measure_second_month(data, seeds),
        },
        "honest": lambda: {"honest": measure_honest(data, seeds, sets)},
        "power": lambda: {"power": measure_power(data, seeds, shares)},
        "attacks": lambda: {"attacks": measure_attacks(data, seeds, attacks)},
        "reserve": lambda: {
            "reserve": measure_reserve(data, seeds),
            "honest with a reserve": measure_honest_with_reserve(data, seeds[::4], sets),
        },
    }
    return {title: rows for part in parts for title, rows in measured[part]().items()}
