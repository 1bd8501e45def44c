import numpy as np
import pytest
from matplotlib import pyplot
from scipy import stats

from cellworth import Runtime, plots, value_game
from cellworth.findings.curves import RemovalCurve
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks, Progress
from cellworth.sampling.moments import widening
from drawing import assert_readable

SHARES = np.array([0.0, 0.1, 0.3, 0.5])


def removal_of(seed=0, n_seeds=5, **changed):
    rng = np.random.default_rng(seed)
    given = {
        "shares": SHARES,
        "scores": 0.9 - SHARES + rng.normal(scale=0.02, size=(n_seeds, 4)),
        "random_scores": 0.9 - SHARES / 4 + rng.normal(scale=0.02, size=(n_seeds, 4)),
        "order": "highest",
        "fill": "draw",
        "scoring": "balanced_accuracy",
    }
    return RemovalCurve(**(given | changed))


def band(collection):
    """Lower and upper ends of a band at each share."""
    corners = collection.get_paths()[0].vertices
    return np.array(
        [
            (corners[np.isclose(corners[:, 0], x), 1].min(), corners[corners[:, 0] == x, 1].max())
            for x in SHARES
        ]
    )


def test_lines_are_means_over_seeds_and_bands_their_95_percent_intervals():
    curve = removal_of()
    ax = plots.removal(curve)
    for line, collection, scores in zip(
        ax.lines, ax.collections, (curve.scores, curve.random_scores), strict=True
    ):
        np.testing.assert_allclose(line.get_ydata(), scores.mean(axis=0))
        expected = stats.t.interval(0.95, 4, scores.mean(axis=0), stats.sem(scores, axis=0))
        np.testing.assert_allclose(band(collection), np.transpose(expected))
    assert_readable(ax)


def test_curves_that_share_their_baseline_show_it_once():
    one = removal_of()
    same = removal_of(1, random_scores=one.random_scores)
    assert len(plots.removal(one, same).lines) == 3
    assert len(plots.removal(one, removal_of(1)).lines) == 4


# Convergence --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def history():
    seen = []
    game = TableGame(np.random.default_rng(8).normal(size=(16, 8)))
    value_game(
        game, (4, 3), stop=MaxTasks(120), random_state=0, runtime=Runtime(on_round=seen.append)
    )
    return seen


def test_errors_of_every_round_are_drawn_against_tasks(history):
    ax = plots.convergence(history)
    errors = [
        (progress.moments.sampling_se * widening(progress.moments.count))[:-1, :-1]
        for progress in history
    ]
    np.testing.assert_array_equal(ax.lines[0].get_xdata(), [p.tasks for p in history])
    costs = plots.convergence(history, against="utilities").lines[0].get_xdata()
    np.testing.assert_array_equal(costs, [p.utilities for p in history])
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [block.max() for block in errors])
    np.testing.assert_allclose(ax.lines[1].get_ydata(), [np.median(block) for block in errors])
    assert ax.get_xscale() == ax.get_yscale() == "log"
    assert ax.get_xlabel() == "tasks"
    assert_readable(ax)


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.removal(), "curves must not be empty; give at least"),
        (lambda: plots.removal([removal_of()]), "a curve must be of type RemovalCurve"),
        (lambda: plots.removal(removal_of(), removal_of(), labels=["a"]), "each of the 2 curves"),
        (lambda: plots.removal(removal_of(), labels="a"), "for each of the 1 curves, got 'a'"),
        (lambda: plots.removal(removal_of(), removal_of(scoring="r2")), "must share one scoring"),
        (lambda: plots.convergence([]), "history must not be empty; collect it with history = "),
        (lambda: plots.convergence([3.0]), "history must be a list of Progress, got list; collect"),
        (lambda: plots.convergence([Progress(0, 0.0, None)]), "with a standard error above 0"),
        (lambda: plots.convergence([Progress(0, 0.0, None)], against="s"), "against must be"),
    ],
)
def test_wrong_inputs_get_one_sentence(draw, message):
    with pytest.raises((TypeError, ValueError), match=message):
        draw()
    assert pyplot.get_fignums() == []
