"""suspect_cells: the list, its reasons, the worth beside it, and what it finds."""

import re
import time
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth import KNNValuer, OutOfBagValuer, suspect_cells, value_game
from cellworth.data import Blocks
from cellworth.data.tables import Table
from cellworth.diagnostics import anomaly_scores
from cellworth.diagnostics.anomaly import Evidence
from cellworth.diagnostics.cells import standardize_values
from cellworth.diagnostics.suspects import format_cell, name_evidence
from cellworth.games import TableGame
from cellworth.runtime import MaxTasks
from experiments import cell_scores, detection, tables, typos

DATA = Path(__file__).parents[3] / "shared" / "data"
with_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"the data sets are not in {DATA}")


# Two columns of these people tell their label, which a valuer warns of.
pytestmark = pytest.mark.filterwarnings("ignore::cellworth.DataWarning")


def people(n_rows=80):
    """Ages, jobs and pay of people who are retired or not; a child earns a pension."""
    rng = np.random.default_rng(0)
    age = rng.integers(20, 90, n_rows)
    retired = age > 64
    X = pd.DataFrame(
        {
            "age": age,
            "job": np.where(retired, "none", rng.choice(["cook", "clerk"], n_rows)),
            "pay": np.where(retired, 1.5, 2.5) + 0.01 * age,
        },
        index=[f"p{i}" for i in range(n_rows)],
    )
    y = np.where(retired, "pension", "wage")
    wrong = X.index[np.flatnonzero(retired)[3]]
    X.loc[wrong, "age"] = 7
    return X, y, wrong


@pytest.fixture(scope="module")
def valued():
    X, y, wrong = people()
    valuer = KNNValuer(random_state=0).fit(X, y)
    return X, y, wrong, valuer.valuation_


def list_suspects(*given, backend=None, **settings):
    """Return the suspects as a data frame."""
    return suspect_cells(*given, **settings).to_frame(backend)


COLUMNS = ["rank", "row", "column", "cell", "typical", "anomaly_score"]


def test_the_list_says_where_what_and_why(valued):
    X, y, wrong, valuation = valued
    cells = list_suspects(X, y, valuation=valuation, k=7)
    assert list(cells.columns) == [
        *COLUMNS, "value", "sampling_se", "validation_se", "reason",
    ]  # fmt: skip
    assert len(cells) == 7
    first = cells.iloc[0]
    assert (first["rank"], first["row"], first["column"], first["cell"]) == (1, wrong, "age", 7)
    assert first["typical"] in range(65, 90)
    assert first["value"] == valuation.loc[wrong, "age"]
    assert first["reason"] == (
        f"age is 7 where rows like it (label 'pension') have about {first['typical']}; the "
        "rarest of 80 for this label."
    )


def test_cells_are_in_the_order_of_anomaly_score(valued):
    X, y, _, valuation = valued
    cells = list_suspects(X, y, valuation=valuation, k=10_000)
    assert len(cells) == X.size
    anomaly_score = anomaly_scores(X, y)
    assert cells["anomaly_score"].tolist() == sorted(anomaly_score.ravel(), reverse=True)
    rows = X.index.get_indexer(cells["row"])
    columns = X.columns.get_indexer(cells["column"])
    np.testing.assert_array_equal(anomaly_score[rows, columns], cells["anomaly_score"])
    np.testing.assert_array_equal(valuation.values[rows, columns], cells["value"])
    np.testing.assert_array_equal(valuation.validation_se[rows, columns], cells["validation_se"])
    assert cells["cell"].tolist() == [X.iloc[i, j] for i, j in zip(rows, columns, strict=True)]


def test_without_a_valuation_there_are_no_values():
    X, y, _ = people()
    assert list(list_suspects(X, y).columns) == [*COLUMNS, "reason"]


def test_errors_are_listed_as_far_as_the_valuation_knows_them():
    X, y, _ = people()
    valuer = OutOfBagValuer(n_trees=30, random_state=0).fit(X, y)
    listed = list_suspects(X, y, valuation=valuer.valuation_).columns
    assert "validation_se" not in listed
    assert "sampling_se" in listed


def test_by_value_ranks_what_is_low_for_its_column_and_class(valued):
    X, y, _, valuation = valued
    cells = list_suspects(X, y, valuation=valuation, by="value", k=5)
    relative = standardize_values(valuation.values, y)
    np.testing.assert_allclose(
        cells["value"], valuation.values.ravel()[np.argsort(relative, axis=None)[:5]]
    )
    reason = cells["reason"].iloc[0]
    below = f"{-relative.min():.1f} standard deviations below the median for this label."
    assert reason.endswith(f"; its value is {below}")


def test_relative_values_are_within_class_and_column():
    values = np.array([[1.0, 5.0], [3.0, 5.0], [8.0, 5.0], [np.nan, 2.0], [4.0, np.nan]])
    relative = standardize_values(values, np.array(["a", "a", "a", "b", "b"]))
    scale = np.std([1, 3, 8])
    np.testing.assert_allclose(relative[:3, 0], np.array([-2, 0, 5]) / scale)
    np.testing.assert_array_equal(relative[:3, 1], 0)
    np.testing.assert_array_equal(relative[3:], [[np.nan, 0], [0, np.nan]])


def test_rounding_is_no_difference_in_value():
    values = np.full((6, 2), 0.1)
    values[2, 0] += 1e-17 * 2
    values[:, 1] = 3.0, 1.0, 2.0, 5.0, 4.0, 6.0
    relative = standardize_values(values, np.zeros(6))
    np.testing.assert_array_equal(relative[:, 0], 0)
    assert relative[:, 1].argmax() == 5


def test_a_value_that_is_not_low_is_not_called_low(valued):
    X, y, _, valuation = valued
    cells = list_suspects(X, y, valuation=valuation, by="value", k=X.size)
    assert "standard deviations above the median" in cells["reason"].iloc[-1]
    assert not cells["reason"].str.contains(" -").any()


def test_unvisited_blocks_are_not_listed_by_value():
    X, y, _ = people(30)
    valuer = OutOfBagValuer(n_trees=2, random_state=0).fit(X, y)
    visited = int((~np.isnan(valuer.values_)).sum())
    assert 0 < visited < X.size
    assert len(list_suspects(X, y, valuation=valuer.valuation_, by="value", k=X.size)) == visited


def test_a_cell_of_a_group_has_the_value_of_its_block():
    X, y, _ = people(12)
    row_groups = np.repeat(["x", "y", "z"], 4)
    parts = {"who": ["age", "job"], "p": ["pay"]}
    blocks = Blocks.cut(X.index, X.columns, row_groups=row_groups, column_groups=parts)
    game = TableGame(np.random.default_rng(1).normal(size=(8, 4)))
    valuation = value_game(game, blocks, stop=MaxTasks(9), random_state=0)
    cells = list_suspects(X, y, valuation=valuation, k=X.size)
    groups = dict(zip(X.index, row_groups, strict=True))
    for _, cell in cells.iterrows():
        column = "p" if cell["column"] == "pay" else "who"
        assert cell["value"] == valuation.loc[groups[cell["row"]], column]
    by_value = list_suspects(X, y, valuation=valuation, k=X.size, by="value")
    assert sorted(by_value["value"]) == sorted(cells["value"])


def test_the_values_of_labels_are_ignored():
    X, y, _ = people(20)
    X.columns = [1, 2, 3]
    valuation = KNNValuer(random_state=0).fit(X, y, value_labels=True).valuation_
    cells = list_suspects(X, y, valuation=valuation, k=X.size)
    assert set(cells["column"]) == {1, 2, 3}
    at = cells.iloc[0]
    assert at["value"] == valuation.loc[at["row"], str(at["column"])]


def test_columns_are_matched_by_name(valued):
    X, y, _, valuation = valued
    ordered = list_suspects(X, y, valuation=valuation, k=20)
    mixed_up = list_suspects(X[["pay", "age", "job"]], y, valuation=valuation, k=20)
    wanted = ["row", "column", "value", "anomaly_score"]
    pd.testing.assert_frame_equal(
        *(cells[wanted].sort_values(wanted[:2], ignore_index=True) for cells in (ordered, mixed_up))
    )


def test_the_list_does_not_depend_on_the_order_of_rows(valued):
    X, y, _, _ = valued
    rows = np.random.default_rng(3).permutation(len(X))
    wanted = ["row", "column", "cell", "typical", "anomaly_score", "reason"]
    one, other = (
        list_suspects(X.iloc[order], y[order], k=X.size)[wanted]
        .sort_values(wanted[:2], ignore_index=True)
        for order in (slice(None), rows)
    )  # fmt: skip
    pd.testing.assert_frame_equal(one, other)


@pytest.mark.parametrize("convert", [pl.from_pandas, pa.Table.from_pandas])
def test_other_libraries_get_their_own_data_frame_with_text(convert):
    X, y, _ = people()
    X = X.reset_index(drop=True)
    expected = list_suspects(X, y, k=30)
    cells = list_suspects(convert(X), y, k=30)
    assert type(cells) is type(convert(X))
    listed = {name: cells[name].to_numpy().tolist() for name in expected}
    assert listed["cell"] == [str(cell) for cell in expected["cell"]]
    assert listed["typical"] == [str(cell) for cell in expected["typical"]]
    assert listed["reason"] == expected["reason"].tolist()


def test_numbers_stay_numbers_in_every_library():
    X = pl.DataFrame({"a": [1, 2, 3, 90], "b": [1.5, None, 2.5, 0.5]})
    cells = list_suspects(X, [0, 1, 0, 1], k=8)
    assert cells["cell"].dtype == pl.Float64
    assert cells["cell"].null_count() == 1
    assert list_suspects(X[["a"]], [0, 1, 0, 1])["cell"].dtype == pl.Int64
    as_pandas = list_suspects(X, [0, 1, 0, 1], backend="pandas")
    assert as_pandas["cell"].dtype == object
    assert {type(cell) for cell in as_pandas["cell"]} == {int, float, type(None)}


def test_dates_stay_dates_where_there_is_nothing_else():
    X = pl.DataFrame({"when": [date(2020, 1, 1), date(2020, 1, 3), None, date(2031, 1, 1)]})
    cells = list_suspects(X, [0, 1, 0, 1])
    assert cells["cell"].dtype.is_temporal()
    assert cells["cell"].null_count() == 1


def test_values_are_read_chunk_by_chunk(valued, monkeypatch):
    X, y, _, valuation = valued
    expected = {
        by: list_suspects(X, y, valuation=valuation, by=by) for by in ("anomaly_score", "value")
    }
    original = valuation.iter_rows
    monkeypatch.setattr(type(valuation), "iter_rows", lambda self: original(7))
    for by, cells in expected.items():
        pd.testing.assert_frame_equal(list_suspects(X, y, valuation=valuation, by=by), cells)


def test_reasons_tell_missing_values_targets_and_lone_rows():
    rng = np.random.default_rng(4)
    X = pd.DataFrame({"when": pd.date_range("2020-01-01", periods=60), "kind": ["a", "b"] * 30})
    X.loc[7, "kind"] = None
    X.loc[9, "when"] = pd.NaT
    reasons = list_suspects(X, rng.normal(size=60), k=200)
    reasons = reasons.set_index(["row", "column"])["reason"]
    assert reasons[7, "kind"].startswith("kind is missing where rows like it (near target ")
    assert "the rarest of 60 for this target" in reasons[7, "kind"]
    assert reasons[9, "when"].startswith("when is missing where rows like it (near target ")
    assert " have about 2020-0" in reasons[9, "when"]
    labels = ["one"] * 59 + ["other"]
    alone = list_suspects(X.iloc[[59, *range(59)]], labels[::-1], k=200)
    alone = alone[alone["row"] == 59].iloc[0]
    assert alone["typical"] is None
    assert ", and no other row has the label 'other'; among the 3 rarest of 60" in alone["reason"]


def test_what_rows_like_it_have_too_is_said_so():
    X = pd.DataFrame({"a": [1.25] * 10, "b": ["x"] * 10})
    cells = list_suspects(X, ["one", "two"] * 5, k=1)
    assert cells["reason"][0] == (
        "a is 1.25, as in rows like it (label 'one'); among the 10 rarest of 10 for this label."
    )


def test_reasons_are_short_and_keep_their_direction():
    hebrew = "\u05de\u05d7\u05d9\u05e8"
    long = "wide " * 1000
    X = pd.DataFrame({hebrew: ["oval"] * 19 + [long], "n" * 5000: [hebrew] + ["round"] * 19})
    cells = list_suspects(X, ["red", "blue"] * 10, k=40).set_index(["row", "column"])
    assert cells["reason"].str.len().max() < 400
    first = cells.loc[(19, hebrew)]
    assert first["cell"] == long
    assert first["reason"].startswith(f"\u2068{hebrew}\u2069 is '{long[:39]}…' where rows")
    named = (
        f"{'n' * 59}… is \u2068'{hebrew}'\u2069 where rows like it (label 'red') have 'round'; the"
    )
    assert cells.loc[(0, "n" * 5000), "reason"].startswith(named)


def test_reasons_give_the_lower_of_two_ranks():
    X, y, _ = people()
    evidence = Evidence.of(Table.from_data(X, called="X"), y, None)
    cells = list_suspects(X, y, k=X.size)
    kinds = set()
    for row, name, reason in zip(cells["row"], cells["column"], cells["reason"], strict=True):
        at = X.index.get_loc(row), X.columns.get_loc(name)
        rare, misfit = int(evidence.as_rare[at]), int(evidence.as_misfit[at])
        found = re.search(r"the(?: (\d+))? (rarest of 80|worst of 80 fits)", reason)
        kinds.add(found[2])
        assert int(found[1] or 1) == min(rare, misfit)
        assert (found[2] == "rarest of 80") == (rare <= misfit)
    assert len(kinds) == 2


def wordy_table():
    """Names, contents and labels of many words, numbers, missing values and dates."""
    rng = np.random.default_rng(2)
    words = rng.choice(["a", "or", "wide", "street of"], (60, 9))
    X = pd.DataFrame(
        {
            "what the people of this town say": [" ".join(line) for line in words],
            "when it was": pd.date_range("2020-01-01 10:30", periods=60),
            "how long": pd.to_timedelta(rng.integers(1, 9**6, 60), unit="s"),
            "n": np.append(rng.normal(size=59), 1e7),
        }
    )
    X.iloc[5, 0] = X.iloc[7, 3] = X.iloc[9, 1] = None
    return X, np.where(np.arange(60) < 30, "one of the first thirty", "one of all other people")


@pytest.mark.parametrize(
    ("X", "y"),
    [
        people()[:2],
        wordy_table(),
        (wordy_table()[0], np.arange(60) / 7),
        (wordy_table()[0], [f"all by {i} self" for i in range(60)]),
        (np.random.default_rng(0).normal(0, 1e6, (50, 4)), [0, 1] * 25),
    ],
)
def test_reasons_have_at_most_25_words(X, y):
    reasons = list_suspects(X, y, k=1000)["reason"].tolist()
    assert max(len(reason.split()) for reason in reasons) <= 25
    assert all(reason.endswith(".") for reason in reasons)


@pytest.mark.parametrize("y", [wordy_table()[1], np.arange(60) / 7])
def test_reasons_by_value_have_at_most_25_words(y):
    X, _ = wordy_table()
    valuation = KNNValuer(random_state=0).fit(X, y).valuation_
    reasons = list_suspects(X, y, valuation=valuation, by="value", k=X.size)["reason"]
    assert reasons.str.split().str.len().max() <= 25


@pytest.mark.parametrize(
    ("number", "text"),
    [(1987, "1987"), (12345, "12,345"), (12345.5, "12,345.5"), (1234567.8, "1,234,568"),
     (-2e6, "-2,000,000"), (0.1234567, "0.123457"), (1e20, "1e+20"), (10**16, f"{10**16:,}")],
)  # fmt: skip
def test_numbers_have_thousands_separators_unless_they_may_be_years(number, text):
    assert format_cell(number) == text


def test_a_single_row_has_nothing_to_be_compared_with():
    cells = list_suspects([[5.0]], ["a"])
    assert cells["anomaly_score"].tolist() == [0.0]
    assert cells["reason"][0].endswith("; there is no other cell to compare it with.")


@pytest.mark.parametrize(("impossible", "row"), [(1e6, 4), (-40.0, 11)])
def test_a_number_that_nothing_comes_near_to_stands_first(impossible, row):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(200, 10))
    X[row, 3] = impossible
    first = list_suspects(X, rng.integers(2, size=200), k=1).iloc[0]
    assert (first["row"], first["column"]) == (row, "x3")
    others = np.delete(X[:, 3], row)
    nearest = others[np.abs(others - impossible).argmin()]
    side = "largest" if impossible > 0 else "smallest"
    assert first["reason"].endswith(f"; the next {side} is {nearest:.6g}.")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"k": 0}, "k must be an integer of at least 1, got 0"),
        ({"by": "price"}, "by must be 'anomaly_score' or 'value', got 'price'"),
        ({"valuation": None, "by": "value"}, "by='value' needs a valuation"),
        ({"valuation": "best"}, "valuation must be a Valuation, got str"),
        ({"backend": "excel"}, "backend must be an installed library"),
        ({"y": ["a"]}, "y must have one label for each of 80 rows of X, got 1"),
    ],
)
def test_wrong_input_gets_a_sentence(valued, changed, sentence):
    X, y, _, valuation = valued
    given = {"valuation": valuation, "X": X, "y": y} | changed
    with pytest.raises((ValueError, TypeError), match=sentence):
        list_suspects(given.pop("X"), given.pop("y"), **given)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            lambda X: X.iloc[::-1],
            r"X must have the 80 rows .*, got 80 \('p79', 'p78', 'p77', ...\)",
        ),
        (
            lambda X: X.reset_index(drop=True),
            r"the 80 rows of the valuation \('p0', .*, got 80 \(0, 1, 2, ...\)",
        ),
        (
            lambda X: X.drop(columns="job"),
            "X must have the columns of the valuation, got no column 'job'",
        ),
        (
            lambda X: X.assign(sex="f"),
            "X must have the columns of the valuation, got a column 'sex'",
        ),
        (
            lambda X: X.assign(age=X["age"] + 1),
            "X must have the cells of the table that was valued",
        ),
    ],
)
def test_a_table_that_was_not_valued_is_rejected(valued, change, sentence):
    X, y, _, valuation = valued
    with pytest.raises(ValueError, match=sentence):
        list_suspects(change(X), y, valuation=valuation)


# What it finds: small versions of the tables in docs/explanation/suspects.md.


@pytest.mark.slow
@with_data
@pytest.mark.parametrize(
    ("error", "auroc", "precision"), [("A", 0.97, 0.6), ("B", 0.94, 0.75), ("S", 0.75, 0.2)]
)
def test_anomaly_score_finds_injected_errors(error, auroc, precision):
    found = []
    for name in ("breast original", "wine", "electricity"):
        case = detection.case(name, error, 0, DATA)
        found.append(detection.figures(case.wrong, anomaly_scores(case.X, case.y)))
    assert np.mean(found, axis=0)[0] > auroc
    assert np.mean(found, axis=0)[1] > precision


@with_data
def test_swapped_cells_are_what_simple_baselines_do_not_find():
    case = detection.case("wine", "S", 0, DATA)
    ours, z, ecod = (
        detection.figures(case.wrong, score)[0]
        for score in (anomaly_scores(case.X, case.y), cell_scores.class_z(case.X, case.y),
                      cell_scores.ecod(case.X))
    )  # fmt: skip
    assert ours > z > ecod


@with_data
def test_values_alone_find_less():
    case = detection.case("breast original", "A", 0, DATA)
    valuer = KNNValuer(10, random_state=0)
    valuer.fit(case.X, case.y, X_val=case.X_val, y_val=case.y_val)
    worth, _ = detection.figures(case.wrong, -standardize_values(valuer.values_, case.y))
    anomaly_score, _ = detection.figures(case.wrong, anomaly_scores(case.X, case.y))
    assert 0.75 < worth < anomaly_score


@with_data
def test_the_authors_outliers_are_found_in_both_classes():
    case = detection.authors_case(DATA)
    assert case.wrong.sum() == 43
    score = anomaly_scores(case.X, case.y)
    assert detection.figures(case.wrong, score)[0] >= 0.975
    assert detection.share_found(case.wrong, score, 0.10) >= 0.93


@pytest.mark.slow
@with_data
def test_reversed_ages_are_found_among_the_first_cells():
    found = []
    for seed in range(3):
        table, _ = typos.small_table(DATA, 3000, seed)
        X, wrong = typos.with_typos(table.X, seed)
        assert wrong.sum() == 15
        assert wrong.size == 39_000
        found.append(typos.count_inspected(anomaly_scores(X, table.y), wrong))
    assert np.mean(found) <= 150


@with_data
@pytest.mark.alone
def test_the_whole_census_table_takes_seconds():
    table = tables.load("adult", DATA)
    X, wrong = typos.with_typos(table.X, 0)
    assert wrong.size == 455_854
    start = time.process_time()
    score = anomaly_scores(X, table.y)
    assert time.process_time() - start < 60
    assert typos.count_inspected(score, wrong) <= 900


def test_arguments_in_another_order_get_a_sentence(valued):
    X, y, _, valuation = valued
    order = r"got a Valuation; call suspect_cells\(X, y, valuation=valuation\)"
    for given in ((valuation, X), (X, valuation), (valuation, y)):
        with pytest.raises(TypeError, match=order):
            list_suspects(*given)
    with pytest.raises(
        TypeError, match="valuation must be a Valuation, got KNNValuer; pass the valuation_"
    ):
        list_suspects(X, y, valuation=KNNValuer())


def test_the_column_that_named_groups_of_rows_is_left_out(valued):
    X, y, _, _ = valued
    grouped = X.assign(team=[f"team {i % 7}" for i in range(len(X))])
    valuer = KNNValuer().fit(grouped, y, row_groups="team")
    cells = list_suspects(grouped, y, valuation=valuer.valuation_, k=9)
    pd.testing.assert_frame_equal(cells, list_suspects(X, y, valuation=valuer.valuation_, k=9))
    with pytest.raises(
        ValueError, match="X must have the columns of the valuation, got a column 'team'"
    ):
        list_suspects(grouped.assign(team="other"), y, valuation=valuer.valuation_)


def test_the_clearest_evidence_is_named():
    assert name_evidence(1, 5, 100, 20.0, " for this label") == "the rarest of 100 for this label"
    assert name_evidence(5, 1, 100, 20.0) == "the worst of 100 fits to a row"
    assert name_evidence(30, 7, 1_000, 20.0) == "among the 7 worst of 1,000 fits to a row"
    assert name_evidence(7, 30, 1_000, 20.0) == "among the 7 rarest of 1,000"
    assert (
        name_evidence(200, 300, 1_000, 20.4) == "20 times rarer in similar rows than in its column"
    )


def test_a_cell_that_only_trees_find_has_their_reason():
    rng = np.random.default_rng(0)
    one, two = rng.integers(0, 2, (2, 400))
    X = pd.DataFrame({"one": one, "two": two, "differ": np.where(one == two, "no", "yes")})
    X.loc[7, "differ"] = "no" if X.loc[7, "differ"] == "yes" else "yes"
    first = list_suspects(X, rng.integers(0, 2, 400), k=3)
    assert 7 in first["row"].tolist()
    assert "times rarer in similar rows than in its column" in first["reason"].iloc[0]
