"""From an agreement to a payout and its bundle, by commands alone."""

import json
import shutil
from dataclasses import asdict
from datetime import timedelta
from decimal import Decimal

import pytest

from cellworth import Owners, load
from cellworth.cli.input_files import read_input
from cellworth.payouts import (
    Agreement,
    Policy,
    generate_key,
    sign,
    split_revenue,
)
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
    assert found["bundle"] is None
    assert found["plan"] == asdict(again.plan())
    lines = fine("split", home.values, "--amount", "100.00").splitlines()
    assert lines[-1] == repr(again.plan())


@pytest.mark.parametrize("way", ["--agreement", "--owners", "as valued"])
def test_owners_come_from_the_agreement_from_a_file_or_from_what_was_valued(home, way):
    files = {"--agreement": home.deal, "--owners": home.owners}
    given = [way, files[way]] if way in files else []
    # The cells of one owner are worth less than nothing.
    given += ["--gate", "warn"] if way == "--owners" else []
    found = json.loads(fine("split", home.values, "--amount", "100.00", *given, "--json"))
    assert [line["owner"] for line in found["owners"]] == ["bank", "shop"]


def test_options_are_the_policy_where_nothing_was_agreed(home):
    given = ["--owners", home.owners, "--currency", "USD", "--negative", "signed", "--minimum", "1"]
    out = fine("split", home.values, "--amount", "50.00", *given)
    assert out.startswith("Payout of 50.00 USD to 2 owners; negative: signed")


def test_without_owners_no_one_is_paid(home, tmp_path):
    fine("value", *home.asked, "-o", tmp_path / "v")
    done = cellworth("split", tmp_path / "v", "--amount", "1.00")
    assert done.code == 2
    assert "no owners were given" in done.err


def test_a_statement_shows_one_owner_alone(home):
    out = fine("split", home.values, "--amount", "100.00", "--statement", "shop")
    assert out.startswith(("shop gets ", "shop pays "))
    assert "bank" not in out


def test_parties_and_what_is_held_back_are_options(home, tmp_path):
    rules = ["--negative", "floor", "--party-of", "shop=bank", "--undecided", "hold"]
    bundle = tmp_path / "bundle"
    split = ["split", home.values, "--amount", "100.00", "--owners", home.owners, *rules]
    document = json.loads(fine(*split, "--gate", "off", "-o", bundle, "--json"))
    paid = sum(Decimal(owner["amount"]) for owner in document["owners"])
    assert paid + Decimal(document["held"]) == 100
    fine("verify", bundle)
    wrong = cellworth(*split, "--party-of", "shop")
    assert (wrong.code, "give OWNER=PARTY, not 'shop'" in wrong.err) == (2, True)


def test_an_agreement_fixes_the_policy_and_the_problem(home, tmp_path):
    deal = tmp_path / "deal.toml"
    fine("draft", *home.asked, "--owners", home.owners, "--minimum", "5", "-o", deal)
    agreement = Agreement.from_toml(deal)
    assert agreement.policy.minimum == "5"
    assert agreement.terms["valuer"]["n_neighbors"] == 3
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


def test_an_amendment_of_the_command_line_names_the_agreement_before(home, tmp_path):
    deal, later, page = (tmp_path / name for name in ("deal.toml", "later.toml", "page.md"))
    asked = ["draft", *home.asked, "--owners", home.owners]
    head = ["--contract", "C-7", "--party", "buyer", "--period", "2026-01-01", "2026-01-31"]
    fine(*asked, *head, "--payout-date", "2026-02-15", "--readable", page, "-o", deal)
    out = json.loads(fine(*asked, "--amends", deal, "--minimum", "5", "-o", later, "--json"))
    first, second = Agreement.from_toml(deal), Agreement.from_toml(later)
    assert out["previous"] == second.previous == first.digest
    assert (second.contract, second.parties) == ("C-7", ("buyer", "bank", "shop"))
    assert page.read_text() == first.to_markdown()
    done = cellworth(*asked, "--amends", deal, "--contract", "D", "-o", tmp_path / "x.toml")
    assert "--contract is that of the agreement before" in done.err


def test_values_that_were_made_under_no_agreement_are_split_with_a_warning(home, tmp_path):
    fine("value", *home.asked, "-o", tmp_path / "v", "--owners", home.owners)
    given = ["--agreement", home.deal, "--amount", "10.00", "-o", tmp_path / "bundle"]
    done = cellworth("split", tmp_path / "v", *given)
    assert (done.code, "not fixed before the values" in done.err) == (0, True)
    done = cellworth("verify", tmp_path / "bundle", "--values", tmp_path / "v")
    assert (done.code, "not fixed before the values" in done.err) == (0, True)


def test_a_verdict_compares_the_agreement_with_that_of_the_values(home, tmp_path):
    deal, values = tmp_path / "deal.toml", tmp_path / "v"
    deal.write_text(home.deal.read_text().replace('minimum = "0"', 'minimum = "5"'))
    fine("value", *home.asked, "-o", values, "--agreement", deal)
    fine("split", values, "--amount", "100.00", "-o", tmp_path / "bundle")
    assert cellworth("verify", tmp_path / "bundle", "--values", values).code == 0
    done = cellworth("verify", tmp_path / "bundle", "--values", home.values)
    assert done.code == 1
    assert 'is minimum = "5", but was minimum = "0"' in done.out
    bare = ["--gate", "warn", "-o", tmp_path / "bare", "--owners", home.owners]
    fine("split", values, "--amount", "100.00", *bare)
    done = cellworth("verify", tmp_path / "bare", "--values", values)
    assert done.code == 1
    assert "the bundle holds no agreement" in done.out


def test_a_bundle_is_replayed_from_the_table(home, tmp_path):
    bundle = tmp_path / "bundle"
    digest = json.loads(
        fine("split", home.values, "--amount", "100.00", "-o", bundle, "--json")
    )["digest"]  # fmt: skip
    files = fine("verify", bundle, "--digest", digest, "--agreement", home.deal)
    assert files == "yes: files, split, agreement agree; values were not recomputed\n"
    assert fine("verify", bundle, "--values", home.values) == (
        "yes: files, split, agreement, data, values agree\n"
    )


def test_a_verdict_that_says_no_is_exit_code_1(home, tmp_path):
    bundle = tmp_path / "bundle"
    fine("split", home.values, "--amount", "100.00", "-o", bundle)
    done = cellworth("verify", bundle, "--digest", "0" * 64)
    assert done.code == 1
    assert done.out.startswith("no: the digest is ")
    payout = (bundle / "payout.json").read_text()
    (bundle / "payout.json").write_text(payout.replace("100.00", "200.00"))
    done = cellworth("verify", bundle, "--json")
    assert done.code == 1
    assert json.loads(done.out)["verdict"] is False


def test_values_that_were_tampered_with_do_not_pass(home, tmp_path):
    other = tmp_path / "people.csv"
    other.write_text(TABLE.replace("p1,23", "p1,24"))
    asked = [other, *home.asked[1:]]
    fine("value", *asked, "-o", tmp_path / "v", "--owners", home.owners)
    bundle = tmp_path / "bundle"
    fine("split", tmp_path / "v", "--amount", "100.00", "--gate", "warn", "-o", bundle)
    done = cellworth("verify", bundle, "--values", home.values)
    assert done.code == 1
    assert "X is not the data that was valued" in done.out


@pytest.mark.slow
def test_a_payout_of_model_values_can_be_replayed(home, tmp_path, monkeypatch):
    shutil.copy(home.table, tmp_path / "people.csv")
    monkeypatch.chdir(tmp_path)
    asked = ["people.csv", "--target", "label", "--id", "name", "--drop", "town", "--val", 2]
    entry = '[[owners]]\nname = "{0}"\ncolumns = ["{0}"]\n'
    (tmp_path / "owners.toml").write_text(entry.format("age") + entry.format("debt"))
    model = ["--model", "sklearn.naive_bayes:GaussianNB", "--stop", "fits=200", "--workers", 1]
    fine("value", *asked, *model, "-o", "v", "--owners", "owners.toml")
    fine("split", "v", "--amount", "10.00", "--gate", "off", "-o", "bundle")
    assert "values agree" in fine("verify", "bundle", "--values", "v", *model[:2])


def test_pages_for_the_board_and_for_each_owner_are_written(home, tmp_path):
    given = ["--report", tmp_path / "board.html", "--statements", tmp_path / "pages"]
    out = fine("split", home.values, "--amount", "100.00", *given, "-o", tmp_path / "b", "--json")
    found = json.loads(out)
    assert found["report"].endswith("board.html")
    assert found["digest"] in (tmp_path / "board.html").read_text(encoding="utf-8")
    pages = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("pages/*")}
    assert set(pages) == {"1-bank.html", "2-shop.html"}
    assert found["digest"] in pages["2-shop.html"]
    assert "bank" not in pages["2-shop.html"]


def test_the_page_of_one_statement_shows_this_owner_alone(home, tmp_path):
    page = tmp_path / "shop.html"
    fine("split", home.values, "--amount", "100.00", "--statement", "shop", "--report", page)
    text = page.read_text(encoding="utf-8")
    assert "Statement for shop" in text
    assert "bank" not in text


def test_pages_replace_nothing(home, tmp_path):
    taken = tmp_path / "board.html"
    taken.write_text("mine", encoding="utf-8")
    done = cellworth("split", home.values, "--amount", "100.00", "--report", taken)
    assert done.code == 2
    assert "exists already; give another name" in done.err
    assert taken.read_text(encoding="utf-8") == "mine"
    both = ["--statement", "shop", "--statements", tmp_path / "pages"]
    done = cellworth("split", home.values, "--amount", "100.00", *both)
    assert "leave out --statement" in done.err


def test_next_month_goes_on_from_the_bundle_before(home, tmp_path):
    given = ["split", home.values, "--owners", home.owners, "--negative", "carry"]
    given += ["--amount", "100.00", "--gate", "off"]
    first, second = tmp_path / "one", tmp_path / "two"
    digest = json.loads(fine(*given, "-o", first, "--json"))["digest"]
    out = json.loads(fine(*given, "--carried", first, "-o", second, "--json"))
    assert out["previous"] == digest
    assert fine("verify", second, "--chain").startswith("yes: chain, files, split agree")
    shutil.rmtree(first)
    done = cellworth("verify", second, "--chain")
    assert (done.code, "names a bundle before it" in done.out) == (1, True)


def test_validation_rows_are_drawn_as_agreed_from_each_table(home, tmp_path):
    deal, values = tmp_path / "deal.toml", tmp_path / "values"
    drawn = ["--draw-share", "0.4", "--draw-seed", "any text"]
    fine("draft", *home.asked, "--owners", home.owners, *drawn, "-o", deal)
    more = tmp_path / "more.csv"
    more.write_text(TABLE + TABLE.partition("\n")[2].replace("p", "q"))
    fine("value", more, *home.asked[1:], "--agreement", deal, "-o", values)
    draw = Agreement.from_toml(deal).validation
    ids = [f"p{i}" for i in range(24)] + [f"q{i}" for i in range(24)]
    kept = [one for one, out in zip(ids, draw.select(ids), strict=True) if not out]
    assert load(values).row_labels.tolist() == kept
    fine("split", values, "--agreement", deal, "--amount", "9.00", "-o", tmp_path / "b")
    out = fine("verify", tmp_path / "b", "--values", values)
    assert out == "yes: files, split, agreement, data, values agree\n"
    late = cellworth("value", more, *home.asked[1:], "--val", more, "--agreement", deal)
    assert "draws validation rows from a table in memory, but --val is given" in late.err
    assert (
        "given together"
        in cellworth(
            "draft", *home.asked, "--owners", home.owners, *drawn[:2], "-o", tmp_path / "x.toml"
        ).err
    )


def test_signatures_are_verified_with_the_bundle(home, tmp_path):
    deal, bundle, key = tmp_path / "deal.toml", tmp_path / "bundle", tmp_path / "ann.key"
    shutil.copy(home.deal, deal)
    out = fine("sign", deal, "--key", key, "--new-key")
    assert "The public key, for everyone who verifies it, is in" in out
    fine("split", home.values, "--amount", "100.00", "-o", bundle)
    asked = ["verify", bundle, "--agreement", deal, "--signed-by", f"{key}.pub"]
    done = cellworth(*asked)
    assert (done.code, "bundle has no signature by" in done.out) == (1, True)
    fine("sign", bundle, "--key", key)
    assert fine(*asked).startswith("yes: signatures, files, split, agreement agree")


def test_a_bundle_from_before_the_agreement_was_signed_is_backdated(home, tmp_path):
    deal, bundle, key = tmp_path / "deal.toml", tmp_path / "bundle", tmp_path / "ann.key"
    agreement = Agreement.from_toml(home.deal)
    shutil.copy(home.deal, deal)
    X = read_input(home.table, target="label", row_id="name").X
    with pytest.warns(UserWarning, match="the cells of shop have a negative value"):
        payout = agreement.split(load(home.values), X, amount="100.00")
    payout.save(bundle, time=agreement.created)
    generate_key(key)
    sign(deal, key, time=agreement.created + timedelta(minutes=1))
    sign(bundle, key, time=agreement.created + timedelta(minutes=2))
    done = cellworth("verify", bundle, "--agreement", deal, "--signed-by", f"{key}.pub")
    assert done.code == 1
    assert "before the agreement was signed" in done.out


def test_an_owner_verifies_its_own_file_and_its_signature(home, tmp_path):
    bundle, proofs, key = tmp_path / "bundle", tmp_path / "proofs", tmp_path / "op.key"
    asked = ["split", home.values, "--amount", "100.00", "-o", bundle, "--json"]
    digest = json.loads(fine(*asked))["digest"]
    fine("sign", bundle, "--key", key, "--new-key")
    found = json.loads(fine("prove", bundle, "-o", proofs, "--json"))
    assert [file.rpartition("/")[2] for file in found["owners"]] == ["1-bank.json", "2-shop.json"]
    given = ["--digest", digest, "--signed-by", f"{key}.pub"]
    out = fine("verify", proofs / "2-shop.json", *given)
    assert out == "yes: signatures, proof, cells agree\n"
    assert fine("verify", proofs / "summary.json") == "yes: proof, amounts agree\n"
    assert "verified alone" in cellworth("verify", proofs / "summary.json", "--chain").err
    assert cellworth("verify", proofs / "1-bank.json", "--digest", "0" * 64).code == 1
