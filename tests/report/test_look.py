"""look: one page from an audit, values and a payout, each as they are without it."""

import dataclasses
import html
import re

import numpy as np
import pandas as pd
import pytest

from cellworth import KNNValuer, Owners, audit, look, report
from cellworth.payouts import Policy, split_revenue
from report_tables import flowers, hostile

TIMES = "\N{MULTIPLICATION SIGN}"
CHAPTERS = ("wrong", "worth", "get")


def dirty():
    """A table with a missing code, its labels and two owners of columns."""
    _, X, y = flowers()
    rng = np.random.default_rng(1)
    X = X.assign(weight=rng.normal(50, 3, 24).round(1))
    X.loc["003", "weight"] = 9999.0
    owners = Owners(X).assign("field", columns=["size", "weight"]).assign_rest("archive")
    return X, y, owners


@pytest.fixture(scope="module")
def made():
    X, y, owners = dirty()
    return look(X, y, owners=owners, on_audit=None)


def read_code(page, chapter):
    (code,) = re.findall(rf'<pre id="{chapter}-code"[^>]*>(.*?)</pre>', page, re.DOTALL)
    return html.unescape(code)


def test_a_look_holds_what_its_parts_say(made):
    X, y, owners = dirty()
    valuation = KNNValuer(random_state=0).fit(X, y, owners=owners).valuation_
    policy = Policy(game="cells", currency="%")
    payout = split_revenue(valuation, owners, amount="100.00", policy=policy)
    assert repr(made.audit) == repr(audit(X, y))
    np.testing.assert_array_equal(made.valuation.values, valuation.values)
    assert made.payout.amounts == payout.amounts
    assert sum(made.payout.amounts) == 100
    assert repr(made) == f"{made.audit.title}\n\n{made.valuation!r}\n\n{made.payout!r}"


def test_the_first_sentence_is_the_verdict_and_chapters_follow_it(made):
    found = html.unescape(made.html)
    verdict = f"One finding in 24 rows {TIMES} 4 columns: missing code."
    assert f'<p class="lead">{verdict}</p>' in found
    places = [found.index(f'<div class="chapter" id="{name}">') for name in CHAPTERS]
    assert sorted(places) == places
    assert "9999 in one cell of weight" in found[places[0] : places[1]]
    leader = max(zip(made.payout.amounts, made.payout.owners, strict=True))
    assert f"{leader[1]}</bdi></strong> gets most: <strong>{leader[0]} %" in found[places[2] :]


def test_a_clean_table_is_told_so_first():
    _, X, y = flowers()
    page = look(X, y, on_audit=None).html
    verdict = f"Nothing looks wrong in 24 rows {TIMES} 3 columns."
    assert page.index(verdict) < page.index('<div class="chapter" id="wrong">')
    assert "That nothing was found does not prove" in page
    assert 'id="get"' not in page


def test_the_code_of_each_chapter_makes_it_again(made, capsys):
    X, y, owners = dirty()
    here = {"X": X, "y": y, "owners": owners}
    for chapter in CHAPTERS:
        exec(read_code(made.html, chapter), here)  # noqa: S102 (the page's own)
    assert repr(here["found"]) == repr(made.audit)
    assert pd.isna(here["fixed"].loc["003", "weight"])
    np.testing.assert_array_equal(here["valuation"].values, made.valuation.values)
    assert repr(made.payout) in capsys.readouterr().out


def test_the_code_names_validation_rows_and_protected_columns():
    _, X, y = flowers()
    made = look(X, y, X_val=X[::2], y_val=y[::2], protected=["leaf"], on_audit=None)
    assert "audit(X, y, X_val=X_val, y_val=y_val, protected=['leaf'])" in read_code(
        made.html, "wrong"
    )
    assert ".fit(X, y, X_val=X_val, y_val=y_val).valuation_" in read_code(made.html, "worth")
    assert made.valuation.scores.scored_on == "12 validation rows"


def test_findings_are_told_before_values_are_computed(monkeypatch):
    X, y, _ = dirty()
    told = []

    def stop(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(KNNValuer, "fit", stop)
    with pytest.raises(KeyboardInterrupt):
        look(X, y, on_audit=told.append)
    assert [finding.kind for finding in told[0]] == ["missing code"]


def test_findings_are_printed_unless_told_otherwise(capsys):
    X, *_ = dirty()
    look(X)
    assert "9999 in one cell of weight" in capsys.readouterr().out


def test_without_labels_a_look_is_an_audit(tmp_path):
    X, *_ = dirty()
    made = look(X, title="Plants", on_audit=None)
    report.write_audit(made.audit, tmp_path / "audit.html", title="Plants")
    assert made.html == (tmp_path / "audit.html").read_text(encoding="utf-8")
    assert (made.valuation, made.payout) == (None, None)


def test_owners_of_labels_are_paid_for_them():
    X, y, _ = dirty()
    owners = Owners(X).assign("doctor", columns="(label)").assign_rest("clinic")
    made = look(X, y, owners=owners, on_audit=None)
    assert made.valuation.column_labels.tolist()[-1] == "(label)"
    assert dict(zip(made.payout.owners, made.payout.amounts, strict=True))["doctor"] > 0


def test_a_look_is_saved_and_shown_in_a_notebook(made, tmp_path):
    made.save(tmp_path / "look.html")
    assert (tmp_path / "look.html").read_text(encoding="utf-8") == made.html
    frame = made._repr_html_()
    assert html.unescape(re.search('srcdoc="([^"]*)"', frame)[1]) == made.html
    assert 'sandbox="allow-scripts"' in frame


def test_values_of_any_method_get_an_audit_and_a_payout_as_chapters():
    valuation, X, y, owners = hostile()
    payout = split_revenue(valuation, owners, amount="10.00", policy=Policy(game="cells"))
    parts = {"audit": audit(X, y), "payout": payout, "owners": owners}
    summary = report.summarize(valuation, X, y, **parts)
    assert len(summary["audit"]["findings"]) == len(parts["audit"])
    page = report.render(summary)
    assert all(f'<div class="chapter" id="{name}">' in page for name in CHAPTERS)
    assert "Code of this chapter" not in page
    hidden = report.summarize(valuation, X, y, **parts, cells=False)
    assert hidden["audit"] is None
    assert hidden["verdict"] == summary["verdict"]
    assert 'id="wrong"' not in report.render(hidden)


def test_an_audit_that_is_finished_is_not_made_again(monkeypatch):
    valuation, X, y = flowers()
    found = dataclasses.replace(audit(X, y), findings=())
    monkeypatch.setattr("cellworth.findings.data_audit.audit", None)
    assert report.summarize(valuation, X, y, audit=found)["verdict"].startswith("Nothing")
