"""Each check finds what it is for, and is silent about its honest neighbor."""

import datetime

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from cellworth.data.column import Column
from cellworth.data.tables import Table
from cellworth.findings.checks import CHECKS, AuditInput
from cellworth.findings.leaks import find_leaks, find_sorted_rows
from cellworth.findings.levels import ColumnLevels, read_levels
from cellworth.findings.number_checks import are_names, find_gross_errors
from cellworth.findings.table_checks import (
    check_columns,
    find_repeated_rows,
    find_shared_rows,
    find_violations,
)
from cellworth.findings.text_checks import (
    find_garbled,
    find_misspellings,
    find_mixed_shapes,
    find_spelling_variants,
    find_swapped,
)

RNG = np.random.default_rng(0)
CHECKS_OF_STRINGS = {
    "marks of missing values", "numbers and dates as text", "mixed formats", "wrong encodings",
    "spelling variants", "misspellings",
}  # fmt: skip
AGES = RNG.integers(17, 91, 2000)


def column(cells, name="x"):
    return ColumnLevels.of(Column(name, np.asarray(cells)))


def text(cells):
    return column(np.array(cells, dtype=object))


def check_text(column):
    """Return what the checks of strings find in one column."""
    table = Table.from_data(np.zeros((column.n_rows, 1)), called="X")
    given = AuditInput(table, [column])
    assert {check.name for check in CHECKS} >= CHECKS_OF_STRINGS
    for check in CHECKS:
        if check.name in CHECKS_OF_STRINGS:
            given.run(check)
    return given.found


def kinds(findings):
    return [(finding.kind, finding.rows.tolist()) for finding in findings]


def test_levels_of_any_library_and_type_are_the_same():
    cells = {"a": [3, 1, 3], "b": ["x", None, "y"], "c": [True, False, True]}
    pandas = read_levels(Table.from_data(pd.DataFrame(cells), called="X"))
    polars = read_levels(
        Table.from_data(pytest.importorskip("polars").DataFrame(cells), called="X")
    )
    for one, other in zip(pandas, polars, strict=True):
        assert one.kind == other.kind
        assert one.codes.tolist() == other.codes.tolist()
        assert one.levels.tolist() == other.levels.tolist()
    assert pandas[1].codes.tolist() == [0, -1, 1]
    assert pandas[0].rows_of([1]).tolist() == [0, 2]


def test_strings_that_are_nearly_all_numbers_are_numbers_with_strays():
    found = text([*map(str, range(30)), "thirty", "?"])
    assert found.kind == "number"
    assert {word: rows.tolist() for word, rows in found.strays.items()} == {
        "thirty": [30],
        "?": [31],
    }
    assert kinds(check_text(found)) == [("missing mark", [31]), ("text among numbers", [30])]


@pytest.mark.parametrize("mark", ["?", "N/A", "", "null", "unknown"])
def test_marks_of_missing_values_are_one_finding(mark):
    found = list(check_text(text(["red", "blue", mark, "red", mark] * 3)))
    assert kinds(found) == [("missing mark", [2, 4, 7, 9, 12, 14])]


@pytest.mark.parametrize("code", [999, -1, 9999, -99])
@pytest.mark.parametrize("times", [1, 20])
def test_codes_among_ages_are_one_finding(code, times):
    cells = np.where(np.arange(2000) < times, code, AGES)
    (found,) = find_gross_errors(column(cells))
    assert (found.kind, found.rows.tolist()) == ("missing code", list(range(times)))
    assert found.doubt <= 0.1


def test_a_code_among_few_numbers_is_found_and_a_large_number_is_not():
    for numbers in ((1, 999), (1, 2, 999)):
        cells = np.resize(numbers[:-1], 600)
        cells[[5, 17]] = 999
        (found,) = find_gross_errors(column(cells))
        assert (found.kind, found.rows.tolist()) == ("missing code", [5, 17])
        cells[[5, 17]] = 40
        assert list(find_gross_errors(column(cells))) == []


def test_one_number_just_below_the_others_is_no_code():
    scores = np.arange(2000) % 90 + 1
    scores[7] = -1
    (found,) = find_gross_errors(column(scores))
    assert found.doubt > 0.5
    scores[:3] = -1
    (found,) = find_gross_errors(column(scores))
    assert found.doubt <= 0.1


def test_a_date_of_no_one_is_a_missing_code():
    days = [
        datetime.date(2020, 1, 1) + datetime.timedelta(days=int(d))
        for d in RNG.integers(0, 900, 200)
    ]
    days[5] = days[7] = datetime.date(1900, 1, 1)
    (found,) = find_gross_errors(text(days))
    assert (found.kind, found.rows.tolist()) == ("missing code", [5, 7])
    assert "1900-01-01" in found.sentence


def test_no_unit_is_blamed_where_some_power_of_ten_always_fits():
    cells = np.exp(RNG.normal(size=400) * 1.5)
    cells[7] = 1e6
    (found,) = find_gross_errors(column(cells))
    assert (found.kind, found.rows.tolist()) == ("outlier", [7])


@pytest.mark.parametrize("factor", [10, 100, 1000])
@pytest.mark.parametrize("times", [1, 15])
def test_a_wrong_unit_is_found_and_divided_out(factor, times):
    cells = AGES.astype(float)
    cells[:times] = 35 * factor
    (found,) = find_gross_errors(column(cells))
    assert (found.kind, found.rows.tolist()) == ("scale", list(range(times)))
    assert found.action.replacements == {35.0 * factor: 35.0}


@pytest.mark.parametrize(
    "cells",
    [
        RNG.normal(size=5000),
        RNG.standard_cauchy(5000),
        np.exp(RNG.normal(size=5000) * 2),
        RNG.exponential(size=5000),
        RNG.integers(0, 2, 5000),
        np.where(RNG.random(5000) < 0.9, 0, np.exp(RNG.normal(8, 1, 5000))),
        RNG.poisson(3, 5000),
    ],
    ids=["normal", "Cauchy", "log-normal", "exponential", "binary", "mostly zero", "counts"],
)
def test_honest_numbers_are_seldom_called_gross(cells):
    assert sum(len(finding.rows) for finding in find_gross_errors(column(cells))) <= 2


def test_postcodes_and_ids_are_names_and_amounts_are_not():
    assert are_names(column(RNG.choice(RNG.integers(10_000, 99_999, 50), 500)))
    assert are_names(column(np.arange(100_000, 100_500)))
    assert are_names(column(RNG.integers(10_000, 9_999_999, 500), "order_id"))
    assert not are_names(column(RNG.integers(10_000, 9_999_999, 500), "price"))
    assert not are_names(column(RNG.integers(100, 900, 500) * 100))
    assert not are_names(column(AGES))


def test_numbers_with_units_are_numbers_as_text_and_a_few_percents_are_mixed_formats():
    (found,) = check_text(text([f"{size} oz" for size in range(5, 55)]))
    assert (found.kind, len(found.rows)) == ("numbers as text", 50)
    cells = [f"{share / 100}" for share in range(50)]
    cells[3], cells[9] = "3%", "9%"
    assert kinds(check_text(text(cells))) == [("text among numbers", [3, 9])]
    cells[10:20] = [f"{share}%" for share in range(10)]
    assert ("numbers as text", [3, 9, *range(10, 20)]) in kinds(check_text(text(cells)))


def test_a_category_with_digits_is_no_format():
    cells = ["<=50K"] * 70 + [">50K"] * 30
    assert kinds(check_text(text(cells))) == []
    cells[:20] = [f"<={thousands}K" for thousands in range(20)]
    assert kinds(check_text(text(cells))) == [("mixed formats", list(range(70, 100)))]


def test_dates_that_can_be_read_either_way_are_reported():
    cells = [f"{day}/{month}/2014" for day in range(1, 13) for month in range(1, 13)]
    (found,) = check_text(text(cells))
    assert found.kind == "dates as text"
    assert "144 no rule" in found.sentence


@pytest.mark.parametrize("turned", [(3,), (3, 9)])
def test_dates_with_the_month_first_among_others_with_the_day_first_are_found(turned):
    cells = [f"{1 + day % 28}/{1 + day % 11}/2014" for day in range(100)]
    assert [finding.kind for finding in check_text(text(cells))] == ["dates as text"]
    for row in turned:
        cells[row] = f"11/{row + 20}/2014"
    found = check_text(text(cells))
    assert [finding.kind for finding in found] == ["dates as text"] * 2
    assert found[1].rows.tolist() == list(turned)
    assert "the month first" in found[1].sentence


def test_another_arrangement_of_digits_is_a_mixed_format():
    times = [f"{hour}:{minute} a.m." for hour in range(1, 12) for minute in range(10, 60)]
    times[7] = "12/02/2011 6:55 a.m."
    (found,) = find_mixed_shapes(text(times))
    assert found.rows.tolist() == [7]
    assert list(find_mixed_shapes(text(["a word", "another", "one more word"] * 20))) == []


def test_garbled_text_is_found_and_accents_are_not():
    honest = ["café", "naïve", "Größe", "señor", "Ελλάδα", "日本"]
    assert list(find_garbled(text(honest))) == []
    (found,) = find_garbled(text([*honest, "cafÃ©", "espa\ufffdola"]))
    assert found.rows.tolist() == [6, 7]


def test_spellings_of_one_content_are_joined():
    cells = ["Berlin"] * 5 + ["berlin ", "\u0412\u0435rlin", "Bern"]
    (found,) = find_spelling_variants(text(cells))
    assert found.rows.tolist() == [5, 6]
    assert set(found.action.replacements.values()) == {"Berlin"}


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        (["Bonn  ", "Bonn  ", "Bonn", "Ulm"], {"Bonn  ": "Bonn"}),
        (["Ulm", "Bern", "Kiel", "ANNA", "ANNA", "Anna"], {"ANNA": "Anna"}),
        (["ULM", "BERN", "KIEL", "Anna", "Anna", "ANNA"], {"Anna": "ANNA"}),
        (["Ulm", "Bern", "LaFayette", "LaFayette", "Lafayette"], {"Lafayette": "LaFayette"}),
    ],
    ids=["blanks", "usual case", "usual capitals", "capitals inside"],
)
def test_of_several_spellings_the_usual_one_of_the_column_stays(cells, wanted):
    (found,) = find_spelling_variants(text(cells))
    assert found.action.replacements == wanted


def test_a_slip_of_letters_is_a_misspelling():
    cells = ["birmingham"] * 40 + ["florence"] * 30 + ["birminghxm", "birmigham"]
    (found,) = find_misspellings(text(cells))
    assert found.rows.tolist() == [70, 71]
    assert found.action.replacements == {"birmigham": "birmingham", "birminghxm": "birmingham"}
    assert found.doubt < 0.1


@pytest.mark.parametrize("n_times", [1, 4, 5, 8, 30])
def test_a_misspelling_that_repeats_is_no_evidence_for_similar_words(n_times):
    cells = ["male"] * 530 + ["female"] * 262 + ["femlae"] * n_times
    (found,) = find_misspellings(text(cells))
    assert found.n_rows == n_times
    assert found.doubt < 0.5


def test_other_words_and_numbers_are_no_misspellings():
    cells = ["room 12"] * 40 + ["room 13"] + ["Martin House Brewing Company"] * 30
    cells += ["Spring House Brewing Company"]
    assert list(find_misspellings(text(cells))) == []


def test_a_content_of_another_column_is_found():
    job = np.array(["clerk", "cook", "driver"] * 30, dtype=object)
    state = np.array(["married", "single", "widowed"] * 30, dtype=object)
    job[4], state[4] = state[4], job[4]
    found = list(find_swapped([column(job, "job"), column(state, "state")]))
    assert sorted((f.columns, f.rows.tolist()) for f in found) == [
        (("job",), [4]),
        (("state",), [4]),
    ]


def test_columns_that_share_contents_have_none_of_each_other():
    job = np.array(["clerk", "cook", "driver", "tailor", "nurse"] * 30, dtype=object)
    other = np.array(["married", "single", "widowed", "free", "clerk"] * 30, dtype=object)
    job[4] = "married"
    assert list(find_swapped([column(job, "job"), column(other, "other")])) == []


def test_violations_of_a_dependency_are_found_with_what_belongs_there():
    rng = np.random.default_rng(1)
    postcode = rng.integers(0, 20, 400)
    city = np.array([f"city {code % 10}" for code in postcode], dtype=object)
    right, city[11] = city[11], "city 3" if city[11] != "city 3" else "city 4"
    columns = [column(postcode, "postcode"), column(city, "city")]
    (found,) = find_violations(columns)
    assert (found.columns, found.rows.tolist()) == (("city",), [11])
    assert found.action.replacements == [right]


def test_of_two_columns_that_determine_each_other_one_is_found():
    code = np.arange(400) % 20
    city = np.array([f"city {each}" for each in code], dtype=object)
    city[11] = "city 3"
    for names in (("code", "city"), ("a", "city"), ("z", "city")):
        columns = [column(code, names[0]), column(city, names[1])]
        (found,) = find_violations(columns)
        assert found.rows.tolist() == [11]


def test_a_column_that_hardly_varies_is_determined_by_nothing():
    pixels = load_digits().images
    columns = [column(pixels[:, 6, 1], "pixel_6_1"), column(pixels[:, 6, 0], "pixel_6_0")]
    assert columns[1].counts[1:].sum() < 20
    assert list(find_violations(columns)) == []


def test_independent_columns_depend_on_nothing():
    rng = np.random.default_rng(2)
    columns = [column(rng.integers(0, 6, 500), name) for name in "abc"]
    assert list(find_violations(columns)) == []


def test_constant_empty_and_id_columns_are_named():
    columns = [
        column(np.ones(50), "one"),
        column(np.full(50, np.nan), "none"),
        column(np.arange(50), "number"),
        column(RNG.normal(size=50), "size"),
    ]
    found = {finding.columns[0]: finding.kind for finding in check_columns(columns)}
    assert found == {"one": "constant column", "none": "empty column", "number": "id column"}


def test_repeated_rows_are_found_beside_an_id():
    sizes = RNG.normal(size=(60, 2))
    sizes[40] = sizes[2]
    columns = [column(sizes[:, j], f"x{j}") for j in range(2)]
    (found,) = find_repeated_rows([column(np.arange(60), "id"), *columns])
    assert found.rows.tolist() == [40]
    assert list(find_repeated_rows([column(RNG.normal(size=60), "x")])) == []


def test_rows_that_hold_nothing_are_no_copies():
    sizes = np.where(np.arange(60) < 10, np.nan, RNG.normal(size=60))
    marks = np.where(np.arange(60) < 10, "", "known").astype(object)
    columns = [column(np.arange(60), "name"), column(sizes, "size"), column(marks, "mark")]
    assert list(find_repeated_rows(columns)) == []


def test_copies_are_doubtful_where_rows_differ_in_two_columns_as_chance_would_have_it():
    coarse = [column(RNG.integers(0, 12, 300), name) for name in "abc"]
    (by_chance,) = find_repeated_rows(coarse)
    assert by_chance.doubt > 0.5
    fine = RNG.normal(size=(3, 300))
    fine[:, 40:60] = fine[:, :20]
    (copied,) = find_repeated_rows([column(own) for own in fine])
    assert copied.doubt < 0.1


def test_texts_to_read_and_times_are_no_ids():
    texts = [
        f"This is a sentence about the thing with the number {i}, and long." for i in range(60)
    ]
    days = [f"2020-{1 + i // 28:02}-{1 + i % 28:02}" for i in range(60)]
    codes = [f"key-{i}" for i in range(60)]
    named = {"text": texts, "day": days, "code": codes}.items()
    columns = [column(np.array(cells, dtype=object), name) for name, cells in named]
    (found,) = check_columns(columns)
    assert found.columns == ("code",)


def test_validation_rows_in_the_table_are_found():
    ours, theirs = RNG.normal(size=(2, 60, 3))
    ours[7] = theirs[5]
    sides = [[column(side[:, j], f"x{j}") for j in range(3)] for side in (ours, theirs)]
    (found,) = find_shared_rows(*sides)
    assert found.rows.tolist() == [7]
    assert "1 of 60" in found.sentence


def read(table):
    return read_levels(Table.from_data(table, called="X"))


def draw_people(n_rows, seed=0):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 80, n_rows),
            "pay": rng.normal(3000, 800, n_rows).round(2),
            "town": rng.choice(["Kiel", "Ulm", "Jena", "Bonn"], n_rows),
            "size": rng.normal(170, 10, n_rows).round(2),
            "weight": rng.normal(70, 10, n_rows).round(2),
        }
    )


def test_validation_rows_with_another_label_in_the_table_are_counted():
    ours, theirs = draw_people(60), draw_people(60, seed=1)
    theirs.loc[[5, 6, 7]] = ours.loc[[5, 6, 7]]
    labels = np.array(["yes", "no"] * 30), np.array(["yes", "no"] * 30)
    (found,) = find_shared_rows(read(ours), read(theirs), labels)
    assert found.sentence == "3 of 60 validation rows are also in X."
    labels[1][[5, 6]] = ["yes", "no"]
    (found,) = find_shared_rows(read(ours), read(theirs), labels)
    assert found.sentence == "3 of 60 validation rows are also in X, 2 of them with another label."


def test_a_column_that_is_the_label_and_sorted_rows_are_leaks():
    labels = np.repeat([0, 1], 100)
    size = column(RNG.normal(size=200), "size")
    (found,) = find_leaks([column(labels * 3.0, "copy"), size], labels, of_classes=True)
    assert found.columns == ("copy",)
    (found,) = find_sorted_rows(labels)
    assert found.columns == ()
    shuffled = RNG.permutation(labels)
    assert list(find_leaks([size], shuffled, of_classes=True)) == []
    assert list(find_sorted_rows(shuffled)) == []


def test_a_column_that_orders_rows_as_a_numeric_target_does_is_a_leak():
    target = RNG.normal(size=200)
    columns = [
        column(np.exp(target), "same"),
        column(RNG.normal(size=200), "size"),
    ]
    (found,) = find_leaks(columns, target, of_classes=False)
    assert found.columns == ("same",)
    assert found.sentence == "same is the target up to recoding."
