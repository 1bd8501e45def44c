"""What cheating gains in a payout of 100,000, and what honest parties get, by how it is split.

Five parties hold 120 rows each, and 300 rows validate (K = 5). One party adds rows: copies of its
own, moved ones, mixtures of two of its rows (SMOTE), rows of a rival or of the validation set, junk
with the label of the rarest class; or it appears under four names. Its gain is what it gets in all,
less what it gets if it is honest. Amounts follow the default policy, which pays nothing for
negative values.

A split is a sum of values of cells, or owners are the players and share what the score exceeds its
baseline by, the whole score, or the whole score with one vote per party and validation row.

Beside the gains: how much an honest share varies over draws of validation rows (bootstrap, and
over seeds), how often the 95% intervals of amounts hold the amounts of a large validation set, and
what a party gets that differs from the others: half of its labels wrong, half of its cells noise,
twice as many rows, or all rows of a part of the population.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from cellworth import Owners
from cellworth.knn.knn_game import KNNGame, NeighborAgreement
from cellworth.payouts import Policy
from cellworth.payouts.allocation import simulate_quotas
from cellworth.payouts.neighbor_scores import Nearest, PartyScorer
from cellworth.payouts.owner_players import OwnerGame
from cellworth.sampling import Shapley
from cellworth.sampling.semivalues import membership_weights
from experiments.frame import Mean, Row, Tables, compute_part, log
from experiments.money_intervals import AMOUNT, ValueSimulator, compare_intervals, sum_by_row
from experiments.race_estimators import masks
from experiments.tables import Table, load

QUICK: dict[str, Any] = {"seeds": range(1), "tables": ("electricity",), "pool": 400, "draws": 5}
TABLES = ("adult", "electricity", "credit", "pol", "lawschool", "fried")
VARIANTS = ("cells", "above baseline", "whole", "whole, one vote")
PARTIES, ROWS, VALIDATION, K = "ABCDE", 120, 300, 5
CHEAT, RIVAL = "C", "A"
NO_PADDING = ("four names", "junk of the rare class")


class Case(NamedTuple):
    """A table with the party of each row."""

    X: pd.DataFrame
    y: np.ndarray
    party: np.ndarray

    def add(self, X: pd.DataFrame, y: np.ndarray) -> Case:
        """Return the case after the cheat has added rows."""
        together = pd.concat([self.X, X[self.X.columns]], ignore_index=True)
        return Case(together, np.concatenate([self.y, y]), np.append(self.party, [CHEAT] * len(X)))

    def of(self, party: str) -> tuple[pd.DataFrame, np.ndarray]:
        """Return the rows of a party."""
        mine = self.party == party
        return self.X[mine].reset_index(drop=True), self.y[mine]


def draw_case(table: Table, seed: int, n_rows: int, n_val: int) -> tuple[Case, Table]:
    """Draw training rows of five parties, and validation rows."""
    rows = np.random.default_rng(seed).permutation(len(table.y))[: n_rows + n_val]
    train, val = table.part(rows[:n_rows]), table.part(rows[n_rows:])
    return Case(train.X, train.y, np.repeat(list(PARTIES), n_rows // 5)), val


def is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column)


def move(X: pd.DataFrame, rng: np.random.Generator, part: float) -> pd.DataFrame:
    """Move numbers by a part of their standard deviation."""
    moved = X.copy()
    for name in X:
        if is_number(X[name]):
            moved[name] += rng.normal(size=len(X)) * part * X[name].std()
    return moved


def retype(X: pd.DataFrame) -> pd.DataFrame:
    """Change every row as little as possible: a space after a category, or a tiny number."""
    name = next((name for name in X if not is_number(X[name])), X.columns[0])
    changed = X[name] + 1e-9 * (1 + X[name].abs()) if is_number(X[name]) else X[name] + " "
    return X.assign(**{name: changed})


def mix(X: pd.DataFrame, y: np.ndarray, rng: np.random.Generator, n: int, label: Any = None) -> Any:
    """Mix pairs of rows with the same label, as SMOTE does."""
    pool = np.arange(len(y)) if label is None else np.flatnonzero(y == label)
    one = rng.choice(pool, n)
    other = np.array([rng.choice(pool[y[pool] == y[row]]) for row in one])
    share, mixed = rng.random(n), X.iloc[one].reset_index(drop=True)
    for name in X:
        if is_number(X[name]):
            mixed[name] = mixed[name] * (1 - share) + X[name].to_numpy()[other] * share
    return mixed, y[one]


def iter_attacks(case: Case, val: Table, rng: np.random.Generator) -> Iterator[tuple[str, Case]]:
    """Yield each attack of one party, and the table it leads to."""
    (X, y), rival = case.of(CHEAT), case.of(RIVAL)
    classes, counts = np.unique(case.y, return_counts=True)
    rare = classes[counts.argmin()]
    nine = np.tile(y, 9)
    yield "clones, three times", case.add(pd.concat([X, X]), np.tile(y, 2))
    hardly = pd.concat([retype(X), retype(retype(X))])
    yield "clones, hardly changed", case.add(hardly, np.tile(y, 2))
    yield "moved by 5%, ten times", case.add(pd.concat([move(X, rng, 0.05) for _ in "9" * 9]), nine)
    yield "moved by 20%, ten times", case.add(pd.concat([move(X, rng, 0.2) for _ in "9" * 9]), nine)
    yield "mixed own rows", case.add(*mix(X, y, rng, ROWS))
    if (y == rare).any():
        yield "mixed own rows of the rare class", case.add(*mix(X, y, rng, ROWS, rare))
    junk = case.X.sample(ROWS, random_state=0).apply(rng.permutation)
    yield "junk of the rare class", case.add(junk, np.full(ROWS, rare))
    spied = rng.choice(VALIDATION, 30, replace=False)
    yield "30 moved validation rows", case.add(move(val.X.iloc[spied], rng, 0.02), val.y[spied])
    known = val.part(np.arange(VALIDATION))
    yield "100 mixed validation rows", case.add(*mix(known.X, known.y, rng, 100))
    yield "a rival's rows, moved", case.add(move(rival[0], rng, 0.05), rival[1])
    yield "a rival's rows, mixed", case.add(*mix(*rival, rng, ROWS))
    party = case.party.astype("U2")
    mine = np.flatnonzero(party == CHEAT)
    party[mine] = [f"{CHEAT}{number % 4}" for number in range(len(mine))]
    yield "four names", case._replace(party=party)


def iter_different(
    case: Case, table: Table, rng: np.random.Generator, seed: int
) -> Iterator[tuple[str, Case]]:
    """Yield cases in which one party is really different."""
    mine = np.flatnonzero(case.party == CHEAT)
    y, spoiled = case.y.copy(), rng.choice(mine, len(mine) // 2, replace=False)
    y[spoiled] = [rng.choice(np.setdiff1d(case.y, [label])) for label in y[spoiled]]
    yield "half of its labels wrong", case._replace(y=y)
    X = case.X.copy()
    for name in X:
        rows = mine[rng.random(len(mine)) < 0.5]
        X.loc[rows, name] = rng.choice(case.X[name].to_numpy(), len(rows))
    yield "half of its cells noise", case._replace(X=X)
    more, _ = draw_case(table, seed, 6 * ROWS, VALIDATION)
    party = np.append(np.repeat(list(PARTIES), ROWS), [CHEAT] * ROWS)
    yield "twice as many rows", more._replace(party=party)
    number = max(case.X, key=lambda name: case.X[name].nunique() if is_number(case.X[name]) else 0)
    highest = np.argsort(-case.X[number].to_numpy(), kind="stable")
    party = np.empty(len(highest), dtype="U1")
    party[highest] = [CHEAT] * ROWS + list("ABDE") * ROWS
    yield "alone with a fifth of the population", case._replace(party=party)


class ByRow(PartyScorer):
    """Scores of single validation rows instead of their mean."""

    def combine(self, scores: list[np.ndarray]) -> Any:
        return np.concatenate(scores)


def keep_one_vote(scorer: PartyScorer) -> None:
    """Leave each party its nearest row; rows that tie for it share its vote."""
    scorer._lists = [list(map(keep_nearest, lists)) for lists in scorer._lists]
    scorer._adds = False


def keep_nearest(listed: Nearest) -> Nearest:
    """Leave the nearest row of a list, or the mean of those that tie for it."""
    nearest = listed.distances == listed.distances[:, :1]
    n_nearest = np.maximum((listed.counts * nearest).sum(axis=1), 1)
    distances, counts = listed.distances.copy(), np.zeros_like(listed.counts)
    distances[:, 1:], counts[:, 0] = np.iinfo(np.int64).max, 1
    sums = np.zeros_like(listed.sums)
    sums[:, :, 0] = (listed.sums * nearest).sum(axis=2) / n_nearest
    return replace(
        listed, distances=distances, counts=counts, sums=sums, n_rows=int(listed.n_rows > 0)
    )


def value(case: Case, val: Table, variant: str) -> tuple[list[str], np.ndarray]:
    """Return the parties and what each earns for each validation row, shape (n_rows, n_owners)."""
    names = sorted(set(case.party.tolist()))
    owners = Owners(case.X)
    for name in names:
        owners = owners.assign(name, rows=case.party == name)
    if variant == "cells":
        return names, sum_by_row(Table(case.X, case.y), val, owners, K, n_passes=1)
    scoring = NeighborAgreement(divisor="n_voters") if variant == "whole, one vote" else None
    empty = "prior" if variant == "above baseline" else "zero"
    inner = KNNGame(case.X, case.y, val.X, val.y, n_neighbors=K, scoring=scoring, empty=empty)
    game = OwnerGame(inner, owners)
    held = game.fragments
    scorer = ByRow(inner, held.claims, held.codes[:, 0])
    if scoring is not None:
        keep_one_vote(scorer)
    utilities = [score_coalition(scorer, members) for members in masks(len(names))]
    found = membership_weights(Shapley(), masks(len(names))).T @ np.array(utilities)
    return names, found[[held.names.index(name) for name in names]].T


def score_coalition(scorer: PartyScorer, members: np.ndarray) -> np.ndarray:
    return scorer.score_members(members, with_cells=True) - scorer.score_members(
        members, with_cells=False
    )


def split(values: np.ndarray) -> np.ndarray:
    """Return amounts for owners' values, shape (n_draws, n_owners); none if nothing is split."""
    return simulate_quotas(Policy(), AMOUNT, np.atleast_2d(values))


def find_gain(names: list[str], lines: np.ndarray) -> float:
    amounts = split(lines[:VALIDATION].mean(axis=0))
    mine = [name.startswith(CHEAT) for name in names]
    return float(amounts[0, mine].sum()) if len(amounts) else math.nan


def bootstrap(names: list[str], lines: np.ndarray, rng: np.random.Generator) -> float:
    """Return how much the cheat's amount varies over draws of validation rows."""
    counts = rng.multinomial(VALIDATION, np.full(VALIDATION, 1 / VALIDATION), 500) / VALIDATION
    return float(split(counts @ lines[:VALIDATION])[:, names.index(CHEAT)].std())


def cover(lines: np.ndarray, n_draws: int, rng: np.random.Generator) -> tuple[float, float]:
    """Return how often intervals hold the amounts of all validation rows, and their mean width."""
    simulate, found = ValueSimulator(lines.shape[1], VALIDATION, rng), []
    for _ in range(n_draws):
        values = simulate(lines[rng.choice(len(lines), VALIDATION, replace=True)])
        found.append(compare_intervals(Policy(), values, lines))
    inside, width = np.mean(found, axis=(0, 2))
    return float(inside), float(width)


def measure(
    table: Table, name: str, seed: int, *, pool: int, draws: int, variants: tuple[str, ...]
) -> list[Row]:
    """Return all figures of one table and seed."""
    case, val = draw_case(table, seed, 5 * ROWS, pool)
    small, rows = val.part(np.arange(VALIDATION)), []
    rng = np.random.default_rng(seed)
    attacks = list(iter_attacks(case, val, rng))
    different = list(iter_different(case, table, rng, seed))
    for variant in variants:
        head = {"table": name, "seed": seed, "variant": variant}
        # Sums of cells of as many validation rows take too long.
        names, lines = value(case, small if variant == "cells" else val, variant)
        honest, drawn = find_gain(names, lines), np.random.default_rng(seed)
        deviation = bootstrap(names, lines, drawn)
        inside, width = (math.nan, math.nan) if variant == "cells" else cover(lines, draws, drawn)
        rows.append(head | {"what": "honest", "case": "honest", "amount": honest,
                            "deviation": deviation, "inside": inside, "width": width})  # fmt: skip
        for what, cases in (("attack", attacks), ("different", different)):
            for title, changed in cases:
                names, lines = value(changed, small, variant)
                amount = find_gain(names, lines)
                found = {"what": what, "case": title, "amount": amount, "gain": amount - honest}
                rows.append(head | found)
    log(name, seed)
    return rows


def run(
    data: Path,
    *,
    seeds: range = range(5),
    tables: tuple[str, ...] = TABLES,
    pool: int = 2000,
    draws: int = 200,
    cells: int = 1,
    keep: str = "",
) -> Tables:
    """Return gains of attacks, honest shares, and shares of parties that differ, by variant.

    Sums of cells take by far the longest: they are computed for the first seeds only.
    """
    found: list[Row] = []
    for seed in seeds:
        variants = VARIANTS if seed < seeds[0] + cells else VARIANTS[1:]
        for name in tables:
            table = load(name, data)
            distinct = ~table.X.duplicated().to_numpy()
            table = table.part(np.flatnonzero(distinct))
            X = table.X.astype({c: float for c in table.X if is_number(table.X[c])})
            table = Table(X, table.y.astype(str))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compute = partial(
                    measure, table, name, seed, pool=pool, draws=draws, variants=variants
                )
                found += compute_part(keep, f"{name}-{seed}", compute)["rows"]
    return report(pd.DataFrame(found))


def report(found: pd.DataFrame) -> Tables:
    """Return the tables of all figures."""
    attacks, honest = found[found["what"] == "attack"], found[found["what"] == "honest"]
    different = found[found["what"] == "different"]
    padding = attacks[~attacks["case"].isin(NO_PADDING)]
    by_table = padding.groupby(["table", "case", "variant"], sort=False)["gain"].mean()
    largest = by_table.groupby(["table", "variant"], sort=False).max().unstack(sort=False)
    return {
        "gains": _across(attacks, "gain"),
        "largest gain by padding": largest.reset_index().to_dict("records"),
        "honest": [
            {
                "split": variant,
                "share": Mean.of(part["amount"]),
                "varies over validation rows": Mean.of(part["deviation"]),
                "intervals with the truth": Mean.of(part["inside"]),
                "width": Mean.of(part["width"]),
            }
            for variant, part in honest.groupby("variant", sort=False)
        ],
        "different": _across(different, "amount"),
    }


def _across(found: pd.DataFrame, figure: str) -> list[Row]:
    """Return a row per case with a column per variant: means over tables and seeds."""
    return [
        {"case": title}
        | {v: Mean.of(part[figure]) for v, part in rows.groupby("variant", sort=False)}
        for title, rows in found.groupby("case", sort=False)
    ]
