import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from cellworth.games.fitting import clone_unfitted


class Keeping(BaseEstimator):
    """Keeps a copy of a list that it is given, as CatBoost does."""

    def __init__(self, cat_features=None):
        self.cat_features = list(cat_features)

    def fit(self, X, y=None):
        return self


def test_a_copy_has_learned_nothing():
    model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    assert not hasattr(clone_unfitted(model), "coef_")


@pytest.mark.parametrize("wrap", [lambda model: model, make_pipeline])
def test_a_model_that_cannot_be_cloned_is_copied(wrap):
    model = wrap(Keeping(["job"]))
    with pytest.raises(RuntimeError, match="Cannot clone"):
        clone(model)
    copy = clone_unfitted(model)
    assert copy is not model
    assert str(copy) == str(model)
