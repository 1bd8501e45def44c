"""Provenance: what decided the values, and the scores that were valued."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Self

from cellworth.data.io import jsonable
from cellworth.data.text import format_count
from cellworth.sampling.moments import Tally

# Part of the identity of every run. Raise it by 1 whenever a change alters the bits of a task's
# result or the list of tasks: coalitions drawn, semivalue weights, distances, kernels, binning,
# estimators, the order of sums, the layout of what a checkpoint stores. Checkpoints and caches of
# another version are then rejected. Do not raise it for docs, names, messages or speed.
# tests/test_algorithm_version.py fails if bits change and this number does not; its docstring has
# the command that records new ones.
ALGORITHM_VERSION = 7
_PACKAGES = ("cellworth", "numpy", "scipy", "scikit-learn", "narwhals", "numba", "joblib")


@dataclass(frozen=True)
class Session:
    """Tasks 0..tasks - 1 of one seed. Exact runs have no seed."""

    seed: int | None
    tasks: int


@dataclass(frozen=True)
class Provenance:
    """Where a Valuation comes from; all of it is JSON-serializable.

    Parameters
    ----------
    problem_spec : mapping
        What determines the true values: model, scoring, semivalues, empty policy, data hashes.
    method : mapping
        How they were computed: valuer, sampler, stopping rule.
    sessions : tuple of Session
        Seeds and numbers of tasks; several after a merge.
    tally : Tally
        Number of utilities evaluated and failed, and the first messages.
    seconds : float
        Time spent on the tasks.
    created : str
        Timestamp in UTC.
    versions : mapping
        Python, cellworth and the packages that affect the results.

    See Also
    --------
    cellworth.Valuation

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y).valuation_
    >>> came = valuation.provenance
    >>> came.problem_spec["game"], came.method["name"], came.tally.utilities, came.tally.failed
    ('KNNGame', 'KNNValuer', 12, 0)
    """

    problem_spec: Mapping[str, Any]
    method: Mapping[str, Any]
    sessions: tuple[Session, ...]
    tally: Tally
    seconds: float
    created: str
    versions: Mapping[str, str]

    @classmethod
    def now(
        cls,
        problem_spec: Mapping[str, Any],
        method: Mapping[str, Any],
        session: Session,
        tally: Tally,
        seconds: float,
    ) -> Provenance:
        """Return the provenance of a run that has just ended, in this environment."""
        created = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(problem_spec, method, (session,), tally, seconds, created, dict(versions()))

    @property
    def adds_up(self) -> bool:
        """Whether values add up to the expected total: Shapley rows and columns only."""
        asked = {self.problem_spec.get(f"{side}_semivalue") for side in ("row", "column")}
        return asked == {"Shapley()"}

    def merge(self, other: Provenance) -> Provenance:
        """Return the provenance of both runs combined."""
        return replace(
            self,
            sessions=self.sessions + other.sessions,
            tally=self.tally.merge(other.tally),
            seconds=self.seconds + other.seconds,
            created=max(self.created, other.created),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return dictionaries, lists, numbers and strings."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Provenance:
        """Create a Provenance from the output of :meth:`to_dict`."""
        tally, sessions = dict(plain["tally"]), plain["sessions"]
        tally["messages"] = tuple(tally["messages"])
        parts = {"sessions": tuple(Session(**one) for one in sessions), "tally": Tally(**tally)}
        return cls(**{**plain, **parts})


@cache
def versions() -> tuple[tuple[str, str], ...]:
    """Return the versions of Python and of the packages that affect the results."""
    # Audits and models run without numba.
    packages = ((each, version(each)) for each in _PACKAGES if each != "numba" or find_spec(each))
    return (("python", platform.python_version()), *packages)


@dataclass(frozen=True, eq=False)
class Scores:
    """How the whole table was scored on the validation rows, and figures to compare with.

    The score itself is ``Valuation.score``; its part without any column is ``Valuation.baseline``.
    Unknown figures are NaN.

    Parameters
    ----------
    scoring : str
        Name of the score.
    n_classes : int or None
        Classes of the training rows; None for a numeric target.
    n_validation_rows : int
        Validation rows that were used.
    n_given_rows : int
        Validation rows that were given; more than were used if some were drawn, or if a run was
        interrupted.
    n_folds : int
        Folds of the cross-validation; 1 if validation rows were given.
    accuracy : float
        Accuracy of the majority vote of the K nearest rows, with all rows and all columns. Ties
        between distances are averaged over all orders, and classes with equally many votes win
        equally often. Classes have equal weights if they do in the score.
    majority : float
        Accuracy of always guessing the most frequent class of the training rows.
    r2, rmse : float
        Coefficient of determination, and root mean squared error in units of the target.

    See Also
    --------
    cellworth.Valuation

    Examples
    --------
    >>> from cellworth import KNNValuer
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> valuation = KNNValuer(3).fit(X, y, X_val=X, y_val=y).valuation_
    >>> valuation.scores.name, round(valuation.score, 3), round(valuation.baseline, 3)
    ('neighbor agreement', 0.667, 0.5)
    >>> valuation.scores.accuracy, valuation.scores.majority
    (1.0, 0.5)
    """

    scoring: str
    n_classes: int | None
    n_validation_rows: int
    n_given_rows: int
    n_folds: int
    accuracy: float = math.nan
    majority: float = math.nan
    r2: float = math.nan
    rmse: float = math.nan

    @property
    def name(self) -> str:
        """Name of the score in words."""
        words = self.scoring.replace("neg_", "negative ").replace("_", " ")
        return words.replace("brier", "Brier")

    @property
    def task(self) -> str:
        """Regression, or classification with its number of classes."""
        if self.n_classes is None:
            return "regression"
        return f"classification with {format_count(self.n_classes, 'class', 'classes')}"

    @property
    def scored_on(self) -> str:
        """Number of validation rows and folds in words."""
        n_rows = f"{self.n_validation_rows:,}"
        if self.n_validation_rows < self.n_given_rows:
            n_rows += f" of {self.n_given_rows:,}"
        if self.n_folds > 1:
            return f"{self.n_folds}-fold cross-validation over {n_rows} rows"
        return f"{n_rows} validation row{'s' * (self.n_given_rows != 1)}"

    @property
    def beside(self) -> tuple[str, str] | None:
        """Name and text of the figures to compare the score with; None if there are none."""
        if self.n_classes is None and not math.isnan(self.rmse):
            error = f"root mean squared error {self.rmse:.4g} (in units of the target)"
            return "fit", f"R2 {self.r2:.4g}, {error}"
        votes = self.scoring == "neg_brier_score" and not math.isnan(self.accuracy)
        if not votes and not self.scoring.endswith(("neighbor_agreement", "neighbor_gain")):
            return None
        vote = "" if math.isnan(self.accuracy) else f"{self.accuracy:.4g} by majority vote, "
        balanced = " (balanced)" if self.scoring.startswith("balanced") else ""
        guess = f"{self.majority:.4g} by guessing the most frequent class"
        return "accuracy", f"{vote}{guess}{balanced}"

    @property
    def sentence(self) -> str:
        """The same as a sentence; empty if there are none."""
        if self.beside is None:
            return ""
        name, text = self.beside
        return f"{name.capitalize()}: {text}."

    def to_plain(self) -> dict[str, Any]:
        """Return all fields; those that are not known are None."""
        return dict(jsonable(asdict(self)))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Create Scores from the output of :meth:`to_plain`."""
        figures = ("accuracy", "majority", "r2", "rmse")
        entries = {field.name: plain[field.name] for field in fields(cls)}
        return cls(**entries | {name: read_number(entries[name]) for name in figures})


def read_number(plain: Any) -> float:
    """Return a number from JSON, where null stands for NaN."""
    if plain is None:
        return math.nan
    if not math.isfinite(plain):
        raise ValueError(f"a number is {plain}")
    return float(plain)
