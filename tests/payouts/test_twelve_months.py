"""A year of payouts: owners join and leave, rows are corrected, one cheats; all of it verifies."""

import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cellworth import KNNValuer, Owners
from cellworth.payouts import (
    Agreement,
    Policy,
    ValidationDraw,
    generate_key,
    sign,
    verify_bundle,
    verify_chain,
    verify_proof,
    verify_signatures,
    write_proofs,
)

VALUER = KNNValuer(3, random_state=0)
DRAW = ValidationDraw(0.3, "agreed beforehand")
POLICY = Policy(negative="carry", gate="refuse")
START = datetime(2025, 1, 1, 12, tzinfo=UTC)
JOINS = {"ann": 0, "bob": 0, "carl": 3, "dora": 6}
LEAVES = {"bob": 8}
FRAUD, CORRECTION = 9, 5


@dataclass
class Year:
    """What has happened so far."""

    folder: Path
    agreement: Agreement | None = None
    folders: list[Path] = field(default_factory=list)
    data: list[dict[str, Any]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def rows_of(name, month):
    """Return the rows that an owner delivers until a month: 40, and 3 more every month."""
    rng = np.random.default_rng(sum(map(ord, name)))
    n_rows = 40 + 3 * (month - JOINS.get(name, month))
    table = pd.DataFrame(rng.normal(size=(80, 3)).cumsum(axis=1), columns=["a", "b", "c"])
    table["label"] = (table["b"] + table["c"] > 0).astype(int)
    table["who"] = name
    table.index = [f"{name}-{i}" for i in range(80)]
    if name == "ann" and month >= CORRECTION:
        table.iloc[0, 0] += 0.5
    return table[:n_rows]


def delivered(month, *, fraud=False):
    names = [name for name in JOINS if JOINS[name] <= month < LEAVES.get(name, 99)]
    tables = [rows_of(name, month) for name in names]
    if fraud:
        copied = tables[0].assign(who="eve")
        tables.append(copied.set_axis([f"eve-{i}" for i in range(len(copied))]))
    table = pd.concat(tables)
    data = DRAW.split(table, table["label"])
    owners = Owners.by_row(data["X"][["a", "b", "c"]], data["X"]["who"])
    return data | {name: data[name][["a", "b", "c"]] for name in ("X", "X_val")}, owners


def agree(year, owners, data, now):
    """Return the agreement of a month: the first one, or an amendment of the last one."""
    days = {"period": (now.date(), now.date() + timedelta(days=29)), "created": now}
    days["payout_date"] = now.date() + timedelta(days=40)
    if year.agreement is None:
        return Agreement.draft(
            VALUER, owners, POLICY, contract="C-1", validation=DRAW, **days, **data
        )
    return year.agreement.amend(owners=owners, **days)


def pay(year, month, *, fraud=False):
    """Pay for a month, and sign; an error leaves everything as it was."""
    now = START + timedelta(days=30) * month
    data, owners = delivered(month, fraud=fraud)
    agreement = agree(year, owners, data, now)
    merged, X, y = agreement.prepare(data["X"], data["y"])
    valuation = VALUER.fit(**data | {"X": X, "y": y}, owners=merged).valuation_
    last = year.folders[-1] if year.folders else None
    payout = agreement.split(valuation, data["X"], data["y"], amount="1000.00", carried=last)
    folder = year.folder / f"{now:%Y-%m}-{month:02}"
    payout.save(folder, time=now + timedelta(hours=1))
    sign(folder, year.folder / "op.key", time=now + timedelta(hours=2))
    year.agreement = agreement
    year.folders.append(folder)
    year.data.append(data)


@pytest.fixture(scope="module")
def year(tmp_path_factory):
    year = Year(tmp_path_factory.mktemp("year"))
    generate_key(year.folder / "op.key")
    for month in range(12):
        if month == FRAUD:
            try:
                pay(year, month, fraud=True)
            except ValueError as error:
                year.refused.append(str(error))
        pay(year, month)
    return year


pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def test_every_month_and_the_chain_verify_from_the_data(year):
    assert len(year.folders) == 12
    verdict = verify_chain(year.folders, data=year.data, valuer=VALUER)
    assert verdict, verdict
    assert verdict.checked == ("chain", "files", "split", "agreement", "data", "values")


def test_the_fraud_was_not_paid(year):
    assert len(year.refused) == 1
    assert "nothing was split" in year.refused[0]
    assert "eve" in year.refused[0]


def test_owners_joined_and_left(year):
    paid = [Agreement.from_toml(one / "agreement.toml").owners for one in year.folders]
    names = [{entry["name"] for entry in owners} for owners in paid]
    assert names[0] == {"ann", "bob"}
    assert names[7] == {"ann", "bob", "carl", "dora"}
    assert names[-1] == {"ann", "carl", "dora"}


def test_validation_rows_of_earlier_months_stay_drawn(year):
    drawn = [set(data["X_val"].index) for data in year.data]
    # Until an owner leaves.
    assert all(one <= other for one, other in pairwise(drawn[:8]))


def test_each_owner_verifies_its_part_of_each_month_alone(year, tmp_path):
    n_proofs = 0
    for folder in year.folders:
        assert verify_signatures(folder, [year.folder / "op.key.pub"])
        for file in write_proofs(folder, tmp_path / folder.name):
            shutil.copy(file, tmp_path / "alone.json")
            assert verify_proof(tmp_path / "alone.json")
            n_proofs += 1
    assert n_proofs == 12 + sum(len(names) for names in map(owners_in, year.folders))


def owners_in(folder):
    return {entry["name"] for entry in Agreement.from_toml(folder / "agreement.toml").owners}


def test_a_byte_changed_anywhere_is_found(year, tmp_path):
    shutil.copytree(year.folder, tmp_path / "year")
    folders = [tmp_path / "year" / folder.name for folder in year.folders]
    rng = np.random.default_rng(0)
    files = [(one, file) for one in folders for file in one.rglob("*") if file.is_file()]
    assert len(files) >= 12 * 9
    for folder, file in files:
        content = file.read_bytes()
        for byte in rng.integers(0, len(content), 2):
            changed = bytearray(content)
            changed[byte] ^= int(rng.integers(1, 256))
            file.write_bytes(bytes(changed))
            assert not verify_bundle(folder), (file, byte)
        file.write_bytes(content)
    assert verify_chain(folders)
    (folders[3] / "payout.json").write_bytes((folders[4] / "payout.json").read_bytes())
    assert verify_chain(folders).difference.startswith(folders[3].name)
