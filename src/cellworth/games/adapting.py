"""Models that name columns, made to fit a table that has lost some of its columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import OneToOneFeatureMixin

from cellworth.counts import Mask, Positions
from cellworth.games.copying import fresh, is_estimator

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

    def among(self, places: Positions) -> Seen:
        """What a part sees that gets these columns only."""
        return Seen(self.names[places], self.kept[places], None, self.in_place)

    def behind(self, step: Any) -> Seen:
        """What the next step of a pipeline sees."""
        return Seen(self.names, self.kept, None, self.in_place and _keeps_places(step))

    def places(self, selection: Any) -> Positions | None:
        """Positions on the whole table that a selection means; None where it cannot be told."""
        if isinstance(selection, slice):
            return self._slice_places(selection)
        chosen = np.atleast_1d(np.asarray(selection))
        if chosen.dtype.kind in "biu":
            return self._numbered(chosen)
        where = {name: place for place, name in enumerate(self.names.tolist())}
        found = [where.get(name) for name in chosen.tolist()]
        return None if None in found else np.array(found, dtype=np.intp)

    def left(self, selection: Any) -> Any:
        """Return the part of a selection that is left, by name where names were given."""
        if isinstance(selection, slice) or not _by_name(selection):
            places = self.places(selection)
            return selection if places is None else self._now(places[self.kept[places]]).tolist()
        gone = set(self.names[~self.kept].tolist())
        return [name for name in _entries(selection) if name not in gone]

    def _numbered(self, chosen: Any) -> Positions | None:
        try:
            return np.arange(len(self.names))[chosen] if self.in_place else None
        # The model says best itself what is wrong with its columns.
        except IndexError:
            return None

    def _now(self, places: Positions) -> Positions:
        return (np.cumsum(self.kept) - 1)[places]

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
        left, places, some = _selected(selection, seen)
        if places is not None:
            used[places] = True
        if is_estimator(transformer) and places is not None:
            some = _adapt(transformer, seen.among(places)) and some
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
        places = _chosen_by(selection, seen)
        return selection, places, places is None or len(places) > 0
    left = seen.left(selection)
    places = seen.places(selection)
    if np.isscalar(selection) and isinstance(left, list):
        return (left[0] if left else []), places, bool(left)
    return left, places, not isinstance(left, list) or len(left) > 0


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
    places = Seen(seen.names[now], seen.kept[now]).places(chosen)
    return None if places is None else now[places]


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
    return _like(setting, [setting[place] for place in np.flatnonzero(seen.kept)])


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
