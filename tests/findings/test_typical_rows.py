"""What rows like a cell's row have: against distances computed one by one."""

import numpy as np
import pandas as pd
import pytest

from cellworth.data.tables import Table
from cellworth.findings import features, typical_rows
from cellworth.findings.anomaly import Evidence
from cellworth.findings.typical_rows import NO_ROW, find_typical_rows, name_evidence


def evidence_of(X, y):
    return Evidence.of(Table.from_data(X, called="X"), y, None)


def all_cells(shape):
    return np.unravel_index(np.arange(np.prod(shape)), shape)


def like_rows(evidence, row, column):
    """Ten nearest rows of the same group by all columns but one, and those as near as the last."""
    features = evidence.features
    A = features.rows(slice(None))[:, : features.own[-1].start]
    A = np.delete(A, np.arange(A.shape[1])[features.own[column]], axis=1)
    others = np.flatnonzero(evidence.groups == evidence.groups[row])
    others = others[others != row]
    distances = ((A[others] - A[row]) ** 2).sum(axis=1).round(9)
    return others[distances <= np.sort(distances)[min(10, len(others)) - 1]]


@pytest.mark.parametrize(("cells", "rows"), [(256, 16_384), (7, 9)])
def test_typical_is_the_middle_number_or_the_most_frequent_level_of_like_rows(
    monkeypatch, cells, rows
):
    monkeypatch.setattr(typical_rows, "_CELLS_AT_ONCE", cells)
    monkeypatch.setattr(features, "_ROWS_AT_ONCE", rows)
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"n": rng.integers(0, 20, 60), "c": rng.choice(list("abc"), 60), "m": 0.0})
    X["m"] = rng.normal(size=60)
    evidence = evidence_of(X, rng.integers(0, 2, 60))
    rows, columns = all_cells(X.shape)
    for row, column, found in zip(
        rows, columns, find_typical_rows(evidence, rows, columns), strict=True
    ):
        cells = X.iloc[like_rows(evidence, row, column), column]
        if column == 1:
            counts = cells.value_counts()
            assert counts[X.iloc[found, column]] == counts.max()
        else:
            assert X.iloc[found, column] == np.sort(cells)[(len(cells) - 1) // 2]


def test_a_missing_value_is_typical_where_most_like_rows_have_one():
    X = pd.DataFrame({"n": [1.0, None, None, 2.0, None], "m": [1.0, 2.0, 3.0, 4.0, 5.0]})
    evidence = evidence_of(X, [0] * 5)
    rows = np.array([0, 1])
    typical = X["n"].iloc[find_typical_rows(evidence, rows, np.array([0, 0]))]
    assert typical.isna().iloc[0]
    # Of four other rows, two have a missing value: the nearer kind decides.
    assert not typical.isna().iloc[1]


def test_among_equally_frequent_levels_the_nearest_is_typical():
    X = pd.DataFrame({"c": ["a", "b", "a", "b", "x"], "m": [1.0, 2.5, 7.0, 9.0, 2.5]})
    evidence = evidence_of(X, [0] * 5)
    assert find_typical_rows(evidence, np.array([4]), np.array([0])).tolist() == [1]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]])
def test_among_equally_near_levels_content_decides_and_not_the_order_of_rows(order):
    cells = np.array(["m", "b", "a", "b", "a"])[order]
    X = pd.DataFrame({"c": cells, "m": [1.0] * 5})
    like = find_typical_rows(evidence_of(X, [0] * 5), np.flatnonzero(cells == "m"), np.array([0]))
    assert cells[like[0]] == "a"


def test_a_row_alone_in_its_class_has_no_similar_rows():
    evidence = evidence_of([[1.0], [2.0], [3.0]], ["a", "a", "b"])
    assert find_typical_rows(evidence, np.arange(3), np.zeros(3, dtype=int)).tolist() == [
        1,
        0,
        NO_ROW,
    ]


def test_the_clearest_evidence_is_named():
    assert name_evidence(1, 5, 100, 20.0) == "the rarest of 100"
    assert name_evidence(7, 30, 1_000, 20.0) == "among the 7 rarest of 1,000"
    assert name_evidence(5, 1, 100, 20.0) == "it fits its row worse than the other 99"
    assert name_evidence(30, 7, 1_000, 20.0) == "among the 7 of 1,000 that fit their rows worst"
    rarer = "20 times rarer in similar rows than in its column"
    assert name_evidence(200, 300, 1_000, 20.4) == rarer
