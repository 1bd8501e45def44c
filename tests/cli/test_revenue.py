"""From an agreement to a payout and its bundle, by commands alone."""

import json
import shutil
from decimal import Decimal

import pytest

from cellworth import Owners, load
from cellworth.cli.folders import Result
from cellworth.cli.input_files import read_input
from cellworth.payouts import Agreement, Policy, split_revenue
from shell import OWNERS, TABLE, TERMS, cellworth, fine


def agreed(folder, terms=TERMS, table=TABLE):
    """Write a table and terms into a folder; return the path of their agreement."""
    (folder / "people.csv").write_text(table)
    (folder / "terms.toml").write_text(terms)
    fine("agree", folder / "terms.toml", "-o", folder / "deal.toml")
    return folder / "deal.toml"


def test_the_payout_is_that_of_the_library(home):
    found = json.loads(fine("split", home.values, "--amount", "100.00", "--json"))
    X = read_input(home.table, target="label", row_id="name").X
    policy = Policy(game="cells", negative="signed")
    again = split_revenue(
        load(home.values), Owners.from_toml(home.owners, X), amount="100.00", policy=policy
    )
    assert [line["amount"] for line in found["owners"]] == [str(cents) for cents in again.amounts]
    assert sum(Decimal(line["amount"]) for line in found["owners"]) == 100
    assert found["bundle"] is None


def test_values_under_no_agreement_are_split_only_by_one_that_they_fit(home, tmp_path):
    fine("value", *home.asked, "-o", tmp_path / "v")
    done = cellworth("split", tmp_path / "v", "--amount", "1.00")
    assert (done.code, "computed under no agreement" in done.err) == (2, True)
    split = ("split", tmp_path / "v", "--amount", "1.00", "--agreement", home.deal)
    assert "shop" in fine(*split)


def test_owners_are_the_players_by_default(tmp_path):
    deal = agreed(tmp_path, TERMS.replace('game = "cells"', ""))
    values, bundle = tmp_path / "values", tmp_path / "bundle"
    fine("value", tmp_path / "people.csv", "--agreement", deal, "-o", values)
    assert load(values).shape == (2, 1)
    fine("split", values, "--amount", "100.00", "-o", bundle)
    assert fine("verify", bundle, "--values", values).endswith("data, values agree\n")
    assert len(list(bundle.iterdir())) <= 6
    done = cellworth("explain", values, "--row", "1")
    assert (done.code, "holds values of owners, not of cells" in done.err) == (2, True), done.err


def test_what_is_held_back_is_in_the_document(tmp_path):
    deal = agreed(tmp_path, TERMS.replace('negative = "signed"', 'undecided = "hold"'))
    values, bundle = tmp_path / "values", tmp_path / "bundle"
    fine("value", tmp_path / "people.csv", "--agreement", deal, "-o", values)
    document = json.loads(fine("split", values, "--amount", "100.00", "-o", bundle, "--json"))
    paid = sum(Decimal(owner["amount"]) for owner in document["owners"])
    assert paid + Decimal(document["held"]) == 100
    fine("verify", bundle)


@pytest.mark.parametrize(
    "option", ["--target", "-k", "--drop", "--categorical", "--scoring", "--id"]
)
def test_no_option_changes_what_was_agreed(home, tmp_path, option):
    given = {"-k": 5, "--scoring": "balanced_neighbor_agreement"}.get(option, "town")
    done = cellworth(
        "value", home.table, "--agreement", home.deal, option, given, "-o", tmp_path / "v"
    )
    assert (done.code, "settled by the agreement" in done.err) == (2, True), done.err


def change_columns(change):
    """Change the cells of each line of the table, the head included."""
    lines = [change(line.split(",")) for line in TABLE.splitlines()]
    return "\n".join([*(",".join(cells) for cells in lines), ""])


WRONG_TABLES = {
    "dropped": (change_columns(lambda c: [*c[:2], *c[3:]]), "columns.town is missing"),
    "added": (
        change_columns(lambda c: [c[0], "x" if c[0] == "name" else "1", *c[1:]]),
        "columns.x is 'number'",
    ),
    "type": (TABLE.replace("p3,29", "p3,old"), "columns.age is 'category', but 'number' was"),
    "two at once": (
        change_columns(lambda c: [*c[:2], *c[3:]]).replace("p3,29", "p3,old"),
        "columns.age is 'category', but 'number' was agreed on; columns.town is missing",
    ),
}


@pytest.mark.parametrize("which", WRONG_TABLES)
def test_a_table_that_does_not_fit_is_refused_with_all_differences(home, tmp_path, which):
    table, where = WRONG_TABLES[which]
    (tmp_path / "people.csv").write_text(table)
    done = cellworth(
        "value", tmp_path / "people.csv", "--agreement", home.deal, "-o", tmp_path / "v"
    )
    assert (done.code, where in done.err) == (2, True), done.err


WRONG_VALUES = {
    "target": (["--target", "town", "--id", "name", "-k", "3"], "target is 'town', but 'label'"),
    "column": (["--target", "label", "--id", "name", "-k", "3", "--drop", "town"], "drop is"),
    "types": (
        ["--target", "label", "--id", "name", "-k", "3", "--categorical", "age"], "categorical is"
    ),
    "K": (["--target", "label", "--id", "name", "-k", "5"], "neighbors is 5, but 3"),
    "validation": (["--target", "label", "--id", "name", "-k", "3", "--val", "{T}"], "val"),
}  # fmt: skip


@pytest.mark.parametrize("which", WRONG_VALUES)
def test_values_that_were_not_agreed_on_are_not_split(home, tmp_path, which):
    options, where = WRONG_VALUES[which]
    options = [option.format(T=home.table) for option in options]
    fine("value", home.table, *options, "-o", tmp_path / "v")
    done = cellworth("split", tmp_path / "v", "--agreement", home.deal, "--amount", "1.00")
    assert (done.code, where in done.err) == (2, True), done.err


WRONG_IN_A_BUNDLE = {
    "target": "columns is ['age', 'debt', 'label'], but ['age', 'debt', 'town'] was agreed on",
    "column": "columns is ['age', 'debt'], but ['age', 'debt', 'town'] was agreed on",
    "types": "column_types.age is 'categorical', but missing was agreed on",
    "K": "n_neighbors is 5, but 3 was agreed on",
    "validation": "validation_sha256 is",
}


@pytest.mark.parametrize("which", WRONG_IN_A_BUNDLE)
def test_a_bundle_of_values_that_were_not_agreed_on_does_not_pass(home, tmp_path, which):
    (tmp_path / "other.csv").write_text(
        change_columns(lambda c: [c[0], c[1] if c[0] == "name" else f"{c[1]}.5", *c[2:]])
    )
    options = [option.format(T=tmp_path / "other.csv") for option in WRONG_VALUES[which][0]]
    fine("value", home.table, *options, "-o", tmp_path / "v")
    deal = agreed(tmp_path, TERMS.replace('"signed"', '"floor"'))
    agreement, valuation = Agreement.from_toml(deal), load(tmp_path / "v")
    X, names = Result.load(tmp_path / "v").loaded.train.X, valuation.column_labels.tolist()
    owners = Owners(X).assign("bank", columns=names[:1]).assign("shop", columns=names[1:])
    given = {"amount": "1.00", "policy": agreement.policy, "agreement": agreement.text}
    split_revenue(valuation, owners, **given).save(tmp_path / "bundle")
    done = cellworth("verify", tmp_path / "bundle")
    assert (done.code, WRONG_IN_A_BUNDLE[which] in done.out) == (1, True), done.out


def test_another_agreement_than_that_of_the_values_is_rejected(home, tmp_path):
    deal = tmp_path / "deal.toml"
    deal.write_text(home.deal.read_text().replace('"signed"', '"floor"'))
    late = cellworth("split", home.values, "--agreement", deal, "--amount", "10.00")
    assert (late.code, "is not the agreement under which these" in late.err) == (2, True)


def test_an_amendment_names_the_agreement_before(tmp_path):
    deal = agreed(tmp_path, 'contract = "C-7"\n' + TERMS)
    (tmp_path / "terms.toml").write_text(f'amends = "{deal}"\n{TERMS}')
    later = tmp_path / "later.toml"
    out = json.loads(fine("agree", tmp_path / "terms.toml", "-o", later, "--json"))
    first, second = Agreement.from_toml(deal), Agreement.from_toml(later)
    assert out["previous"] == second.previous == first.digest
    assert second.contract == "C-7"


WRONG_TERMS = {
    TERMS.replace('target = "label"', ""): "must say target",
    "colour = 1\n" + TERMS: "has unknown settings: colour; leave them out",
    TERMS.replace("neighbors", "neigbors"): "method.neigbors",
    TERMS.replace("neighbors = 3", 'neighbors = "3"'): "neighbors of the terms is",
    TERMS.replace("neighbors = 3", "stop = {time = 5}"): "stops after a time",
    TERMS.replace(OWNERS, ""): "names no owners; add source",
    TERMS + "[validation]\nshare = 0.5\n": "share and seed",
    TERMS.replace('game = "cells"', 'unit = "0"'): "unit must be above 0",
    "[": "not valid TOML",
}


@pytest.mark.parametrize("terms", WRONG_TERMS)
def test_a_mistake_in_terms_gets_one_sentence(tmp_path, terms):
    (tmp_path / "people.csv").write_text(TABLE)
    (tmp_path / "terms.toml").write_text(terms)
    done = cellworth("agree", tmp_path / "terms.toml", "-o", tmp_path / "deal.toml")
    assert (done.code, WRONG_TERMS[terms] in done.err) == (2, True), done.err
    assert not (tmp_path / "deal.toml").exists()


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


def test_values_of_another_table_do_not_pass(home, tmp_path):
    deal = agreed(tmp_path, table=TABLE.replace("p1,23", "p1,24"))
    fine("value", tmp_path / "people.csv", "--agreement", deal, "-o", tmp_path / "v")
    bundle = tmp_path / "bundle"
    fine("split", tmp_path / "v", "--amount", "100.00", "-o", bundle)
    done = cellworth("verify", bundle, "--values", home.values)
    assert done.code == 1
    assert "X is not the data that was valued" in done.out


@pytest.mark.slow
def test_a_payout_of_a_model_can_be_replayed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    entry = '[[owners]]\nname = "{0}"\ncolumns = ["{0}"]\n'
    terms = f"""
        table = "people.csv"
        target = "label"
        id = "name"
        drop = ["town"]
        [validation]
        folds = 2
        [method]
        model = "sklearn.naive_bayes:GaussianNB"
        {entry.format("age")}{entry.format("debt")}"""
    deal = agreed(tmp_path, terms)
    fine("value", "people.csv", "--agreement", deal, "--workers", 1, "-o", "v")
    fine("split", "v", "--amount", "10.00", "-o", "bundle")
    model = ["--model", "sklearn.naive_bayes:GaussianNB"]
    assert "values agree" in fine("verify", "bundle", "--values", "v", *model)


def test_pages_for_the_board_and_for_each_owner_are_written(home, tmp_path):
    given = ["--report", tmp_path / "board.html", "--statements", tmp_path / "pages"]
    out = fine("split", home.values, "--amount", "100.00", *given, "-o", tmp_path / "b", "--json")
    found = json.loads(out)
    assert found["report"].endswith("board.html")
    assert found["digest"] in (tmp_path / "board.html").read_text(encoding="utf-8")
    pages = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.glob("pages/*")}
    assert set(pages) == {"1-bank.html", "2-shop.html"}
    assert found["digest"] in pages["2-shop.html"]
    assert "Statement for shop" in pages["2-shop.html"]
    assert "bank" not in pages["2-shop.html"]


def test_pages_replace_nothing(home, tmp_path):
    taken = tmp_path / "board.html"
    taken.write_text("mine", encoding="utf-8")
    done = cellworth("split", home.values, "--amount", "100.00", "--report", taken)
    assert done.code == 2
    assert "exists already; give another name" in done.err
    assert taken.read_text(encoding="utf-8") == "mine"


def test_next_month_goes_on_from_the_bundle_before(tmp_path):
    deal = agreed(tmp_path, TERMS.replace('"signed"', '"carry"'))
    values, first, second = (tmp_path / name for name in ("v", "one", "two"))
    fine("value", tmp_path / "people.csv", "--agreement", deal, "-o", values)
    given = ["split", values, "--amount", "100.00"]
    digest = json.loads(fine(*given, "-o", first, "--json"))["digest"]
    out = json.loads(fine(*given, "--carried", first, "-o", second, "--json"))
    assert out["previous"] == digest
    said = fine("verify", second)
    assert said.startswith("yes: files, split, agreement, months before agree")
    shutil.rmtree(first)
    assert "the month before is not in this folder" in fine("verify", second)


def test_validation_rows_are_drawn_as_agreed_from_each_table(tmp_path):
    deal = agreed(tmp_path, TERMS + '[validation]\nshare = 0.4\nseed = "any text"\n')
    more, values = tmp_path / "more.csv", tmp_path / "values"
    more.write_text(TABLE + TABLE.partition("\n")[2].replace("p", "q"))
    fine("value", more, "--agreement", deal, "-o", values)
    draw = Agreement.from_toml(deal).validation
    ids = [f"p{i}" for i in range(24)] + [f"q{i}" for i in range(24)]
    kept = [one for one, out in zip(ids, draw.select(ids), strict=True) if not out]
    assert load(values).row_labels.tolist() == kept
    # Rows p and q are equal, so that some of them score themselves.
    done = cellworth("split", values, "--amount", "9.00")
    assert (done.code, "rows equal validation rows" in done.err) == (2, True), done.err
    late = cellworth("value", more, "--val", more, "--agreement", deal)
    assert "draws validation rows from a table in memory, but --val is given" in late.err
