"""summarize: what a report says is what the valuation says."""

import base64
import gzip
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cellworth import KNNValuer, Owners, report, value_game
from cellworth.games import TableGame
from cellworth.report import heatmap_data
from cellworth.sampling.moments import WIDTH_95
from report_tables import flowers, hostile, quirks


@pytest.fixture(scope="module")
def summary():
    return report.summarize(*flowers())


def unpack(text):
    return gzip.decompress(base64.b64decode(text))


def test_a_summary_is_plain_data(summary):
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary


def test_figures_are_those_of_the_valuation(summary):
    valuation, figures = flowers()[0], summary["figures"]
    errors = np.hypot(valuation.sampling_se, valuation.validation_se)
    assert figures["total"] == valuation.total
    assert figures["score"] == pytest.approx(valuation.expected_total + valuation.baseline)
    assert figures["lowering_share"] == np.mean(valuation.values + WIDTH_95 * errors < 0)
    assert figures["unclear_share"] == np.mean(np.abs(valuation.values) < WIDTH_95 * errors)
    signs = valuation.sign_counts()
    assert figures["lowering_share"] == signs.negative / signs.total
    assert figures["error"] == pytest.approx(np.sqrt(np.mean(errors**2)))


def test_the_first_sentence_is_the_verdict_of_an_audit(summary):
    valuation, X, y = flowers()
    assert summary["verdict"] == "Nothing looks wrong in 24 rows \N{MULTIPLICATION SIGN} 3 columns."
    page = report.render(summary)
    first = page.index('<p class="verdict">')
    assert first < page.index('<p class="statement">')
    assert summary["verdict"] in page[first:]
    assert "correct what is wrong" not in page
    assert report.summarize(valuation, X, y, cells=False)["verdict"] == summary["verdict"]
    without = report.summarize(valuation, None)
    assert without["verdict"] is None
    assert '<p class="verdict">' not in report.render(without)


def test_a_share_below_zero_is_shown_beside_that_of_chance(summary):
    figures = summary["figures"] | {"lowering_share": 0.198, "unclear_share": 0.5}
    page = report.render(summary | {"figures": figures})
    assert "19.8% of the cells pull the score down for rows like them" in page
    assert "by chance alone up to 2.5% would be" in page
    nothing = report.render(summary | {"figures": figures | {"lowering_share": 0.0}})
    assert "No cell clearly lowers the score." in nothing


def test_columns_stand_highest_first(summary):
    listed = flowers()[0].columns().highest(3)
    assert [line["column"] for line in summary["columns"]] == listed.labels["column"].tolist()
    assert [line["value"] for line in summary["columns"]] == listed.values.tolist()


def test_changes_since_an_earlier_valuation_are_those_of_the_columns():
    games = [[[0, 0, 0, 0], [0, 3, -1, 2]], [[0, 0, 0, 0], [0, 3, 4, 8]]]
    before, after = (value_game(TableGame(game), (1, 2)) for game in games)
    changes = report.summarize(after, None, before=before)["changes"]
    first, last = before.columns().values, after.columns().values
    assert [line["column"] for line in changes["columns"]] == ["1", "0"]
    assert [line["value"] for line in changes["columns"]] == (last - first)[::-1].tolist()
    assert [line["before"] for line in changes["columns"]] == first[::-1].tolist()
    page = report.render(report.summarize(after, None, before=before))
    assert "What changed" in page
    assert "What changed" not in report.render(report.summarize(after, None))
    with pytest.raises(TypeError, match="must be a Valuation, got str"):
        report.summarize(after, None, before="values")


def test_rows_are_the_lowest_each_with_its_lowest_cell(summary):
    valuation = flowers()[0]
    lowest = valuation.rows().lowest(24)
    assert [line["row"] for line in summary["rows"]] == lowest.labels["row"].tolist()
    for line in summary["rows"]:
        assert line["lowest_value"] == valuation.values[line["position"]].min()


def test_cells_are_those_of_lowest_value():
    valuation, X, y = flowers()
    listed = report.summarize(valuation, X, y, k=7)["cells"]
    lowest = valuation.lowest(7)
    assert [line["value"] for line in listed] == lowest.values.tolist()
    assert [line["row"] for line in listed] == lowest.labels["row"].tolist()
    assert [X.index[line["position"]] for line in listed] == lowest.labels["row"].tolist()
    assert [line["column"] for line in listed] == lowest.labels["column"].tolist()


def test_a_game_without_a_table_has_a_report():
    valuation = value_game(TableGame(np.arange(64.0).reshape(8, 8)), (3, 3))
    summary = report.summarize(valuation, None)
    signs = valuation.sign_counts()
    assert summary["figures"]["lowering_share"] == signs.negative / signs.total
    assert summary["heatmap"]["contents"] is None
    assert "All coalitions were evaluated" in report.render(summary)


def test_labels_that_played_are_a_column_with_contents():
    _, X, y = flowers()
    valuer = KNNValuer(n_neighbors=3).fit(X, y, cv=3, value_labels=True)
    heatmap = report.summarize(valuer.valuation_, X, y)["heatmap"]
    assert heatmap["columns"][-1] == "(label)"
    assert json.loads(unpack(heatmap["contents"]["texts"]))[-1] == ["red", "blue"]
    heatmap = report.summarize(valuer.valuation_, X)["heatmap"]
    assert json.loads(unpack(heatmap["contents"]["texts"]))[-1] == [None]


def test_empty_text_is_not_a_missing_value():
    valuation, X, y = quirks()
    lines = report.summarize(valuation, X, y, k=150)["cells"]
    shown = {line["cell"] for line in lines if line["column"] == X.columns[1]}
    assert shown == {"oval", "round", "", "''"}


def test_rows_with_one_id_are_not_mixed_up():
    _, X, y = flowers()
    twins = X.set_axis(["twin"] * 24)
    valuation = KNNValuer(n_neighbors=3).fit(twins, y, cv=3).valuation_
    lines = report.summarize(valuation, twins, y, k=72)["cells"]
    known = report.summarize(*flowers(), k=72)["cells"]
    assert {line["row"] for line in lines} == {"twin"}
    assert [line["position"] for line in lines] == [line["position"] for line in known]
    names = X.columns.tolist()
    values = [valuation.values[line["position"], names.index(line["column"])] for line in lines]
    assert [line["value"] for line in lines] == values


def test_cells_of_one_column_that_python_takes_for_equal_keep_their_contents():
    _, X, y = flowers()
    mixed = X.assign(leaf=[1, True] * 12, size=[0.0, -0.0] * 12)
    mixed["leaf"] = mixed["leaf"].astype(object)
    valuation = KNNValuer().fit(mixed, y, cv=3).valuation_
    contents = report.summarize(valuation, mixed, y)["heatmap"]["contents"]
    texts = json.loads(unpack(contents["texts"]))
    assert texts[:2] == [["0", "-0"], ["1", "True"]]


def test_a_table_with_other_cells_is_rejected_whatever_else_is_alike():
    valuation, X, y = flowers()
    other = X.assign(size=X["size"] + 1.0)
    for cells in (True, False):
        with pytest.raises(ValueError, match="X must have the cells of the table that was valued"):
            report.summarize(valuation, other, y, cells=cells)


@pytest.mark.slow
@pytest.mark.parametrize(
    "given",
    [
        {"value_labels": True},
        {"column_groups": {"plant": ["size", "leaf"], "when": ["seen"]}},
    ],
)
def test_the_table_that_was_valued_is_known_again_with_columns_in_any_order(given):
    _, X, y = flowers()
    valuation = KNNValuer().fit(X, y, **given, cv=3).valuation_
    turned = X[X.columns[::-1]]
    summary = report.summarize(valuation, turned, y, k=5)
    assert summary["cells"] == report.summarize(valuation, X, y, k=5)["cells"]
    with pytest.raises(ValueError, match="its sha256 differs"):
        report.summarize(valuation, turned.assign(leaf="oval"), y)


def test_a_large_table_keeps_the_rows_that_matter(monkeypatch):
    valuation, X, y = flowers()
    monkeypatch.setattr(heatmap_data, "MAX_CELLS", 30)
    summary = report.summarize(valuation, X, y, k=2)
    kept = np.frombuffer(unpack(summary["heatmap"]["positions"]), np.uint8)[:10]
    order = np.argsort(valuation.rows().values)
    assert summary["heatmap"]["n_rows"] == 10
    assert {line["position"] for line in summary["cells"]} | {order[0]} <= set(kept)
    assert "10 of 24 rows" in report.render(summary)


def test_too_many_bytes_leave_rows_out(monkeypatch):
    monkeypatch.setattr(heatmap_data, "MAX_BYTES", 900)
    heatmap = report.summarize(*flowers())["heatmap"]
    assert 1 <= heatmap["n_rows"] < 24


def test_a_summary_without_cells_holds_none():
    valuation, X, y, owners = hostile()
    plain = report.summarize(valuation, X, y, owners=owners, cells=False)
    assert plain["cells"] is plain["rows"] is plain["heatmap"] is None
    written = json.dumps({**plain, "columns": None, "column_info": None, "owners": None})
    ids = set(map(json.dumps, X.index))
    assert not any(text[1:-1] in written for text in ids)


def test_messages_of_failed_fits_may_hold_contents_and_go_with_the_cells():
    valuation, X, y = flowers()
    tally = replace(valuation.provenance.tally, failed=1, messages=("cannot read 'secret'",))
    failed = replace(valuation, provenance=replace(valuation.provenance, tally=tally))
    reported, untold = (
        report.render(report.summarize(failed, X, y, cells=cells)) for cells in (True, False)
    )
    assert "secret" in reported
    assert "secret" not in untold


def without_cells(valuation, X, y, **given):
    """Summary and page for people who may not see the table, as text."""
    summary = report.summarize(valuation, X, y, cells=False, **given)
    return json.dumps(summary, ensure_ascii=False), report.render(summary)


def test_without_cells_there_is_no_hash_to_try_guesses_on():
    valuation, X, y = flowers()
    owners = Owners(X).assign("one", columns=["size"]).assign("two", columns=["leaf", "seen"])
    with_cells = report.render(report.summarize(valuation, X, y))
    assert re.search(r"[0-9a-fA-F]{64}", with_cells)
    for text in without_cells(valuation, X, y, owners=owners):
        # The first 16 digits of a hash would do for guesses too; those behind a point are figures.
        assert not re.search(r"(?<![.\w])[0-9a-fA-F]{16}", text)
        assert "Hashes are left out: a reader who knows most of the table could guess" in text


def test_without_cells_settings_are_names_and_numbers():
    valuation, X, y = flowers()
    problem_spec = {
        "game": "ModelGame",
        "model": "sklearn.dummy.DummyClassifier",
        "model_parameters": {"constant": "'secret'"},
        "scoring": "make_scorer(recall_score, pos_label='secret')",
        "row_semivalue": "Mine(weights=['secret'])",
        "n_neighbors": 5,
        "ranking": "array(['secret'])",
        "column_types": {"leaf": "Tree({'secret': 1})"},
        "empty": f"{'0123456789abcdef' * 2}",
        "answer": "secret",
    }
    method = {"name": "Valuer", "stop": "Never('secret')", "valuer": {"cv": "[['secret']]"}}
    provenance = replace(valuation.provenance, problem_spec=problem_spec, method=method)
    asked = replace(valuation, provenance=provenance)
    assert "secret" in report.render(report.summarize(asked, X, y))
    summary = report.summarize(asked, X, y, cells=False)
    assert summary["provenance"]["problem_spec"] == {
        "game": "ModelGame",
        "model": "sklearn.dummy.DummyClassifier",
        "scoring": "make_scorer",
        "row_semivalue": "Mine",
        "n_neighbors": 5,
    }
    assert summary["provenance"]["method"] == {"name": "Valuer", "stop": "Never"}
    assert not any("secret" in text for text in without_cells(asked, X, y))


def test_without_cells_no_row_label_content_or_single_value_is_left():
    ids = [f"person-{i}" for i in range(12)]
    pay = 7_000_003 + 11_111 * np.arange(12) ** 2
    X = pd.DataFrame({"town": ["Ulm", "Bonn", "Jena"] * 4, "pay": pay}, index=ids)
    y = ["ill"] * 6 + ["healthy"] * 6
    owners = Owners(X).assign("east", rows=ids[:5]).assign("west", rows=ids[5:])
    types = {"town": "categorical"}
    valuation = KNNValuer(1).fit(X, y, cv=3, column_types=types, owners=owners).valuation_
    texts = without_cells(valuation, X, y, owners=owners)
    hidden = [*ids, *map(str, X["pay"]), *X["town"], "healthy", '"ill"', ">ill<"]
    values = [repr(value) for value in valuation.values.ravel().tolist()]
    for text in texts:
        # Digits inside a figure, such as the seconds of the run, are no content.
        found = [rf"(?<![.\d]){re.escape(word)}" for word in [*hidden, *values]]
        assert not [word for word in found if re.search(word, text)]
    size = json.loads(texts[0])["figures"]["size"]
    assert np.log10(size) == int(np.log10(size))


def test_owners_that_fit_did_not_know_have_sums_without_errors():
    valuation, X, y = flowers()
    owners = Owners(X).assign("one", columns=["size"]).assign("two", columns=["leaf"])
    lines = report.summarize(valuation, X, y, owners=owners)["owners"]
    assert [line["value"] for line in lines] == pytest.approx(valuation.columns().values[:2])
    assert [line["error"] for line in lines] == [None, None]


def test_blocks_that_were_never_seen_are_counted():
    valuation, X, y = flowers()
    count = valuation.moments.count.copy()
    count[0, 0] = 0
    unseen = replace(valuation, moments=replace(valuation.moments, count=count))
    summary = report.summarize(unseen, X, y)
    assert summary["figures"]["n_visited"] == summary["figures"]["n_cells"] - 1
    signs = unseen.sign_counts()
    assert signs.unknown == 1
    assert summary["figures"]["lowering_share"] == signs.negative / 72
    assert summary["figures"]["unclear_share"] == signs.undecided / 72
    assert "1 of 72 cells were never sampled" in report.render(summary)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"valuation": "values"}, "valuation must be a Valuation"),
        ({"X": pd.DataFrame({"size": [1.0]})}, "give the table that was valued"),
        ({"k": 0}, "must be an integer of at least 1"),
        ({"X": None}, "y must be None without X"),
    ],
)
def test_wrong_input_gets_a_sentence(given, sentence):
    valuation, X, y = flowers()
    with pytest.raises((TypeError, ValueError), match=sentence):
        report.summarize(**{"valuation": valuation, "X": X, "y": y, **given})


def test_a_report_tells_what_columns_were_taken_for_and_without_cells_no_more_than_counts():
    X = pd.DataFrame({"x": np.sqrt(np.arange(40.0)), "plan": ["a", "b", "?", "b"] * 10})
    valuation = KNNValuer(1).fit(X, np.arange(40) % 3 % 2).valuation_
    x, plan = report.summarize(valuation, X)["column_info"]
    assert (x["read_as"], x["missing"], x["distinct"]) == ("number", 0, 40)
    assert x["distance"].startswith("(difference / ")
    x, plan = report.summarize(valuation, X, cells=False)["column_info"]
    assert x["distance"] == plan["distance"] == ""
