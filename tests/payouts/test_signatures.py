"""Signatures: valid for what was signed, by whom, and when; for nothing else."""

import base64
import json
import shutil
import stat
import sys
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed448

from cellworth import KNNValuer, Owners
from cellworth.payouts import Agreement, generate_key, sign, split_revenue, verify_signatures

START = datetime(2025, 1, 31, 12, tzinfo=UTC)
DAY = timedelta(days=1)
X, Y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
DATA = {"X": X, "y": Y, "X_val": X, "y_val": Y}
OWNERS = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """An agreement and a bundle, both signed by two, and their keys."""
    folder = tmp_path_factory.mktemp("desk")
    valuer = KNNValuer(1, random_state=0)
    Agreement.draft(valuer, OWNERS, created=START, **DATA).save(folder / "deal.toml")
    valuation = valuer.fit(**DATA, owners=OWNERS).valuation_
    split_revenue(valuation, OWNERS, amount="100").save(folder / "bundle", time=START + DAY)
    for name in ("ann", "bob", "eve"):
        generate_key(folder / f"{name}.key")
    for name in ("ann", "bob"):
        sign(folder / "deal.toml", folder / f"{name}.key", time=START)
        sign(folder / "bundle", folder / f"{name}.key", time=START + 2 * DAY)
    return folder


@pytest.fixture
def copy(desk, tmp_path):
    shutil.copytree(desk, tmp_path / "desk")
    return tmp_path / "desk"


def public(folder, *names):
    return [folder / f"{name}.key.pub" for name in names]


@pytest.mark.parametrize("target", ["deal.toml", "bundle"])
def test_what_both_signed_verifies_and_what_one_did_not_sign_does_not(desk, target):
    assert verify_signatures(desk / target, public(desk, "ann", "bob"))
    verdict = verify_signatures(desk / target, public(desk, "ann", "eve"))
    assert verdict.difference.startswith(f"{target} has no signature by ")


def test_a_private_key_is_for_its_owner_alone(desk):
    if sys.platform != "win32":
        assert stat.S_IMODE((desk / "ann.key").stat().st_mode) == 0o600
    with pytest.raises(FileExistsError, match=r"ann\.key exists already; give another name"):
        generate_key(desk / "ann.key")


@pytest.mark.parametrize("target", ["deal.toml", "bundle/payout.json", "bundle/manifest.json"])
def test_any_byte_of_what_is_signed_matters(copy, target):
    path = copy / target
    content = path.read_bytes()
    signed = copy / target.partition("/")[0]
    for position in range(0, len(content), 1 + len(content) // 25):
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(bytes(changed))
        # The files of a bundle are compared with its manifest, whose hash is signed.
        if target != "bundle/payout.json":
            assert not verify_signatures(signed, public(copy, "ann"))
    path.write_bytes(content)
    assert verify_signatures(signed, public(copy, "ann"))


def test_any_byte_of_a_signature_matters(copy):
    (path,) = [file for file in copy.glob("bundle.*.sig") if verify_only(copy, file, "ann")]
    content = path.read_bytes()
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1
        path.write_bytes(bytes(changed))
        assert not verify_signatures(copy / "bundle", public(copy, "ann")), position


def verify_only(folder, file, name):
    """Tell whether a file is the signature by one person."""
    raw = serialization.load_pem_public_key(public(folder, name)[0].read_bytes())
    key = json.loads(file.read_bytes())["public_key"]
    return base64.b64decode(key) == raw.public_bytes_raw()


def test_a_signature_of_one_thing_is_none_of_another(copy):
    for file in copy.glob("deal.toml.*.sig"):
        shutil.copy(file, copy / file.name.replace("deal.toml", "bundle"))
    verdict = verify_signatures(copy / "bundle", public(copy, "ann"))
    assert "is the signature of another bundle, or it was changed afterwards" in verdict.difference


def test_the_time_is_signed_and_cannot_precede_what_is_signed(copy):
    with pytest.raises(ValueError, match=r"it was signed at .*, before the bundle was written"):
        sign(copy / "bundle", copy / "ann.key", time=START)
    with pytest.raises(ValueError, match="is still to come"):
        sign(copy / "bundle", copy / "ann.key", time=datetime(2999, 1, 1, tzinfo=UTC))
    for file in copy.glob("bundle.*.sig"):
        plain = json.loads(file.read_bytes()) | {"time": (START + 3 * DAY).isoformat()}
        file.write_text(json.dumps(plain, indent=1))
    verdict = verify_signatures(copy / "bundle", public(copy, "ann"))
    assert "is not a signature by" in verdict.difference


def test_wrong_keys_get_one_sentence(copy):
    with pytest.raises(ValueError, match="must be a private key in PEM"):
        sign(copy / "deal.toml", copy / "ann.key.pub")
    with pytest.raises(ValueError, match="must be a public key in PEM"):
        verify_signatures(copy / "deal.toml", [copy / "ann.key"])
    with pytest.raises(ValueError, match="public_keys must have at least one key"):
        verify_signatures(copy / "deal.toml", [])
    other = ed448.Ed448PrivateKey.generate()
    (copy / "ed448.key").write_bytes(
        other.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    with pytest.raises(ValueError, match="must be an ed25519 key"):
        sign(copy / "deal.toml", copy / "ed448.key")
    with pytest.raises(FileNotFoundError, match="is no bundle"):
        sign(copy, copy / "ann.key")


def test_without_cryptography_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    with pytest.raises(ImportError, match=r"pip install 'cellworth\[sign\]'"):
        generate_key(tmp_path / "k")
