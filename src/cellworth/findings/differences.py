"""What differs between a table and a reference, such as the table of last month.

Every check has a p-value. Scores of rows are computed from both tables together, without knowing
which row is in which table. Weighted Holm correction keeps the probability of any false alarm
below the limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from cellworth.data.arguments import Floats, Mask
from cellworth.data.problem import target_groups
from cellworth.data.tables import Table, VectorLike
from cellworth.data.text import list_first
from cellworth.findings.anomaly import Evidence
from cellworth.findings.features import FeatureColumn, read_without
from cellworth.findings.finding import Finding, FindingKind
from cellworth.findings.label_checks import predict_by_trees
from cellworth.findings.levels import ColumnLevels
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
from cellworth.sampling.moments import limit_threads

# Shares of the probability of a false alarm; each is divided among the columns.
_WEIGHTS = {
    "column": 0.45, "cells": 0.1, "rows": 0.25, "labels": 0.1, "pair": 0.05, "copies": 0.05,
}  # fmt: skip
_MIN_ROWS, _MIN_TO_TRAIN = 10, 100
# Ends of the blocks: each is predicted by a classifier trained on the blocks before it.
_BLOCKS = (0.3, 0.475, 0.65, 0.825, 1.0)
_MAX_CLASSES = 100
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
    for column in both.every_column:
        yield from compare_column(both, column, _WEIGHTS["column"] / len(both.every_column))
    if both.label is not None:
        for column in both.columns:
            yield compare_pair(both, column, both.label, _WEIGHTS["pair"] / len(both.columns))
    yield compare_copies(both, _WEIGHTS["copies"])
    if min(both.n_new, both.n_ref) >= _MIN_TO_TRAIN:
        drawn = both.draw()
        nothing = np.zeros(len(drawn.is_new), dtype=bool)
        features = [read_without(column, nothing) for column in drawn.columns]
        # How little cells fit their row and label, on both tables together.
        scores = Evidence(features, drawn.target, drawn.classes).quick_scores
        yield from _compare_cells(drawn, scores)
        yield _compare_rows(drawn, scores)
        n_classes = 0 if drawn.classes is None else len(drawn.classes)
        if drawn.target is not None and n_classes <= _MAX_CLASSES:
            yield _compare_labels(drawn, features, drawn.target)


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


def _compare_cells(drawn: BothTables, scores: Floats) -> Iterator[Check]:
    """Compare how well cells fit their rows: in all columns together, and in each."""
    total, half = scores.sum(axis=1), _WEIGHTS["cells"] / 2
    p_value, finding = _compare_misfits(drawn, total, None)
    p_value = min(_two_sided(standardize(total, drawn.is_new)), p_value) * (1 + len(_HIGH))
    yield Check("rows", half, min(1.0, p_value), finding)
    for position, column in enumerate(drawn.columns):
        p_value, finding = _compare_misfits(drawn, scores[:, position], column)
        weight = half / len(drawn.columns)
        yield Check(column.name, weight, min(1.0, p_value * len(_HIGH)), finding)


def _compare_misfits(
    drawn: BothTables, scores: Floats, column: ColumnLevels | None
) -> tuple[float, Finding]:
    """Compare the numbers of high scores; return the smallest p-value, and what it is about."""
    high = [scores >= np.quantile(scores, 1 - share) for share in _HIGH]
    p_values = [drawn.test_set(mask) for mask in high]
    here, there = drawn.shares(high[int(np.argmin(p_values))])
    what = "rows have cells that" if column is None else f"cells of {column.name}"
    sentence = (
        f"{here:.1%} of {what} hardly fit the rest of their row; in the reference, {there:.1%}."
    )
    return min(p_values), make_finding("dependence", column, sentence, action=_MIXED)


def _compare_rows(drawn: BothTables, scores: Floats) -> Check:
    """Tell new rows from reference rows by a classifier, on rows that it has not seen.

    Each block of rows is predicted by a classifier that is trained on the blocks before it. So the
    standardized differences of the blocks are independent, and their sum is a test.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.metrics import roc_auc_score

    # The cells as numbers, the label, and how well cells fit their row.
    cells, is_new = map(_as_numbers, drawn.every_column), drawn.is_new
    X = np.column_stack([*cells, scores, scores.sum(axis=1)])
    ends = [round(share * len(X)) for share in _BLOCKS]
    sums, curves, models = [], [], []
    for first, last in pairwise(ends):
        block = is_new[first:last]
        if min(is_new[:first].sum(), (~is_new[:first]).sum(), block.sum(), (~block).sum()) < 5:
            continue
        model = HistGradientBoostingClassifier(
            max_iter=60, max_leaf_nodes=15, early_stopping=False, random_state=0
        )
        # Newer scikit-learn refuses a column in which no row that it is trained on has a number.
        usable = np.where(np.isnan(X[:first]).all(axis=0), 0.0, X[:last])
        # Several threads wait for each other, if other programs run.
        with limit_threads():
            model.fit(usable[:first], is_new[:first])
            chances = model.predict_proba(usable[first:])[:, 1]
        sums.append(standardize(chances, block))
        curves.append(roc_auc_score(block, chances))
        models.append(model)
    z = sum(sums) / np.sqrt(max(len(sums), 1))
    p_value = float(np.clip(ndtr(-z), MIN_P, 1.0))
    area = np.mean(curves or [0.5])
    # A few odd rows, or rows that both tables share, leave the area at a half.
    sentence = "A classifier finds rows that are unlike those of the reference."
    if area > 0.51:
        used = _list_telling(drawn, models[-1], X, ends[-2]) if p_value < _ALARMING else []
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
    lost = {}
    for position, column in enumerate(drawn.every_column):
        # Its cells, and how well they fit their row.
        misfit = [] if column is drawn.label else [len(drawn.every_column) + position]
        own = [position, *misfit]
        permuted = rows.copy()
        permuted[:, own] = rows[order][:, own]
        lost[column.name] = area - roc_auc_score(is_new, model.predict_proba(permuted)[:, 1])
    ranked = sorted(lost, key=lambda name: -lost[name])
    return [name for name in ranked if lost[name] > max(_USED * (area - 0.5), 0.005)]


def _as_numbers(column: ColumnLevels) -> Floats:
    """Return ranks of numbers or, for levels, their rank by frequency; missing values are NaN."""
    ranks = np.arange(len(column.levels), dtype=np.float64)
    if column.kind == "text":
        ranks[np.argsort(-column.counts, kind="stable")] = ranks.copy()
    return np.append(ranks, np.nan)[column.codes]


def _compare_labels(
    drawn: BothTables, features: list[FeatureColumn], target: NDArray[Any]
) -> Check:
    """Compare how well labels, or groups of similar numbers, fit the cells of their row."""
    groups = target_groups(target) if drawn.classes is None else target
    labels = np.unique(groups, return_inverse=True)[1].reshape(-1)
    fits = predict_by_trees(features, labels)[np.arange(len(labels)), labels]
    here, there = (float(fits[side].mean()) for side in (drawn.is_new, ~drawn.is_new))
    sentence = (
        f"The labels are given a mean probability of {here:.1%} by the cells of their row; in the "
        f"reference, {there:.1%}."
    )
    finding = make_finding("label drift", None, sentence, action="check the labels")
    p_value = _two_sided(standardize(fits, drawn.is_new))
    return Check("labels", _WEIGHTS["labels"], p_value, finding)
