"""From a request to the valuer and the data that answer it."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import inspect
import operator
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import narwhals.stable.v2 as nw

from cellworth.cli.faults import refuse_one_number, refuse_other_columns, refuse_small_classes
from cellworth.cli.reading import Delivery
from cellworth.cli.requests import Request
from cellworth.games.knn import checked_scoring
from cellworth.owners import Owners
from cellworth.payouts import Agreement
from cellworth.problem import read_target
from cellworth.runtime import AfterSeconds, AfterUtilities, StandardErrorBelow, StoppingRule
from cellworth.tables import Table
from cellworth.valuers import ExactValuer, KNNValuer, MonteCarloValuer

KNN = "knn"
# All coalitions are looked at where these are few.
_MOST_EXACT_PLAYERS = 12


@dataclass(frozen=True, eq=False)
class Question:
    """A request with its files read: what a valuer is made of and what it is given.

    Parameters
    ----------
    request : Request
    train : Delivery
    val : Delivery or None
    """

    request: Request
    train: Delivery
    val: Delivery | None

    @classmethod
    def of(cls, request: Request) -> Question:
        """Read the files of a request."""
        train, val = request.data()
        refuse_one_number(train.y, request.target, request.table)
        if val is not None:
            columns = train.X.names.tolist(), val.X.names.tolist()
            refuse_other_columns(*columns, str(request.val), request.row_groups)
        elif request.model == KNN and read_target(train.y, train.X)[1] is not None:
            refuse_small_classes(train.y, request.target, request.cv, request.scoring)
        return cls(request, train, val)

    @property
    def X(self) -> Table:  # noqa: N802
        """The table that is valued, for applications."""
        return self.train.X

    @property
    def y(self) -> Any:
        """Its labels."""
        return self.train.y

    @property
    def kinds(self) -> dict[str, Any] | None:
        """Columns that are categories, whatever their type says."""
        return dict.fromkeys(self.request.categorical, "categorical") or None

    def data(self) -> dict[str, Any]:
        """Arguments of ``fit``, but for owners."""
        as_given = _as_it_is if self.request.model == KNN else _for_models
        given: dict[str, Any] = {"X": as_given(self.train.X), "y": self.train.y}
        if self.val is not None:
            given |= {"X_val": as_given(self.val.X), "y_val": self.val.y}
        groups = {
            "row_groups": self.request.row_groups,
            "column_groups": self.request.column_groups,
        }
        return given | {name: group for name, group in groups.items() if group is not None}

    def owners(self) -> Owners | None:
        """Who holds which cells, if that was said."""
        request = self.request
        if request.agreement is not None:
            return agreement_of(request.agreement).owners_of(self.X)
        if request.owners is None:
            return None
        return Owners.from_plain(toml_of(request.owners, "owners"), self.X, called="--owners")

    def valuer(self, **settings: Any) -> Any:
        """Make the valuer that a request asks for, not fitted."""
        if self.request.model == KNN:
            return _knn_valuer(self.request, self.kinds, settings)
        return _model_valuer(self.request, self._n_players(), settings)

    def _n_players(self) -> int:
        request, n_columns = self.request, len(self.X.names)
        rows = len(self.X.row_ids)
        if request.row_groups is not None and request.row_groups in self.X.names.tolist():
            place = self.X.names.tolist().index(request.row_groups)
            rows = len(set(self.X.column(place).tolist()))
            n_columns -= 1
        return rows + (len(request.column_groups) if request.column_groups else n_columns)


def agreement_of(text: str) -> Agreement:
    """Read an agreement from its text."""
    return Agreement.from_plain(toml_of(text, "agreement"), text, called="the agreement")


def toml_of(text: str, called: str) -> dict[str, Any]:
    """Read TOML; a mistake in it is one sentence."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"--{called} is not valid TOML ({error}); mend the file.") from error


def refuse_code_unasked(request: Request, model: str | None, folder: Path) -> None:
    """Refuse to run code that only a folder names: it may have come from anyone."""
    if model is None and request.model != KNN:
        raise ValueError(
            f"{folder} asks to import and run {request.model!r}; if you trust it, give --model "
            f"{request.model}."
        )
    if model is not None and model != request.model:
        raise ValueError(
            f"--model is {model!r}, but {folder} was asked for {request.model!r}; give that one."
        )


def refuse_what_was_not_agreed(question: Question, valuer: Any) -> None:
    """Refuse a question, before it is answered, that is not the one that was agreed on."""
    if question.request.agreement is None:
        return
    agreed = agreement_of(question.request.agreement)
    owners = agreed.owners_of(question.X)
    asked = Agreement.draft(valuer, owners, agreed.policy, **question.data()).terms
    difference = _difference(agreed.terms, asked)
    if difference is not None:
        raise ValueError(f"this is not what was agreed on: {difference}; ask for what was agreed.")


def _difference(agreed: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
    for name in sorted(set(agreed) | set(asked)):
        one, other = agreed.get(name), asked.get(name)
        if one == other:
            continue
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            return _difference(one, other)
        return f"{name} is {other!r}, but the agreement has {one!r}"
    return None


def _knn_valuer(request: Request, kinds: Any, settings: Mapping[str, Any]) -> KNNValuer:
    if request.budget is not None:
        raise ValueError("--budget counts fits of a model; give --sweeps with --model knn.")
    scoring = request.scoring
    return KNNValuer(
        request.neighbors,
        scoring=None if scoring is None else checked_scoring(scoring, "--scoring"),
        kinds=kinds,
        value_labels=request.labels,
        sweeps=request.sweeps,
        stop=_stop(request),
        random_state=request.seed,
        cv=request.cv,
        **settings,
    )


def _model_valuer(request: Request, n_players: int, settings: Mapping[str, Any]) -> Any:
    unfit = {"sweeps": request.sweeps, "labels": request.labels, "categorical": request.categorical}
    for name, given in unfit.items():
        if given:
            raise ValueError(f"--{name} is for --model knn; leave it out for a model of yours.")
    _refuse_unknown_scoring(request.scoring)
    model, stop = load_model(request.model), _stop(request)
    how = {"scoring": request.scoring, "cv": request.cv, **settings}
    if stop is None and n_players <= _MOST_EXACT_PLAYERS:
        return ExactValuer(model, **how)
    return MonteCarloValuer(model, stop=stop, random_state=request.seed, **how)


def _refuse_unknown_scoring(scoring: str | None) -> None:
    from sklearn.metrics import get_scorer_names

    names = get_scorer_names()
    if scoring is not None and scoring not in names:
        alike = difflib.get_close_matches(scoring, names, n=1) or ["balanced_accuracy"]
        raise ValueError(
            f"--scoring is {scoring!r}; give a name that scikit-learn knows, such as {alike[0]}."
        )


def _stop(request: Request) -> StoppingRule | None:
    rules: list[StoppingRule] = []
    if request.budget is not None:
        rules.append(AfterUtilities(request.budget))
    if request.deadline is not None:
        rules.append(AfterSeconds(request.deadline))
    if request.error is not None:
        rules.append(StandardErrorBelow(request.error))
    return functools.reduce(operator.or_, rules) if rules else None


def load_model(name: str) -> Any:
    """Import an estimator: an instance, a class or a function without arguments."""
    module, colon, path = name.partition(":")
    if not colon or not module or not path:
        raise ValueError(
            f"--model is {name!r}; give knn, or module:object such as mymodels:forest."
        )
    here = str(Path.cwd())
    if here not in sys.path:
        # Last, so that a file of the present folder does not stand in for an installed library.
        sys.path.append(here)
    try:
        found: Any = functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise ValueError(f"--model {name!r} cannot be imported ({error}).") from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"--model {name!r} cannot be imported ({_raised(error)}).") from error
    if inspect.isclass(found) or not hasattr(found, "fit"):
        found = _made(found, name)
    if not hasattr(found, "fit"):
        raise ValueError(
            f"--model {name!r} gives a {type(found).__name__} without fit; give an estimator, its "
            "class or a function that makes one."
        )
    return found


def _made(factory: Any, name: str) -> Any:
    if not callable(factory):
        raise ValueError(f"--model {name!r} is {factory!r}; give an estimator or what makes one.")
    try:
        return factory()
    except TypeError as error:
        raise ValueError(
            f"--model {name!r} cannot be called without arguments ({error})."
        ) from error
    except (Exception, SystemExit) as error:
        raise ValueError(f"--model {name!r} fails when it is called ({_raised(error)}).") from error


def _raised(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _as_it_is(table: Table) -> Table:
    return table


def _refuse_wide_decimals(arrow: Any) -> None:
    """Refuse what polars cannot hold, before it ends the program."""
    from pyarrow import types

    for field in arrow.schema:
        if types.is_decimal256(field.type):
            raise ValueError(
                f"column {field.name!r} is of type {field.type}, which polars cannot hold; write "
                "it as decimal128 or double, or install pandas."
            )


def _for_models(table: Table) -> Any:
    """Hand a table over as scikit-learn expects it: pandas or polars, or an array of numbers."""
    arrow = table.native
    for library in ("pandas", "polars"):
        if importlib.util.find_spec(library):
            if library == "polars":
                _refuse_wide_decimals(arrow)
            frame = nw.from_arrow(arrow, backend=library)
            return replace(table, data=frame)
    try:
        return replace(table, data=table.numbers(called="the table"))
    except TypeError as error:
        raise ValueError(
            f"{error} Or install pandas, so that a Pipeline can encode columns by name."
        ) from error
