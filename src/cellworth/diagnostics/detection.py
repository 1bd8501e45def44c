"""detection_curve: how many cells must be looked at to find those that are wrong."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, get_args

import narwhals.stable.v2 as nw
import numpy as np
from scipy import stats
from sklearn.metrics import average_precision_score, roc_auc_score

from cellworth.blocks import LABEL
from cellworth.counts import Floats, Labels, Mask, is_whole
from cellworth.diagnostics.cells import check_mask, check_scores
from cellworth.diagnostics.removal import Band
from cellworth.listing import frame, table_lines
from cellworth.tables import Table, entries_per_cell
from cellworth.valuation import Valuation

First = Literal["lowest", "highest"]
_POINTS_BY_CHANCE = 200
_SHARES_PRINTED = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, eq=False)
class DetectionCurve:
    """Share of wrong cells found, against the share of cells looked at.

    Parameters
    ----------
    inspected, found : arrays of shape (n_points,)
        Shares between 0 and 1, one point for every distinct score. Cells of equal score stand on
        the straight line between two points: that is the mean over all their orders.
    random_found : Band
        What a random order finds at these points: mean and 95 % interval, from the hypergeometric
        distribution. Of more than 200 points the others lie on straight lines.
    area : float
        Area under the receiver operating curve; a tie counts one half.
    average_precision : float
        As scikit-learn computes it: cells of equal score are looked at together.
    n_cells, n_wrong : int
    backend : str or None
        Data-frame library for :meth:`to_frame`.

    Examples
    --------
    >>> suspicion = [[0.9, 0.1], [0.8, 0.2], [0.3, 0.4]]
    >>> curve = detection_curve(suspicion, [[True, False], [False, False], [False, True]])
    >>> curve
    2 wrong among 6 cells: area 0.875, average precision 0.833
    inspected   found
           1%    3.0%
           2%    6.0%
           5%   15.0%
          10%   30.0%
          20%   50.0%
          50%  100.0%
    cells to look at until half of them are found: 1
    >>> curve.cells_to_find(2)
    3
    """

    inspected: Floats
    found: Floats
    random_found: Band
    area: float
    average_precision: float
    n_cells: int
    n_wrong: int
    backend: str | None = None

    def cells_to_find(self, n: int) -> int:
        """Cells to look at until n wrong ones are found; among ties, in the mean over orders."""
        if not is_whole(n) or not 1 <= n <= self.n_wrong:
            raise ValueError(
                f"n is {n!r}; {self.n_wrong} cells are wrong, so give a whole number from 1 to "
                f"{self.n_wrong}."
            )
        found, looked = np.rint(self.found * self.n_wrong), np.rint(self.inspected * self.n_cells)
        end = int(np.searchsorted(found, n))
        tied, wrong = looked[end] - looked[end - 1], found[end] - found[end - 1]
        # Of w wrong ones among t tied cells the i-th stands, in the mean over orders, here:
        place = (n - found[end - 1]) * (tied + 1) / (wrong + 1)
        # A third of three cells is one cell, whatever rounding says.
        return math.ceil(float(looked[end - 1] + place) - 1e-9)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame with one line per point."""
        columns = {
            "inspected": self.inspected,
            "found": self.found,
            "random_found": self.random_found.mean,
            "random_low": self.random_found.low,
            "random_high": self.random_found.high,
        }
        listed = {name: array.tolist() for name, array in columns.items()}
        return frame(listed, backend or self.backend)

    def __repr__(self) -> str:
        """A table for the terminal."""
        found = np.interp(_SHARES_PRINTED, self.inspected, self.found)
        columns = {
            "inspected": [f"{share:.0%}" for share in _SHARES_PRINTED],
            "found": [f"{share:.1%}" for share in found],
        }
        half = math.ceil(self.n_wrong / 2)
        return "\n".join(
            [
                f"{self.n_wrong:,} wrong among {self.n_cells:,} cells: area {self.area:.3f}, "
                f"average precision {self.average_precision:.3f}",
                *table_lines(columns),
                f"cells to look at until half of them are found: {self.cells_to_find(half):,}",
            ]
        )


def detection_curve(
    ranking: Any, wrong: Any, *, most_suspicious: First | None = None
) -> DetectionCurve:
    """Compare a ranking with the cells that are known to be wrong.

    Parameters
    ----------
    ranking : Valuation or array of shape (n_rows, n_columns)
        Values or scores of all cells. Cells of a group take the value of their block; cells without
        a score (NaN) are looked at last.
    wrong : array or data frame of bool, shape (n_rows, n_columns)
        True where a cell is wrong. Data frames must have the columns and row ids of the table that
        was valued, or of the ranking, in the same order. Where labels were valued too, they are
        left out if ``wrong`` has the shape of X.
    most_suspicious : {"lowest", "highest"}, default=None
        Which scores are looked at first. None: the lowest values of a Valuation, the highest scores
        of an array.

    Returns
    -------
    DetectionCurve

    Examples
    --------
    >>> suspicion = [[0.9, 0.1], [0.8, 0.2]]
    >>> curve = detection_curve(suspicion, [[True, False], [False, False]])
    >>> curve.area, curve.cells_to_find(1)
    (1.0, 1)
    """
    scores, mask = _align(ranking, wrong)
    first = most_suspicious or ("lowest" if isinstance(ranking, Valuation) else "highest")
    if first not in get_args(First):
        raise ValueError(f"most_suspicious is {first!r}; give 'lowest' or 'highest'.")
    suspicion = _rank(scores if first == "highest" else -scores).ravel()
    backend = ranking.backend if isinstance(ranking, Valuation) else None
    inspected, found = _compute_points(suspicion, mask.ravel())
    return DetectionCurve(
        inspected / mask.size,
        found / mask.sum(),
        _compute_random_band(inspected, mask.size, int(mask.sum())),
        float(roc_auc_score(mask.ravel(), suspicion)),
        float(average_precision_score(mask.ravel(), suspicion)),
        int(mask.size),
        int(mask.sum()),
        backend,
    )


def _align(ranking: Any, wrong: Any) -> tuple[Floats, Mask]:
    """Scores and which cells are wrong, of the same cells."""
    scores, labels = _read_scores(ranking)
    if (
        labels is not None
        and labels[0].tolist()[-1] == LABEL
        and _count_columns(wrong) == len(labels[0]) - 1
    ):
        # Labels that were valued have scores, but a mask of X does not speak of them.
        scores, labels = scores[:, :-1], (labels[0][:-1], labels[1])
    if labels is not None and not _has_made_up_names(ranking):
        wrong = entries_per_cell(wrong, *labels, called="wrong")
    return scores, _check_wrong(wrong, scores.shape)


def _read_scores(ranking: Any) -> tuple[Floats, tuple[Labels, Labels] | None]:
    """Scores of all cells, with names of columns and row ids where these are known."""
    if isinstance(ranking, Valuation):
        blocks = ranking.blocks
        scores = check_scores(ranking.values[np.ix_(blocks.rows.codes, blocks.columns.codes)])
        return scores, (blocks.columns.ids, blocks.rows.ids)
    scores = check_scores(ranking)
    if not isinstance(nw.from_native(ranking, eager_only=True, pass_through=True), nw.DataFrame):
        return scores, None
    table = Table.of(ranking, called="ranking")
    return scores, (table.names, table.row_ids)


def _has_made_up_names(ranking: Any) -> bool:
    # Arrays have no names: those of their valuation are made up.
    return isinstance(ranking, Valuation) and ranking.backend is None


def _count_columns(wrong: Any) -> int:
    columns = getattr(wrong, "columns", None)
    return len(columns) if columns is not None else int(np.shape(wrong)[-1])


def _check_wrong(wrong: Any, shape: tuple[int, ...]) -> Mask:
    table = nw.from_native(wrong, eager_only=True, pass_through=True)
    cells = table.to_numpy() if isinstance(table, nw.DataFrame) else wrong
    mask = check_mask(cells, (shape[0], shape[1]), called="wrong")
    if mask.all() or not mask.any():
        raise ValueError(
            f"wrong is {bool(mask.all())} for every cell, so that there is nothing to tell apart; "
            "mark some cells."
        )
    return mask


def _rank(suspicion: Floats) -> Floats:
    """Put cells without a score below all others, by ranks: scores may be infinite."""
    ranks = stats.rankdata(suspicion, nan_policy="omit").reshape(suspicion.shape)
    return np.where(np.isnan(suspicion), 0.0, ranks)


def _compute_points(suspicion: Floats, wrong: Mask) -> tuple[Floats, Floats]:
    """Cells looked at and wrong cells found after each distinct score, from none to all."""
    _, codes, sizes = np.unique(-suspicion, return_inverse=True, return_counts=True)
    hits = np.bincount(codes, weights=wrong)
    start = np.zeros(1)
    return np.append(start, np.cumsum(sizes)), np.append(start, np.cumsum(hits))


def _compute_random_band(inspected: Floats, n_cells: int, n_wrong: int) -> Band:
    few = np.linspace(0, len(inspected) - 1, min(len(inspected), _POINTS_BY_CHANCE)).astype(np.intp)
    law = stats.hypergeom(n_cells, n_wrong, inspected[few].astype(np.int64))
    low, high = (
        np.interp(inspected, inspected[few], law.ppf(chance) / n_wrong) for chance in (0.025, 0.975)
    )
    return Band(inspected / n_cells, low, high)
