"""anomaly_scores on planted errors: small versions of the tables in the documentation."""

from pathlib import Path

import numpy as np
import pytest

from cellworth.findings import anomaly_scores
from experiments import cell_scores, detection

DATA = Path(__file__).parents[3] / "shared" / "data"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}")


@pytest.mark.slow
@with_data
@pytest.mark.parametrize(
    ("error", "auroc", "precision"), [("A", 0.97, 0.6), ("B", 0.94, 0.75), ("S", 0.75, 0.2)]
)
def test_anomaly_score_finds_injected_errors(error, auroc, precision):
    found = []
    for name in ("breast original", "wine", "electricity"):
        case = detection.case(name, error, 0, DATA)
        found.append(detection.figures(case.wrong, anomaly_scores(case.X, case.y)))
    assert np.mean(found, axis=0)[0] > auroc
    assert np.mean(found, axis=0)[1] > precision


@with_data
def test_swapped_cells_are_what_simple_baselines_do_not_find():
    case = detection.case("wine", "S", 0, DATA)
    ours, z, ecod = (
        detection.figures(case.wrong, score)[0]
        for score in (anomaly_scores(case.X, case.y), cell_scores.class_z(case.X, case.y),
                      cell_scores.ecod(case.X))
    )  # fmt: skip
    assert ours > z > ecod


@with_data
def test_the_authors_outliers_are_found_in_both_classes():
    case = detection.authors_case(DATA)
    assert case.wrong.sum() == 43
    score = anomaly_scores(case.X, case.y)
    assert detection.figures(case.wrong, score)[0] >= 0.975
    assert detection.share_found(case.wrong, score, 0.10) >= 0.93
