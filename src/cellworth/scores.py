"""Scores: what a valuation was scored by, and plain figures that tell how good that score is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self


@dataclass(frozen=True)
class Scores:
    """How the whole table was scored on the validation rows, and figures to compare that with.

    The score itself is ``Valuation.score``, the part of it that is there without any column
    ``Valuation.unearned``. What is not known is NaN.

    Parameters
    ----------
    scoring : str
        Name of the score.
    n_classes : int or None
        Classes of the training rows; None for a numeric target.
    n_validation_rows : int
        Rows that the table was scored on.
    n_planned_rows : int
        Rows that it should have been scored on: more where a run was interrupted.
    n_folds : int
        Folds of the cross-validation; 1 where validation rows were held out.
    accuracy : float
        How often the majority vote of the K nearest rows is right, with all rows and all columns.
        Ties between distances are averaged over all orders, and classes with equally many votes
        win equally often. Every class counts the same where it does in the score.
    majority : float
        The same for always guessing the most frequent class of the training rows.
    r2, rmse : float
        Coefficient of determination, and root mean squared error in units of the target.

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> valuation = KNNValuer(3).fit(X, y, X_val=X, y_val=y).valuation_
    >>> valuation.scores.name, round(valuation.score, 3), round(valuation.unearned, 3)
    ('neighbor agreement', 0.667, 0.5)
    >>> valuation.scores.accuracy, valuation.scores.majority
    (1.0, 0.5)
    """

    scoring: str
    n_classes: int | None
    n_validation_rows: int
    n_planned_rows: int
    n_folds: int
    accuracy: float = math.nan
    majority: float = math.nan
    r2: float = math.nan
    rmse: float = math.nan

    @property
    def name(self) -> str:
        """The score by name, in words."""
        return self.scoring.replace("neg_", "negative ").replace("_", " ")

    @property
    def task(self) -> str:
        """What is predicted."""
        if self.n_classes is None:
            return "regression"
        return f"classification with {self.n_classes} class{'es' * (self.n_classes != 1)}"

    @property
    def judged_on(self) -> str:
        """Which rows the table is scored on."""
        n_rows = f"{self.n_validation_rows:,}"
        if self.n_validation_rows < self.n_planned_rows:
            n_rows += f" of {self.n_planned_rows:,}"
        if self.n_folds > 1:
            return f"{self.n_folds}-fold cross-validation over {n_rows} rows"
        return f"{n_rows} validation row{'s' * (self.n_planned_rows != 1)}"

    @property
    def beside(self) -> tuple[str, str] | None:
        """What to compare the score with, by name and in words; None where that adds nothing."""
        if self.n_classes is None and not math.isnan(self.rmse):
            error = f"root mean squared error {self.rmse:.4g} (in units of the target)"
            return "fit", f"R2 {self.r2:.4g}, {error}"
        if not self.scoring.endswith("neighbor_agreement"):
            return None
        vote = "not known" if math.isnan(self.accuracy) else f"{self.accuracy:.4g}"
        balanced = " (balanced)" if self.scoring.startswith("balanced") else ""
        guess = f"{self.majority:.4g} by guessing the most frequent class"
        return "accuracy", f"{vote} by majority vote, {guess}{balanced}"

    @property
    def sentence(self) -> str:
        """The same as a sentence; empty where there is nothing to say."""
        if self.beside is None:
            return ""
        name, told = self.beside
        return f"{name.capitalize()}: {told}."

    def to_plain(self) -> dict[str, Any]:
        """Names and figures, with None for what is not known."""
        told = {field.name: getattr(self, field.name) for field in fields(self)}
        # JSON knows no NaN.
        return {
            name: None if isinstance(figure, float) and math.isnan(figure) else figure
            for name, figure in told.items()
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_plain` gave."""
        figures = ("accuracy", "majority", "r2", "rmse")
        told = {field.name: plain[field.name] for field in fields(cls)}
        return cls(**told | {name: _figure(told[name]) for name in figures})


def _figure(plain: Any) -> float:
    return math.nan if plain is None else float(plain)
