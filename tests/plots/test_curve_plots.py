import numpy as np
import pytest
from matplotlib import pyplot

from cellworth import Runtime, plots, value_game
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks, Progress
from cellworth.sampling.moments import widening
from drawing import assert_readable


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
