"""Audits: a payout on disk, with all that it takes to replay it years later."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from cellworth.applications.agreements import Agreement
from cellworth.applications.gate import check_owners
from cellworth.applications.payouts import Payout, Policy, Shared, shared_out, with_label_owner
from cellworth.blocks import LABEL
from cellworth.files import read_manifest, written_atomically
from cellworth.owners import Holdings, Owners
from cellworth.problem import Problem
from cellworth.valuation import Valuation

FORMAT = "cellworth audit"
VERSION = 1

_MANIFEST = "manifest.json"
_VALUATION = "valuation"
_HOLDINGS = "holdings.json"
_ROWS = "holdings.parquet"
_PAYOUT = "payout.json"
_AGREEMENT = "agreement.toml"
_UTILITIES = "utilities.parquet"
# Another processor may add up in another order.
_CLOSE = 1e-9


@dataclass(frozen=True)
class Verdict:
    """Whether a bundle holds what it says; true if it does.

    Parameters
    ----------
    checked : tuple of str
        What was looked at: "files", "split", "agreement", "data", "values".
    difference : str or None
        The first difference, as a sentence.
    """

    checked: tuple[str, ...]
    difference: str | None = None

    def __bool__(self) -> bool:
        """Tell whether nothing differs."""
        return self.difference is None

    def __repr__(self) -> str:
        """Answer yes or no."""
        if self.difference is not None:
            return f"no: {self.difference}"
        left = "" if "values" in self.checked else "; values were not computed anew"
        return f"yes: {', '.join(self.checked)} agree{left}"


class _DifferenceError(Exception):
    """The first difference."""


def write_bundle(folder: str | os.PathLike[str], payout: Payout, utilities: Any) -> str:
    """Write a payout, its valuation, holdings and agreement; return the seal."""
    path = Path(folder)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise FileExistsError(f"{path} is not empty; give a new folder for the audit.")
    path.mkdir(parents=True, exist_ok=True)
    payout.valuation.save(path / _VALUATION)
    holdings = payout.ownership.on(payout.valuation.blocks)
    _write(path / _ROWS, _parquet({"line": holdings.row_lines}))
    labels = payout.ownership.share_of_labels()
    _write_json(path / _HOLDINGS, _plain_holdings(holdings) | {"labels": labels})
    _write_json(path / _PAYOUT, _plain_payout(payout))
    if payout.agreement is not None:
        _write(path / _AGREEMENT, payout.agreement.encode())
    if utilities is not None:
        _write(path / _UTILITIES, _parquet(_log(utilities)))
    manifest = {"format": FORMAT, "version": VERSION, "files": _fingerprints(path)}
    _write_json(path / _MANIFEST, manifest)
    return _seal(path)


def verify(
    folder: str | os.PathLike[str],
    *,
    data: Mapping[str, Any] | None = None,
    valuer: Any = None,
    seal: str | None = None,
) -> Verdict:
    """Replay an audit bundle and tell whether it holds what it says.

    Parameters
    ----------
    folder : path
        What ``payout.save`` wrote.
    data : mapping, default=None
        What ``fit`` was given: ``{"X": X, "y": y, "X_val": X_val, "y_val": y_val}``. Its
        fingerprints are compared, and the gate is passed again.
    valuer : Valuer, default=None
        With the settings of then: all values are computed anew from the data and compared.
    seal : str, default=None
        What ``payout.save`` returned. Who changes a file and all that follows from it cannot
        change the seal in other people's hands.

    Returns
    -------
    Verdict
        True where nothing differs; else its ``difference`` says what does, and where.
    """
    path = Path(folder)
    if valuer is not None and data is None:
        raise ValueError("a valuer came without data; give data={'X': X, 'y': y, ...} as well.")
    if not (path / _MANIFEST).is_file():
        raise FileNotFoundError(f"{path} holds no {_MANIFEST}; give a folder that save wrote.")
    checked: list[str] = []
    try:
        for step in _steps(path, data, valuer, seal):
            checked.append(step)
    except _DifferenceError as difference:
        return Verdict(tuple(checked), str(difference))
    return Verdict(tuple(checked))


def _steps(
    path: Path, data: Mapping[str, Any] | None, valuer: Any, seal: str | None
) -> Iterator[str]:
    """Look at one thing after the other; names what was found to agree."""
    with _told("the files"):
        _compare_files(path, seal)
    yield "files"
    with _told("the split"):
        valuation = Valuation.load(path / _VALUATION)
        holdings, labels = _read_holdings(path)
        saved = json.loads((path / _PAYOUT).read_bytes())
        _compare_split(saved, valuation, holdings, labels)
    yield "split"
    if (path / _AGREEMENT).exists():
        with _told("the agreement"):
            agreement = Agreement.from_toml(path / _AGREEMENT)
            _compare_agreement(agreement, saved, valuation)
        yield "agreement"
    if data is None:
        return
    with _told("the data"):
        _compare_data(data, valuation)
        owners = _owners_again(data["X"], holdings, valuation)
        if (path / _AGREEMENT).exists():
            _compare_agreed_owners(agreement, data["X"], holdings, valuation)
        if saved["policy"]["gate"] != "off":
            found = [asdict(finding) for finding in check_owners(owners, valuation)]
            _same(_through_json(found), saved["findings"], "what the gate found")
    yield "data"
    if valuer is not None:
        _compare_values(valuation, valuer, data)
        yield "values"


class _told:  # noqa: N801 (reads as a word in "with _told(...)")
    """Turns what goes wrong with a damaged file into a difference."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        expected = (ValueError, KeyError, TypeError, IndexError, AttributeError, OSError)
        if isinstance(error, expected):
            raise _DifferenceError(f"{self._what} cannot be read ({error}).") from error


def _compare_files(path: Path, seal: str | None) -> None:
    manifest = read_manifest(path / _MANIFEST, FORMAT, VERSION)
    named, there = manifest["files"], _fingerprints(path)
    for name in sorted(set(named) | set(there)):
        if name not in there:
            raise _DifferenceError(f"{name} is missing.")
        if name not in named:
            raise _DifferenceError(f"{name} is there, but was not saved with the others.")
        if named[name] != there[name]:
            raise _DifferenceError(f"{name} is not the file that was saved (its sha256 differs).")
    if seal is not None and seal != _seal(path):
        raise _DifferenceError(f"the seal is {_seal(path)}, but {seal} was given out.")


def _compare_split(
    saved: Mapping[str, Any], valuation: Valuation, holdings: Holdings, labels: Mapping[str, int]
) -> None:
    shared = shared_out(
        Policy(**saved["policy"]),
        valuation,
        holdings,
        labels,
        amount=Decimal(saved["amount"]),
        brought=saved["brought"],
    )
    again = _through_json(_plain_shared(shared, valuation))
    for name, expected in again.items():
        _same(expected, saved[name], f"{name} of the payout")


def _compare_agreement(
    agreement: Agreement, saved: Mapping[str, Any], valuation: Valuation
) -> None:
    _same(asdict(agreement.policy), saved["policy"], "the policy of the agreement")
    difference = agreement.difference(valuation)
    if difference is not None:
        raise _DifferenceError(f"the valuation is not what was agreed: {difference}")


def _compare_data(data: Mapping[str, Any], valuation: Valuation) -> None:
    unknown = set(data) - {"X", "y", "X_val", "y_val", "row_groups", "column_groups", "groups"}
    if unknown or not {"X", "y"} <= set(data):
        raise ValueError(f"data has {', '.join(sorted(data))}; give X, y, X_val and y_val")
    came = Problem.of(**data, classification=None, one_class_can_judge=True).question()
    saved = valuation.provenance.question["data_sha256"]
    # Without validation rows the folds depend on the valuer, which looks at them itself.
    for name in ("X", "y", *(["validation"] if data.get("X_val") is not None else [])):
        if came["data_sha256"][name] != saved[name]:
            raise _DifferenceError(f"{name} is not the data that was valued (its sha256 differs).")


def _owners_again(X: Any, holdings: Holdings, valuation: Valuation) -> Owners:
    """Owners of the table, from what was saved about its blocks."""
    owners = Owners(X, overlaps="equal")
    rows, columns = valuation.blocks.rows.codes, valuation.blocks.columns.codes
    codes = holdings.codes()[np.ix_(rows, columns)]
    n_columns = owners.shape[1]
    for place, name in enumerate(holdings.names):
        held = holdings.claims[:, place][codes]
        if held[:, :n_columns].any():
            owners = owners.assign(name, cells=held[:, :n_columns])
        if held[:, n_columns:].any():
            owners = owners.assign(name, rows=held[:, -1], columns=[LABEL])
    return owners


def _compare_agreed_owners(
    agreement: Agreement, X: Any, holdings: Holdings, valuation: Valuation
) -> None:
    owners = with_label_owner(agreement.owners_of(X), agreement.policy, valuation)
    agreed = owners.on(valuation.blocks)
    _same(list(agreed.names), list(holdings.names), "the owners of the agreement")
    for name, one, other in zip(agreed.names, agreed.keys, holdings.keys, strict=True):
        if one != other:
            raise _DifferenceError(f"{name} does not hold what the agreement gives to {name}.")


def _compare_values(valuation: Valuation, valuer: Any, data: Mapping[str, Any]) -> None:
    from sklearn.base import clone

    again = clone(valuer).fit(**data).valuation_
    asked, before = again.provenance.question, valuation.provenance.question
    for name in sorted(set(asked) | set(before)):
        _same(asked.get(name), before.get(name), f"{name} of the valuer")
    if again.blocks != valuation.blocks:
        raise _DifferenceError("the valuer gives blocks with other names.")
    scale = float(np.abs(valuation.values).max())
    apart = np.argwhere(~(np.abs(again.values - valuation.values) <= _CLOSE * scale))
    if len(apart):
        i, j = apart[0]
        raise _DifferenceError(
            f"{len(apart)} values differ when they are computed anew, the first at "
            f"({valuation.row_labels[i]}, {valuation.column_labels[j]}): "
            f"{again.values[i, j]:.9g}, but {valuation.values[i, j]:.9g} was saved."
        )


def _same(came: Any, saved: Any, what: str) -> None:
    if came != saved:
        raise _DifferenceError(
            f"{what} should be {_short(came)}, but the audit has {_short(saved)}."
        )


def _short(thing: Any) -> str:
    text = repr(thing)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _plain_payout(payout: Payout) -> dict[str, Any]:
    provenance = payout.valuation.provenance
    return {
        **_plain_shared(payout.shared, payout.valuation),
        "amount": str(payout.amount),
        "policy": asdict(payout.policy),
        "brought": dict(payout.brought),
        "findings": [asdict(finding) for finding in payout.findings],
        "data_sha256": provenance.question.get("data_sha256"),
        "seed": provenance.seed,
        "versions": dict(provenance.versions),
    }


def _plain_shared(shared: Shared, valuation: Valuation) -> dict[str, Any]:
    """What follows from values, holdings and policy."""
    errors = shared.errors
    validation = errors.validation
    return {
        "owners": [
            {
                "name": name,
                "holds": key,
                "value": float(shared.values[i]),
                "standard_error": _known(errors.sampling[i]),
                "validation_error": None if validation is None else _known(validation[i]),
                "amount": str(shared.amounts[i]),
            }
            for i, (name, key) in enumerate(zip(shared.owners, shared.keys, strict=True))
        ],
        "errors_are_bounds": errors.bounded,
        "carried": dict(shared.carried),
        "nobody": shared.nobody,
        "unearned": _known(valuation.unearned),
    }


def _known(number: float) -> float | None:
    # JSON knows no NaN.
    return None if np.isnan(number) else float(number)


def _plain_holdings(holdings: Holdings) -> dict[str, Any]:
    return {
        "names": list(holdings.names),
        "lines": holdings.lines.tolist(),
        "claims": holdings.claims.astype(int).tolist(),
    }


def _read_holdings(path: Path) -> tuple[Holdings, dict[str, int]]:
    import pyarrow.parquet as pq

    plain = json.loads((path / _HOLDINGS).read_bytes())
    rows = pq.read_table(path / _ROWS)["line"].to_numpy().astype(np.int32)
    lines = np.array(plain["lines"], dtype=np.int32)
    claims = np.array(plain["claims"], dtype=bool)
    return Holdings(tuple(plain["names"]), rows, lines, claims), plain["labels"]


def _log(utilities: Any) -> dict[str, Any]:
    """Utilities by coalition, in the order in which the cache has them."""
    entries = list(utilities.entries())
    names = ("game", "coalition", "utility")
    return {name: [entry[place] for entry in entries] for place, name in enumerate(names)}


def _parquet(columns: Mapping[str, Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), sink, compression="zstd")
    return sink.getvalue()


def _fingerprints(path: Path) -> dict[str, str]:
    files = (file for file in sorted(path.rglob("*")) if file.is_file())
    return {
        file.relative_to(path).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
        if file != path / _MANIFEST
    }


def _seal(path: Path) -> str:
    return hashlib.sha256((path / _MANIFEST).read_bytes()).hexdigest()


def _through_json(plain: Any) -> Any:
    return json.loads(json.dumps(plain))


def _write_json(path: Path, plain: Mapping[str, Any]) -> None:
    _write(path, json.dumps(plain, indent=1).encode())


def _write(path: Path, content: bytes) -> None:
    with written_atomically(path) as file:
        file.write(content)
