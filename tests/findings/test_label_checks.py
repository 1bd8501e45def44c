"""Wrong labels: found where the cells contradict them, and not where nothing can be known."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.tree import ExtraTreeClassifier

from cellworth import audit
from cellworth.findings import label_scores
from cellworth.findings.features import FeatureColumn
from cellworth.findings.label_checks import predict_by_trees, score_labels


def columns(X):
    return [FeatureColumn.from_numbers(X[:, j].copy()) for j in range(X.shape[1])]


@pytest.fixture(scope="module")
def flipped():
    X, y = load_breast_cancer(return_X_y=True)
    wrong = np.random.default_rng(0).permutation(len(y)) < 40
    return X, np.where(wrong, 1 - y, y), wrong


def test_flipped_labels_have_the_highest_scores(flipped):
    X, y, wrong = flipped
    scores = label_scores(X, y)
    assert roc_auc_score(wrong, scores) > 0.97
    # Names of classes and a data frame make no difference.
    names = np.where(y == 1, "b", "a")
    assert np.array_equal(label_scores(pd.DataFrame(X), names), scores)


def test_a_numeric_target_has_no_labels_to_score():
    with pytest.raises(ValueError, match="y must be class labels, got a numeric target; pass"):
        label_scores(np.zeros((60, 2)), np.arange(60) / 7)


@pytest.mark.slow
def test_findings_name_both_labels_and_are_mostly_right(flipped):
    X, y, wrong = flipped
    found = [f for f in audit(pd.DataFrame(X), y).unusual if f.kind == "wrong label"]
    rows = np.concatenate([finding.rows for finding in found])
    assert len(rows) >= 10
    assert wrong[rows].mean() > 0.9
    assert all("but cells as in rows with" in finding.sentence for finding in found)


def test_labels_without_a_pattern_are_not_called_wrong():
    rng = np.random.default_rng(1)
    found = audit(pd.DataFrame(rng.normal(size=(300, 4))), rng.integers(0, 2, 300))
    assert "wrong label" not in {finding.kind for finding in (*found, *found.unusual)}


def test_labels_that_name_rows_are_not_predicted():
    # scikit-learn would warn that they are no classes, and warnings are errors here.
    X = pd.DataFrame(np.random.default_rng(4).normal(size=(60, 3)))
    found = audit(X, [f"case {i % 40}" for i in range(60)])
    assert "wrong label" not in {finding.kind for finding in (*found, *found.unusual)}


def test_labels_of_two_rows_each_warn_of_nothing():
    # A tree may see more labels than half of its rows.
    X = pd.DataFrame(np.random.default_rng(5).normal(size=(60, 3)))
    assert audit(X, [f"class {i % 28}" for i in range(60)]).checked[-1] == "wrong labels"


def test_trees_are_asked_about_few_rows_whose_label_is_clear(flipped, monkeypatch):
    X, y, _ = flipped
    asked, predict = [], ExtraTreeClassifier.predict_proba

    def count(tree, rows, **settings):
        asked.append(len(rows))
        return predict(tree, rows, **settings)

    monkeypatch.setattr(ExtraTreeClassifier, "predict_proba", count)
    every, some = (predict_by_trees(columns(X), y, least) for least in (0.0, 0.9))
    assert sum(asked[200:]) < 0.4 * sum(asked[:200])
    others, found = every[np.arange(len(y)), 1 - y], some[np.arange(len(y)), 1 - y]
    np.testing.assert_array_equal(found >= 0.9, others >= 0.9)
    np.testing.assert_array_equal(some[others >= 0.9], every[others >= 0.9])


def test_probabilities_do_not_use_the_row_itself():
    # Labels are noise: a model that has seen the row would find its label likely.
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(400, 3)), rng.integers(0, 2, 400)
    own = score_labels(columns(X), y)[1][np.arange(400), y]
    assert abs(own.mean() - 0.5) < 0.05
