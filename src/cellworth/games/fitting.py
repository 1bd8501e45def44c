"""Fitting a model: pipelines cut to some columns, seeds, weights, and constant predictors."""

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
# Parameters that hold sets of columns which may act together.
_SETS = ("interaction_cst", "interaction_constraints")
# Parameters whose estimators see something other than the table: targets, predictions.
_ELSEWHERE = ("transformer", "final_estimator")
_IMPUTERS = ("SimpleImputer", "KNNImputer", "IterativeImputer")
_SEED_NAMES = ("random_state", "random_seed", "seed")
# PyTorch has one generator for the whole process: fits that draw from it take turns.
_TORCH_TURN = threading.Lock()


def for_columns(
    model: Any, names: NDArray[Any], kept: Mask, look: Callable[[], Any] | None = None
) -> Any | None:
    """Copy an unfitted model for a table that keeps some of its columns.

    Every place where the model names columns keeps those that are left: column transformers,
    wherever they stand inside the model; lists of categorical columns; entries per column such as
    the categories of an encoder. Positions become those among the columns that are left. Functions
    that choose columns stay: they see what is there.

    Parameters
    ----------
    model : estimator
        Stays as it is.
    names : array of shape (n_columns,)
        Columns of the whole table.
    kept : array of shape (n_columns,)
        True for the columns that are left.
    look : callable, default=None
        Returns a table of the columns that are left, to be shown to functions that choose columns.

    Returns
    -------
    estimator or None
        None where the model would see no column at all.
    """
    copy = fresh(model)
    return copy if kept.all() or _adapt(copy, Seen(names, kept, look)) else None


@dataclass(frozen=True, eq=False)
class Seen:
    """Columns that a part of a model sees on the whole table, and those that are left.

    Parameters
    ----------
    names : array of shape (n_columns,)
    kept : array of shape (n_columns,)
    look : callable or None
        Returns the table of what is left, where it is known.
    in_place : bool, default=True
        Whether columns stand where ``names`` says. Behind a step that may add or drop columns
        they do not: then only names are trusted.
    """

    names: NDArray[Any]
    kept: Mask
    look: Callable[[], Any] | None = None
    in_place: bool = True

    def among(self, positions: Positions) -> Seen:
        """What a part sees that gets these columns only."""
        return Seen(self.names[positions], self.kept[positions], None, self.in_place)

    def behind(self, step: Any) -> Seen:
        """What the next step of a pipeline sees."""
        return Seen(self.names, self.kept, None, self.in_place and _keeps_places(step))

    def positions(self, selection: Any) -> Positions | None:
        """Positions on the whole table that a selection means; None where it cannot be told."""
        if isinstance(selection, slice):
            return self._slice_places(selection)
        chosen = np.atleast_1d(np.asarray(selection))
        if chosen.dtype.kind in "biu":
            return self._numbered(chosen)
        where = {name: position for position, name in enumerate(self.names.tolist())}
        found = [where.get(name) for name in chosen.tolist()]
        return None if None in found else np.array(found, dtype=np.intp)

    def left(self, selection: Any) -> Any:
        """Return the part of a selection that is left, by name where names were given."""
        if isinstance(selection, slice) or not _by_name(selection):
            positions = self.positions(selection)
            return (
                selection
                if positions is None
                else self._now(positions[self.kept[positions]]).tolist()
            )
        gone = set(self.names[~self.kept].tolist())
        return [name for name in _entries(selection) if name not in gone]

    def _numbered(self, chosen: Any) -> Positions | None:
        try:
            return np.arange(len(self.names))[chosen] if self.in_place else None
        # The model says best itself what is wrong with its columns.
        except IndexError:
            return None

    def _now(self, positions: Positions) -> Positions:
        return (np.cumsum(self.kept) - 1)[positions]

    def _slice_places(self, selection: slice) -> Positions | None:
        ends = [end for end in (selection.start, selection.stop) if end is not None]
        if not any(isinstance(end, str) for end in ends):
            return self._numbered(selection)
        listed = self.names.tolist()
        if not self.in_place or not set(ends) <= set(listed):
            return None
        # Names bound a slice on both sides, as in pandas.
        start = None if selection.start is None else listed.index(selection.start)
        stop = None if selection.stop is None else listed.index(selection.stop) + 1
        return np.arange(len(listed))[start : stop : selection.step]


def _adapt(estimator: Any, seen: Seen) -> bool:
    """Adapt an estimator in place, with all its parts; tell whether it sees any column."""
    settings = estimator.get_params(deep=False)
    for name, setting in settings.items():
        changed = _cut_setting(name, setting, seen)
        if changed is not setting:
            estimator.set_params(**{name: changed})
    if _is_list_of_tuples(settings.get("transformers"), 3):
        return _adapt_column_transformer(estimator, settings, seen)
    if _is_list_of_tuples(settings.get("steps"), 2):
        return _adapt_steps(settings["steps"], seen)
    if _is_list_of_tuples(settings.get("specific_transformers"), 2):
        _adapt_table_vectorizer(estimator, settings, seen)
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
            seeing = [(key, _or_drop(part, seen)) for key, part in setting]
            sees.append(any(part != "drop" for _, part in seeing))
            if any(part == "drop" for _, part in seeing):
                estimator.set_params(**{name: seeing})
    return any(sees) if sees else bool(seen.kept.any())


def _or_drop(part: Any, seen: Seen) -> Any:
    return "drop" if is_estimator(part) and not _adapt(part, seen) else part


def _adapt_steps(steps: list[tuple[str, Any]], seen: Seen) -> bool:
    for _, step in steps:
        if is_estimator(step) and not _adapt(step, seen):
            return False
        seen = seen.behind(step)
    return True


def _adapt_column_transformer(estimator: Any, settings: Mapping[str, Any], seen: Seen) -> bool:
    triples, sees = [], []
    used = np.zeros(len(seen.names), dtype=bool)
    for name, transformer, selection in settings["transformers"]:
        left, positions, some = _selected(selection, seen)
        if positions is not None:
            used[positions] = True
        if is_estimator(transformer) and positions is not None:
            some = _adapt(transformer, seen.among(positions)) and some
        # A transformer without columns is not fitted. It keeps its name, which a search may know.
        triples.append((name, transformer, left if some else []))
        sees.append(some and transformer != "drop")
    estimator.set_params(transformers=triples)
    rest, remainder = np.flatnonzero(~used), settings.get("remainder", "drop")
    if is_estimator(remainder):
        sees.append(_adapt(remainder, seen.among(rest)) and bool(seen.kept[rest].any()))
    elif remainder == "passthrough":
        sees.append(bool(seen.kept[rest].any()) or not seen.in_place)
    return any(sees)


def _selected(selection: Any, seen: Seen) -> tuple[Any, Positions | None, bool]:
    """What is left of a selection, the positions it meant on the whole table, whether any is left.

    A single name or position asks for a one-dimensional column and stays single.
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
    """Positions on the whole table that a function chooses of what is left; None if unknown."""
    if seen.look is None:
        return None
    try:
        chosen = function(seen.look())
    # It will fail again when the model is fitted, and that failure is counted and shown.
    except Exception:
        return None
    now = np.flatnonzero(seen.kept)
    positions = Seen(seen.names[now], seen.kept[now]).positions(chosen)
    return None if positions is None else now[positions]


def _adapt_table_vectorizer(estimator: Any, settings: Mapping[str, Any], seen: Seen) -> None:
    pairs = []
    for transformer, selection in settings["specific_transformers"]:
        left = seen.left(selection)
        if len(left):
            pairs.append((transformer, left))
    estimator.set_params(specific_transformers=pairs)


def _cut_setting(name: str, setting: Any, seen: Seen) -> Any:
    """Return a parameter as it is for the columns that are left; the same object if unchanged."""
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
        whole = len(parts) == len(setting)
        return [part for part in parts if len(part)] or None if whole else setting
    return setting


def _cut_entries(setting: Any, seen: Seen) -> Any:
    if isinstance(setting, Mapping):
        gone = set(seen.names[~seen.kept].tolist())
        return {name: entry for name, entry in setting.items() if name not in gone}
    fits = _is_listing(setting) and len(setting) == len(seen.names) and seen.in_place
    if not fits:
        return setting
    if isinstance(setting, np.ndarray):
        return setting[seen.kept]
    return _like(setting, [setting[position] for position in np.flatnonzero(seen.kept)])


def _like(setting: Any, entries: list[Any]) -> Any:
    return type(setting)(entries) if isinstance(setting, tuple | set | frozenset) else entries


def _by_name(selection: Any) -> bool:
    entries = _entries(selection)
    return bool(entries) and all(isinstance(entry, str) for entry in entries)


def _entries(selection: Any) -> list[Any]:
    entries: list[Any] = np.atleast_1d(np.asarray(selection, dtype=object)).tolist()
    return entries


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


def _keeps_places(step: Any) -> bool:
    """Tell whether a step hands on the columns that it gets, one for one."""
    if not is_estimator(step) or isinstance(step, OneToOneFeatureMixin):
        return True
    if type(step).__name__ in _IMPUTERS:
        return not step.get_params(deep=False).get("add_indicator", False)
    return bool(step.get_params(deep=False).get("feature_names_out") == "one-to-one")


def fresh(model: Any) -> Any:
    """Copy an estimator without what it has learned.

    CatBoost keeps copies of lists that it is given, which ``clone`` takes for a fault; such a
    model is copied with all that it holds, and forgets it when it is fitted.
    """
    try:
        return clone(model)
    except RuntimeError:
        return deepcopy(model)


def is_estimator(part: Any) -> bool:
    """Tell an estimator from any other parameter, classes of estimators included."""
    return hasattr(part, "get_params") and not isinstance(part, type)


def seeded(model: Any, repeat: int) -> Any:
    """Copy a model and close every seed: open ones become ``repeat``, whole numbers move by it.

    Splitters inside the model count too.
    """
    copy = fresh(model)
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
    if repeat:
        for estimator in estimators_of(copy):
            _set_hidden_seed(estimator, repeat)
    return copy


def _seed(setting: Any, repeat: int) -> Any:
    if setting is None:
        return repeat
    if is_integer(setting):
        return setting + repeat
    if repeat and isinstance(setting, np.random.RandomState):
        return int(deepcopy(setting).randint(2**31 - 1)) + repeat
    return setting


def _set_hidden_seed(estimator: Any, repeat: int) -> None:
    """Seed an estimator that keeps quiet about parameters left open, as CatBoost does."""
    known = estimator.get_params(deep=False)
    possible = signature(type(estimator)).parameters
    hidden = [name for name in _SEED_NAMES if name in possible]
    if hidden and not any(name in known for name in _SEED_NAMES):
        estimator.set_params(**{hidden[0]: repeat})


def draws_from_torch(model: Any) -> bool:
    """Tell whether a model has PyTorch parts, whose random numbers no parameter seeds."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    parts = [model, *model.get_params(deep=True).values()]
    kinds = [part if isinstance(part, type) else type(part) for part in parts]
    modules = {sys.modules.get(base.__module__) for kind in kinds for base in kind.__mro__}
    # Whoever builds networks has torch among its names, or is a part of it.
    return any(
        module is torch
        or getattr(module, "torch", None) is torch
        or getattr(module, "__name__", "").startswith("torch.")
        for module in modules
    )


@contextmanager
def torch_seed(repeat: int) -> Iterator[None]:
    """Seed PyTorch's generator for a fit or a score, one at a time; put it back afterwards."""
    # The model brought it along: it is loaded here, and in every process that the model is sent to.
    torch: Any = sys.modules["torch"]
    with _TORCH_TURN, torch.random.fork_rng():
        torch.manual_seed(repeat)
        yield


def weight_name(model: Any) -> str | None:
    """Name under which ``fit`` takes the weights of rows; None where it takes none.

    A Pipeline hands them to its last step; a search or a transformed target to the model inside.
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
    """List a model and all estimators inside it."""
    return [part for part in (model, *model.get_params(deep=True).values()) if is_estimator(part)]


class ConstantClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts one class, with the class shares as probabilities."""

    def __init__(self, classes: NDArray[Any], shares: Floats, prediction: Any) -> None:
        self.classes_ = classes
        self.shares = shares
        self.prediction = prediction

    def predict(self, X: Any) -> NDArray[Any]:
        """The same class for every row."""
        return np.full(len(X), self.prediction)

    def predict_proba(self, X: Any) -> Floats:
        """The same shares for every row."""
        return np.tile(self.shares, (len(X), 1))

    def decision_function(self, X: Any) -> Floats:
        """Shares as scores; that of the second class where there are two."""
        shares = self.predict_proba(X)
        return shares[:, 1] if len(self.classes_) == 2 else shares


class ConstantRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predicts one number."""

    def __init__(self, prediction: float) -> None:
        self.prediction = prediction

    def predict(self, X: Any) -> Floats:
        """The same number for every row."""
        return np.full(len(X), self.prediction)


class AllClasses(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted classifier that answers for all classes, under the names that the user gave.

    Parameters
    ----------
    model : fitted classifier
    classes : array of shape (n_classes,)
        All classes of the game, sorted.
    labels : array or None
        The class behind each code 0, 1, ... that the model was trained on; None where it was
        trained on the user's labels.

    Notes
    -----
    Classes that the model never saw get probability 0, and a decision below all others.
    """

    def __init__(self, model: Any, classes: NDArray[Any], labels: NDArray[Any] | None) -> None:
        self.model = model
        self.classes_ = classes
        self.labels = labels

    def predict(self, X: Any) -> NDArray[Any]:
        """Classes as the user calls them."""
        return self._named(np.asarray(self.model.predict(X)))

    @available_if(lambda self: hasattr(self.model, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> Floats:
        """Probabilities, one column per class of the game."""
        known = np.asarray(self.model.predict_proba(X))
        # In the model's precision: a scorer checks that rows add up to one by it.
        probabilities = np.zeros((len(known), len(self.classes_)), dtype=known.dtype)
        probabilities[:, self._places(known.shape[1])] = known
        return probabilities

    @available_if(lambda self: hasattr(self.model, "decision_function"))  # type: ignore[untyped-decorator]
    def decision_function(self, X: Any) -> Floats:
        """Scores, one column per class of the game; one column in all where there are two."""
        known = np.asarray(self.model.decision_function(X))
        if len(self.classes_) == 2:
            return known
        if known.ndim == 1:
            known = np.column_stack([-known, known])
        scores = np.repeat(known.min(axis=1, keepdims=True) - 1.0, len(self.classes_), axis=1)
        scores[:, self._places(known.shape[1])] = known
        return scores

    def _named(self, answers: NDArray[Any]) -> NDArray[Any]:
        # CatBoost gives several classes as a column.
        flat = answers.reshape(len(answers))
        return flat if self.labels is None else self.labels[flat.astype(np.intp)]

    def _places(self, n_columns: int) -> NDArray[np.intp]:
        """Where among all classes the columns of the model's answers belong."""
        own = self._named(np.asarray(self.model.classes_))
        if n_columns == len(own):
            return np.searchsorted(self.classes_, own)
        # A network has a unit per class, whether or not it met the class: unit j stands for code j.
        by_code = np.arange(n_columns) if self.labels is None else self.labels
        if n_columns == len(self.classes_) and np.array_equal(by_code, self.classes_):
            return np.arange(n_columns)
        raise ValueError(
            f"the model met {len(own)} of {len(self.classes_)} classes but answers with "
            f"{n_columns} columns; give labels as whole numbers 0, 1, ..., one per column."
        )
