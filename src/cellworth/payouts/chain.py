"""Chains of bundles, and proofs by which one owner verifies its part without the others'."""

from __future__ import annotations

import glob
import hashlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from cellworth.data.io import local_path, write_atomically
from cellworth.payouts.agreement import Agreement, AnyValuer
from cellworth.payouts.bundle import (
    AGREEMENT,
    MANIFEST,
    PAYOUT,
    PUBLIC,
    VALUATION,
    VERSION,
    DifferenceError,
    add_up,
    check_equal,
    compute_digest,
    compute_root,
    encode_json,
    find_path,
    follow_path,
    hash_figures,
    hash_part,
    join_figures,
    make_parts,
    read_holdings,
    read_json,
    read_time,
)
from cellworth.payouts.policy import shorten
from cellworth.payouts.replay import Verdict, verify_bundle
from cellworth.valuation import load

PROOF = "cellworth proof"
SUMMARY = "cellworth summary"
# What a proof holds of the files of a bundle.
_HEAD = {"manifest": MANIFEST, "public": PUBLIC}


@dataclass(frozen=True)
class _Link:
    """What the next bundle must continue."""

    digest: str
    payout: Mapping[str, Any]
    agreement: Agreement | None


def verify_chain(
    folders: Sequence[str | os.PathLike[str]],
    *,
    data: Sequence[Mapping[str, Any]] | None = None,
    valuer: AnyValuer | None = None,
    digest: str | None = None,
) -> Verdict:
    """Verify the bundles of successive payouts, and that each continues the one before.

    Each bundle must name the digest of the one before, start from the shortfalls that it carried
    over, be of a later time, and be made under the same agreement or an amendment of it.

    Parameters
    ----------
    folders : sequence of paths
        All bundles of the chain, the first one first.
    data : sequence of mappings, default=None
        For each bundle, the arguments of ``fit``, as for :func:`~cellworth.payouts.verify_bundle`.
    valuer : Valuer, default=None
        Recompute all values from the data.
    digest : str, default=None
        Digest of the last bundle. It reveals any change in any bundle.

    Returns
    -------
    Verdict
        True if nothing differs; else ``difference`` describes the first difference.

    See Also
    --------
    verify_bundle

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import Policy, split_revenue, verify_chain
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> last, folders = None, []
    >>> for month in ("january", "february"):
    ...     rules = {"amount": "100.00", "policy": Policy(negative="carry"), "carried": last}
    ...     payout = split_revenue(valuation, owners, **rules)
    ...     last = Path(tempfile.mkdtemp()) / month
    ...     digest = payout.save(last)
    ...     folders.append(last)
    >>> verify_chain(folders, digest=digest)
    yes: chain, files, split agree; values were not recomputed
    >>> verify_chain(folders[1:]).difference
    'february: it names a bundle before it, which is not in the chain.'
    """
    paths = [local_path(folder, "folder") for folder in folders]
    if not paths:
        raise ValueError("folders must hold at least one bundle, got none.")
    if data is not None and len(data) != len(paths):
        raise ValueError(f"data must be given for all {len(paths)} bundles, got {len(data)}.")
    checked: list[str] = []
    try:
        for path, steps in _iter_links(paths, data, valuer):
            # Only what was checked in all bundles counts.
            checked = [step for step in steps if step in checked or path == paths[0]]
        if digest is not None:
            check_equal(compute_digest(paths[-1]), digest, f"the digest of {paths[-1].name}")
    except DifferenceError as difference:
        return Verdict(tuple(checked), str(difference))
    return Verdict(("chain", *checked))


def find_chain(folder: str | os.PathLike[str]) -> list[Path]:
    """Return a bundle and those before it, first one first, as far as they are beside it."""
    path = local_path(folder, "folder").absolute()
    bundles = [one for one in sorted(path.parent.iterdir()) if (one / MANIFEST).is_file()]
    known = {compute_digest(one): one for one in bundles}
    chain = [path]
    while True:
        before = known.get(_read_previous_digest(chain[0]))
        if before is None or before in chain:
            return chain
        chain.insert(0, before)


def _read_previous_digest(path: Path) -> Any:
    """Return the digest that a bundle names; None if it cannot be read, which is reported later."""
    try:
        return read_json(path / PAYOUT).get("previous")
    except (DifferenceError, OSError, ValueError):
        return None


def _iter_links(
    paths: Sequence[Path], data: Sequence[Mapping[str, Any]] | None, valuer: AnyValuer | None
) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Verify one bundle after the other; yield what was checked."""
    before: _Link | None = None
    for position, path in enumerate(paths):
        given = None if data is None else data[position]
        verdict = verify_bundle(path, data=given, valuer=valuer)
        if verdict.difference is not None:
            raise DifferenceError(f"{path.name}: {verdict.difference}")
        link = _read_link(path)
        difference = _describe_break(before, link)
        if difference is not None:
            raise DifferenceError(f"{path.name}: {difference}")
        before = link
        yield path, verdict.checked


def _read_link(path: Path) -> _Link:
    file = path / AGREEMENT
    agreement = Agreement.from_toml(file) if file.exists() else None
    return _Link(compute_digest(path), read_json(path / PAYOUT), agreement)


def _describe_break(before: _Link | None, link: _Link) -> str | None:
    """Describe why a bundle does not continue the one before; None if it does."""
    named = link.payout["previous"]
    if before is None:
        return None if named is None else "it names a bundle before it, which is not in the chain."
    if named != before.digest:
        return f"it does not name the bundle before it, whose digest is {before.digest}."
    if link.payout["brought"] != before.payout["carried"]:
        return (
            f"it starts from shortfalls of {link.payout['brought']}, but the bundle before it "
            f"carried {before.payout['carried']}."
        )
    times = [read_time(one.payout["time"]) for one in (before, link)]
    if times[1] < times[0]:
        return f"it is of {times[1]}, but the bundle before it is of {times[0]}."
    return _describe_other_contract(before.agreement, link.agreement)


def _describe_other_contract(before: Agreement | None, now: Agreement | None) -> str | None:
    if before is None or now is None:
        same = before is now
        return None if same else "only one of it and the bundle before it has an agreement."
    difference = now.describe_change_of_contract(before)
    return None if difference is None else f"its agreement is no amendment: {difference}"


def write_proofs(bundle: str | os.PathLike[str], output: str | os.PathLike[str]) -> list[Path]:
    """Write for each owner its amount, its cells' values and a proof that they are in a bundle.

    An owner's file holds nothing of others but hashes with salts. ``summary.json`` holds the
    amounts of all owners, with hashes in place of values: for someone who verifies the sum.
    Signatures of the bundle are copied beside each file.

    Parameters
    ----------
    bundle : path
        Folder that ``payout.save`` wrote. Keep it to yourself: it holds everyone's values.
    output : path
        Folder for the files, new or empty.

    Returns
    -------
    list of Path
        The owners' files, in the order of owners, and the summary.

    See Also
    --------
    verify_proof

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import split_revenue, verify_proof, write_proofs
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> folder = Path(tempfile.mkdtemp())
    >>> digest = split_revenue(valuation, owners, amount="100.00").save(folder / "bundle")
    >>> files = write_proofs(folder / "bundle", folder / "proofs")
    >>> [file.name for file in files]
    ['1-ann.json', '2-bob.json', 'summary.json']
    >>> verify_proof(files[1], digest=digest)
    yes: proof, cells agree
    >>> verify_proof(files[2], digest=digest)
    yes: proof, amounts agree
    """
    path, folder = local_path(bundle, "bundle"), local_path(output, "output")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FileExistsError(f"output must be new or empty, got {folder}; give another folder.")
    parts, head = _read_parts(path)
    leaves = [hash_part(part) for part in parts]
    files = {}
    for position, part in enumerate(parts):
        name = f"{position + 1}-{_spell_name(part['amount']['owner'])}.json"
        files[name] = {"format": PROOF, **head, **part, "path": find_path(leaves, position)}
    owners = [
        {"amount": part["amount"], "values_sha256": hash_figures(part["values"])} for part in parts
    ]
    files["summary.json"] = {"format": SUMMARY, **head, "owners": owners}
    folder.mkdir(parents=True, exist_ok=True)
    for name, plain in files.items():
        with write_atomically(folder / name) as file:
            file.write(encode_json(plain))
        for signature in sorted(path.parent.glob(f"{glob.escape(path.name)}.*.sig")):
            ending = signature.name.removeprefix(path.name)
            with write_atomically(folder / f"{name}{ending}") as file:
                file.write(signature.read_bytes())
    return [folder / name for name in files]


def _read_parts(path: Path) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return all owners' parts of a bundle that verifies, and the head of their proofs."""
    verdict = verify_bundle(path)
    if not verdict:
        raise ValueError(f"{path} does not verify: {verdict.difference}")
    valuation = load(path / VALUATION)
    holdings, labels = read_holdings(path, valuation)
    parts = make_parts(read_json(path / PAYOUT), valuation, holdings, labels)
    if parts is None:
        raise ValueError("proofs are written for tables in memory, but the table is in shards.")
    head = {name: read_json(path / file) for name, file in _HEAD.items()}
    return parts, {"version": VERSION, **head}


def _spell_name(name: str) -> str:
    """Return a name for a file; positions tell names apart that are spelled alike."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60]


def verify_proof(file: str | os.PathLike[str], *, digest: str | None = None) -> Verdict:
    """Verify an owner's file, or the summary, that ``write_proofs`` wrote; no data is needed.

    Parameters
    ----------
    file : path
        An owner's file: its amount and the values of its cells must be in the bundle, and the
        values add up to the owner's value. Or the summary: the amounts of all owners must be in
        the bundle and add up to the amount that was split.
    digest : str, default=None
        What ``payout.save`` returned. Without it, or a signature, anyone may have written the file.

    Returns
    -------
    Verdict

    See Also
    --------
    write_proofs

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import split_revenue, verify_proof, write_proofs
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = split_revenue(valuation, owners, amount="100.00").save(folder / "bundle")
    >>> ann, *_ = write_proofs(folder / "bundle", folder / "proofs")
    >>> _ = ann.write_text(ann.read_text().replace("75.00", "95.00"))
    >>> verify_proof(ann)
    no: its amount or values are not those in the bundle.
    """
    path = local_path(file, "file")
    try:
        proof = _read_proof(path)
        came = compute_proof_digest(proof)
        if digest is not None and came != digest:
            raise DifferenceError(f"the digest is {came}, but {digest} was given.")
        check = _compare_part if proof["format"] == PROOF else _compare_summary
        return Verdict(("proof", *check(proof)))
    except DifferenceError as difference:
        return Verdict((), str(difference))
    # A file may come from anyone and hold anything.
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        return Verdict((), f"{path.name} cannot be read ({shorten(str(error))}).")


def _read_proof(path: Path) -> dict[str, Any]:
    proof: dict[str, Any] = read_json(path)
    if proof.get("format") not in (PROOF, SUMMARY) or proof.get("version") != VERSION:
        raise DifferenceError(f"{path.name} is no proof; give a file that write_proofs wrote.")
    expected = {"format", "version", "manifest", "public"}
    expected |= {"amount", "values", "path"} if proof["format"] == PROOF else {"owners"}
    if proof.keys() != expected:
        raise DifferenceError(f"{path.name} has other fields than a proof.")
    return proof


def compute_proof_digest(proof: Mapping[str, Any]) -> str:
    """Return the digest of the bundle of a proof; its public part must be in the bundle."""
    sha256 = hashlib.sha256(encode_json(proof["public"])).hexdigest()
    check_equal(sha256, proof["manifest"]["files"][PUBLIC], f"the sha256 of {PUBLIC}")
    return hashlib.sha256(encode_json(proof["manifest"])).hexdigest()


def read_proof_target(path: Path) -> tuple[str, str]:
    """Return the digest of the bundle of a proof, and its time."""
    proof = _read_proof(path)
    return compute_proof_digest(proof), proof["public"]["time"]


def _compare_part(proof: Mapping[str, Any]) -> tuple[str, ...]:
    public, values = proof["public"], proof["values"]
    read_time(public["time"])
    if follow_path(hash_part(proof), proof["path"]) != public["root"]:
        raise DifferenceError("its amount or values are not those in the bundle.")
    check_equal(proof["amount"]["owner"], values["owner"], "the owner of the values")
    check_equal(add_up(values["cells"]), values["sum"], "the sum of the cells' values")
    if not public["adds_up"]:
        return ()
    if not math.isclose(values["sum"] + values["brought"], values["value"], abs_tol=1e-9):
        raise DifferenceError(
            f"its cells add up to {values['sum']}, but its value is {values['value']}."
        )
    return ("cells",)


def _compare_summary(proof: Mapping[str, Any]) -> tuple[str, ...]:
    public, owners = proof["public"], proof["owners"]
    read_time(public["time"])
    check_equal(len(owners), public["n_owners"], "the number of owners")
    leaves = [join_figures(hash_figures(one["amount"]), one["values_sha256"]) for one in owners]
    if compute_root(leaves) != public["root"]:
        raise DifferenceError("the amounts are not those in the bundle.")
    names = [one["amount"]["owner"] for one in owners]
    check_equal(len(set(names)), len(names), "the number of different owners")
    total = sum((Fraction(one["amount"]["amount"]) for one in owners), Fraction(0))
    check_equal(total, Fraction(public["amount"]), "the sum of all amounts")
    return ("amounts",)
