"""What differs between a table and a reference, such as the table of last month.

Every check has a p-value. Scores of rows are computed from both tables together, without knowing
which row is in which table; models are trained on parts of one table and compared as draws.
Weighted Holm correction keeps the probability of any false alarm below the limit.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, stdtr

from cellworth.data.arguments import ColumnTypes, Floats, Mask, Positions
from cellworth.data.tables import Table, VectorLike
from cellworth.data.text import list_first
from cellworth.findings.anomaly import Evidence
from cellworth.findings.finding import Finding, FindingKind
from cellworth.findings.levels import ColumnLevels
from cellworth.findings.odd_cells import read_without
from cellworth.findings.reference_checks import (
    MIN_P,
    BothTables,
    Check,
    compare_column,
    compare_copies,
    compare_pair,
    compare_schemas,
    make_finding,
)
from cellworth.knn.knn_game import KNNGame
from cellworth.knn.memory_tasks import QueryTasks
from cellworth.knn.tasks import TaskSchedule, WeightedQueries
from cellworth.sampling.column_samplers import ExhaustiveSampler, PermutationSampler
from cellworth.sampling.moments import limit_threads
from cellworth.sampling.passes import PassSums
from cellworth.sampling.semivalues import Shapley

# Shares of the probability of a false alarm; each is divided among the columns.
_WEIGHTS = {
    "column": 0.4, "cells": 0.1, "rows": 0.25, "labels": 0.1, "pair": 0.05, "copies": 0.05,
    "model": 0.03, "value": 0.02,
}  # fmt: skip
_MIN_ROWS, _MIN_TO_TRAIN = 10, 100
# Ends of the blocks: each is predicted by a classifier trained on the blocks before it.
_BLOCKS = (0.3, 0.475, 0.65, 0.825, 1.0)
_N_TREES, _ROWS_PER_TREE = 100, 5_000
_MAX_CLASSES = 100
# Each table has so many parts to train on, and one more to score the models.
_N_PARTS, _MIN_IN_A_PART = 5, 50
# Cells of a part that are valued, and the rows that value them.
_MAX_VALUED, _N_VALIDATION = 4_000, 100
# All coalitions of so many columns are as few as are drawn of more.
_MAX_ENUMERATED = 4
# Shares of the cells that fit their row least.
_HIGH = (0.002, 0.01, 0.05, 0.2)
# A classifier names the columns that it uses, if its p-value is below the first number: those
# without which it loses this share of its area above a half.
_ALARMING, _USED = 1e-3, 0.2
_MIXED = "check whether cells were mixed up between rows"
# Kinds by how much they say; a logarithm of a p-value of this share of another is as clear.
_TELLING: tuple[FindingKind, ...] = (
    "constant column", "missing values", "new content", "leak", "label drift", "drift",
    "repeated rows", "dependence",
)  # fmt: skip
_NEARLY = 0.7
_WITH_OTHERS = ("label drift", "dependence")


def find_differences(
    table: Table, y: VectorLike | None, reference: Any, false_alarms: float
) -> list[Finding]:
    """Return how a table differs from a reference, clearest first.

    ``reference`` is a table or a pair of a table and its labels. The probability of any finding is
    at most ``false_alarms`` if both tables come from the same source.
    """
    if not 0 < false_alarms < 1:
        raise ValueError(f"false_alarms must be between 0 and 1, got {false_alarms!r}.")
    is_pair = isinstance(reference, tuple) and len(reference) == 2
    X_ref, y_ref = reference if is_pair else (reference, None)
    other = Table.from_data(X_ref, called="reference")
    other = other if table.backend and other.backend else table.align(other, called="reference")
    schema = list(compare_schemas(table, other))
    names = table.names.tolist()
    retyped = {name for finding in schema for name in finding.columns}
    shared = [at for at, name in enumerate(names) if name in other.names and name not in retyped]
    if not shared:
        return schema
    wanted = table.select(np.array(shared))
    old = other.names.tolist()
    other = other.select(np.array([old.index(name) for name in wanted.names.tolist()]))
    both = BothTables.of(wanted, y, other, y_ref)
    return schema + _list_alarms(list(compare_tables(both)), false_alarms)


def compare_tables(both: BothTables) -> Iterator[Check]:
    """Yield all checks."""
    if min(both.n_new, both.n_ref) < _MIN_ROWS:
        return
    n_columns = len(both.columns) + (both.label is not None)
    for column in both.columns:
        yield from compare_column(both, column, _WEIGHTS["column"] / n_columns)
    if both.label is not None:
        yield from compare_column(both, both.label, _WEIGHTS["column"] / n_columns)
        for column in both.columns:
            yield compare_pair(both, column, both.label, _WEIGHTS["pair"] / len(both.columns))
    yield compare_copies(both, _WEIGHTS["copies"])
    if min(both.n_new, both.n_ref) >= _MIN_TO_TRAIN:
        drawn = both.draw()
        scores = _score_cells(drawn)
        yield from _compare_cells(drawn, scores)
        yield _compare_rows(drawn, scores)
        n_classes = 0 if drawn.classes is None else len(drawn.classes)
        if drawn.label is not None and n_classes <= _MAX_CLASSES:
            yield _compare_labels(drawn, drawn.label)
            yield from _compare_models(drawn, drawn.label)


def _list_alarms(checks: Sequence[Check], false_alarms: float) -> list[Finding]:
    """Return the alarms of a weighted Holm correction, one about each thing."""
    left, corrected = 1.0, 0.0
    alarms: dict[str, list[tuple[float, Finding]]] = defaultdict(list)
    for check in sorted(checks, key=lambda check: check.p_value / check.weight):
        corrected = max(corrected, min(1.0, check.p_value / check.weight * left))
        if corrected > false_alarms:
            break
        left -= check.weight
        found = replace(check.finding, false_rate=corrected)
        alarms[check.about].append((np.log(check.p_value), found))
    chosen = [_choose(each) for each in alarms.values()]
    # A column that differs by itself also differs with others.
    alone = {f.columns for f in chosen if f.kind not in _WITH_OTHERS}
    if "the label" in alarms:
        alone |= {f.columns for f in chosen if f.kind == "label drift" and f.columns}
    kept = [f for f in chosen if f.kind not in _WITH_OTHERS or f.columns not in alone]
    return sorted(kept, key=lambda finding: (finding.kind == "dependence", finding.false_rate))


def _choose(alarms: list[tuple[float, Finding]]) -> Finding:
    """Return the alarm that says most, of those that are nearly as clear as the clearest one."""
    limit = _NEARLY * min(log_p for log_p, _ in alarms)
    clear = [f for log_p, f in alarms if log_p <= limit or f.kind == "constant column"]
    return min(clear, key=lambda finding: _TELLING.index(finding.kind))


# Rows: how columns depend on each other, and labels on cells


def standardize(scores: Floats, is_new: Mask) -> float:
    """Return the difference of means in standard deviations over all permutations of rows."""
    n, n_new = len(scores), int(is_new.sum())
    variance = scores.var(ddof=1) * n_new * (n - n_new) / n if n > 1 else 0.0
    if variance <= 1e-24:
        return 0.0
    return float((scores[is_new].sum() - n_new * scores.mean()) / np.sqrt(variance))


def _two_sided(z: float) -> float:
    return float(np.clip(2.0 * ndtr(-abs(z)), MIN_P, 1.0))


def _score_cells(drawn: BothTables) -> Floats:
    """Return how little cells fit their row and label; it does not depend on the table."""
    n_rows = len(drawn.is_new)
    features = [read_without(column, np.zeros(n_rows, dtype=bool)) for column in drawn.columns]
    target = np.zeros(n_rows) if drawn.target is None else drawn.target
    classes = np.zeros(1) if drawn.target is None else drawn.classes
    return Evidence.from_columns(features, target, classes).quick_scores


def _compare_cells(drawn: BothTables, scores: Floats) -> Iterator[Check]:
    """Compare how well cells fit their rows: in all columns together, and in each."""
    total = scores.sum(axis=1)
    p_value = min([_two_sided(standardize(total, drawn.is_new)), *_test_high(drawn, total)]) * (
        1 + len(_HIGH)
    )
    half = _WEIGHTS["cells"] / 2
    yield Check("rows", half, min(1.0, p_value), _describe_misfit(drawn, total, None))
    for position, column in enumerate(drawn.columns):
        p_value = min(_test_high(drawn, scores[:, position])) * len(_HIGH)
        finding = _describe_misfit(drawn, scores[:, position], column)
        weight = half / len(drawn.columns)
        yield Check(column.name, weight, min(1.0, p_value), finding)


def _test_high(drawn: BothTables, scores: Floats) -> list[float]:
    return [drawn.test_set(scores >= np.quantile(scores, 1 - share)) for share in _HIGH]


def _describe_misfit(drawn: BothTables, scores: Floats, column: ColumnLevels | None) -> Finding:
    share = _HIGH[int(np.argmin(_test_high(drawn, scores)))]
    here, there = drawn.shares(scores >= np.quantile(scores, 1 - share))
    what = "rows have cells that" if column is None else f"cells of {column.name}"
    sentence = (
        f"{here:.1%} of {what} hardly fit the rest of their row; in the reference, {there:.1%}."
    )
    return make_finding("dependence", column, sentence, action=_MIXED)


def _compare_rows(drawn: BothTables, scores: Floats) -> Check:
    """Tell new rows from reference rows by a classifier, on rows that it has not seen.

    Each block of rows is predicted by a classifier that is trained on the blocks before it. So the
    standardized differences of the blocks are independent, and their sum is a test.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    X, is_new = _make_features(drawn, scores), drawn.is_new
    ends = [round(share * len(X)) for share in _BLOCKS]
    sums, curves, models = [], [], []
    for first, last in pairwise(ends):
        block = is_new[first:last]
        if min(is_new[:first].sum(), (~is_new[:first]).sum(), block.sum(), (~block).sum()) < 5:
            continue
        model = HistGradientBoostingClassifier(
            max_iter=60, max_leaf_nodes=15, early_stopping=False, random_state=0
        )
        # Several threads wait for each other, if other programs run.
        with limit_threads():
            chances = model.fit(X[:first], is_new[:first]).predict_proba(X[first:last])[:, 1]
        sums.append(standardize(chances, block))
        curves.append(roc_auc_score(block, chances))
        models.append(model)
    z = sum(sums) / np.sqrt(max(len(sums), 1))
    p_value = float(np.clip(ndtr(-z), MIN_P, 1.0))
    area = np.mean(curves or [0.5])
    # A few odd rows, or rows that both tables share, leave the area at a half.
    sentence = "A classifier finds rows that are unlike those of the reference."
    if area > 0.51:
        named = ""
        if p_value < _ALARMING:
            used = _list_telling(drawn, models[-1], X, ends[-2])
            named = f", mostly by {list_first(used, 3)}," if used else ""
        sentence = (
            f"A classifier tells new rows from reference rows{named} with AUC {area:.3f} on "
            "held-out rows; if they were alike, 0.500."
        )
    finding = make_finding("dependence", None, sentence, action=_MIXED)
    return Check("rows", _WEIGHTS["rows"], p_value, finding)


def _list_telling(drawn: BothTables, model: Any, X: Floats, first: int) -> list[str]:
    """Return the columns without which a classifier tells much less, most telling first.

    The cells of a column are permuted among the rows that the classifier has not seen.
    """
    from sklearn.metrics import roc_auc_score

    rows, is_new = X[first:], drawn.is_new[first:]
    order = np.random.default_rng(0).permutation(len(rows))
    area = roc_auc_score(is_new, model.predict_proba(rows)[:, 1])
    every = drawn.columns if drawn.label is None else [*drawn.columns, drawn.label]
    lost = {}
    for position, column in enumerate(every):
        # Its cells, and how well they fit their row.
        own = [position] if column is drawn.label else [position, len(every) + position]
        permuted = rows.copy()
        permuted[:, own] = rows[order][:, own]
        lost[column.name] = area - roc_auc_score(is_new, model.predict_proba(permuted)[:, 1])
    ranked = sorted(lost, key=lambda name: -lost[name])
    return [name for name in ranked if lost[name] > max(_USED * (area - 0.5), 0.005)]


def _make_features(drawn: BothTables, scores: Floats) -> Floats:
    """Return the cells as numbers, the label, and how well cells fit their row."""
    every = drawn.columns if drawn.label is None else [*drawn.columns, drawn.label]
    return np.column_stack([*map(_as_numbers, every), scores, scores.sum(axis=1)])


def _as_numbers(column: ColumnLevels) -> Floats:
    """Return ranks of numbers or, for levels, their rank by frequency; missing values are NaN."""
    ranks = np.arange(len(column.levels), dtype=np.float64)
    if column.kind == "text":
        ranks[np.argsort(-column.counts, kind="stable")] = ranks.copy()
    return np.append(ranks, np.nan)[column.codes]


def _compare_labels(drawn: BothTables, label: ColumnLevels) -> Check:
    """Compare how well labels fit their cells, by trees that have not seen the row."""
    from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor

    X = np.column_stack([np.nan_to_num(_as_numbers(c), nan=-1.0) for c in drawn.columns])
    settings = {
        "n_estimators": _N_TREES, "bootstrap": True, "oob_score": True, "min_samples_leaf": 3,
        "n_jobs": 2, "random_state": 0, "max_samples": min(_ROWS_PER_TREE, len(X)) / len(X),
    }  # fmt: skip
    if drawn.classes is None:
        y = _as_numbers(label) / max(len(label.levels), 1)
        fits = 1.0 - np.abs(ExtraTreesRegressor(**settings).fit(X, y).oob_prediction_ - y)
    else:
        labels = np.unique(label.codes, return_inverse=True)[1].reshape(-1)
        chances = ExtraTreesClassifier(**settings).fit(X, labels).oob_decision_function_
        fits = chances[np.arange(len(labels)), labels]
    fits = np.nan_to_num(fits, nan=float(np.nanmean(fits)))
    here, there = (float(fits[side].mean()) for side in (drawn.is_new, ~drawn.is_new))
    sentence = (
        f"The labels are given a mean probability of {here:.1%} by the cells of their row; in the "
        f"reference, {there:.1%}."
    )
    finding = make_finding("label drift", None, sentence, action="check the labels")
    p_value = _two_sided(standardize(fits, drawn.is_new))
    return Check("labels", _WEIGHTS["labels"], p_value, finding)


# Models, and values of columns


def _compare_models(drawn: BothTables, label: ColumnLevels) -> Iterator[Check]:
    """Compare models of the table with models of the reference, and what columns are worth to them.

    All are trained on as many rows, no row is used twice, and all are scored on the same held-out
    rows of both tables. So their scores are draws from one distribution if the tables are alike.
    """
    size = min(drawn.n_new, drawn.n_ref) // (_N_PARTS + 1)
    if size < _MIN_IN_A_PART:
        return
    sides = [
        np.flatnonzero(drawn.is_new == side)[: size * (_N_PARTS + 1)] for side in (True, False)
    ]
    parts = np.concatenate([side.reshape(-1, size)[:-1] for side in sides])
    # Rows of both tables in turn.
    held_out = np.stack([side[-size:] for side in sides], axis=1).ravel()
    X = np.column_stack([_as_numbers(column) for column in drawn.columns])
    y = _as_numbers(label) / len(label.levels) if drawn.classes is None else label.codes
    scores = np.array([_score_model(X, y, part, held_out) for part in parts])
    here, there = scores.reshape(2, -1).mean(axis=1)
    measured = "explains {:.1%} of the variance" if drawn.classes is None else "predicts {:.1%}"
    sentence = (
        f"A model trained on {size:,} of these rows {measured.format(here)} of labels; trained on "
        f"as many reference rows, {there:.1%}."
    )
    finding = make_finding("label drift", None, sentence, action="check the labels")
    yield Check("labels", _WEIGHTS["model"], compare_means(scores), finding)
    yield from _compare_values(drawn, X, y, parts, held_out)


def _compare_values(
    drawn: BothTables, X: Floats, y: NDArray[Any], parts: Positions, held_out: Positions
) -> Iterator[Check]:
    """Compare what columns add to the score of nearest neighbors in the parts of each table."""
    parts = parts[:, : max(_MAX_VALUED // X.shape[1], _MIN_IN_A_PART)]
    if drawn.classes is not None:
        # A class that some part lacks cannot be predicted there.
        common = [label for label in np.unique(y) if (y[parts] == label).any(axis=1).all()]
        held_out = held_out[np.isin(y[held_out], common)]
        # Strings are classes, however many there are.
        y = y.astype(str)
    held_out = held_out[:_N_VALIDATION]
    if X.shape[1] < 2 or len(held_out) < _N_VALIDATION // 2:
        return
    column_types: ColumnTypes = {
        f"x{at}": "categorical" for at, c in enumerate(drawn.columns) if c.kind == "text"
    }
    values = np.array([_value_columns(X, y, column_types, part, held_out) for part in parts])
    for position, column in enumerate(drawn.columns):
        here, there = values[:, position].reshape(2, -1).mean(axis=1)
        sentence = (
            f"{column.name} adds {here:.3f} to the score of a nearest-neighbor model; in the "
            f"reference, {there:.3f}."
        )
        finding = make_finding("label drift", column, sentence, action="check cells and labels")
        weight = _WEIGHTS["value"] / len(drawn.columns)
        yield Check(f"{column.name}: label", weight, compare_means(values[:, position]), finding)


def _score_model(X: Floats, y: NDArray[Any], part: Positions, held_out: Positions) -> float:
    """Return the accuracy, or R squared, of a model that is trained on a part."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    if len(np.unique(y[part])) < 2:
        return float((y[held_out] == y[part[0]]).mean()) if y.dtype.kind != "f" else 0.0
    kind = HistGradientBoostingRegressor if y.dtype.kind == "f" else HistGradientBoostingClassifier
    model = kind(max_iter=40, max_leaf_nodes=15, early_stopping=False, random_state=0)
    with limit_threads():
        return float(model.fit(X[part], y[part]).score(X[held_out], y[held_out]))


def _value_columns(
    X: Floats, y: NDArray[Any], column_types: ColumnTypes, part: Positions, held_out: Positions
) -> Floats:
    """Return the values of columns for nearest neighbors in a part."""
    with warnings.catch_warnings():
        # Of a part, and of ranks in the place of numbers; the audit reports on the table itself.
        warnings.simplefilter("ignore")
        game = KNNGame(X[part], y[part], X[held_out], y[held_out], column_types=column_types)
    queries = WeightedQueries.weigh(game.distances.queries, game.query_labels, game.scoring)
    all_are_few = X.shape[1] <= _MAX_ENUMERATED
    schedule = TaskSchedule(
        queries, game.shape,
        sampler=ExhaustiveSampler() if all_are_few else PermutationSampler(4),
        column_semivalue=Shapley(), with_label=False, empty=game.empty, seed=0,
    )  # fmt: skip
    tasks = QueryTasks(game, schedule, Shapley(), None)
    sums = [tasks.contribution(tasks(number)) for number in range(len(schedule.parts))]
    return reduce(PassSums.merge, sums).moments.values[-1, :-1]


def compare_means(scores: Floats) -> float:
    """Return the p-value of Student's t for the first half of some scores against the second."""
    new, old = scores.reshape(2, -1)
    variance = (new.var(ddof=1) + old.var(ddof=1)) / len(new)
    if variance <= 1e-24:
        return 1.0
    t = abs(new.mean() - old.mean()) / np.sqrt(variance)
    return float(np.clip(2.0 * stdtr(2 * len(new) - 2, -t), MIN_P, 1.0))
