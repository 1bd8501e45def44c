"""Pages of a payout: what the board sees, and what one owner sees of it."""

import re
from dataclasses import replace
from hashlib import sha256
from html import unescape
from itertools import product

import numpy as np
import pandas as pd
import pytest

from cellworth import KNNValuer, Owners, report
from cellworth.payouts import Fact, OwnerValuer, Policy, split_revenue
from cellworth.report import payout_pages
from cellworth.report.sections import sum_by_column
from report_tables import HOSTILE

CELLS = Policy(game="cells", negative="signed")
BANKS = {"north": range(6), "south": range(6, 12)}


def table(seed=0):
    rng = np.random.default_rng(seed)
    y = np.tile(["yes", "no"], 6)
    X = pd.DataFrame(
        {name: rng.normal(size=12) + (y == "yes") for name in ("age", "income", "debt")},
        index=[f"person-{i:02}" for i in range(12)],
    )
    return X, y


@pytest.fixture(scope="module")
def payout():
    X, y = table()
    owners = Owners(X, overlaps="equal")
    for name, rows in BANKS.items():
        owners = owners.assign(name, rows=list(X.index[list(rows)]), columns=["age", "income"])
        owners = owners.assign(name, rows=list(X.index[list(rows)]), columns=["debt"])
    owners = owners.assign("registry", columns=["debt"])
    valuation = KNNValuer(2).fit(X, y, X_val=X + 0.1, y_val=y, owners=owners).valuation_
    return split_revenue(valuation, owners, amount="1000.00", policy=CELLS)


def read(write, subject, path, **given):
    write(subject, path, **given)
    return unescape(path.read_text(encoding="utf-8"))


@pytest.fixture
def board(payout, tmp_path):
    return read(report.write_payout, payout, tmp_path / "board.html", digest="5d41")


def test_the_board_sees_owners_amounts_and_no_row(payout, board):
    for owner, amount in zip(payout.owners, payout.amounts, strict=True):
        assert re.search(rf">{owner}</bdi></th>\s*<td class=\"figure money\">{amount:,}<", board)
    for low, high in payout.amount_intervals:
        assert f">{low:,} to {high:,}<".replace("-", "\N{MINUS SIGN}") in board
    assert "<h1><bdi>Payout of 1,000.00 EUR</bdi></h1>" in board
    assert "5d41" in board
    assert "person-" not in board


def test_values_by_owner_and_column_are_sums_of_cells(payout):
    valuation = payout.valuation
    found = sum_by_column(valuation, payout.ownership.project(valuation.blocks))
    values, again = payout.valuation.values, np.zeros((3, 3))
    for i, (row, column) in product((0, 1), product(range(12), range(3))):
        if row in list(BANKS.values())[i]:
            again[i, column] += values[row, column] / (2 if column == 2 else 1)
    again[2, 2] = values[:, 2].sum() / 2
    np.testing.assert_allclose(found, again, atol=1e-12)
    np.testing.assert_allclose(found.sum(axis=1), payout.values, atol=1e-12)


def test_a_statement_shows_its_cells_and_no_other_owner(payout, tmp_path):
    page = read(report.write_statement, payout.statement("south"), tmp_path / "s.html")
    assert "north" not in page
    assert "registry" not in page
    shown = set(re.findall(r"person-(\d\d)", page))
    assert shown <= {f"{i:02}" for i in BANKS["south"]}
    assert len(shown) > 0
    assert "50.0% is yours" in page


def test_how_others_divide_their_cells_does_not_change_a_statement(tmp_path):
    X, y = table()
    policy, pages = CELLS, []
    for others in ({"two": ["income", "debt"]}, {"secret": ["income"], "parts": ["debt"]}):
        owners = Owners(X).assign("one", columns=["age"])
        for name, columns in others.items():
            owners = owners.assign(name, columns=columns)
        valuer = KNNValuer(2).fit(X, y, X_val=X + 0.1, y_val=y, owners=owners)
        payout = split_revenue(valuer.valuation_, owners, amount="10.00", policy=policy)
        page = read(report.write_statement, payout.statement("one"), tmp_path / "one.html")
        # The interval of an amount depends on the errors of all owners.
        page, n_intervals = re.subn("95% interval [^ ]+ to [^ ]+; of", "of", page)
        assert n_intervals == 1
        pages.append(page)
    assert pages[0] == pages[1].replace("for 3 owners", "for 2 owners")


def test_pages_are_the_same_bytes_every_time(payout, tmp_path):
    for path in (tmp_path / "a", tmp_path / "b"):
        path.mkdir()
        report.write_payout(payout, path / "board.html")
        payout_pages.write_statements(payout, path / "owners")
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*.html"))
    assert len(files) == 4
    for name in files:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_names_of_files_are_safe_and_differ():
    owners = ("../../etc", "a/b", "a b", "", "日本", "CON", *HOSTILE)
    names = list(payout_pages._name_files(owners))
    assert len(set(names)) == len(owners)
    assert all(re.fullmatch(r"[0-9]{2}(-[a-z0-9-]*[a-z0-9])?", name) for name in names)
    assert names[0] == "01-etc"


def test_pages_show_what_the_agreement_says(payout, tmp_path):
    text = 'contract = "<A1>"'
    agreed = replace(payout, agreement=text)
    pages = [read(report.write_payout, agreed, tmp_path / "board.html")]
    payout_pages.write_statements(agreed, tmp_path / "pages")
    files = (tmp_path / "pages").iterdir()
    pages += [unescape(path.read_text(encoding="utf-8")) for path in files]
    for page in pages:
        assert ">" + "<A1></bdi>" in page
        assert sha256(text.encode()).hexdigest() in page


def test_what_is_held_back_and_ties_are_shown(payout, tmp_path):
    values, owners = payout.valuation, payout.ownership
    held = split_revenue(values, owners, amount="1000", policy=replace(CELLS, undecided="hold"))
    page = read(report.write_payout, held, tmp_path / "held.html")
    assert f'Held back</th><td class="figure money">{held.held:,}<' in page
    assert 'Together</th><td class="figure money">1,000.00<' in page
    equal = split_revenue(values, owners, amount="1000", policy=replace(CELLS, undecided="equal"))
    page = read(report.write_payout, equal, tmp_path / "equal.html")
    assert len(equal.ties) > 0
    assert page.count("Paid in equal parts") == len(equal.ties)


def test_owners_who_were_players_have_no_values_of_cells(tmp_path):
    X, y = table()
    owners = Owners(X).assign("ann", columns=["age"]).assign("bob", columns=["income", "debt"])
    valuer = OwnerValuer(KNNValuer(2)).fit(X, y, X_val=X + 0.1, y_val=y, owners=owners)
    payout = split_revenue(valuer.valuation_, owners, amount="9.00")
    page = read(report.write_statement, payout.statement("bob"), tmp_path / "bob.html")
    assert 'id="cells"' not in page
    assert "24 <span" in page
    assert "(cells)" not in page + read(report.write_payout, payout, tmp_path / "board.html")


def test_facts_are_shown(payout, tmp_path):
    fact = Fact("no cells", ("eve",), (), "eve holds no cell.")
    page = read(report.write_payout, replace(payout, facts=(fact,)), tmp_path / "board.html")
    asked = page[page.index("Is anything to be settled about rows or owners?") :]
    assert asked.index("Eve holds no cell.") < asked.index("</tr>")
