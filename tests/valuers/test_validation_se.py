"""Errors from the choice of validation rows, of values that come from models."""

import numpy as np
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import make_scorer, roc_auc_score
from sklearn.model_selection import LeaveOneOut as EveryRowAlone
from sklearn.naive_bayes import GaussianNB

from cellworth import ModelValuer, Owners, Runtime, value_game
from cellworth.games import ModelGame, TableGame
from cellworth.runtime import MaxTasks, MaxUtilities, Serial
from cellworth.sampling import (
    AntitheticPermutations,
    Banzhaf,
    Beta,
    DetailedUtility,
    GaussianProcess,
)
from cellworth.sampling.moments import append_margins, pool_deviations, widening
from experiments.baselines import PlainPermutations
from fit_settings import split_settings
from matrices import rarely

WINE = load_wine()
ORDER = np.random.default_rng(0).permutation(178)
X, Y = WINE.data[ORDER, :3], WINE.target[ORDER]
N_TRAIN = 24
TRAIN = {"X": X[:N_TRAIN], "y": Y[:N_TRAIN], "row_groups": np.arange(N_TRAIN) % 3}
VALIDATION = {"X_val": X[24:], "y_val": Y[24:]}
DATA = {**TRAIN, **VALIDATION}


def exact_values(data=DATA, **settings):
    """Exact values of one process, with settings of the valuer and arguments of fit."""
    of_valuer, of_fit = split_settings(settings)
    runtime = Runtime(executor=Serial())
    valuer = ModelValuer(GaussianNB(), runtime=runtime, estimator="exact", **of_valuer)
    return valuer.fit(**data, **of_fit).valuation_


EXACT = exact_values()


def run(**settings):
    """Estimate values, with settings of the valuer and arguments of fit."""
    usual = {"stop": MaxTasks(40), "random_state": 0, "runtime": Runtime(executor=Serial())}
    of_valuer, of_fit = split_settings(usual | settings)
    return ModelValuer(GaussianNB(), **of_valuer).fit(**DATA, **of_fit).valuation_


def values_by_row(n_rows, **semivalues):
    """Values of one game for each validation row, whose utilities are 1 where the row is right."""
    predicted, rows_seen = [], Y[24 : 24 + n_rows]

    def note(model, rows, y):
        # A scorer is also asked about resampled rows.
        if np.array_equal(y, rows_seen):
            predicted.append(model.predict(rows) == y)
        return 0.0

    game = ModelGame(
        GaussianNB(), **TRAIN, X_val=X[24 : 24 + n_rows], y_val=rows_seen, scoring=note
    )
    numbers = np.arange(8)
    masks = ((numbers[:, None] >> np.arange(3)) & 1).astype(bool)
    right = np.empty((8, 8, n_rows))
    for s in numbers:
        for f in numbers:
            predicted.clear()
            game.value(masks[s], masks[f])
            # Where classes tie, several constant predictors share the utility.
            right[s, f] = np.mean(predicted, axis=0)
    return np.array(
        [value_game(TableGame(right[..., i]), (3, 3), **semivalues).values for i in range(n_rows)]
    )


@pytest.mark.slow
@pytest.mark.parametrize("semivalue", [None, Banzhaf()], ids=str)
def test_validation_errors_are_those_of_a_mean_over_rows(semivalue):
    n_rows = 20
    given = {"semivalue": semivalue}
    by_row = np.array([append_margins(values) for values in values_by_row(n_rows, **given)])
    data = {**TRAIN, "X_val": X[24 : 24 + n_rows], "y_val": Y[24 : 24 + n_rows]}
    valuation = exact_values(data, **given)
    np.testing.assert_allclose(valuation.values, by_row.mean(axis=0)[:-1, :-1], atol=1e-12)
    expected = by_row.std(axis=0, ddof=1) / np.sqrt(n_rows) * widening(n_rows)
    np.testing.assert_allclose(valuation.validation, expected, rtol=1e-5, atol=1e-8)


def errors_of(scoring, model, x, y, n_train=60):
    game = ModelGame(
        model, x[:n_train], y[:n_train], x[n_train:], y[n_train:], scoring=scoring, empty="zero"
    )
    everything = [np.ones(n, dtype=bool) for n in game.shape]
    judged = game.value(*everything)
    assert isinstance(judged, DetailedUtility)
    return np.sqrt((judged.deviations.astype(float) ** 2).sum()), model.fit(
        x[:n_train], y[:n_train]
    )


def bootstrap_error(scoring, fitted, x, y, n_draws=200):
    from sklearn.metrics import get_scorer

    rng, scorer = np.random.default_rng(1), get_scorer(scoring)
    draws = rng.integers(len(y), size=(n_draws, len(y)))
    return np.std([scorer(fitted, x[rows], y[rows]) for rows in draws])


def test_error_of_balanced_accuracy_is_that_of_its_recalls():
    error, fitted = errors_of("balanced_accuracy", GaussianNB(), X, Y)
    y, right = Y[60:], fitted.predict(X[60:]) == Y[60:]
    variances = [right[y == c].var(ddof=1) / (y == c).sum() for c in range(3)]
    expected = np.sqrt(sum(variances)) / 3 * widening(len(y))
    assert error == pytest.approx(expected, rel=0.01)


def test_error_of_the_area_under_the_curve_is_that_of_delong():
    y = (Y == 0).astype(int)
    error, fitted = errors_of("roc_auc", GaussianNB(), X[:, :2], y)
    scores, y = fitted.predict_proba(X[60:, :2])[:, 1], y[60:]
    above = (scores[y == 1][:, None] > scores[y == 0]) * 1.0
    above += 0.5 * (scores[y == 1][:, None] == scores[y == 0])
    placed = above.mean(axis=1), above.mean(axis=0)
    expected = np.sqrt(sum(side.var(ddof=1) / len(side) for side in placed)) * widening(len(y))
    assert above.mean() == pytest.approx(roc_auc_score(y, scores))
    assert error == pytest.approx(expected, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scoring",
    ["accuracy", "neg_log_loss", "f1_macro", "jaccard_macro",
     *rarely("neg_brier_score", "precision_micro", "recall_macro")],
)  # fmt: skip
def test_errors_of_class_scores_are_those_of_a_bootstrap(scoring):
    error, fitted = errors_of(scoring, GaussianNB(), X, Y)
    assert error == pytest.approx(bootstrap_error(scoring, fitted, X[60:], Y[60:]), rel=0.15)


@pytest.mark.slow
@pytest.mark.parametrize(
    "scoring",
    ["r2", "neg_mean_squared_error",
     *rarely("explained_variance", "neg_mean_absolute_error", "neg_root_mean_squared_error")],
)  # fmt: skip
def test_errors_of_scores_of_numbers_are_those_of_a_bootstrap(scoring):
    x, y = WINE.data[ORDER, 1:5], WINE.data[ORDER, 0]
    error, fitted = errors_of(scoring, LinearRegression(), x, y)
    assert error == pytest.approx(bootstrap_error(scoring, fitted, x[60:], y[60:]), rel=0.15)


class AsColumn(GaussianNB):
    """Predicts a column, as CatBoost does."""

    def predict(self, rows):
        return super().predict(rows)[:, None]


@pytest.mark.parametrize("scoring", ["accuracy", "balanced_accuracy", "f1_macro"])
def test_predictions_may_come_as_a_column(scoring):
    plain, _ = errors_of(scoring, GaussianNB(), X, Y)
    assert errors_of(scoring, AsColumn(), X, Y)[0] == plain


def plain_accuracy(model, rows, y):
    """A scorer without a closed form, as far as cellworth knows."""
    return float(np.mean(model.predict(rows) == y))


def test_any_other_scorer_is_judged_by_a_bootstrap():
    drawn = exact_values(scoring=plain_accuracy)
    np.testing.assert_array_equal(drawn.values, EXACT.values)
    # Each is the standard deviation of 32 scores, made wider for that by 4 %.
    ratios = drawn.validation / EXACT.validation / 1.04
    assert 0.85 < np.sqrt(np.mean(ratios**2)) < 1.15
    assert np.abs(ratios - 1).max() < 4 / np.sqrt(2 * 31)


def test_a_scorer_that_fails_on_other_rows_leaves_errors_unknown():
    expected = np.bincount(VALIDATION["y_val"])

    def picky(model, rows, y):
        if (np.bincount(y) != expected).any():
            raise ValueError("the classes must be as frequent as they were")
        return plain_accuracy(model, rows, y)

    with pytest.warns(UserWarning, match="validation errors are not known: the scoring"):
        valuation = exact_values(scoring=picky)
    assert valuation.validation_se is None
    assert "validation_se" not in repr(valuation.columns())


def test_a_scorer_with_settings_is_not_taken_for_the_plain_one():
    halves = make_scorer(lambda y, said: np.mean(y == said) / 2)
    error, _ = errors_of(halves, GaussianNB(), X, Y)
    plain, _ = errors_of("accuracy", GaussianNB(), X, Y)
    assert error == pytest.approx(plain / 2, rel=0.5)


@pytest.mark.slow
@pytest.mark.parametrize("cv", [3, EveryRowAlone()], ids=["3 folds", "every row alone"])
def test_cross_validation_has_validation_errors_of_all_rows(cv):
    data = {"X": X[:24, :2], "y": Y[:24], "row_groups": np.arange(24) % 2}
    valuation = exact_values(data, cv=cv)
    apart = exact_values(data | {"X_val": X[24:, :2], "y_val": Y[24:]})
    ratio = valuation.validation[-1, -1] / apart.validation[-1, -1]
    assert ratio == pytest.approx(np.sqrt(len(VALIDATION["y_val"]) / 24), rel=0.4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("estimator", "semivalue", "stop"),
    [
        (AntitheticPermutations(), None, MaxTasks(200)),
        (PlainPermutations(), None, MaxTasks(400)),
        (GaussianProcess(), None, MaxUtilities(49)),
        (None, Banzhaf(), MaxTasks(100)),
        (None, Beta(4, 1), MaxTasks(400)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_estimates_have_the_validation_errors_of_exact_values(estimator, semivalue, stop):
    given = {"estimator": estimator, "semivalue": semivalue, "stop": stop}
    estimated = run(**given)
    exact = exact_values(semivalue=semivalue)
    ratios = estimated.validation_se / exact.validation_se
    assert np.abs(ratios - 1).mean() < 0.15
    sums = estimated.validation[-1] / exact.validation[-1]
    assert np.abs(sums - 1).max() < 0.2


def halves():
    return Owners(TRAIN["X"]).assign("ann", columns=["x0"]).assign("bob", columns=["x1", "x2"])


def test_owners_of_exact_values_have_the_errors_of_their_sums():
    n_rows = 20
    data = {**TRAIN, "X_val": X[24 : 24 + n_rows], "y_val": Y[24 : 24 + n_rows]}
    owned = exact_values(data, owners=halves())
    by_row = values_by_row(n_rows)
    sums = np.stack([by_row[:, :, 0].sum(axis=1), by_row[:, :, 1:].sum(axis=(1, 2))], axis=1)
    owners = owned.owners()
    np.testing.assert_allclose(owners.values, sums.mean(axis=0), atol=1e-12)
    expected = sums.std(axis=0, ddof=1) / np.sqrt(n_rows) * widening(n_rows)
    np.testing.assert_allclose(owners.validation_se, expected, rtol=1e-5)
    assert not owners.sampling_se.any()


@pytest.mark.parametrize("estimator", [AntitheticPermutations(), PlainPermutations()], ids=repr)
def test_owners_of_whole_columns_have_the_errors_of_columns(estimator):
    columns = Owners(TRAIN["X"])
    for name in ("x0", "x1", "x2"):
        columns = columns.assign(name, columns=[name])
    valuation = run(estimator=estimator, stop=MaxTasks(250), owners=columns)
    owners, sums = valuation.owners(), valuation.columns()
    np.testing.assert_allclose(owners.values, sums.values, atol=1e-12)
    np.testing.assert_allclose(owners.sampling_se, sums.sampling_se, rtol=0.25)
    np.testing.assert_allclose(owners.validation_se, sums.validation_se, rtol=0.25)


def test_owners_of_another_table_are_refused():
    with pytest.raises(ValueError, match="must have the cells of the table that is valued"):
        exact_values(owners=Owners(X[:N_TRAIN] + 1).assign("ann"))
    with pytest.raises(TypeError, match="owners must be Owners"):
        exact_values(owners={"ann": [0]})


def test_fewer_deviations_keep_the_sum_of_squares_in_the_mean():
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(400):
        rows = rng.normal(size=256)
        deviations = (rows - rows.mean()).astype(np.float32) * np.float32(np.sqrt(256 / 255))
        ratios.append((pool_deviations(deviations, 64) ** 2).sum() / (deviations**2).sum())
    assert pool_deviations(deviations, 64).shape == (64,)
    error = np.std(ratios) / np.sqrt(len(ratios))
    assert abs(np.mean(ratios) - 1) < 4.5 * error


def test_more_validation_rows_than_groups_tell_the_same_error():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 2))
    y = (x.sum(axis=1) + rng.normal(size=4000) > 0).astype(int)
    error, fitted = errors_of("accuracy", LogisticRegression(), x, y)
    right = fitted.predict(x[60:]) == y[60:]
    assert error == pytest.approx(right.std() / np.sqrt(len(right)), rel=4 / np.sqrt(2 * 255))


def test_a_game_of_the_user_can_bring_deviations():
    class Survey:
        """Rows earn the mean of three answers."""

        answers = np.array([1.0, 2.0, 6.0])

        def value(self, rows, columns):
            answers = self.answers * rows.sum() * columns.sum()
            return DetailedUtility(answers.mean(), (answers - answers.mean()) / np.sqrt(6))

    valuation = value_game(Survey(), (2, 2))
    error = np.std([1, 2, 6], ddof=1) / np.sqrt(3)
    np.testing.assert_allclose(valuation.validation_se, error)
    assert valuation.total_error == pytest.approx(4 * error)
