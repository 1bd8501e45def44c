import numpy as np
import pandas as pd
from sklearn.datasets import load_iris

from cellworth import load
from cellworth.valuers import RandomValuer

X, Y = load_iris(return_X_y=True)


def test_random_values_are_uniform_and_their_seed_repeats_them():
    table, labels = np.zeros((400, 20)), np.arange(400) % 2
    values = RandomValuer(random_state=1).fit(table, labels).values_
    assert 0 <= values.min() < values.max() <= 1
    cells = values.size
    # The mean of uniform numbers is 1/2, with a standard error of 1 / sqrt(12 n).
    assert abs(values.mean() - 0.5) < 4.5 / np.sqrt(12 * cells)
    counts = np.histogram(values, bins=10, range=(0, 1))[0]
    assert np.abs(counts - cells / 10).max() < 4.5 * np.sqrt(cells * 0.1 * 0.9)
    np.testing.assert_array_equal(
        RandomValuer(random_state=1).fit(table, labels, X_val=table, y_val=labels).values_, values
    )
    assert (RandomValuer(random_state=2).fit(table, labels).values_ != values).all()


def test_a_drawn_seed_is_recorded():
    first = RandomValuer().fit(X, Y).valuation_
    again = RandomValuer(random_state=first.provenance.seed).fit(X, Y)
    np.testing.assert_array_equal(again.values_, first.values)


def test_random_values_have_names_groups_sums_and_no_errors(tmp_path):
    table = pd.DataFrame(X, columns=list("abcd"))
    valuation = RandomValuer(random_state=0).fit(table, Y, row_groups=np.arange(150) % 3).valuation_
    assert valuation.shape == (3, 4)
    assert valuation.column_labels.tolist() == list("abcd")
    np.testing.assert_allclose(valuation.rows().values, valuation.values.sum(axis=1))
    assert np.isnan(valuation.sampling_se).all()
    assert np.isnan(valuation.efficiency_residual)
    text = repr(valuation)
    assert "expected" not in text
    assert "empty" not in text
    assert "errors      not known" in text
    valuation.save(tmp_path)
    assert "NaN" not in (tmp_path / "manifest.json").read_text()
    loaded = load(tmp_path)
    np.testing.assert_array_equal(loaded.values, valuation.values)
    assert np.isnan(loaded.expected_total)
