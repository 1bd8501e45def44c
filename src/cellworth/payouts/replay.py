"""verify_bundle: replay a saved payout and report the first difference."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.data.blocks import LABEL
from cellworth.data.holdings import Holdings
from cellworth.data.io import local_path
from cellworth.data.owners import Owners, are_players
from cellworth.data.problem import Problem
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import Table
from cellworth.data.views import heading, view
from cellworth.payouts.agreement import Agreement, AnyValuer
from cellworth.payouts.allocation import OwnerValues, allocate, compute_owner_errors
from cellworth.payouts.bundle import (
    AGREEMENT,
    MANIFEST,
    PAYOUT,
    DifferenceError,
    check_equal,
    compare_files,
    compare_sharded_data,
    compute_digest,
    open_values,
    read_json,
    read_time,
    restore_sharded_owners,
    round_trip_json,
    serialize_allocation,
    serialize_provenance,
)
from cellworth.payouts.facts import list_facts
from cellworth.payouts.owner_players import read_players, restore_players
from cellworth.payouts.policy import (
    Policy,
    check_carried,
    check_labels_valued,
    join_names,
    parse_money,
    shorten,
)
from cellworth.runtime.run_settings import Runtime
from cellworth.valuation.valuation import RowChunk, Valuation

# Another processor may sum in another order.
_CLOSE = 1e-9
_CLOSE_ERROR = 1e-6
# Figures of a payout that do not follow from others.
_NOT_REPLAYED = ("agreement_sha256", "facts", "previous", "time")
# Arguments of fit, except owners.
_SHARDED = {
    "X", "X_val", "y_val", "column_groups", "column_types", "value_labels", "n_validation"
}  # fmt: skip
_FIT_ARGUMENTS = _SHARDED | {"y", "cv", "groups", "row_groups", "sample_weight"}
_HASHED = {"X", "y", "X_val", "y_val", "row_groups", "column_groups"}


@dataclass(frozen=True)
class Verdict:
    """Result of verifying a bundle; true if nothing differs.

    Parameters
    ----------
    checked : tuple of str
        What was checked: "files", "split", "agreement", "months before", "data", "values".
    difference : str or None
        The first difference, as a sentence.
    left : tuple of str
        What could not be checked, as clauses.

    See Also
    --------
    verify_bundle

    Examples
    --------
    >>> from cellworth.payouts import Verdict
    >>> Verdict(("files", "split"), left=("values were not recomputed",))
    yes: files, split agree; values were not recomputed
    >>> verdict = Verdict(("files",), "ann should get 75.00 EUR, but the bundle has 95.00.")
    >>> print("pay" if verdict else verdict.difference)
    ann should get 75.00 EUR, but the bundle has 95.00.
    """

    checked: tuple[str, ...]
    difference: str | None = None
    left: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.difference is None

    def __repr__(self) -> str:
        if self.difference is not None:
            return f"no: {self.difference}"
        return "; ".join([f"yes: {', '.join(self.checked)} agree", *self.left])

    def _repr_html_(self) -> str:
        """Show the verdict in Jupyter."""
        return view(heading(repr(self)))


def verify_bundle(
    folder: str | os.PathLike[str],
    *,
    data: Mapping[str, Any] | None = None,
    valuer: AnyValuer | None = None,
    digest: str | None = None,
    agreement: str | os.PathLike[str] | None = None,
) -> Verdict:
    """Replay a bundle and check that its results follow from its content.

    If it names a bundle before it, which is in the same folder, that one is checked as well, and so
    on to the first: each must start from the shortfalls that the one before carried over, be of a
    later time, and be made under the same agreement or an amendment of it. Two bundles that
    continue the same one are a difference.

    Parameters
    ----------
    folder : path
        The folder that ``payout.save`` wrote.
    data : mapping, default=None
        The arguments of ``fit``: ``{"X": X, "y": y, "X_val": X_val, "y_val": y_val}``, without y
        for a ShardedTable; X has the columns that the agreement uses as source or keys. Hashes are
        compared, and facts are listed again.
    valuer : Valuer, default=None
        An unfitted valuer with the same settings. All values are recomputed from the data and
        compared; those of a ShardedTable some rows at a time.
    digest : str, default=None
        What ``payout.save`` returned. It also reveals a consistent change of several files.
    agreement : path, default=None
        An owner's copy of the agreement, which must equal the one in the bundle.

    Returns
    -------
    Verdict
        True if nothing differs; else ``difference`` describes the first difference.

    See Also
    --------
    Payout

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import OwnerValuer, split_revenue, verify_bundle
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> data, valuer = {"X": X, "y": y, "X_val": X_val, "y_val": y}, OwnerValuer(KNNValuer(1))
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = valuer.fit(**data, owners=owners).valuation_
    >>> payout = split_revenue(valuation, owners, amount="100.00")
    >>> folder = Path(tempfile.mkdtemp()) / "bundle"
    >>> digest = payout.save(folder)
    >>> verify_bundle(folder, data=data, valuer=valuer, digest=digest)
    yes: files, split, data, values agree
    >>> text = (folder / "payout.json").read_text()
    >>> _ = (folder / "payout.json").write_text(text.replace("62.50", "95.00"))
    >>> verify_bundle(folder)
    no: payout.json is not the file that was saved (its sha256 differs).
    """
    path = local_path(folder, "folder")
    if data is not None:
        _check_data(data)
    if valuer is not None and data is None:
        raise ValueError("a valuer needs data; pass data={'X': X, 'y': y, ...} as well.")
    if valuer is not None and (isinstance(valuer, type) or not hasattr(valuer, "fit")):
        raise TypeError(
            f"valuer must be an unfitted valuer with the same settings as then, got {valuer!r}."
        )
    if not (path / MANIFEST).is_file() and not (path / PAYOUT).is_file():
        raise FileNotFoundError(
            f"folder must hold a bundle, but {path} has no {MANIFEST}; give a folder that "
            "payout.save wrote."
        )
    own = None if agreement is None else _read_agreement(agreement)
    checked: list[str] = []
    left: list[str] = [] if valuer is not None else ["values were not recomputed"]
    try:
        for step, found in _iter_steps(path, data, valuer, digest, own):
            (checked if found else left).append(step)
    except DifferenceError as difference:
        return Verdict(tuple(checked), str(difference))
    return Verdict(tuple(checked), left=tuple(left))


def _read_agreement(agreement: Any) -> bytes:
    path = local_path(agreement, "agreement")
    if not path.is_file():
        raise FileNotFoundError(
            f"agreement must be a file, got {shorten(repr(agreement))}; pass the path of your copy."
        )
    return path.read_bytes()


def _check_data(data: Any) -> None:
    if not isinstance(data, Mapping):
        raise TypeError(
            f"data must be a mapping, got {type(data).__name__}; pass {{'X': X, 'y': y, ...}}."
        )
    came = ", ".join(map(str, data)) or "nothing"
    if isinstance(data.get("X"), ShardedTable):
        if set(data) - _SHARDED:
            raise ValueError(
                "data of a sharded table must be the arguments of fit (X, X_val, y_val), got "
                f"{came}."
            )
        return
    if set(data) - _FIT_ARGUMENTS or not {"X", "y"} <= set(data):
        raise ValueError(f"data must be the arguments of fit (X, y, X_val, y_val), got {came}.")


@dataclass(frozen=True)
class _Month:
    """What the next bundle must continue."""

    name: str
    payout: Mapping[str, Any]
    agreement: Agreement | None


def _iter_steps(
    path: Path, data: Mapping[str, Any] | None, valuer: Any, digest: str | None, own: bytes | None
) -> Iterator[tuple[str, bool]]:
    """Check one part after the other; yield each with True, or False if it cannot be checked."""
    with _ReportDamage("the files"):
        compare_files(path, digest)
    yield "files", True
    with _ReportDamage("the values"), open_values(path) as (valuation, holdings):
        month = _check_month(path, valuation, holdings, own)
        yield "split", True
        agreement = month.agreement
        if agreement is not None:
            yield "agreement", True
        if month.payout["previous"] is not None:
            found = _follow_months(path, month)
            yield ("months before" if found else "the month before is not in this folder"), found
        if data is None:
            return
        with _ReportDamage("the data"):
            agreed, data = _leave_out_keys(data, agreement)
            table = _compare_data(data, valuation)
            owners = _restore_owners(table, holdings, valuation)
            if agreement is not None and agreed is not None:
                _compare_agreed_validation(agreement, data)
                _compare_agreed_owners(agreed, holdings, valuation)
            facts = round_trip_json([asdict(fact) for fact in list_facts(owners, valuation)])
            check_equal(facts, month.payout["facts"], "the facts")
        yield "data", True
        if valuer is not None:
            again = _recompute(valuer, data, owners, valuation)
            _compare_values(valuation, again)
            _compare_errors(valuation, again, holdings)
            yield "values", True


def _check_month(
    path: Path, valuation: Valuation, holdings: Holdings, own: bytes | None = None
) -> _Month:
    """Check that a payout follows from the content of its bundle alone."""
    with _ReportDamage("the split"):
        saved = read_json(path / PAYOUT)
        _compare_split(saved, valuation, holdings)
    agreement = None
    with _ReportDamage("the agreement"):
        _compare_same_agreement(path, saved, own)
        if (path / AGREEMENT).exists():
            agreement = Agreement.from_toml(path / AGREEMENT)
            _compare_agreement(agreement, saved, valuation)
    return _Month(path.name, saved, agreement)


def _follow_months(path: Path, month: _Month) -> bool:
    """Check the bundles before, as far as they are beside this one; return if the first is."""
    beside = [one for one in path.absolute().parent.iterdir() if (one / MANIFEST).is_file()]
    named = {compute_digest(one): one for one in sorted(beside, reverse=True)}
    previous = {digest: _read_previous_digest(one) for digest, one in named.items()}
    while (wanted := month.payout["previous"]) is not None:
        successors = [named[digest].name for digest in named if previous[digest] == wanted]
        if len(successors) > 1:
            raise DifferenceError(f"{join_names(sorted(successors))} continue the same month.")
        if wanted not in named:
            return False
        with _ReportDamage(f"the bundle {named[wanted].name}"):
            compare_files(named[wanted], wanted)
            with open_values(named[wanted]) as (valuation, holdings):
                before = _check_month(named[wanted], valuation, holdings)
        _compare_months(before, month)
        month = before
    return True


def _read_previous_digest(path: Path) -> Any:
    """Return the digest that a bundle names; None if it cannot be read, which is its own matter."""
    try:
        return read_json(path / PAYOUT).get("previous")
    except (DifferenceError, OSError, ValueError):
        return None


def _compare_months(before: _Month, month: _Month) -> None:
    """Check that a bundle continues the one before."""
    check_equal(
        before.payout["carried"], month.payout["brought"], f"what {month.name} brought forward"
    )
    times = [read_time(one.payout["time"]) for one in (before, month)]
    if times[1] < times[0]:
        raise DifferenceError(
            f"{month.name} is of {times[1]}, but {before.name} before it is of {times[0]}."
        )
    if before.agreement is None or month.agreement is None:
        if before.agreement is not month.agreement:
            raise DifferenceError(f"only one of {before.name} and {month.name} has an agreement.")
        return
    change = month.agreement.describe_change_of_contract(before.agreement)
    if change is not None:
        raise DifferenceError(f"the agreement of {month.name} is no amendment: {change}")


class _ReportDamage:
    """Turn errors from a damaged file into a difference."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        # A bundle may come from anyone and hold anything: every error is a difference.
        if isinstance(error, Exception) and not isinstance(error, DifferenceError):
            reason = shorten(str(error) or type(error).__name__, 600)
            raise DifferenceError(f"{self._what} cannot be read ({reason}).") from error


def _compare_split(saved: Mapping[str, Any], valuation: Valuation, holdings: Holdings) -> None:
    policy = Policy(**saved["policy"])
    amount = parse_money(saved["amount"], "amount", Decimal(policy.unit))
    linked = saved["previous"] is not None
    brought = check_carried(saved["brought"], holdings.names, policy.negative, absent_ok=linked)
    shared = allocate(policy, OwnerValues(valuation, holdings), amount=amount, brought=brought)
    again = round_trip_json(
        serialize_allocation(shared, valuation)
        | serialize_provenance(valuation)
        | {"amount": str(amount), "policy": asdict(policy), "brought": brought}
    )
    # The agreement and the facts are compared separately.
    others = {name: saved[name] for name in _NOT_REPLAYED}
    read_time(saved["time"])
    _compare_owners(again["owners"], saved["owners"], policy.currency)
    for name in sorted(set(again) | set(saved)):
        check_equal((again | others).get(name), saved.get(name), f"{name} of the payout")


def _compare_owners(now: list[dict[str, Any]], then: list[dict[str, Any]], currency: str) -> None:
    """Compare owner by owner, to name the owner whose figures differ."""
    if [one["name"] for one in now] != [one["name"] for one in then]:
        return
    for one, other in zip(now, then, strict=True):
        if one["amount"] != other["amount"]:
            raise DifferenceError(
                f"{one['name']} should get {one['amount']} {currency}, but the bundle has "
                f"{shorten(other['amount'])}."
            )
        for figure in one:
            check_equal(one[figure], other.get(figure), f"{figure} of {one['name']}")


def _compare_same_agreement(path: Path, saved: Mapping[str, Any], own: bytes | None) -> None:
    if own is not None:
        if not (path / AGREEMENT).exists():
            raise DifferenceError("the bundle holds no agreement, but one was given.")
        if (path / AGREEMENT).read_bytes() != own:
            raise DifferenceError("the agreement of the bundle differs from the given one.")
    file = path / AGREEMENT
    there = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None
    check_equal(there, saved["agreement_sha256"], "agreement_sha256 of the payout")


def _compare_agreement(
    agreement: Agreement, saved: Mapping[str, Any], valuation: Valuation
) -> None:
    check_equal(asdict(agreement.policy), saved["policy"], "the policy of the agreement")
    time = read_time(saved["time"])
    if agreement.created is not None and time < agreement.created:
        raise DifferenceError(
            f"the bundle is of {time}, before the agreement was written ({agreement.created})."
        )
    _report_differences(agreement.list_differences(valuation))


def _report_differences(differences: list[str]) -> None:
    if differences:
        raise DifferenceError(f"what was valued is not what was agreed: {'; '.join(differences)}.")


def _leave_out_keys(
    data: Mapping[str, Any], agreement: Agreement | None
) -> tuple[Owners | None, Mapping[str, Any]]:
    """Return the agreed owners, and the data without the columns that only name them."""
    if agreement is None:
        return None, data
    _report_differences(agreement.list_differences_of_table(data["X"]))
    owners = agreement.owners_of(data["X"])
    if not owners.keys:
        return owners, data
    sides = [name for name in ("X", "X_val") if data.get(name) is not None]
    return owners, {**data, **{name: owners.features(data[name]) for name in sides}}


def _compare_data(data: Mapping[str, Any], valuation: Valuation) -> Table | ShardedTable:
    """Compare hashes of the data; return the table whose columns were valued."""
    if isinstance(data["X"], ShardedTable):
        return compare_sharded_data(data, valuation)
    if "table" in valuation.provenance.problem_spec["data_sha256"]:
        raise DifferenceError("X is a table in memory, but a sharded table was valued.")
    held_out = data.get("X_val") is not None
    # Without validation rows, the folds depend on the valuer: they are compared with its values.
    given = {name: data[name] for name in data if name in _HASHED}
    # Numeric labels have one hash, whether they are classes or not.
    numeric = np.asarray(data["y"]).dtype.kind in "iufb"
    came = Problem.from_data(
        **given,
        classification=False if numeric else None,
        allow_one_class=True,
        with_validation=held_out,
    )
    hashes, saved = (
        came.problem_spec()["data_sha256"],
        valuation.provenance.problem_spec["data_sha256"],
    )
    for name in ("X", "y", "blocks", *(["validation"] if held_out else [])):
        if hashes[name] != saved[name]:
            raise DifferenceError(f"{name} is not the data that was valued (its sha256 differs).")
    if are_players(valuation.blocks):
        return came.table
    if came.blocks.rows != valuation.blocks.rows:
        raise DifferenceError("the rows of X have other ids or groups than in the bundle.")
    columns = [name for name in valuation.blocks.columns.ids.tolist() if name != LABEL]
    check_equal(list(map(str, came.table.names.tolist())), list(map(str, columns)), "columns of X")
    return came.table


def _restore_owners(X: Any, holdings: Holdings, valuation: Valuation) -> Owners:
    """Restore the owners of a table from the holdings of its blocks."""
    if "table" in valuation.provenance.problem_spec["data_sha256"]:
        return restore_sharded_owners(X, holdings, valuation)
    if are_players(valuation.blocks):
        return restore_players(Table.from_data(X, called="X"), valuation)
    owners = Owners(X, overlaps="equal")
    rows, columns = valuation.blocks.rows.codes, valuation.blocks.columns.codes
    codes = holdings.codes()[np.ix_(rows, columns)]
    n_columns = owners.shape[1]
    for position, name in enumerate(holdings.names):
        held = holdings.claims[:, position][codes]
        if held[:, :n_columns].any():
            owners = owners.assign(name, cells=held[:, :n_columns])
        if held[:, n_columns:].any():
            owners = owners.assign(name, rows=held[:, -1], columns=[LABEL])
    return owners


def _compare_agreed_validation(agreement: Agreement, data: Mapping[str, Any]) -> None:
    """Check that validation rows are those that the agreed rule draws."""
    rule = agreement.validation
    difference = None if rule is None else rule.difference(data)
    if difference is not None:
        raise DifferenceError(difference)


def _compare_agreed_owners(owners: Owners, holdings: Holdings, valuation: Valuation) -> None:
    check_labels_valued(owners, valuation)
    agreed = owners.project(valuation.blocks)
    if are_players(valuation.blocks):
        agreed, holdings = owners.holdings, read_players(valuation)
    check_equal(list(agreed.names), list(holdings.names), "the owners of the agreement")
    for name, one, other in zip(agreed.names, agreed.keys, holdings.keys, strict=True):
        if one != other:
            raise DifferenceError(f"the cells of {name} are not those in the agreement.")


def _recompute(
    valuer: Any, data: Mapping[str, Any], owners: Owners, valuation: Valuation
) -> Valuation:
    """Recompute all values without a checkpoint."""
    from sklearn.base import clone

    fresh = clone(valuer)
    if hasattr(fresh, "runtime"):
        runtime = fresh.runtime or Runtime()
        runtime = replace(runtime, checkpoint=None)
        fresh.set_params(runtime=runtime)
    more = {} if valuation.owned is None else {"owners": owners}
    valuation_again: Valuation = fresh.fit(**data, **more).valuation_
    return valuation_again


def _get_settings(valuation: Valuation) -> dict[str, Any]:
    """Return the problem of a valuation, its seeds and the parameters of its valuer."""
    provenance = valuation.provenance
    problem_spec, settings = provenance.problem_spec, provenance.method.get("valuer", {})
    return (
        {name: problem_spec[name] for name in sorted(problem_spec)}
        | {"seeds": [session.seed for session in provenance.sessions]}
        | {name: settings[name] for name in sorted(settings) if name not in problem_spec}
    )


def _compare_values(valuation: Valuation, again: Valuation) -> None:
    now, then = (_get_settings(v) for v in (again, valuation))
    for name in dict.fromkeys([*now, *then]):
        if now.get(name) != then.get(name):
            one, other = (shorten(side.get(name)) for side in (now, then))
            raise DifferenceError(
                f"{name} of the valuer is {one}, but the bundle was made with {other}."
            )
    if again.blocks != valuation.blocks:
        raise DifferenceError("the valuer gives blocks with other names.")
    scale = max(float(np.abs(chunk.values).max()) for chunk in valuation.iter_rows())
    for now_rows, then_rows in zip(again.iter_rows(), valuation.iter_rows(), strict=True):
        _compare_rows(now_rows, then_rows, valuation, _CLOSE * scale)


def _compare_rows(now: RowChunk, then: RowChunk, valuation: Valuation, limit: float) -> None:
    """Compare the values and the errors of some rows."""
    apart = np.argwhere(~(np.abs(now.values - then.values) <= limit))
    if len(apart):
        i, j = apart[0]
        row = valuation.blocks.rows.some_labels(then.rows)[i]
        raise DifferenceError(
            f"{len(apart)} values differ when they are recomputed, the first at "
            f"({row}, {valuation.column_labels[j]}): {now.values[i, j]:.9g}, but "
            f"{then.values[i, j]:.9g} was saved."
        )
    for name in ("sampling_se", "validation_se"):
        what = f"{name.replace('_', ' ')} of cells"
        _compare_error_arrays(getattr(now, name), getattr(then, name), what)


def _compare_errors(valuation: Valuation, again: Valuation, holdings: Holdings) -> None:
    """Compare status, baseline and errors."""
    for name in ("status", "empty"):
        check_equal(getattr(again, name), getattr(valuation, name), f"{name} of the valuation")
    if not np.isclose(again.baseline, valuation.baseline, rtol=_CLOSE, equal_nan=True):
        check_equal(again.baseline, valuation.baseline, "baseline of the valuation")
    now, then = (compute_owner_errors(v, holdings) for v in (again, valuation))
    _compare_error_arrays(now.sampling, then.sampling, "sampling errors of the owners")
    _compare_error_arrays(now.validation, then.validation, "validation errors of the owners")
    # Intervals of amounts, and what is held back, follow from the joint errors.
    if again.owned is not None and valuation.owned is not None:
        _compare_error_arrays(
            again.owned.validation,
            valuation.owned.validation,
            "joint validation errors of the owners",
        )
        _compare_error_arrays(
            again.owned.moments.sampling_se,
            valuation.owned.moments.sampling_se,
            "joint sampling errors of the owners",
        )


def _compare_error_arrays(now: Floats | None, then: Floats | None, what: str) -> None:
    if now is None or then is None:
        check_equal(now is None, then is None, f"whether {what} are unknown")
    elif not np.allclose(now, then, rtol=_CLOSE_ERROR, atol=1e-12, equal_nan=True):
        check_equal(now.tolist(), then.tolist(), what)
