"""From an agreement to a payout and its audit, by commands alone."""

import json
import shutil
from decimal import Decimal

import pytest

from cellworth import Owners, load
from cellworth.cli.input_files import read_input
from cellworth.payouts import Agreement, Policy, split_revenue
from shell import TABLE, cellworth, fine


def payout_of(home, *, amount, **policy):
    X = read_input(home.table, target="label", row_id="name").X
    owners = Owners.from_toml(home.owners, X)
    return split_revenue(load(home.values), owners, amount=amount, policy=Policy(**policy))


def test_the_payout_is_that_of_the_library(home):
    found = json.loads(fine("split", home.values, "--amount", "100.00", "--json"))
    again = payout_of(home, amount="100.00", gate="off")
    assert [line["amount"] for line in found["owners"]] == [str(cents) for cents in again.amounts]
    assert sum(Decimal(line["amount"]) for line in found["owners"]) == 100
    assert found["audit"] is None


@pytest.mark.parametrize("way", ["--agreement", "--owners", "as valued"])
def test_owners_come_from_the_agreement_from_a_file_or_from_what_was_valued(home, way):
    files = {"--agreement": home.deal, "--owners": home.owners}
    given = [way, files[way]] if way in files else []
    found = json.loads(fine("split", home.values, "--amount", "100.00", *given, "--json"))
    assert [line["owner"] for line in found["owners"]] == ["bank", "shop"]


def test_options_are_the_policy_where_nothing_was_agreed(home):
    given = ["--owners", home.owners, "--currency", "USD", "--negative", "signed", "--minimum", "1"]
    out = fine("split", home.values, "--amount", "50.00", *given)
    assert out.startswith("Payout of 50.00 USD to 2 owners; negative: signed")


def test_without_owners_no_one_is_paid(home, tmp_path):
    fine("value", *home.asked, "-o", tmp_path / "v", "-q")
    done = cellworth("split", tmp_path / "v", "--amount", "1.00")
    assert done.code == 2
    assert "no owners were given" in done.err


def test_a_statement_shows_one_owner_alone(home):
    out = fine("split", home.values, "--amount", "100.00", "--statement", "shop")
    assert out.startswith("shop gets ")
    assert "bank" not in out


def test_an_agreement_fixes_the_policy_and_the_problem(home, tmp_path):
    deal = tmp_path / "deal.toml"
    fine("draft", *home.asked, "--owners", home.owners, "--minimum", "5", "-o", deal)
    agreement = Agreement.from_toml(deal)
    assert agreement.policy.minimum == "5"
    assert agreement.terms["valuer"]["n_neighbors"] == "3"
    other = [home.table, "--target", "label", "--id", "name", "-k", 4]
    done = cellworth("value", *other, "--agreement", deal, "-o", tmp_path / "v")
    assert done.code == 2
    assert "n_neighbors is 4, but the agreement has 3" in done.err


def test_an_agreement_that_was_edited_after_the_values_is_rejected(home, tmp_path):
    deal = tmp_path / "deal.toml"
    deal.write_text(home.deal.read_text().replace('minimum = "0"', 'minimum = "5"'))
    late = cellworth("split", home.values, "--agreement", deal, "--amount", "10.00")
    assert late.code == 2
    assert 'is minimum = "5", but was minimum = "0"; give the original agreement' in late.err
    asked = ["split", home.values, "--amount", "10.00", "--minimum", "5"]
    assert "settled by the agreement" in cellworth(*asked).err
    assert "overrides the agreement" in cellworth(*asked, "--owners", home.owners).err


def test_values_that_were_made_under_no_agreement_are_split_with_a_warning(home, tmp_path):
    fine("value", *home.asked, "-o", tmp_path / "v", "-q", "--owners", home.owners)
    given = ["--agreement", home.deal, "--amount", "10.00", "-o", tmp_path / "audit"]
    done = cellworth("split", tmp_path / "v", *given)
    assert (done.code, "not fixed before the values" in done.err) == (0, True)
    done = cellworth("verify", tmp_path / "audit", "--values", tmp_path / "v")
    assert (done.code, "not fixed before the values" in done.err) == (0, True)


def test_a_verdict_compares_the_agreement_with_that_of_the_values(home, tmp_path):
    deal, values = tmp_path / "deal.toml", tmp_path / "v"
    deal.write_text(home.deal.read_text().replace('minimum = "0"', 'minimum = "5"'))
    fine("value", *home.asked, "-o", values, "-q", "--agreement", deal)
    fine("split", values, "--amount", "100.00", "-o", tmp_path / "audit")
    assert cellworth("verify", tmp_path / "audit", "--values", values).code == 0
    done = cellworth("verify", tmp_path / "audit", "--values", home.values)
    assert done.code == 1
    assert 'is minimum = "5", but was minimum = "0"' in done.out
    fine("split", values, "--amount", "100.00", "-o", tmp_path / "bare", "--owners", home.owners)
    done = cellworth("verify", tmp_path / "bare", "--values", values)
    assert done.code == 1
    assert "the audit holds no agreement" in done.out


def test_an_audit_is_replayed_from_the_table(home, tmp_path):
    audit = tmp_path / "audit"
    digest = json.loads(
        fine("split", home.values, "--amount", "100.00", "-o", audit, "--json")
    )["digest"]  # fmt: skip
    files = fine("verify", audit, "--digest", digest, "--agreement", home.deal)
    assert files == "yes: files, split, agreement agree; values were not recomputed\n"
    assert fine("verify", audit, "--values", home.values) == (
        "yes: files, split, agreement, data, values agree\n"
    )


def test_a_verdict_that_says_no_is_exit_code_1(home, tmp_path):
    audit = tmp_path / "audit"
    fine("split", home.values, "--amount", "100.00", "-o", audit)
    done = cellworth("verify", audit, "--digest", "0" * 64)
    assert done.code == 1
    assert done.out.startswith("no: the digest is ")
    payout = (audit / "payout.json").read_text()
    (audit / "payout.json").write_text(payout.replace("100.00", "200.00"))
    done = cellworth("verify", audit, "--json")
    assert done.code == 1
    assert json.loads(done.out)["verdict"] is False


def test_values_that_were_tampered_with_do_not_pass(home, tmp_path):
    other = tmp_path / "people.csv"
    other.write_text(TABLE.replace("p1,23", "p1,24"))
    asked = [other, *home.asked[1:]]
    fine("value", *asked, "-o", tmp_path / "v", "-q", "--owners", home.owners)
    audit = tmp_path / "audit"
    fine("split", tmp_path / "v", "--amount", "100.00", "-o", audit)
    done = cellworth("verify", audit, "--values", home.values)
    assert done.code == 1
    assert "X is not the data that was valued" in done.out


@pytest.mark.slow
def test_a_payout_of_model_values_can_be_replayed(home, tmp_path, monkeypatch):
    shutil.copy(home.table, tmp_path / "people.csv")
    monkeypatch.chdir(tmp_path)
    asked = ["people.csv", "--target", "label", "--id", "name", "--drop", "town", "--cv", 2]
    entry = '[[owners]]\nname = "{0}"\ncolumns = ["{0}"]\n'
    (tmp_path / "owners.toml").write_text(entry.format("age") + entry.format("debt"))
    model = ["--model", "sklearn.naive_bayes:GaussianNB", "--budget", 200, "--jobs", 1]
    fine("value", *asked, *model, "-o", "v", "--owners", "owners.toml", "-q")
    fine("split", "v", "--amount", "10.00", "--gate", "off", "-o", "audit")
    assert "values agree" in fine("verify", "audit", "--values", "v", *model[:2])
