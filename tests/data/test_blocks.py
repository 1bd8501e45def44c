import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cellworth.data.blocks import Axis, Blocks, NumberedAxis
from cellworth.data.tables import label_array


def make_axis(ids, groups=None, *, what):
    return Axis.from_groups(label_array(ids, what=what), groups, what=what)


def test_without_groups_every_row_and_column_plays_for_itself():
    blocks = Blocks.cut(["ann", "bob"], ["age", "pay", "sex"])
    assert blocks.shape == (2, 3)
    assert list(blocks.rows.labels) == ["ann", "bob"]
    assert not blocks.rows.grouped


def test_groups_given_as_labels_keep_their_first_order():
    axis = make_axis([10, 11, 12, 13], ["shop", "bank", "shop", "bank"], what="row")
    assert list(axis.labels) == ["shop", "bank"]
    assert list(axis.ids[axis.codes == 0]) == [10, 12]
    assert axis.grouped


def test_groups_given_as_a_mapping_keep_the_order_of_the_mapping():
    axis = make_axis(["a", "b", "c"], {"late": ["c"], "early": ["a", "b"]}, what="column")
    assert list(axis.labels) == ["late", "early"]
    assert list(axis.codes) == [1, 1, 0]


def test_groups_may_come_from_anything_that_can_be_gone_through():
    names = (name for name in ["a", "b"])
    axis = make_axis(["a", "b", "c"], {"x": names, "y": iter(["c"])}, what="column")
    assert axis.codes.tolist() == [0, 0, 1]
    for labels in (pa.chunked_array([["x", "x", "y"]]), pl.Series(["x", "x", "y"])):
        assert make_axis(["a", "b", "c"], labels, what="column").codes.tolist() == [0, 0, 1]


def test_labels_and_mapping_cut_the_same_blocks():
    ids = [5, 6, 7]
    by_label = make_axis(ids, ["x", "y", "x"], what="row")
    by_mapping = make_axis(ids, {"x": np.array([5, 7]), "y": [6]}, what="row")
    assert by_label == by_mapping
    assert by_label != make_axis(ids, what="row")
    assert by_label != "x"


def test_a_coalition_of_groups_holds_the_rows_of_its_members():
    axis = make_axis(range(5), ["a", "b", "a", "c", "b"], what="row")
    assert list(axis.positions(np.array([True, False, True]))) == [0, 2, 3]


def test_a_repeated_row_id_in_a_mapping_takes_all_its_rows_along():
    axis = make_axis([1, 1, 2], {"a": [1], "b": [2]}, what="row")
    assert list(axis.codes) == [0, 0, 1]


def test_a_repeated_row_id_cannot_be_looked_up_by_label():
    axis = make_axis([7, 7, 8], what="row")
    assert axis.position(8, what="row") == 2
    with pytest.raises(KeyError, match="2 rows are called 7"):
        axis.position(7, what="row")


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        ([3, 1, 2], "i"),
        ([0.5, 1.5], "f"),
        (["a", "b"], "O"),
        (np.array(["a", "b"]), "O"),
        (pd.Index(["a", "b"]), "O"),
        (pd.date_range("2026-01-01", periods=2), "M"),
        (pd.date_range("2026-01-01", periods=2).as_unit("ns"), "M"),
        ([True, False], "b"),
        ([pd.Timestamp("2026-01-01"), pd.Timestamp("2026-01-02")], "M"),
    ],
    ids=str,
)
def test_labels_of_one_kind_are_kept_as_they_are(labels, kind):
    array = label_array(labels, what="row")
    assert array.dtype.kind == kind
    assert list(array) == list(np.asarray(labels))


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_dates_of_every_unit_are_dates_and_can_be_grouped(unit):
    days = pd.date_range("2026-01-01", periods=3).as_unit(unit)
    axis = make_axis(days, {"first": days[:1], "rest": list(days[1:])}, what="row")
    assert axis.codes.tolist() == [0, 1, 1]
    assert axis.ids.tolist()[0] == pd.Timestamp("2026-01-01")


def test_a_game_without_a_table_names_its_players_by_position():
    blocks = Blocks.from_shape((np.int64(2), 3))
    assert list(blocks.columns.labels) == [0, 1, 2]


# axes of many rows --------------------------------------------------------------------------


def test_a_numbered_axis_is_like_one_of_positions_and_holds_nothing():
    numbered, plain = NumberedAxis(5), make_axis(np.arange(5), what="row")
    assert numbered == plain
    assert plain == numbered
    assert numbered == NumberedAxis(5)
    assert numbered != NumberedAxis(6)
    assert numbered != make_axis(np.arange(6), what="row")
    assert numbered != make_axis(["a", "b", "c", "d", "e"], what="row")
    assert len(numbered) == 5
    for name in ("labels", "ids", "codes"):
        np.testing.assert_array_equal(getattr(numbered, name), getattr(plain, name))
    assert numbered.grouped is plain.grouped is False
    assert list(vars(NumberedAxis(10**12)).values()) == [10**12]
    for players in (slice(1, 4), slice(3, None), np.array([4, 0])):
        np.testing.assert_array_equal(numbered.some_labels(players), plain.some_labels(players))


@pytest.mark.parametrize("label", [0, 4, 4.0, np.int64(2), np.uint8(3)])
def test_positions_of_a_numbered_axis_are_its_labels(label):
    plain = make_axis(np.arange(5), what="row")
    assert NumberedAxis(5).position(label, what="row") == plain.position(label, what="row")


@pytest.mark.parametrize("label", [-1, 5, 2.5, "2", True, np.nan])
def test_other_labels_are_rejected_by_a_numbered_axis(label):
    for axis in (NumberedAxis(5), make_axis(np.arange(5), what="row")):
        with pytest.raises(KeyError, match="no row is called"):
            axis.position(label, what="row")
