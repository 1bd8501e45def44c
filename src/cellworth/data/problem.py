"""Problem: table, labels, validation rows and groups, checked once."""

from __future__ import annotations

import hashlib
import warnings
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import check_cv
from sklearn.utils.multiclass import type_of_target

from cellworth.data.arguments import CrossValidation, Mask, Positions
from cellworth.data.blocks import Blocks, Groups
from cellworth.data.column import Column
from cellworth.data.equal_rows import column_sha256
from cellworth.data.io import hash_json
from cellworth.data.tables import (
    Table,
    TableLike,
    VectorLike,
    array_as_given,
    series_array,
)
from cellworth.data.text import preview, shorten

# Numbers without a fraction are read as classes up to this many different ones.
_MAX_NUMBERS_AS_CLASSES = 50
# Beyond this, floats have no fraction.
_MAX_WITH_FRACTION = 2.0**53
# Errors are squared for the score, and again for its variance: sums of fourth powers must be
# finite and above 0.
_MAX_TARGET = 1e75


@dataclass(frozen=True, eq=False)
class Fold:
    """Validation rows, and the training rows that go with them."""

    # Mask of the rows of the training table that are not validation rows of this fold.
    may_train: Mask
    table: Table
    target: NDArray[Any]
    # Positions of the validation rows in the training table; None for a validation set.
    rows: Positions | None = None


@dataclass(frozen=True, eq=False)
class GroupedFolds:
    """A splitter with the groups of rows that it keeps together."""

    cv: CrossValidation
    groups: VectorLike


@dataclass(frozen=True, eq=False)
class Problem:
    """A checked supervised learning problem, cut into blocks."""

    # Training rows.
    table: Table
    target: NDArray[Any]
    # Class labels in sorted order; None for a numeric target.
    classes: NDArray[Any] | None
    # One for a validation set, several for cross-validation, none without validation.
    folds: tuple[Fold, ...]
    blocks: Blocks
    # Name of the user's column of labels, if it has one.
    target_name: str | None = None

    @classmethod
    def from_data(
        cls,
        X: TableLike,
        y: VectorLike | None,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        *,
        classification: bool | None,
        row_groups: Groups = None,
        column_groups: Groups = None,
        cv: CrossValidation | GroupedFolds = 5,
        allow_one_class: bool = False,
        with_validation: bool = True,
    ) -> Problem:
        """Check the arguments of ``fit`` and create the problem.

        If ``classification`` is None, the labels decide, as in :func:`read_target`.
        ``allow_one_class`` allows validation rows of one class. Without ``with_validation`` there
        are no folds.
        """
        if (X_val is None) != (y_val is None):
            given, missing = ("y_val", "X_val") if X_val is None else ("X_val", "y_val")
            raise ValueError(
                f"{given} needs {missing}; pass both, or neither for cross-validation."
            )
        if X_val is not None and isinstance(cv, GroupedFolds):
            raise ValueError(
                "groups must be None if X_val is given; groups are for cross-validation only."
            )
        table = Table.from_data(X, called="X")
        held_out = None if X_val is None else table.align(X_val, called="X_val")
        target = _check_target(y, table, "y", "X")
        if classification is None:
            classification = not _is_measured(target)
        target = target if classification else _read_measurable(target, "y")
        _check_order(row_groups, table, "row_groups", "X")
        classes = _find_classes(target, "y") if classification else None
        folds: tuple[Fold, ...] = ()
        if held_out is not None:
            labels = _check_held_out(y_val, held_out, classes, 1 if allow_one_class else 2)
            folds = (Fold(np.ones(len(target), dtype=bool), held_out, labels),)
        elif with_validation:
            folds = _make_folds(table, target, classes, cv)
        blocks = Blocks.cut(
            table.row_ids, table.names, row_groups=row_groups, column_groups=column_groups
        )
        name = getattr(y, "name", None)
        return cls(table, target, classes, folds, blocks, name if isinstance(name, str) else None)

    @property
    def held_out(self) -> Table | None:
        """Validation rows that are not rows of the table; None for cross-validation."""
        return self.folds[0].table if self.folds and self.folds[0].rows is None else None

    def problem_spec(self) -> dict[str, Any]:
        """Return the hashes of the data, the folds and the blocks."""
        how = "none" if not self.folds else "held out"
        how = f"{len(self.folds)} folds" if len(self.folds) > 1 else how
        validation = hashlib.sha256()
        for fold in self.folds:
            # The hash of held-out rows does not depend on the training table.
            if not fold.may_train.all():
                validation.update(np.packbits(fold.may_train).tobytes())
            validation.update(fold.table.sha256().encode() + column_sha256(fold.target))
        blocks = hashlib.sha256()
        for axis in (self.blocks.rows, self.blocks.columns):
            blocks.update(axis.codes.astype("<i8").tobytes())
        return {
            "data_sha256": {
                "X": self.table.sha256(),
                "y": column_sha256(self.target).hex(),
                "validation": validation.hexdigest(),
                "blocks": blocks.hexdigest(),
            },
            "validation": how,
        }

    def types(self) -> dict[str, Any]:
        """Return the types of the columns, which the hashes leave out."""
        validation = hash_json([fold.table.types for fold in self.folds])
        return {"X": self.table.types, "validation": validation}


def read_target(y: VectorLike, table: Table) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return the labels of a table's rows and their classes; None for a numeric target.

    Numbers with a fraction, or more than 50 distinct numbers, are a numeric target. One class is
    enough here, because no model is scored.
    """
    target = _check_target(y, table, "y", "X")
    if _is_measured(target):
        return _read_numbers(target, "y"), None
    return target, _find_classes(target, "y", least=1)


def read_changed_labels(
    y: VectorLike, problem: Problem, called: str
) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return other labels of the training rows, of their type, and a mask of rows that have one."""
    table, target, classes = problem.table, problem.target.copy(), problem.classes
    array = _read_entries(y, table, called, "X")
    known = ~Column(called, array).missing
    if not known.any():
        raise ValueError(f"{called} must have a label for some rows, got none.")
    if classes is None:
        target[known] = _read_measurable(array[known], called)
        return target, known
    seen = set(classes.tolist())
    odd = [label for label in array[known].tolist() if label not in seen]
    if odd:
        raise ValueError(f"{called} must have classes of y ({preview(classes)}), got {odd[0]!r}.")
    target[known] = array[known]
    return target, known


def check_weights(sample_weight: VectorLike, table: Table) -> NDArray[np.float64]:
    """Return one weight per training row: finite, none below 0, not all 0."""
    called = "sample_weight"
    array = _read_entries(sample_weight, table, called, "X")
    weights = _read_numbers(array, called, "one number per row")
    if len(wrong := np.flatnonzero(weights < 0)):
        raise ValueError(
            f"sample_weight must be at least 0, got {array.tolist()[wrong[0]]} at position "
            f"{wrong[0]}."
        )
    if not weights.any():
        raise ValueError("sample_weight must be above 0 for some row, got zero for every row.")
    return weights


def _check_held_out(
    y_val: Any, table: Table, classes: NDArray[Any] | None, least_classes: int
) -> NDArray[Any]:
    """Return the labels of held-out rows; they must be classes or numbers as in y."""
    target = _check_target(y_val, table, "y_val", "X_val")
    if classes is None:
        target = _read_measurable(target, "y_val")
    else:
        seen = _find_classes(target, "y_val", least_classes)
        unknown = [label for label in seen.tolist() if label not in classes.tolist()]
        if unknown:
            advice = "Spell labels alike or drop rows."
            if classes.dtype.kind in "iuf":
                advice += " Is this a numeric target? Use a regressor; KNNValuer takes scoring="
                advice += "'neg_mean_squared_error'."
            raise ValueError(
                f"y_val must have classes of y ({preview(classes)}), got {unknown[0]!r}. {advice}"
            )
    return target


def _is_measured(target: NDArray[Any]) -> bool:
    """Return whether labels are a numeric target rather than classes."""
    if Column("y", target).kind != "number":
        return False
    # Of integers and floats as Python objects, NumPy makes an array of numbers.
    listed = target.tolist()
    numbers = np.asarray(listed)
    is_large = numbers.dtype.kind == "f" and bool((np.abs(numbers) > _MAX_WITH_FRACTION).any())
    return is_large or len(set(listed)) > _MAX_NUMBERS_AS_CLASSES or bool((numbers % 1).any())


def _make_folds(
    table: Table, target: NDArray[Any], classes: NDArray[Any] | None, cv: Any
) -> tuple[Fold, ...]:
    n_rows = len(target)
    cv, groups = (cv.cv, cv.groups) if isinstance(cv, GroupedFolds) else (cv, None)
    if groups is not None:
        groups = _read_entries(groups, table, "groups", "X")
    try:
        splitter = check_cv(cv, target, classifier=classes is not None)
        with warnings.catch_warnings():
            # A class of fewer rows than folds is no mistake; dirty labels have many.
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            parts = list(splitter.split(np.zeros((n_rows, 1)), target, groups))
    except ValueError as error:
        raise ValueError(
            f"cv={cv!r} cannot split X with n_samples={n_rows} rows ({error}); "
            "give another cv, groups to keep together, or X_val and y_val."
        ) from error
    splits = [tuple(_read_positions(side, n_rows) for side in split) for split in parts]
    if not splits or any(
        len(val) == 0 or len(train) == 0 or np.isin(val, train).any() for train, val in splits
    ):
        raise ValueError(
            f"cv={cv!r} must give at least one fold, each with separate training and validation "
            f"rows and none empty ({len(splits)} folds came); give an integer, a splitter or "
            "separate positions."
        )
    return tuple(
        Fold(np.isin(np.arange(n_rows), train), table.keep(val), target[val], val)
        for train, val in splits
    )


def _read_positions(side: Any, n_rows: int) -> Positions:
    array = np.asarray(side)
    positions = np.flatnonzero(array) if array.dtype.kind == "b" else array.astype(np.intp)
    if len(positions) and not (positions.min() >= 0 and positions.max() < n_rows):
        raise ValueError(
            f"cv must give positions from 0 to {n_rows - 1}, got {positions.min()} to "
            f"{positions.max()}."
        )
    return positions


def _check_target(y: Any, table: Table, called: str, of: str) -> NDArray[Any]:
    if y is None:
        raise ValueError(
            f"What is asked for requires y to be passed, but the target {called} is None; give one "
            f"label per row of {of}."
        )
    array = _read_entries(y, table, called, of)
    missing = np.flatnonzero(Column(called, array).missing)
    if len(missing):
        raise ValueError(
            f"{called} must have a label for every row, got NaN or None at position {missing[0]} "
            f"({len(missing)} in all); drop the rows without a label."
        )
    return array


def _read_entries(column: Any, table: Table, called: str, of: str) -> NDArray[Any]:
    """Return one entry per row of a table; check their number and order."""
    _check_order(column, table, called, of)
    array = _read_one_dimensional(column, called)
    if len(array) != len(table.row_ids):
        raise ValueError(
            f"{called} must have one entry for each of {len(table.row_ids)} rows of {of}, got "
            f"{len(array)}."
        )
    return array


def _check_order(column: Any, table: Table, called: str, of: str) -> None:
    """Check that a pandas Series does not have the table's row ids in another order."""
    # Rows are matched by position, as in scikit-learn.
    labels = nw.from_native(column, allow_series=True, pass_through=True)
    if not isinstance(labels, nw.Series | nw.DataFrame) or isinstance(table.data, np.ndarray):
        return
    own, ids = nw.maybe_get_index(labels), nw.maybe_get_index(table.data)
    if own is None or ids is None or own.equals(ids):
        return
    if len(own) == len(ids) and set(own) == set(ids):
        raise ValueError(
            f"{called} must have the row ids of {of} in the same order, got another order; to "
            f"match by id pass {called}.loc[{of}.index], to match by position {called}.to_numpy()."
        )


def _read_one_dimensional(y: Any, called: str) -> NDArray[Any]:
    if isinstance(y, str):
        table = called.replace("y", "X", 1)
        raise TypeError(
            f"{called} must have one entry per row, got the string {y!r}; if this is a column of "
            f"{table}, pass {called}={table}.pop({y!r})."
        )
    if np.ma.isMaskedArray(y):
        raise TypeError(f"{called} must not be a masked array; drop the rows with masked labels.")
    series = nw.from_native(y, allow_series=True, series_only=True, pass_through=True)
    array = series_array(series) if isinstance(series, nw.Series) else array_as_given(y)
    if array.ndim == 2 and array.shape[1] == 1:
        warnings.warn(
            f"A column-vector y was passed when a 1d array was expected: {called} is read as its "
            "only column.",
            DataConversionWarning,
            stacklevel=2,
        )
        array = array[:, 0]
    if array.ndim != 1:
        raise ValueError(
            f"{called} must be a one-dimensional array of one label per row, got shape "
            f"{array.shape}."
        )
    # Of labels as objects, the first tells: all must be of one type.
    if any(map(np.iscomplexobj, array[:1])):
        raise ValueError(f"Complex data not supported: {called} holds complex numbers.")
    if array.dtype.kind == "O" and all(isinstance(label, str) for label in array.tolist()):
        return np.array(array.tolist())
    return array


def _read_numbers(
    array: NDArray[Any], called: str, needed: str = "numbers for a regressor or regression scoring"
) -> NDArray[np.float64]:
    try:
        numbers: NDArray[np.float64] = array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{called} must hold {needed}, got another type ({error}); give numbers, or use a "
            "classifier."
        ) from error
    if len(wrong := np.flatnonzero(~np.isfinite(numbers))):
        raise ValueError(
            f"{called} must be finite, got {numbers[wrong[0]]} at position {wrong[0]}."
        )
    return numbers


def _read_measurable(array: NDArray[Any], called: str) -> NDArray[np.float64]:
    """Return numeric targets; check that their squared errors and the variance are finite."""
    numbers = _read_numbers(array, called)
    largest, smallest = float(np.abs(numbers).max()), 1 / _MAX_TARGET
    # Halves, because the difference of the largest floats is infinite.
    reach = 2 * (float(numbers.max()) / 2 - float(numbers.min()) / 2)
    if largest > _MAX_TARGET or 0 < reach < smallest:
        came = f"{largest:.1e}" if reach > smallest else f"targets {reach:.1e} apart"
        raise ValueError(
            f"{called} must be between {smallest:.0e} and {_MAX_TARGET:.0e} in size, got "
            f"{came}: squared errors would be infinite or 0; use another unit, or logarithms."
        )
    return numbers


def _find_classes(target: NDArray[Any], called: str, least: int = 2) -> NDArray[Any]:
    types = {type(label).__name__ for label in target.tolist()}
    if len(types) > 1 or "ndarray" in types:
        raise TypeError(
            f"{called} must have labels of one type, got {' and '.join(sorted(types))}."
        )
    if type_of_target(target, input_name=called).startswith("continuous"):
        raise ValueError(
            f"Unknown label type: continuous. {called} holds numbers such as {target.tolist()[0]}, "
            "but classes are needed; use a regressor, leave scoring out, or give class labels."
        )
    classes = np.unique(target)
    if len(classes) < least:
        raise ValueError(
            f"{called} must have at least two classes for a classifier, got one class "
            f"({shorten(repr(classes.tolist()[0]))}), n_samples={len(target)}."
        )
    return classes


def target_groups(target: NDArray[np.float64], n_groups: int = 5) -> NDArray[np.intp]:
    """Return groups of rows with similar targets, of about equal size."""
    edges = np.quantile(target, np.arange(1, n_groups) / n_groups, method="inverted_cdf")
    return np.searchsorted(np.unique(edges), target, side="left")
