"""Fitting a model: pipelines restricted to some columns, seeds, weights, constant predictors."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, OneToOneFeatureMixin, RegressorMixin, clone
from sklearn.utils.metaestimators import available_if

from cellworth.data.arguments import Floats, Mask, Positions, is_integer

# Parameters that list columns: by name, by position or by a mask.
_SELECTIONS = (
    "categorical_features", "cat_features", "text_features", "embedding_features",
    "ignored_features", "categorical_feature", "cols",
)  # fmt: skip
# Parameters with one entry per column, in the order of columns or by name.
_PER_COLUMN = (
    "categories", "monotonic_cst", "monotone_constraints", "feature_types", "feature_weights",
    "n_bins",
)  # fmt: skip
# Parameters that hold sets of columns that may interact.
_SETS = ("interaction_cst", "interaction_constraints")
# Parameters whose estimators see something other than the table: targets, predictions.
_ELSEWHERE = ("transformer", "final_estimator")
_IMPUTERS = ("SimpleImputer", "KNNImputer", "IterativeImputer")
_SEED_NAMES = ("random_state", "random_seed", "seed")
# PyTorch has one generator per process: fits that use it run one at a time.
_TORCH_TURN = threading.Lock()


def for_columns(
    model: Any, names: NDArray[Any], kept: Mask, look: Callable[[], Any] | None = None
) -> Any | None:
    """Copy an unfitted model for a table that keeps some of its columns.

    All parts of the model that name columns are restricted to those kept: column transformers
    anywhere inside the model, lists of categorical columns, and settings per column such as the
    categories of an encoder. Positions are converted to positions among the kept columns. Functions
    that select columns stay, because they get the restricted table.

    Parameters
    ----------
    model : estimator
        Not changed.
    names : array of shape (n_columns,)
        Columns of the full table.
    kept : array of shape (n_columns,)
        True for the columns that are kept.
    look : callable, default=None
        Returns a table of the kept columns, for functions that select columns.

    Returns
    -------
    estimator or None
        None if the model would get no column.
    """
    copy = clone_unfitted(model)
    return copy if kept.all() or _adapt(copy, Seen(names, kept, look)) else None


@dataclass(frozen=True, eq=False)
class Seen:
    """The columns that a part of a model gets from the full table, and those kept.

    Parameters
    ----------
    names : array of shape (n_columns,)
    kept : array of shape (n_columns,)
    look : callable or None
        Returns the table of the kept columns, if known.
    positions_known : bool, default=True
        Whether ``names`` has the columns in order. After a step that may add or drop columns it
        does not, and only names are used.
    """

    names: NDArray[Any]
    kept: Mask
    look: Callable[[], Any] | None = None
    positions_known: bool = True

    def among(self, positions: Positions) -> Seen:
        """Return the columns of a part that gets only these."""
        return Seen(self.names[positions], self.kept[positions], None, self.positions_known)

    def behind(self, step: Any) -> Seen:
        """Return the columns of the next step of a pipeline."""
        return Seen(self.names, self.kept, None, self.positions_known and _keeps_positions(step))

    def positions(self, selection: Any) -> Positions | None:
        """Return the positions of a selection on the full table; None if unknown."""
        if isinstance(selection, slice):
            return self._slice_positions(selection)
        chosen = np.atleast_1d(np.asarray(selection))
        if chosen.dtype.kind in "biu":
            return self._read_positions(chosen)
        where = {name: position for position, name in enumerate(self.names.tolist())}
        found = [where.get(name) for name in chosen.tolist()]
        return None if None in found else np.array(found, dtype=np.intp)

    def left(self, selection: Any) -> Any:
        """Return the kept part of a selection, by name if names were given."""
        entries: list[Any] = np.atleast_1d(np.asarray(selection, dtype=object)).tolist()
        if not entries or not all(isinstance(entry, str) for entry in entries):
            positions = self.positions(selection)
            return (
                selection
                if positions is None
                else (np.cumsum(self.kept) - 1)[positions[self.kept[positions]]].tolist()
            )
        gone = set(self.names[~self.kept].tolist())
        return [name for name in entries if name not in gone]

    def _read_positions(self, chosen: Any) -> Positions | None:
        try:
            return np.arange(len(self.names))[chosen] if self.positions_known else None
        # The model itself will raise the best error message.
        except IndexError:
            return None

    def _slice_positions(self, selection: slice) -> Positions | None:
        ends = [end for end in (selection.start, selection.stop) if end is not None]
        if not any(isinstance(end, str) for end in ends):
            return self._read_positions(selection)
        listed = self.names.tolist()
        if not self.positions_known or not set(ends) <= set(listed):
            return None
        # A slice of names includes both ends, as in pandas.
        start = None if selection.start is None else listed.index(selection.start)
        stop = None if selection.stop is None else listed.index(selection.stop) + 1
        return np.arange(len(listed))[start : stop : selection.step]


def _adapt(estimator: Any, seen: Seen) -> bool:
    """Adapt an estimator and its parts in place; return whether it gets any column."""
    settings = estimator.get_params(deep=False)
    for name, setting in settings.items():
        changed = _cut_setting(name, setting, seen)
        if changed is not setting:
            estimator.set_params(**{name: changed})
    if _is_list_of_tuples(settings.get("transformers"), 3):
        return _adapt_column_transformer(estimator, settings, seen)
    if _is_list_of_tuples(settings.get("steps"), 2):
        for _, step in settings["steps"]:
            if is_estimator(step) and not _adapt(step, seen):
                return False
            seen = seen.behind(step)
        return True
    if _is_list_of_tuples(settings.get("specific_transformers"), 2):
        pairs = ((part, seen.left(own)) for part, own in settings["specific_transformers"])
        estimator.set_params(specific_transformers=[pair for pair in pairs if len(pair[1])])
        return bool(seen.kept.any())
    return _adapt_parts(estimator, settings, seen)


def _adapt_parts(estimator: Any, settings: Mapping[str, Any], seen: Seen) -> bool:
    """Adapt the models inside a search, a calibration, a vote, a union or the like."""
    sees = []
    for name, setting in settings.items():
        if name in _ELSEWHERE:
            continue
        if is_estimator(setting):
            sees.append(_adapt(setting, seen))
        elif _is_list_of_tuples(setting, 2) and any(is_estimator(part) for _, part in setting):
            seeing = [
                (key, "drop" if is_estimator(part) and not _adapt(part, seen) else part)
                for key, part in setting
            ]
            sees.append(any(part != "drop" for _, part in seeing))
            if any(part == "drop" for _, part in seeing):
                estimator.set_params(**{name: seeing})
    return any(sees) if sees else bool(seen.kept.any())


def _adapt_column_transformer(estimator: Any, settings: Mapping[str, Any], seen: Seen) -> bool:
    triples, sees = [], []
    used = np.zeros(len(seen.names), dtype=bool)
    for name, transformer, selection in settings["transformers"]:
        left, positions, some = _cut_selection(selection, seen)
        if positions is not None:
            used[positions] = True
        if is_estimator(transformer) and positions is not None:
            some = _adapt(transformer, seen.among(positions)) and some
        # A transformer without columns is not fitted. It keeps its name, which a search may use.
        triples.append((name, transformer, left if some else []))
        sees.append(some and transformer != "drop")
    estimator.set_params(transformers=triples)
    rest, remainder = np.flatnonzero(~used), settings.get("remainder", "drop")
    if is_estimator(remainder):
        sees.append(_adapt(remainder, seen.among(rest)) and bool(seen.kept[rest].any()))
    elif remainder == "passthrough":
        sees.append(bool(seen.kept[rest].any()) or not seen.positions_known)
    return any(sees)


def _cut_selection(selection: Any, seen: Seen) -> tuple[Any, Positions | None, bool]:
    """Return the kept part of a selection, its positions on the full table, and if any is kept.

    A single name or position selects a one-dimensional column and stays single.
    """
    if callable(selection):
        positions = _chosen_by(selection, seen)
        return selection, positions, positions is None or len(positions) > 0
    left = seen.left(selection)
    positions = seen.positions(selection)
    if np.isscalar(selection) and isinstance(left, list):
        return (left[0] if left else []), positions, bool(left)
    return left, positions, not isinstance(left, list) or len(left) > 0


def _chosen_by(function: Any, seen: Seen) -> Positions | None:
    """Return the positions on the full table that a function selects; None if unknown."""
    if seen.look is None:
        return None
    try:
        chosen = function(seen.look())
    # It will fail again when the model is fitted, and that failure is counted and reported.
    except Exception:
        return None
    now = np.flatnonzero(seen.kept)
    positions = Seen(seen.names[now], seen.kept[now]).positions(chosen)
    return None if positions is None else now[positions]


def _cut_setting(name: str, setting: Any, seen: Seen) -> Any:
    """Restrict a parameter to the kept columns; return the same object if unchanged."""
    if seen.kept.all() or setting is None or callable(setting):
        return setting
    if name in _SELECTIONS and _is_listing(setting):
        return _like(setting, seen.left(list(setting)))
    if name == "cols" and isinstance(setting, str):
        return seen.left([setting])
    if name in _PER_COLUMN:
        return _cut_entries(setting, seen)
    if name in _SETS and isinstance(setting, list | tuple):
        parts = [_like(part, seen.left(list(part))) for part in setting if _is_listing(part)]
        complete = len(parts) == len(setting)
        return [part for part in parts if len(part)] or None if complete else setting
    return setting


def _cut_entries(setting: Any, seen: Seen) -> Any:
    if isinstance(setting, Mapping):
        gone = set(seen.names[~seen.kept].tolist())
        return {name: entry for name, entry in setting.items() if name not in gone}
    fits = _is_listing(setting) and len(setting) == len(seen.names) and seen.positions_known
    if not fits:
        return setting
    if isinstance(setting, np.ndarray):
        return setting[seen.kept]
    return _like(setting, [setting[position] for position in np.flatnonzero(seen.kept)])


def _like(setting: Any, entries: list[Any]) -> Any:
    return type(setting)(entries) if isinstance(setting, tuple | set | frozenset) else entries


def _is_listing(setting: Any) -> bool:
    return isinstance(setting, list | tuple | set | frozenset) or (
        isinstance(setting, np.ndarray) and setting.ndim == 1
    )


def _is_list_of_tuples(setting: Any, length: int) -> bool:
    return (
        isinstance(setting, list | tuple)
        and len(setting) > 0
        and all(isinstance(entry, tuple) and len(entry) == length for entry in setting)
    )


def _keeps_positions(step: Any) -> bool:
    """Return whether a step returns its columns one to one."""
    if not is_estimator(step) or isinstance(step, OneToOneFeatureMixin):
        return True
    if type(step).__name__ in _IMPUTERS:
        return not step.get_params(deep=False).get("add_indicator", False)
    return bool(step.get_params(deep=False).get("feature_names_out") == "one-to-one")


def clone_unfitted(model: Any) -> Any:
    """Return an unfitted copy of an estimator.

    CatBoost copies its list parameters, which makes ``clone`` fail. Such a model is deep-copied;
    fitting resets it.
    """
    try:
        return clone(model)
    except RuntimeError:
        return deepcopy(model)


def is_estimator(part: Any) -> bool:
    """Return whether a parameter is an estimator; a class is not."""
    return hasattr(part, "get_params") and not isinstance(part, type)


def set_seeds(model: Any, repeat: int) -> Any:
    """Copy a model and set every seed: None becomes ``repeat``, integers increase by it.

    Seeds of splitters inside the model are set too.
    """
    copy = clone_unfitted(model)
    settings = copy.get_params(deep=True)
    for setting in settings.values():
        if hasattr(setting, "split") and hasattr(setting, "random_state"):
            setting.random_state = _seed(setting.random_state, repeat)
    seeds = {
        name: _seed(setting, repeat)
        for name, setting in settings.items()
        if name.split("__")[-1] in _SEED_NAMES
    }
    copy.set_params(**seeds)
    for estimator in estimators_of(copy) if repeat else ():
        # Some do not list unset parameters, such as CatBoost.
        hidden = [name for name in _SEED_NAMES if name in signature(type(estimator)).parameters]
        if hidden and not set(_SEED_NAMES) & set(estimator.get_params(deep=False)):
            estimator.set_params(**{hidden[0]: repeat})
    return copy


def _seed(setting: Any, repeat: int) -> Any:
    if setting is None:
        return repeat
    if is_integer(setting):
        return setting + repeat
    if repeat and isinstance(setting, np.random.RandomState):
        return int(deepcopy(setting).randint(2**31 - 1)) + repeat
    return setting


def draws_from_torch(model: Any) -> bool:
    """Return whether a model has PyTorch parts, which no parameter seeds."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    parts = [model, *model.get_params(deep=True).values()]
    types = [part if isinstance(part, type) else type(part) for part in parts]
    modules = {sys.modules.get(base.__module__) for kind in types for base in kind.__mro__}
    # A module that builds networks imports torch, or is part of it.
    return any(
        module is torch
        or getattr(module, "torch", None) is torch
        or getattr(module, "__name__", "").startswith("torch.")
        for module in modules
    )


@contextmanager
def torch_seed(repeat: int) -> Iterator[None]:
    """Seed PyTorch's generator for a fit or a score, and restore it afterwards."""
    # The model imports torch, so it is loaded in every process that has the model.
    torch: Any = sys.modules["torch"]
    with _TORCH_TURN, torch.random.fork_rng():
        torch.manual_seed(repeat)
        yield


def weight_name(model: Any) -> str | None:
    """Return the parameter of ``fit`` for row weights; None if there is none.

    A Pipeline passes them to its last step; a search or a transformed target to the model inside.
    """
    if hasattr(model, "steps"):
        last, estimator = model.steps[-1]
        inside = None if isinstance(estimator, str) else weight_name(estimator)
        return None if inside is None else f"{last}__{inside}"
    settings = model.get_params(deep=False)
    if settings.get("estimators"):
        names = {weight_name(part) for _, part in settings["estimators"] if hasattr(part, "fit")}
        return "sample_weight" if names == {"sample_weight"} else None
    parameters = signature(model.fit).parameters
    if "sample_weight" in parameters:
        return "sample_weight"
    if not any(p.kind is Parameter.VAR_KEYWORD for p in parameters.values()):
        return None
    inside = settings.get("estimator", settings.get("regressor"))
    return weight_name(inside) if hasattr(inside, "fit") else None


def estimators_of(model: Any) -> list[Any]:
    """Return a model and all estimators inside it."""
    return [part for part in (model, *model.get_params(deep=True).values()) if is_estimator(part)]


class ConstantClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts one class, with the class shares as probabilities."""

    def __init__(self, classes: NDArray[Any], shares: Floats, prediction: Any) -> None:
        self.classes_ = classes
        self.shares = shares
        self.prediction = prediction

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the same class for every row."""
        return np.full(len(X), self.prediction)

    def predict_proba(self, X: Any) -> Floats:
        """Return the same shares for every row."""
        return np.tile(self.shares, (len(X), 1))

    def decision_function(self, X: Any) -> Floats:
        """Return shares as scores; only that of the second class if there are two."""
        shares = self.predict_proba(X)
        return shares[:, 1] if len(self.classes_) == 2 else shares


class ConstantRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts one number."""

    def __init__(self, prediction: float) -> None:
        self.prediction = prediction

    def predict(self, X: Any) -> Floats:
        """Return the same number for every row."""
        return np.full(len(X), self.prediction)


class AllClasses(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier that predicts all classes, with the user's labels.

    Parameters
    ----------
    model : fitted classifier
    classes : array of shape (n_classes,)
        All classes of the game, sorted.
    labels : array or None
        Class of each code 0, 1, ... that the model was trained on; None if it was trained on the
        user's labels.

    Notes
    -----
    Classes that the model was not trained on get probability 0 and the lowest decision value.
    """

    def __init__(self, model: Any, classes: NDArray[Any], labels: NDArray[Any] | None) -> None:
        self.model = model
        self.classes_ = classes
        self.labels = labels

    def predict(self, X: Any) -> NDArray[Any]:
        """Return predictions in the user's labels."""
        return self._name_classes(np.asarray(self.model.predict(X)))

    @available_if(lambda self: hasattr(self.model, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities, one column per class of the game."""
        known = np.asarray(self.model.predict_proba(X))
        # Keep the model's precision: scorers check by it that rows add up to 1.
        probabilities = np.zeros((len(known), len(self.classes_)), dtype=known.dtype)
        probabilities[:, self._class_positions(known.shape[1])] = known
        return probabilities

    @available_if(lambda self: hasattr(self.model, "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Return decision values, one column per class; a single one if there are two classes."""
        known = np.asarray(self.model.decision_function(X))
        if len(self.classes_) == 2:
            return known
        if known.ndim == 1:
            known = np.column_stack([-known, known])
        scores = np.repeat(known.min(axis=1, keepdims=True) - 1.0, len(self.classes_), axis=1)
        scores[:, self._class_positions(known.shape[1])] = known
        return scores

    def _name_classes(self, answers: NDArray[Any]) -> NDArray[Any]:
        # CatBoost returns multiclass predictions as a column.
        flat = answers.reshape(len(answers))
        return flat if self.labels is None else self.labels[flat.astype(np.intp)]

    def _class_positions(self, n_columns: int) -> NDArray[np.intp]:
        """Return the position among all classes of each column of the model's predictions."""
        own = self._name_classes(np.asarray(self.model.classes_))
        if n_columns == len(own):
            return np.searchsorted(self.classes_, own)
        # A network has a unit per class, seen or not: unit j is code j.
        by_code = np.arange(n_columns) if self.labels is None else self.labels
        if n_columns == len(self.classes_) and np.array_equal(by_code, self.classes_):
            return np.arange(n_columns)
        raise ValueError(
            f"the model was trained on {len(own)} of {len(self.classes_)} classes but predicts "
            f"{n_columns} columns; give labels as integers 0, 1, ..., one per column."
        )
