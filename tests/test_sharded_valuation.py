import json

import numpy as np
import pytest

from cellworth import Valuation, stored_moments, value_files
from cellworth.sharded_valuation import ShardedValuation, finish
from in_shards import in_shards, shards_of, whole

N_SHARDS = (1, 3, 7)


@pytest.fixture(autouse=True)
def groups_of_four_rows(monkeypatch):
    """So that small tables have many groups."""
    monkeypatch.setattr(value_files, "GROUP_ROWS", 4)
    monkeypatch.setattr(stored_moments, "GROUP_ROWS", 4)


@pytest.fixture(params=N_SHARDS)
def both(request, tmp_path):
    valuation = whole()
    in_shards(valuation, tmp_path, request.param)
    return valuation, Valuation.load(tmp_path)


def same(one, other):
    """Equal to the bit, with NaN equal to NaN."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(one, other)


def same_list(one, other):
    assert list(one.labels) == list(other.labels)
    for name in one.labels:
        same(one.labels[name], other.labels[name])
    for name in ("values", "standard_errors", "counts"):
        same(getattr(one, name), getattr(other, name))
    assert repr(one) == repr(other)


def test_values_and_errors_are_the_same_bits_in_any_number_of_shards(both):
    one, other = both
    assert type(other) is ShardedValuation
    for name in ("values", "standard_errors", "counts", "row_labels", "column_labels"):
        same(getattr(one, name), getattr(other, name))
    assert one.shape == other.shape
    assert one.blocks == other.blocks
    assert other.blocks == one.blocks
    assert other.validation_errors is None


def test_sums_are_the_same_bits(both):
    one, other = both
    for name in ("total", "total_error", "efficiency_residual", "largest_error", "unearned"):
        assert getattr(one, name) == getattr(other, name)
    same_list(one.rows(), other.rows())
    same_list(one.columns(), other.columns())
    assert one.signs() == other.signs()
    assert repr(one) == repr(other)
    assert one._repr_html_() == other._repr_html_()


@pytest.mark.parametrize("k", [1, 2, 9, 57, 200, 1000])
def test_the_lowest_and_highest_are_the_same_with_ties_by_position(both, k):
    one, other = both
    assert len(np.unique(one.values)) < one.values.size
    same_list(one.lowest(k), other.lowest(k))
    same_list(one.highest(k), other.highest(k))
    same_list(one.rows().lowest(k), other.rows().lowest(k))
    same_list(one.rows().highest(k), other.rows().highest(k))


@pytest.mark.parametrize("n_rows", [1, 3, 4, 7, 50, 65_536])
def test_strips_are_the_same_wherever_files_end(both, n_rows):
    one, other = both
    for strip, stored in zip(one.strips(n_rows), other.strips(n_rows), strict=True):
        assert strip.rows == stored.rows
        same(strip.values, stored.values)
        same(strip.standard_errors, stored.standard_errors)
        assert stored.values.flags.c_contiguous


def test_moments_are_there_when_asked_for(both):
    one, other = both
    for name in ("count", "mean", "spread"):
        same(getattr(one.moments, name), getattr(other.moments, name))


def test_one_observation_has_no_errors(tmp_path):
    one = whole(sweeps=1)
    other = in_shards(one, tmp_path)
    same(one.standard_errors, other.standard_errors)
    assert np.isnan(other.standard_errors).all()
    assert one.signs() == other.signs()
    same_list(one.lowest(5), other.lowest(5))
    assert repr(one) == repr(other)


def test_exact_values_have_errors_of_zero(tmp_path):
    one = whole(sweeps=1, status="exact")
    other = in_shards(one, tmp_path)
    assert not other.standard_errors.any()
    assert one.signs() == other.signs()
    same_list(one.rows(), other.rows())


def test_shards_must_hold_each_row_once(tmp_path):
    valuation = whole()
    entries = shards_of(valuation, tmp_path)
    for given, words in (
        (entries[1:], "the shards hold values of 27 x 4 blocks"),
        (entries[:-1], "rows 0 to 8 are held not at all"),
        ([*entries, entries[0]], "rows 27 to 49 are held twice"),
        ([], "no shards of values came"),
    ):
        with pytest.raises(ValueError, match=words):
            finish(
                tmp_path,
                given,
                shape=valuation.shape,
                column_labels=valuation.column_labels,
                count=3,
                columns=(valuation.moments.mean[-1], valuation.moments.spread[-1]),
                expected_total=0.5,
                empty="prior",
                status="estimated",
                provenance=valuation.provenance,
            )
    assert not (tmp_path / "manifest.json").exists()


def test_a_changed_file_is_refused_when_it_is_read_through(tmp_path):
    in_shards(whole(), tmp_path)
    file = sorted(tmp_path.glob("values-*"))[1]
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    valuation = Valuation.load(tmp_path)
    with pytest.raises(ValueError, match="sha256 differs"):
        list(valuation.strips())


def test_a_torn_or_missing_file_is_refused_at_once(tmp_path):
    in_shards(whole(), tmp_path)
    file = sorted(tmp_path.glob("values-*"))[1]
    content = file.read_bytes()
    file.write_bytes(content[:-10])
    with pytest.raises(ValueError, match="bytes, but"):
        Valuation.load(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="lacks the file"):
        Valuation.load(tmp_path)


def test_a_manifest_must_not_reach_beyond_its_folder(tmp_path):
    in_shards(whole(), tmp_path / "inside")
    path = tmp_path / "inside" / "manifest.json"
    manifest = json.loads(path.read_text())
    name = manifest["files"]["values-00000"]["file"]
    (tmp_path / "inside" / name).rename(tmp_path / name)
    manifest["files"]["values-00000"]["file"] = f"../{name}"
    path.write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="incomplete or was changed"):
        Valuation.load(tmp_path / "inside")
