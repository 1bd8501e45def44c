"""verify_bundle: replay a saved payout and report the first difference."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.data.blocks import LABEL
from cellworth.data.holdings import Holdings
from cellworth.data.io import local_path
from cellworth.data.owners import Owners, are_players
from cellworth.data.problem import Problem
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import Table
from cellworth.data.text import shorten
from cellworth.data.views import heading, view
from cellworth.payouts.agreement import Agreement, check_valuer, compare_settings
from cellworth.payouts.allocation import allocate, compute_owner_errors
from cellworth.payouts.bundle import (
    AGREEMENT,
    MANIFEST,
    PAYOUT,
    DifferenceError,
    check_equal,
    compare_files,
    compute_digest,
    open_values,
    read_json,
    round_trip_json,
    serialize_allocation,
)
from cellworth.payouts.facts import list_facts
from cellworth.payouts.owner_players import read_players
from cellworth.payouts.policy import (
    Policy,
    check_carried,
    check_labels_valued,
    join_names,
    parse_money,
)
from cellworth.runtime.run_settings import Runtime
from cellworth.valuation.valuation import Valuation
from cellworth.valuers.valuer import Valuer

# Another processor may sum in another order.
_CLOSE = 1e-9
_CLOSE_ERROR = 1e-6
# Figures of a payout that do not follow from others.
_NOT_REPLAYED = ("agreement_sha256", "facts", "previous", "time")
# Arguments of fit, except owners.
_ARGUMENTS = {
    "X",
    "X_val",
    "y_val",
    "column_groups",
    "column_types",
    "value_labels",
    "n_validation",
}
_OF_MEMORY = {"y", "cv", "groups", "row_groups", "sample_weight"}
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
    >>> verdict = Verdict(("files",), "amount of ann should be 75.00, but the bundle has 95.00.")
    >>> print("pay" if verdict else verdict.difference)
    amount of ann should be 75.00, but the bundle has 95.00.
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
    valuer: Valuer | None = None,
    digest: str | None = None,
    agreement: str | os.PathLike[str] | None = None,
) -> Verdict:
    """Replay a bundle and check that its results follow from its content.

    If it names a bundle before it, which is in the same folder, that one is checked as well, and so
    on to the first: each must start from the shortfalls that the one before carried over, and be
    made under the same agreement or an amendment of it. Two bundles that continue the same one are
    a difference. Digests prove the order of bundles and agreements; times are not checked.

    Parameters
    ----------
    folder : path
        The folder that ``payout.save`` wrote.
    data : mapping, default=None
        The arguments of ``fit``: ``{"X": X, "y": y, "X_val": X_val, "y_val": y_val}``, without y
        for a ShardedTable; X has the columns that the agreement uses as source or keys. Hashes are
        compared, and facts are listed again. Data in shards need the valuer, which reads them.
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
        _check_data(data, valuer)
    if valuer is not None:
        check_valuer(valuer)
        if data is None:
            raise ValueError("a valuer needs data; pass data={'X': X, 'y': y, ...} as well.")
    if not (path / MANIFEST).is_file() and not (path / PAYOUT).is_file():
        raise FileNotFoundError(
            f"folder must hold a bundle, but {path} has no {MANIFEST}; give a folder that "
            "payout.save wrote."
        )
    own = None if agreement is None else local_path(agreement, "agreement").read_bytes()
    checked: list[str] = []
    left: list[str] = [] if valuer is not None else ["values were not recomputed"]
    try:
        for step, found in _iter_steps(path, data, valuer, digest, own):
            (checked if found else left).append(step)
    except DifferenceError as difference:
        return Verdict(tuple(checked), str(difference))
    return Verdict(tuple(checked), left=tuple(left))


def _check_data(data: Any, valuer: Any) -> None:
    names = set(data) if isinstance(data, Mapping) else set()
    in_shards = "X" in names and isinstance(data["X"], ShardedTable)
    if "X" not in names or names - _ARGUMENTS - (set() if in_shards else _OF_MEMORY):
        came = ", ".join(map(str, data)) if names else type(data).__name__
        raise ValueError(
            "data must be the arguments of fit, such as {'X': X, 'y': y}, without y for a table in "
            f"shards, got {came}."
        )
    if in_shards and valuer is None:
        raise ValueError("data in shards need the valuer, which reads them; pass valuer as well.")


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
    with _report_damage("the files"):
        compare_files(path, digest)
    yield "files", True
    with _report_damage("the values"), open_values(path) as (valuation, holdings):
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
        with _report_damage("the data"):
            agreed, data = _leave_out_keys(data, agreement)
            table = _compare_data(data, valuation, valuer)
            owners = restore_owners(table, holdings, valuation)
            if agreed is not None:
                _compare_agreed(agreed, holdings, valuation)
            facts = round_trip_json([asdict(fact) for fact in list_facts(owners, valuation)])
            check_equal(facts, month.payout["facts"], "the facts")
        yield "data", True
        if valuer is not None:
            again = _recompute(valuer, data, owners, valuation)
            _compare_values(valuation, again, holdings)
            yield "values", True


def _check_month(
    path: Path, valuation: Valuation, holdings: Holdings, own: bytes | None = None
) -> _Month:
    """Check that a payout follows from the content of its bundle alone."""
    with _report_damage("the split"):
        saved = read_json(path / PAYOUT)
        _compare_split(saved, valuation, holdings)
    with _report_damage("the agreement"):
        agreement = _check_agreement(path / AGREEMENT, saved, valuation, own)
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
        with _report_damage(f"the bundle {named[wanted].name}"):
            compare_files(named[wanted], wanted)
            with open_values(named[wanted]) as (valuation, holdings):
                before = _check_month(named[wanted], valuation, holdings)
        _compare_months(before, month)
        month = before
    return True


def _read_previous_digest(path: Path) -> Any:
    """Return the digest that a bundle names; None if it cannot be read, which is its own matter."""
    with suppress(DifferenceError, OSError, ValueError):
        return read_json(path / PAYOUT).get("previous")
    return None


def _compare_months(before: _Month, month: _Month) -> None:
    """Check that a bundle continues the one before."""
    carried, brought = before.payout["carried"], month.payout["brought"]
    check_equal(carried, brought, f"what {month.name} brought forward")
    if before.agreement is None or month.agreement is None:
        if before.agreement is not month.agreement:
            raise DifferenceError(f"only one of {before.name} and {month.name} has an agreement.")
        return
    change = month.agreement.describe_change_of_contract(before.agreement)
    if change is not None:
        raise DifferenceError(f"the agreement of {month.name} is no amendment: {change}")


@contextmanager
def _report_damage(what: str) -> Iterator[None]:
    """Turn errors from a damaged file into a difference."""
    try:
        yield
    except DifferenceError:
        raise
    # A bundle may come from anyone and hold anything: every error is a difference.
    except Exception as error:
        reason = shorten(str(error) or type(error).__name__, 600)
        raise DifferenceError(f"{what} cannot be read ({reason}).") from error


def _compare_split(saved: Mapping[str, Any], valuation: Valuation, holdings: Holdings) -> None:
    policy = Policy(**saved["policy"])
    amount = parse_money(saved["amount"], "amount", Decimal(policy.unit))
    brought = check_carried(saved["brought"], policy.negative)
    shared = allocate(policy, valuation, holdings, amount=amount, brought=brought)
    again = round_trip_json(
        serialize_allocation(shared, valuation)
        | {"amount": str(amount), "policy": asdict(policy), "brought": brought}
    )
    # The agreement and the facts are compared separately.
    others = {name: saved[name] for name in _NOT_REPLAYED}
    _compare_owners(again["owners"], saved["owners"])
    for name in sorted(set(again) | set(saved)):
        check_equal((again | others).get(name), saved.get(name), f"{name} of the payout")


def _compare_owners(now: list[dict[str, Any]], then: list[dict[str, Any]]) -> None:
    """Compare owner by owner, to name the owner whose figures differ."""
    if [one["name"] for one in now] != [one["name"] for one in then]:
        return
    for one, other in zip(now, then, strict=True):
        for figure in ("amount", *one):
            check_equal(one[figure], other.get(figure), f"{figure} of {one['name']}")


def _check_agreement(
    file: Path, saved: Mapping[str, Any], valuation: Valuation, own: bytes | None
) -> Agreement | None:
    """Return the agreement of a bundle, which must fit its payout and its values."""
    text = file.read_bytes() if file.exists() else None
    if own not in (None, text):
        raise DifferenceError("the agreement of the bundle differs from the given one.")
    there = None if text is None else hashlib.sha256(text).hexdigest()
    check_equal(there, saved["agreement_sha256"], "agreement_sha256 of the payout")
    if text is None:
        return None
    agreement = Agreement.from_toml(file)
    check_equal(asdict(agreement.policy), saved["policy"], "the policy of the agreement")
    _report_differences(agreement.list_differences(valuation))
    return agreement


def _report_differences(differences: list[str]) -> None:
    if differences:
        raise DifferenceError(f"what was valued is not what was agreed: {'; '.join(differences)}.")


def _leave_out_keys(
    data: Mapping[str, Any], agreement: Agreement | None
) -> tuple[Owners | None, Mapping[str, Any]]:
    """Return the agreed owners, and the data without the columns that only name them."""
    if agreement is None:
        return None, data
    _report_differences(agreement.list_differences_of_table(data["X"], data.get("X_val")))
    owners = agreement.owners_of(data["X"])
    if not owners.keys:
        return owners, data
    sides = [name for name in ("X", "X_val") if data.get(name) is not None]
    return owners, {**data, **{name: owners.features(data[name]) for name in sides}}


def _compare_data(
    data: Mapping[str, Any], valuation: Valuation, valuer: Any
) -> Table | ShardedTable:
    """Compare hashes of the data; return the table whose columns were valued."""
    saved, X = valuation.provenance.problem_spec["data_sha256"], data["X"]
    if isinstance(X, ShardedTable) != ("table" in saved):
        raise DifferenceError("X is not in shards, or is, unlike the table that was valued.")
    table: Table | ShardedTable
    if isinstance(X, ShardedTable):
        table, came = X, valuer.problem_spec(**data)["data_sha256"]
    else:
        table, came = _hash_table(data, valuation)
    for name in came:
        if came[name] != saved[name]:
            what = "X" if name == "table" else name
            raise DifferenceError(f"{what} is not the data that was valued (its sha256 differs).")
    return table


def _hash_table(data: Mapping[str, Any], valuation: Valuation) -> tuple[Table, dict[str, str]]:
    """Return a table in memory, and the hashes of it and of what belongs to it."""
    held_out = data.get("X_val") is not None
    came = Problem.from_data(
        **{name: data[name] for name in data if name in _HASHED},
        # Numeric labels have one hash, whether they are classes or not.
        classification=False if np.asarray(data.get("y")).dtype.kind in "iufb" else None,
        allow_one_class=True,
        with_validation=held_out,
    )
    if not are_players(valuation.blocks) and came.blocks.rows != valuation.blocks.rows:
        raise DifferenceError("the rows of X have other ids or groups than in the bundle.")
    hashes: dict[str, str] = came.problem_spec()["data_sha256"]
    # Without validation rows, the folds depend on the valuer: they are compared with its values.
    return came.table, {name: hashes[name] for name in hashes if held_out or name != "validation"}


def restore_owners(table: Table | ShardedTable, holdings: Holdings, valuation: Valuation) -> Owners:
    """Restore the owners of a table from the holdings of its blocks, or of the players."""
    blocks = valuation.blocks
    if are_players(blocks):
        holdings = read_players(valuation)
        lines, rows = holdings.lines, holdings.row_lines[:]
    else:
        lines, rows = holdings.lines[:, blocks.columns.codes], holdings.row_lines[:]
        rows = rows[blocks.rows.codes] if blocks.rows.grouped else rows
    owners, names = Owners(table, overlaps="equal"), np.append(table.names.astype(object), LABEL)
    for position, name in enumerate(holdings.names):
        held = holdings.claims[:, position][lines]
        for columns in np.unique(held[held.any(axis=1)], axis=0):
            mine = (held == columns).all(axis=1)[rows]
            if mine.any():
                listed = names[: len(columns)][columns].tolist()
                owners = owners.assign(name, rows=mine, columns=listed)
        if name not in owners.names:
            # An owner of labels only, which were not valued.
            owners = owners.assign(name, columns=[LABEL])
    return owners


def _compare_agreed(owners: Owners, holdings: Holdings, valuation: Valuation) -> None:
    """Check that the agreed owners hold what those of the bundle hold."""
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
        fresh.set_params(runtime=replace(fresh.runtime or Runtime(), checkpoint=None))
    more = {} if valuation.owned is None else {"owners": owners}
    return cast("Valuation", fresh.fit(**data, **more).valuation_)


def _get_settings(valuation: Valuation) -> dict[str, Any]:
    """Return the problem of a valuation, its seeds and the parameters of its valuer."""
    provenance = valuation.provenance
    seeds = {"seeds": [session.seed for session in provenance.sessions]}
    return {**provenance.method.get("valuer", {}), **provenance.problem_spec, **seeds}


def _compare_values(valuation: Valuation, again: Valuation, holdings: Holdings) -> None:
    """Compare settings, values and errors with those of another run."""
    now, then = _get_settings(again), _get_settings(valuation)
    differences = compare_settings(now, then, "in the bundle")
    if text := "; ".join(differences):
        raise DifferenceError(f"the valuer is another one: {text}.")
    if again.blocks != valuation.blocks:
        raise DifferenceError("the valuer gives blocks with other names.")
    for name in ("status", "empty"):
        check_equal(getattr(again, name), getattr(valuation, name), f"{name} of the valuation")
    if not np.isclose(again.baseline, valuation.baseline, rtol=_CLOSE, equal_nan=True):
        check_equal(again.baseline, valuation.baseline, "baseline of the valuation")
    scale = max(float(np.abs(chunk.values).max()) for chunk in valuation.iter_rows())
    for rows, saved in zip(again.iter_rows(), valuation.iter_rows(), strict=True):
        _compare_arrays(rows.values, saved.values, "values", _CLOSE * scale)
        _compare_arrays(rows.sampling_se, saved.sampling_se, "sampling errors of cells")
        _compare_arrays(rows.validation_se, saved.validation_se, "validation errors of cells")
    # Errors of owners, intervals of amounts and what is held back follow from these draws.
    one, other = (compute_owner_errors(v, holdings).drawn for v in (again, valuation))
    _compare_arrays(one, other, "errors of the owners' values")


def _compare_arrays(
    now: Floats | None, then: Floats | None, what: str, limit: float | None = None
) -> None:
    if now is not None and then is not None:
        if limit is None:
            limit = _CLOSE_ERROR * np.abs(now).max(initial=0.0, where=~np.isnan(now))
        if np.allclose(now, then, rtol=0.0, atol=limit, equal_nan=True):
            return
    if now is not then:
        raise DifferenceError(f"the {what} differ when they are recomputed.")
