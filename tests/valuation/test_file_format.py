"""A valuation and a payout that version 0.1 wrote are read by this version, equal to the bit.

``python tests/valuation/test_file_format.py FOLDER`` writes such folders; format-2 stays as it is.
"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from cellworth import KNNValuer, Owners, load
from cellworth.payouts import OwnerValuer, split_revenue, verify_bundle

KEPT = Path(__file__).parent / "format-2"
ROWS = ["ada", "bo", "cy", "di", "ed", "flo"]


def write(folder):
    """Value a toy table; save valuation and payout, and the numbers without any rounding."""
    rng = np.random.default_rng(0)
    X, X_val = rng.integers(0, 9, (6, 3)), rng.integers(0, 9, (5, 3))
    y, y_val = X[:, 0] > 4, X_val[:, 0] > 4
    valuer = KNNValuer(n_neighbors=2)
    data = {"X": X, "y": y, "X_val": X_val, "y_val": y_val}
    valuation = valuer.fit(**data, row_groups=ROWS).valuation_
    valuation.save(folder / "values")
    (folder / "numbers.json").write_text(json.dumps(numbers(valuation), indent=1) + "\n")
    X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    valuer = OwnerValuer(KNNValuer(1)).fit(X, y, cv=2, owners=owners)
    valuation = valuer.valuation_
    payout = split_revenue(valuation, owners, amount="100.00")
    (folder / "digest.txt").write_text(payout.save(folder / "bundle") + "\n")


def numbers(valuation):
    """All figures of a valuation, as hexadecimal floats."""
    figures = {
        "values": valuation.values,
        "validation_se": valuation.validation_se,
        "row_values": valuation.rows().values,
        "column_values": valuation.columns().values,
        "totals": [valuation.total, valuation.expected_total],
    }
    return {name: [float(x).hex() for x in np.ravel(given)] for name, given in figures.items()}


@pytest.fixture(scope="module")
def kept():
    return load(KEPT / "values")


def test_numbers_are_those_that_were_written(kept):
    assert numbers(kept) == json.loads((KEPT / "numbers.json").read_text())


def test_labels_and_provenance_are_those_that_were_written(kept):
    assert list(kept.rows().labels["row"]) == ROWS
    assert kept.values.shape == (6, 3)
    assert kept.provenance.versions["cellworth"] == "0.1.0"
    assert kept.provenance.method["sampler"] == "ExhaustiveSampler()"
    assert kept.provenance.tally.utilities == 5 * 7


def test_what_was_read_can_be_saved_again(kept, tmp_path):
    kept.save(tmp_path / "again")
    assert numbers(load(tmp_path / "again")) == numbers(kept)


def test_a_payout_is_still_confirmed_by_its_digest():
    digest = (KEPT / "digest.txt").read_text().strip()
    verdict = verify_bundle(KEPT / "bundle", digest=digest)
    assert verdict, str(verdict)
    other = digest.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    assert not verify_bundle(KEPT / "bundle", digest=other)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
