"""Detached signatures of agreements and bundles, with ed25519 keys."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cellworth.data.io import local_path, write_atomically
from cellworth.payouts.agreement import Agreement, now
from cellworth.payouts.bundle import (
    MANIFEST,
    PAYOUT,
    DifferenceError,
    compute_digest,
    read_json,
    read_time,
)
from cellworth.payouts.chain import read_proof_target
from cellworth.payouts.policy import shorten
from cellworth.payouts.replay import Verdict

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

FORMAT = "cellworth signature"
VERSION = 1
_ENDING = ".sig"
_PUBLIC = ".pub"
AnyFile = str | os.PathLike[str]


@dataclass(frozen=True)
class _Signed:
    """What is signed: an agreement or a bundle, its hash and its time."""

    path: Path
    kind: str
    sha256: str
    time: datetime


def generate_key(path: AnyFile) -> Path:
    """Write a new private key, which only you can read, and its public key; return the latter.

    Parameters
    ----------
    path : path
        New file for the private key, in PEM. The public key is written to ``path`` + ".pub": give
        it to everyone who verifies your signatures.

    Returns
    -------
    Path
        The file of the public key.

    See Also
    --------
    sign

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth.payouts import generate_key
    >>> generate_key(Path(tempfile.mkdtemp()) / "ann.key").name
    'ann.key.pub'
    """
    ed25519, serialization = _import_cryptography()
    private, key = local_path(path, "path"), ed25519.Ed25519PrivateKey.generate()
    public = _append(private, _PUBLIC)
    for one in (private, public):
        if one.exists():
            raise FileExistsError(f"{one} exists already; give another name for the key.")
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    shown = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    with write_atomically(private, replacing=False) as file:
        # Before anything is in it.
        Path(file.name).chmod(0o600)
        file.write(secret)
    with write_atomically(public, replacing=False) as file:
        file.write(shown)
    return public


def sign(target: AnyFile, key: AnyFile, *, time: datetime | None = None) -> Path:
    """Sign an agreement or a bundle; return the file of the signature, beside what is signed.

    Parameters
    ----------
    target : path
        File of an agreement, or folder of a bundle.
    key : path
        Private key that :func:`generate_key` wrote.
    time : datetime with time zone, default=None
        Time of the signature, which is signed as well; None means now.

    Returns
    -------
    Path
        The file of the signature.

    See Also
    --------
    generate_key, verify_signatures

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import Agreement, generate_key, sign, verify_signatures
    >>> folder = Path(tempfile.mkdtemp())
    >>> X, y = [[0.0], [9.0]], [0, 1]
    >>> data, owners = {"X": X, "y": y, "X_val": X, "y_val": y}, Owners(X).assign("ann")
    >>> Agreement.draft(KNNValuer(1, random_state=0), owners, **data).save(folder / "deal.toml")
    >>> public = generate_key(folder / "ann.key")
    >>> signature = sign(folder / "deal.toml", folder / "ann.key")
    >>> verify_signatures(folder / "deal.toml", [public])
    yes: signatures agree
    >>> text = (folder / "deal.toml").read_text()
    >>> _ = (folder / "deal.toml").write_text(text.replace("EUR", "USD"))
    >>> print(bool(verify_signatures(folder / "deal.toml", [public])))
    False
    """
    private = _read_private_key(local_path(key, "key"))
    try:
        found = _read_target(local_path(target, "target"))
        moment = now() if time is None else time
        _check_time(moment.isoformat(), found)
    except DifferenceError as error:
        raise ValueError(f"{target} cannot be signed: {error}") from error
    public = private.public_key()
    plain = _make_message(found, moment.isoformat())
    signature = private.sign(_encode(plain))
    plain |= {"public_key": _to_text(public.public_bytes_raw()), "signature": _to_text(signature)}
    file = _append(found.path, f".{_name_key(public)}{_ENDING}")
    with write_atomically(file) as opened:
        opened.write(_encode(plain))
    return file


def verify_signatures(target: AnyFile, public_keys: Sequence[AnyFile]) -> Verdict:
    """Verify that the holders of all these keys signed an agreement or a bundle as it is.

    Signatures are read from the files beside it that :func:`sign` wrote. The time of a signature
    must not precede the time of what is signed, nor be still to come.

    Parameters
    ----------
    target : path
        File of an agreement, folder of a bundle, or a file of :func:`write_proofs`, which has the
        signatures of its bundle.
    public_keys : sequence of paths
        Files of public keys.

    Returns
    -------
    Verdict

    See Also
    --------
    sign

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import generate_key, sign, split_revenue, verify_signatures
    >>> folder = Path(tempfile.mkdtemp())
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = KNNValuer(1).fit(X, y, X_val=X, y_val=y, owners=owners).valuation_
    >>> _ = split_revenue(valuation, owners, amount="100.00").save(folder / "bundle")
    >>> keys = [generate_key(folder / name) for name in ("ann.key", "bob.key")]
    >>> _ = sign(folder / "bundle", folder / "ann.key")
    >>> verify_signatures(folder / "bundle", keys[:1])
    yes: signatures agree
    >>> bool(verify_signatures(folder / "bundle", keys))
    False
    """
    path = local_path(target, "target")
    keys = [_read_public_key(local_path(one, "public_keys")) for one in public_keys]
    if not keys:
        raise ValueError("public_keys must have at least one key, got none.")
    try:
        found = _read_target(path)
        for key, name in zip(keys, public_keys, strict=True):
            _compare_signature(found, key, str(name))
    except DifferenceError as difference:
        return Verdict((), str(difference))
    return Verdict(("signatures",))


def read_signing_times(target: AnyFile, public_keys: Sequence[AnyFile]) -> list[datetime]:
    """Return the times at which the holders of these keys signed; signatures must be valid."""
    path = local_path(target, "target")
    keys = [_read_public_key(local_path(one, "public_keys")) for one in public_keys]
    files = [_append(path, f".{_name_key(key)}{_ENDING}") for key in keys]
    return [read_time(read_json(file)["time"]) for file in files]


def read_bundle_time(folder: AnyFile) -> datetime:
    """Return the time of a bundle."""
    return _read_target(local_path(folder, "folder")).time


def _compare_signature(found: _Signed, key: Ed25519PublicKey, called: str) -> None:
    """Raise DifferenceError unless the holder of a key signed what was found."""
    from cryptography.exceptions import InvalidSignature

    file = _append(found.path, f".{_name_key(key)}{_ENDING}")
    if not file.is_file():
        raise DifferenceError(f"{found.path.name} has no signature by {called}.")
    try:
        plain = read_json(file)
        message = _make_message(found, plain["time"])
        signature = base64.b64decode(plain["signature"], validate=True)
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise DifferenceError(f"{file.name} cannot be read ({shorten(str(error))}).") from error
    if plain.get("sha256") != found.sha256:
        raise DifferenceError(
            f"{file.name} is the signature of another {found.kind}, or it was changed afterwards."
        )
    expected = message | {
        "public_key": _to_text(key.public_bytes_raw()),
        "signature": _to_text(signature),
    }
    if plain != expected:
        raise DifferenceError(f"{file.name} was changed after it was written.")
    try:
        key.verify(signature, _encode(message))
    except InvalidSignature:
        raise DifferenceError(f"{file.name} is not a signature by {called}.") from None
    _check_time(plain["time"], found)


def _check_time(time: str, found: _Signed) -> None:
    moment = read_time(time)
    if moment < found.time:
        raise DifferenceError(
            f"it was signed at {moment}, before the {found.kind} was written ({found.time})."
        )


def _read_target(path: Path) -> _Signed:
    """Return what is signed; raise DifferenceError if it cannot be read."""
    try:
        if path.is_dir():
            if not (path / MANIFEST).is_file():
                raise FileNotFoundError(f"{path} is no bundle; give a folder of payout.save.")
            time = read_time(read_json(path / PAYOUT)["time"])
            return _Signed(path, "bundle", compute_digest(path), time)
        if path.suffix == ".json":
            digest, text = read_proof_target(path)
            return _Signed(path, "bundle", digest, read_time(text))
        agreement = Agreement.from_toml(path)
        if agreement.created is None:
            raise DifferenceError("the agreement does not say when it was written (created).")
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        return _Signed(path, "agreement", sha256, agreement.created)
    except (KeyError, ValueError, TypeError) as error:
        raise DifferenceError(f"{path.name} cannot be read ({shorten(str(error))}).") from error


def _make_message(found: _Signed, time: Any) -> dict[str, Any]:
    """Return what is signed: format, kind, hash and time."""
    head = {"format": FORMAT, "version": VERSION, "signed": found.kind}
    return head | {"sha256": found.sha256, "time": time}


def _encode(plain: dict[str, Any]) -> bytes:
    return json.dumps(plain, indent=1).encode()


def _to_text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _name_key(key: Ed25519PublicKey) -> str:
    """Return a short name of a key for the names of files."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


def _append(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def _import_cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise ImportError(
            "signatures need cryptography, which is not installed; pip install 'cellworth[sign]'."
        ) from error
    return ed25519, serialization


def _read_private_key(path: Path) -> Ed25519PrivateKey:
    ed25519, serialization = _import_cryptography()
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path} must be a private key in PEM without a password; write one with generate_key."
        ) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise ValueError(f"{path} must be an ed25519 key; write one with generate_key.")
    return cast("Ed25519PrivateKey", key)


def _read_public_key(path: Path) -> Ed25519PublicKey:
    ed25519, serialization = _import_cryptography()
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{path} must be a public key in PEM; give the file ending in {_PUBLIC}."
        ) from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise ValueError(f"{path} must be an ed25519 key; give one that generate_key wrote.")
    return cast("Ed25519PublicKey", key)
