"""verify_bundle: replay a saved payout and report the first difference."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from itertools import zip_longest
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
from cellworth.data.tables import AbsentTable, Table, TableLike
from cellworth.data.views import heading, view
from cellworth.payouts.agreement import Agreement, AnyValuer
from cellworth.payouts.allocation import OwnerValues, allocate, compute_owner_errors
from cellworth.payouts.bundle import (
    AGREEMENT,
    MANIFEST,
    PAYOUT,
    PUBLIC,
    VALUATION,
    DifferenceError,
    check_equal,
    compare_files,
    compare_sharded_data,
    compare_sharded_values,
    make_public,
    read_holdings,
    read_json,
    read_time,
    restore_sharded_owners,
    round_trip_json,
    serialize_allocation,
    serialize_provenance,
)
from cellworth.payouts.copies import count_copies, share_copies
from cellworth.payouts.fraud_checks import LEAKED, NOT_CHECKED, TOO_GOOD, check_owners
from cellworth.payouts.owner_players import read_players, restore_players
from cellworth.payouts.policy import Policy, add_label_owner, check_carried, parse_money, shorten
from cellworth.runtime.run_settings import Runtime
from cellworth.valuation import load
from cellworth.valuation.sharded_valuation import ShardedValuation
from cellworth.valuation.valuation import Valuation

# Another processor may sum in another order.
_CLOSE = 1e-9
_CLOSE_ERROR = 1e-6
# Figures of a payout that do not follow from others.
_NOT_REPLAYED = ("agreement_sha256", "findings", "previous", "salt", "time")
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
        What was checked: "files", "split", "agreement", "data", "values"; "chain" if the bundles
        before were, too.
    difference : str or None
        The first difference, as a sentence.

    See Also
    --------
    verify_bundle

    Examples
    --------
    >>> from cellworth.payouts import Verdict
    >>> Verdict(("files", "split"))
    yes: files, split agree; values were not recomputed
    >>> verdict = Verdict(("files",), "ann should get 75.00 EUR, but the bundle has 95.00.")
    >>> print("pay" if verdict else verdict.difference)
    ann should get 75.00 EUR, but the bundle has 95.00.
    """

    checked: tuple[str, ...]
    difference: str | None = None

    def __bool__(self) -> bool:
        return self.difference is None

    def __repr__(self) -> str:
        if self.difference is not None:
            return f"no: {self.difference}"
        replayed = "files" in self.checked and "values" not in self.checked
        left = "; values were not recomputed" if replayed else ""
        return f"yes: {', '.join(self.checked)} agree{left}"

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

    Parameters
    ----------
    folder : path
        The folder that ``payout.save`` wrote.
    data : mapping, default=None
        The arguments of ``fit``: ``{"X": X, "y": y, "X_val": X_val, "y_val": y_val}``, without y
        for a ShardedTable; X has the columns that the agreement uses as source or keys. Hashes are
        compared, and the gate is run again.
    valuer : Valuer, default=None
        An unfitted valuer with the same settings. All values are recomputed from the data and
        compared; those of a ShardedTable bit for bit, some rows at a time.
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
    verify_chain, Payout

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import split_revenue, verify_bundle
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> data, valuer = {"X": X, "y": y, "X_val": X, "y_val": y}, KNNValuer(1, random_state=0)
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = valuer.fit(**data, owners=owners).valuation_
    >>> payout = split_revenue(valuation, owners, amount="100.00")
    >>> folder = Path(tempfile.mkdtemp()) / "bundle"
    >>> digest = payout.save(folder)
    >>> verify_bundle(folder, data=data, valuer=valuer, digest=digest)
    yes: files, split, data, values agree
    >>> text = (folder / "payout.json").read_text()
    >>> _ = (folder / "payout.json").write_text(text.replace("75.00", "95.00"))
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
    try:
        for step in _iter_steps(path, data, valuer, digest, own):
            checked.append(step)
    except DifferenceError as difference:
        return Verdict(tuple(checked), str(difference))
    return Verdict(tuple(checked))


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


def _iter_steps(
    path: Path, data: Mapping[str, Any] | None, valuer: Any, digest: str | None, own: bytes | None
) -> Iterator[str]:
    """Check one part after the other; yield the names of those that agree."""
    with _ReportDamage("the files"):
        compare_files(path, digest)
    yield "files"
    with _ReportDamage("the split"):
        valuation = load(path / VALUATION)
        holdings, labels = read_holdings(path, valuation)
        saved = read_json(path / PAYOUT)
        _compare_split(saved, valuation, holdings, labels)
    yield "split"
    agreement = None
    with _ReportDamage("the agreement"):
        _compare_same_agreement(path, saved, own)
        if (path / AGREEMENT).exists():
            agreement = Agreement.from_toml(path / AGREEMENT)
            _compare_agreement(agreement, saved, valuation)
    with _ReportDamage("the public part"):
        public = make_public(saved, valuation, holdings, labels)
        check_equal(public, read_json(path / PUBLIC), PUBLIC)
    if agreement is not None:
        yield "agreement"
    if data is None:
        return
    with _ReportDamage("the data"):
        agreed, data = _prepare(data, agreement)
        table = _compare_data(data, valuation)
        owners = _restore_owners(table, holdings, valuation)
        if agreement is not None and agreed is not None:
            _compare_agreed_validation(agreement, data)
            _compare_agreed_owners(agreement, agreed, holdings, labels, valuation)
            owners = owners.with_delivered(agreed.delivered, agreed.merged)
        elif saved["policy"]["duplicates"] == "share":
            _check_distinct(owners, data)
        if saved["policy"]["gate"] != "off":
            _compare_findings(owners, valuation, data.get("X_val"), saved["findings"])
    yield "data"
    if valuer is not None:
        again = _recompute(valuer, data, owners, valuation)
        _compare_values(valuation, again)
        _compare_errors(valuation, again, holdings)
        yield "values"


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


def _compare_split(
    saved: Mapping[str, Any], valuation: Valuation, holdings: Holdings, labels: Mapping[str, int]
) -> None:
    policy = Policy(**saved["policy"])
    amount = parse_money(saved["amount"], "amount", Decimal(policy.unit))
    linked = saved["previous"] is not None
    brought = check_carried(saved["brought"], holdings.names, policy.negative, absent_ok=linked)
    valued = OwnerValues(valuation, holdings)
    shared = allocate(policy, valued, labels, amount=amount, brought=brought)
    again = round_trip_json(
        serialize_allocation(shared, valuation)
        | serialize_provenance(valuation)
        | {"amount": str(amount), "policy": asdict(policy), "brought": brought}
    )
    # The agreement and the findings are compared separately.
    others = {name: saved[name] for name in _NOT_REPLAYED}
    read_time(saved["time"])
    _compare_owners(again["owners"], saved["owners"], policy.currency)
    for name in sorted(set(again) | set(saved)):
        check_equal((again | others).get(name), saved.get(name), f"{name} of the payout")
    if policy.gate == "off":
        check_equal([], saved["findings"], "the findings of the gate")


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
    difference = agreement.difference(valuation)
    if difference is not None:
        raise DifferenceError(f"the valuation differs from the agreement: {difference}")


def _prepare(
    data: Mapping[str, Any], agreement: Agreement | None
) -> tuple[Owners | None, Mapping[str, Any]]:
    """Return the agreed owners, and the data that is valued: no keys, equal rows merged."""
    if agreement is None:
        return None, data
    owners, X, y = agreement.prepare(data["X"], data.get("y"))
    prepared = {**data, "X": X} | ({} if y is None else {"y": y})
    if agreement.keys and data.get("X_val") is not None:
        prepared["X_val"] = owners.features(data["X_val"])
    return owners, prepared


def _check_distinct(owners: Owners, data: Mapping[str, Any]) -> None:
    """Check that no row that was valued equals another, its label included."""
    if count_copies(owners):
        _, _, y = share_copies(owners, data["X"], data["y"])
        if len(y) < owners.shape[0]:
            raise DifferenceError("X has equal rows, which were valued as more than one.")


def _compare_data(data: Mapping[str, Any], valuation: Valuation) -> Table:
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


def _compare_findings(
    owners: Owners, valuation: Valuation, X_val: Any, saved: list[dict[str, Any]]
) -> None:
    """Compare findings of the gate; another processor may change figures slightly.

    A reserve is kept by those who drew it, so what it shows cannot be replayed.
    """
    saved = [one for one in saved if one["kind"] != TOO_GOOD]
    checked = not any(finding["kind"] == NOT_CHECKED for finding in saved)
    found = round_trip_json(
        [asdict(one) for one in check_owners(owners, valuation, X_val=X_val if checked else None)]
    )
    if X_val is None and checked:
        found, saved = (
            [one for one in side if one["kind"] not in (NOT_CHECKED, LEAKED)]
            for side in (found, saved)
        )
    for now, then in zip_longest(found, saved):
        same = (
            now is not None
            and then is not None
            and all(now[key] == then.get(key) for key in ("kind", "owners"))
            and math.isclose(now["figure"], then["figure"], rel_tol=1e-6, abs_tol=1e-9)
        )
        if not same:
            check_equal(now, then, "the findings of the gate")


def _restore_owners(X: TableLike, holdings: Holdings, valuation: Valuation) -> Owners:
    """Restore the owners of a table from the holdings of its blocks."""
    if isinstance(X, AbsentTable):
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


def _compare_agreed_owners(
    agreement: Agreement,
    owners: Owners,
    holdings: Holdings,
    labels: Mapping[str, int],
    valuation: Valuation,
) -> None:
    owners = add_label_owner(owners, agreement.policy, valuation)
    agreed = owners.project(valuation.blocks)
    if are_players(valuation.blocks):
        agreed, holdings = owners.holdings, read_players(valuation)
    check_equal(list(agreed.names), list(holdings.names), "the owners of the agreement")
    for name, one, other in zip(agreed.names, agreed.keys, holdings.keys, strict=True):
        if one != other:
            raise DifferenceError(f"the cells of {name} are not those in the agreement.")
    check_equal(owners.share_of_labels(), dict(labels), "the number of labels of each owner")


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
    if isinstance(again, ShardedValuation):
        compare_sharded_values(valuation, again)
        return
    scale = float(np.abs(valuation.values).max())
    apart = np.argwhere(~(np.abs(again.values - valuation.values) <= _CLOSE * scale))
    if len(apart):
        i, j = apart[0]
        raise DifferenceError(
            f"{len(apart)} values differ when they are recomputed, the first at "
            f"({valuation.row_labels[i]}, {valuation.column_labels[j]}): "
            f"{again.values[i, j]:.9g}, but {valuation.values[i, j]:.9g} was saved."
        )


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
