"""What an owner learns about others' labels from its own values: an attack that works."""

import numpy as np
import pytest

from experiments.what_values_reveal import N_OTHERS, attack


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_neighbors", [1, 5])
def test_values_of_cells_reveal_others_labels_and_totals_do_not(n_neighbors):
    shares = [attack(n_neighbors, seed) for seed in range(2)]
    n_labels = N_OTHERS * len(shares)
    mean = {name: np.mean([share[name] for share in shares]) for name in shares[0]}
    assert mean["cells"] == 1.0
    # 4.5 standard errors of guessing.
    assert abs(mean["total"] - 0.5) < 4.5 * 0.5 / np.sqrt(n_labels)
    assert mean["two digits"] < mean["cells"]
