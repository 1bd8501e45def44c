import numpy as np
import pytest

from cellworth import value_game
from cellworth.runtime import MaxTasks


class Meddling:
    """A game that writes into what it is asked about."""

    def value(self, rows, columns):
        rows[0] = True
        return 1.0


@pytest.mark.parametrize("stop", [None, MaxTasks(1)], ids=["exact", "estimated"])
def test_a_game_cannot_change_the_coalition_that_it_is_asked_about(stop):
    with pytest.raises(ValueError, match="read-only"):
        value_game(Meddling(), (3, 2), stop=stop)


@pytest.mark.parametrize("number", [3, True, np.float32(3), np.int64(3), np.True_], ids=repr)
def test_any_kind_of_number_is_a_utility(number):
    class Constant:
        def value(self, rows, columns):
            return number

    assert not value_game(Constant(), (2, 2)).values.any()
