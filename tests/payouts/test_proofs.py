"""Proofs: each owner verifies its own part, a third party the sum, and no one learns more."""

import json
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from cellworth import KNNValuer, Owners
from cellworth.payouts import (
    Policy,
    generate_key,
    sign,
    split_revenue,
    verify_bundle,
    verify_proof,
    verify_signatures,
    write_proofs,
)
from cellworth.payouts.bundle import compute_root, find_path, follow_path
from forging import rehashed

rng = np.random.default_rng(3)
X = pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "c"])
X.index = [f"p{i}" for i in range(40)]
Y = (X["a"] > 0).astype(int)
DATA = {"X": X, "y": Y, "X_val": X[::3], "y_val": Y[::3]}
NAMES = ["ann", "bob", "carl & co", "dora", "eve"]
OWNERS = Owners.by_row(X, [NAMES[i % 5] for i in range(40)])


@pytest.fixture(scope="module")
def valuation():
    return KNNValuer(3, random_state=0).fit(**DATA, owners=OWNERS).valuation_


@pytest.fixture
def desk(tmp_path, valuation):
    payout = split_revenue(valuation, OWNERS, amount="1000.00", policy=Policy(gate="off"))
    digest = payout.save(tmp_path / "bundle")
    return payout, digest, write_proofs(tmp_path / "bundle", tmp_path / "proofs")


def test_each_proof_verifies_alone(desk, tmp_path):
    payout, digest, files = desk
    alone = tmp_path / "alone.json"
    for file, name in zip(files[:-1], NAMES, strict=True):
        alone.write_bytes(file.read_bytes())
        verdict = verify_proof(alone, digest=digest)
        assert verdict, verdict
        assert verdict.checked == ("proof", "cells")
        part = json.loads(alone.read_bytes())
        assert part["amount"]["amount"] == str(payout.amounts[NAMES.index(name)])
        assert part["values"]["cells"]["value"] == payout.statement(name).cells["value"]
    assert verify_proof(files[-1], digest=digest).checked == ("proof", "amounts")


def test_a_proof_holds_nothing_of_others(desk):
    payout, _, files = desk
    for i, name in enumerate(NAMES):
        text = files[i].read_text()
        for j, other in enumerate(NAMES):
            if i == j:
                continue
            assert other not in text
            assert str(payout.amounts[j]) not in text
            assert not any(repr(v) in text for v in payout.statement(other).cells["value"] if v)
            assert not any(f'"{row}"' in text for row in X.index[j::5]), name


def test_a_summary_holds_amounts_and_no_values(desk):
    payout, _, files = desk
    summary = json.loads(files[-1].read_bytes())
    amounts = [Decimal(one["amount"]["amount"]) for one in summary["owners"]]
    assert tuple(amounts) == payout.amounts
    assert all(set(one["amount"]) == {"owner", "amount", "salt"} for one in summary["owners"])
    assert not any(repr(value) in files[-1].read_text() for value in payout.values.tolist())


def test_salts_keep_equal_figures_apart(tmp_path, valuation):
    payout = split_revenue(valuation, OWNERS, amount="1000.00", policy=Policy(gate="off"))
    roots = []
    for name in ("one", "two"):
        payout.save(tmp_path / name)
        roots.append(json.loads((tmp_path / name / "public.json").read_bytes())["root"])
    assert roots[0] != roots[1]


@pytest.mark.parametrize("which", [0, 4, 5])
def test_any_byte_of_a_proof_matters(desk, which):
    _, digest, files = desk
    content = files[which].read_bytes()
    for position in range(0, len(content), 1 + len(content) // 150):
        changed = bytearray(content)
        changed[position] ^= 1
        files[which].write_bytes(bytes(changed))
        assert not verify_proof(files[which], digest=digest), position


def test_a_forger_cannot_move_money(desk):
    _, _, files = desk
    proof = json.loads(files[0].read_bytes())
    proof["amount"]["amount"] = "999.00"
    files[0].write_text(json.dumps(proof, indent=1))
    assert verify_proof(files[0]).difference == (
        "its amount or values are not those in the bundle."
    )
    summary = json.loads(files[-1].read_bytes())
    one, two = (owner["amount"] for owner in summary["owners"][:2])
    one["amount"], two["amount"] = two["amount"], one["amount"]
    files[-1].write_text(json.dumps(summary, indent=1))
    assert verify_proof(files[-1]).difference == "the amounts are not those in the bundle."
    summary["public"]["root"] = "0" * 64
    files[-1].write_text(json.dumps(summary, indent=1))
    assert "the sha256 of public.json" in verify_proof(files[-1]).difference
    other = json.loads(files[1].read_bytes())
    assert verify_proof(files[1], digest="0" * 64).difference.startswith("the digest is")
    files[1].write_text(json.dumps(other | {"more": 1}, indent=1))
    assert "has other fields than a proof" in verify_proof(files[1]).difference


def test_a_root_that_commits_to_other_parts_does_not_verify(desk, tmp_path):
    public = json.loads((tmp_path / "bundle" / "public.json").read_bytes())
    (tmp_path / "bundle" / "public.json").write_text(
        json.dumps(public | {"root": "0" * 64}, indent=1)
    )
    rehashed(tmp_path / "bundle")
    assert verify_bundle(tmp_path / "bundle").difference.startswith("public.json should be")
    with pytest.raises(ValueError, match="does not verify: public"):
        write_proofs(tmp_path / "bundle", tmp_path / "more")


def test_shared_cells_and_shortfalls_add_up(tmp_path, valuation):
    owners = Owners(X, overlaps="equal").assign("ann", rows=slice(0, 30)).assign("bob", columns="a")
    policy = Policy(gate="off", negative="carry")
    payout = split_revenue(
        valuation, owners, amount="10.00", policy=policy, carried={"bob": -0.001}
    )
    payout.save(tmp_path / "bundle")
    for file in write_proofs(tmp_path / "bundle", tmp_path / "proofs")[:2]:
        assert verify_proof(file).checked == ("proof", "cells")


def test_signatures_of_a_bundle_come_with_its_proofs(desk, tmp_path):
    public = generate_key(tmp_path / "op.key")
    sign(tmp_path / "bundle", tmp_path / "op.key")
    files = write_proofs(tmp_path / "bundle", tmp_path / "signed")
    for file in files:
        assert verify_signatures(file, [public])
    assert not verify_signatures(desk[2][0], [public])


@pytest.mark.parametrize("n_leaves", [1, 2, 3, 4, 5, 8, 13])
def test_every_leaf_leads_to_the_root_and_no_other_does(n_leaves):
    leaves = [f"{i:064x}" for i in range(n_leaves)]
    root = compute_root(leaves)
    for position, leaf in enumerate(leaves):
        path = find_path(leaves, position)
        assert len(path) <= np.ceil(np.log2(max(n_leaves, 2)))
        assert follow_path(leaf, path) == root
        assert follow_path("f" * 64, path) != root


def test_wrong_files_get_one_sentence(desk, tmp_path):
    with pytest.raises(FileExistsError, match="output must be new or empty"):
        write_proofs(tmp_path / "bundle", tmp_path / "proofs")
    (tmp_path / "x.json").write_text("{}")
    assert "is no proof" in verify_proof(tmp_path / "x.json").difference
    (tmp_path / "x.json").write_text("[")
    assert "cannot be read" in verify_proof(tmp_path / "x.json").difference
