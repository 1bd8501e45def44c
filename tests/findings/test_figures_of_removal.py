"""Small versions of the experiments on removing and repairing cells."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from experiments import removal, repairs
from experiments.tables import load

DATA = Path(__file__).parents[3] / "shared" / "data"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}")


@with_data
def test_a_table_without_its_lowest_cells_looks_better_to_itself_than_to_test_rows():
    split = removal.value_split(*removal.split_rows(load("heart", DATA).numbers(), 0, 1000), 0)
    leaks = pd.DataFrame(removal.all_leaks(split, 0)).set_index("fill")
    gained = leaks.loc["mean"] - leaks.loc["nothing removed"]
    assert gained["cross-validation"] > 0.05
    assert gained["test rows"] < gained["cross-validation"] - 0.05
    assert leaks["AUC of the mask"].iloc[0] > 0.6


def test_wrong_cells_are_those_that_differ_and_come_from_another_class():
    rng = np.random.default_rng(0)
    label = np.arange(40) % 2
    numbers = label[:, None] * 100.0 + rng.normal(size=(40, 5))
    train = repairs.Table(pd.DataFrame(numbers), label)
    wrong, spoilt = repairs.with_wrong_cells(train, 0.1, 0)
    assert wrong.sum() == 20
    assert (spoilt.to_numpy() == numbers)[~wrong].all()
    other_side = (spoilt.to_numpy() > 50) != (label[:, None] == 1)
    np.testing.assert_array_equal(other_side, wrong)


def test_errors_are_those_of_the_means_of_tables():
    asked = {"fill": "draw", "order": "lowest", "model": "tree"}
    points = {"wine": [1.0, 1.2, 0.8], "heart": [5.0, 5.0, 5.0]}
    differences = [
        asked | {"table": name, "points": each} for name, some in points.items() for each in some
    ]
    found = removal.against_random(differences)
    tests = {"tables above random removal": "2 of 2 (p = 0.5)"}
    assert found["points against random removal"] == [asked | {"points": (3.0, 2.0, 2)} | tests]
    assert found["points by table"] == [
        {"table": "wine", "lowest, tree": 1.0},
        {"table": "heart", "lowest, tree": 5.0},
    ]
