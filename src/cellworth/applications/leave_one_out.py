"""What the other cells of its row make of a cell: ridge regressions, each without that row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from cellworth.applications.features import Column, Features, Levels
from cellworth.blocks import Mask
from cellworth.neighbours.columns import Floats

# Features have a variance of about 1: this is what five rows weigh.
PENALTY = 5.0
# The constant is free, so that the scores of all levels add up to 1; this keeps a lone row apart.
_PENALTY_OF_CONSTANT = 1e-9


@dataclass(frozen=True, eq=False)
class Response:
    """What a regression is to tell of a column from all others.

    Parameters
    ----------
    place : int
        The column, whose own features stay away.
    levels : array of shape (n_rows,)
        Which of several regressions each row is judged by: that of its own level.
    heights : array of shape (n_rows,)
        What that regression should give for the row, where all others are to give 0.
    """

    place: int
    levels: Levels
    heights: Floats

    @classmethod
    def of_levels(cls, place: int, column: Column) -> Response:
        """One regression per level, which should give 1 for its own rows.

        A level of one row has no witnesses left without it, and so a score of 0: all of these share
        a regression that has nothing to give.
        """
        single = column.counts[column.levels] == 1
        levels = np.unique(np.where(single, -1, column.levels), return_inverse=True)[1]
        return cls(place, levels.reshape(-1), np.where(single, 0.0, 1.0))

    @classmethod
    def of_numbers(cls, place: int, scores: Floats) -> Response:
        """One regression of scores."""
        return cls(place, np.zeros(len(scores), dtype=np.intp), scores)


def residuals(features: Features, columns: Sequence[Column]) -> dict[int, Floats]:
    """How far each number is from what the other cells of its row make of it.

    By column, for columns of numbers: the distance of the cell's uniform score from what a
    regression expects that never saw the row. Only rows without a gap in the column teach it; gaps
    get NaN.
    """
    sharing: dict[bytes, list[int]] = {}
    for place, column in enumerate(columns):
        if column.numbers is not None and column.known.any():
            sharing.setdefault(column.known.tobytes(), []).append(place)
    found = {}
    # Columns with gaps in the same rows share a Gram matrix.
    for places in sharing.values():
        known = columns[places[0]].known
        asked = [Response.of_numbers(j, features.parts[j].numbers[:, 0]) for j in places]
        for response, expected in zip(asked, _expected(features, known, asked), strict=True):
            found[response.place] = np.abs(response.heights - expected)
    return found


def level_scores(features: Features, columns: Sequence[Column]) -> dict[int, Floats]:
    """How much the other cells of its row speak for each cell's level, 1 meaning it is certain.

    By column, for categories and for numbers with gaps, whose levels are: a number, a gap.
    """
    asked = [
        Response.of_levels(place, column)
        for place, column in enumerate(columns)
        if column.numbers is None or column.levels.any()
    ]
    everyone = np.ones(features.n_rows, dtype=bool)
    scores = _expected(features, everyone, asked) if asked else []
    return {response.place: score for response, score in zip(asked, scores, strict=True)}


def _expected(features: Features, known: Mask, asked: Sequence[Response]) -> list[Floats]:
    """What regressions expect of each known row, had they been fitted without it; else NaN."""
    inverse, sums = _taught(features, known, asked)
    fits = [_Fit.of(inverse, features.own[r.place], s) for r, s in zip(asked, sums, strict=True)]
    expected = [np.full(features.n_rows, np.nan) for _ in asked]
    for rows, strip in features.strips():
        projected = strip @ inverse
        leverages = np.einsum("ij,ij->i", projected, strip)
        for response, fit, out in zip(asked, fits, expected, strict=True):
            heights = np.einsum("ij,ij->i", strip, fit.coefficients[response.levels[rows]])
            leverage = leverages - fit.own_leverages(projected)
            # Leaving a row out of a ridge regression is a division: no second fit is needed.
            without = (heights - leverage * response.heights[rows]) / (1.0 - leverage)
            out[rows] = np.where(known[rows], without, np.nan)
    return expected


def _taught(
    features: Features, known: Mask, asked: Sequence[Response]
) -> tuple[Floats, list[Floats]]:
    """Inverse of the penalised Gram matrix, and sums of features times responses."""
    gram = np.diag(penalties(len(features)))
    sums: list[Floats] = [np.zeros((int(r.levels.max()) + 1, len(features))) for r in asked]
    for rows, strip in features.strips():
        teaching = strip * known[rows][:, None]
        gram += teaching.T @ teaching
        for response, total in zip(asked, sums, strict=True):
            total[:] += _sums_by_level(response, rows, teaching, len(total))
    return _inverse(gram), sums


def penalties(n_features: int) -> Floats:
    """Penalty of each feature; the constant comes last."""
    return np.append(np.full(n_features - 1, PENALTY), _PENALTY_OF_CONSTANT)


def _sums_by_level(response: Response, rows: slice, strip: Floats, n_levels: int) -> Floats:
    places = (response.levels[rows], np.arange(len(strip)))
    shape = (n_levels, len(strip))
    return np.asarray(sparse.csr_matrix((response.heights[rows], places), shape=shape) @ strip)


def _inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class _Fit:
    """Regressions without a column's own features, read from the one inverse of all features.

    With P the inverse and o the own features, the inverse without them is
    P - P[:, o] P[o, o]^-1 P[o, :], which is 0 in their rows and columns.
    """

    own: slice
    own_inverse: Floats
    coefficients: Floats

    @classmethod
    def of(cls, inverse: Floats, own: slice, sums: Floats) -> _Fit:
        own_inverse = _inverse(inverse[own, own])
        projected = sums @ inverse
        taken_off = projected[:, own] @ own_inverse @ inverse[own]
        return cls(own, own_inverse, projected - taken_off)

    def own_leverages(self, projected: Floats) -> Floats:
        """Part of each row's leverage that the own features bring."""
        own = projected[:, self.own]
        leverages: Floats = np.einsum("ij,ij->i", own @ self.own_inverse, own)
        return leverages
