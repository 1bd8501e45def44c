import numpy as np
import polars as pl
import pyarrow.dataset as ds
import pytest

from cellworth import load
from cellworth.valuation import sharded_valuation as stored_moments
from cellworth.valuation import storage as stored_values
from cellworth.valuation import storage as value_files
from cellworth.valuation.sharded_valuation import ShardedValuation
from in_shards import in_shards, whole

N_SHARDS = (1, 7)


@pytest.fixture(autouse=True)
def groups_of_four_rows(monkeypatch):
    """So that small tables have many groups."""
    monkeypatch.setattr(value_files, "GROUP_ROWS", 4)
    monkeypatch.setattr(stored_moments, "GROUP_ROWS", 4)


@pytest.fixture(params=N_SHARDS)
def both(request, tmp_path):
    valuation = whole()
    in_shards(valuation, tmp_path, request.param)
    return valuation, load(tmp_path)


def same(one, other):
    """Equal to the bit, with NaN equal to NaN."""
    one, other = np.asarray(one), np.asarray(other)
    assert one.dtype == other.dtype
    np.testing.assert_array_equal(one, other)


def same_list(one, other):
    assert list(one.labels) == list(other.labels)
    for name in one.labels:
        same(one.labels[name], other.labels[name])
    for name in ("values", "sampling_se", "counts"):
        same(getattr(one, name), getattr(other, name))
    assert repr(one) == repr(other)


def test_values_and_errors_are_the_same_bits_in_any_number_of_shards(both):
    one, other = both
    assert type(other) is ShardedValuation
    for name in ("values", "sampling_se", "counts", "row_labels", "column_labels"):
        same(getattr(one, name), getattr(other, name))
    assert one.shape == other.shape
    assert one.blocks == other.blocks
    assert other.blocks == one.blocks
    assert other.validation_se is None


def test_sums_are_the_same_bits(both):
    one, other = both
    for name in ("total", "total_error", "efficiency_residual", "largest_error", "baseline"):
        assert getattr(one, name) == getattr(other, name)
    same_list(one.rows(), other.rows())
    same_list(one.columns(), other.columns())
    assert one.sign_counts() == other.sign_counts()
    assert repr(one) == repr(other)
    assert one._repr_html_() == other._repr_html_()


@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 9, 57, 1000])
def test_the_lowest_and_highest_are_the_same_with_ties_by_position(both, k):
    one, other = both
    assert len(np.unique(one.values)) < one.values.size
    same_list(one.lowest(k), other.lowest(k))
    same_list(one.highest(k), other.highest(k))
    same_list(one.rows().lowest(k), other.rows().lowest(k))
    same_list(one.rows().highest(k), other.rows().highest(k))


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [1, 4, 7, 65_536])
def test_chunks_of_rows_are_the_same_wherever_files_end(both, n_rows):
    one, other = both
    for strip, stored in zip(one.iter_rows(n_rows), other.iter_rows(n_rows), strict=True):
        assert strip.rows == stored.rows
        same(strip.values, stored.values)
        same(strip.sampling_se, stored.sampling_se)
        assert stored.values.flags.c_contiguous


def test_other_libraries_read_the_files_as_one_table(both, tmp_path):
    one, _ = both
    read = pl.read_parquet(tmp_path / "values-*.parquet")
    assert read.columns[:5] == ["mean_0", "mean_1", "mean_2", "mean_3", "row_mean"]
    same(read.select(read.columns[:4]).to_numpy(), one.values)
    files = sorted(map(str, tmp_path.glob("values-*.parquet")))
    same(ds.dataset(files).to_table()["row_mean"].to_numpy(), one.rows().values)


def test_one_observation_has_no_errors(tmp_path):
    one = whole(n_passes=1)
    other = in_shards(one, tmp_path)
    same(one.sampling_se, other.sampling_se)
    assert np.isnan(other.sampling_se).all()
    assert one.sign_counts() == other.sign_counts()
    same_list(one.lowest(5), other.lowest(5))
    assert repr(one) == repr(other)


def test_exact_values_have_errors_of_zero(tmp_path):
    one = whole(n_passes=1, status="exact")
    other = in_shards(one, tmp_path)
    assert not other.sampling_se.any()
    assert one.sign_counts() == other.sign_counts()
    same_list(one.rows(), other.rows())


def test_a_torn_or_missing_file_is_refused_at_once(tmp_path):
    in_shards(whole(), tmp_path)
    file = sorted(tmp_path.glob("values-*"))[1]
    content = file.read_bytes()
    file.write_bytes(content[:-10])
    with pytest.raises(ValueError, match="bytes, but"):
        load(tmp_path)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="lacks the file"):
        load(tmp_path)


# looking up -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "key", [(7, "c2"), (slice(None), "c0"), ([9, 0], ["c1", "c0"]), (3.0, ["c3"]), (range(3), "c1")]
)
def test_labels_are_looked_up_as_in_memory(both, key):
    one, other = both
    same(other.loc[key], one.loc[key])


@pytest.mark.parametrize("key", [50, -1, "7", 1.5, True])
def test_labels_that_are_not_there_are_refused(both, key):
    _, other = both
    with pytest.raises(KeyError, match="no row is called"):
        other.loc[key, "c0"]


def test_a_look_at_one_cell_reads_one_group(tmp_path, monkeypatch):
    other = in_shards(whole(), tmp_path)
    read = []
    plain = stored_values.ValueFile.read

    def recorded(self, folder, group, parts, columns):
        read.append((self.first_row, group))
        return plain(self, folder, group, parts, columns)

    monkeypatch.setattr(stored_values.ValueFile, "read", recorded)
    assert other.loc[30, "c1"] == whole().values[30, 1]
    assert len(read) == 1
    other.lowest(1)
    # One group to find it, one for its errors.
    assert len(read) == 3


# frames, limits -------------------------------------------------------------------------------


@pytest.mark.parametrize("wide", [False, True])
def test_frames_are_the_same(both, wide):
    one, other = (v.to_frame(wide=wide, backend="pyarrow") for v in both)
    assert one.equals(other)
    assert both[0].rows().to_frame("pyarrow").equals(both[1].rows().to_frame("pyarrow"))


def test_what_does_not_fit_is_refused_and_the_rest_still_works(tmp_path, monkeypatch):
    one = whole()
    other = in_shards(one, tmp_path)
    monkeypatch.setattr(stored_moments, "MAX_HELD", 49)
    for ask in (
        lambda: other.values,
        lambda: other.sampling_se,
        lambda: other.moments.mean,
        lambda: other.to_frame(),
        lambda: other.to_frame(wide=True),
        lambda: other.loc[:, "c0"],
        lambda: other.rows().values,
        lambda: other.lowest(50),
    ):
        with pytest.raises(MemoryError, match=r"use iter_rows\(\), loc or lowest\(\)"):
            ask()
    assert other.loc[7, "c1"] == one.loc[7, "c1"]
    assert repr(other) == repr(one)
    assert repr(other.rows()) == repr(one.rows())
    assert other.rows()._repr_html_() == one.rows()._repr_html_()
    assert other._repr_html_() == one._repr_html_()
    same_list(one.lowest(40), other.lowest(40))


def test_validation_errors_of_sums_are_shown(tmp_path):
    one = whole()
    errors = np.arange(1.0, 6.0)
    in_shards(one, tmp_path, validation=errors)
    other = load(tmp_path)
    same(other.columns().validation_se, errors[:-1])
    assert other.total_error == np.hypot(one.total_error, 5.0)
    assert other.validation_se is None
    assert "validation_se" in repr(other.columns())


# merging, saving ------------------------------------------------------------------------------


def test_merging_is_the_same_however_rows_are_cut(tmp_path):
    ones = whole(seed=0), whole(n_passes=1, seed=1)
    both = ones[0].merge(ones[1])
    errors = np.arange(1.0, 6.0)
    shards = [
        in_shards(one, tmp_path / str(n), n, validation=errors * n)
        for n, one in zip((3, 7), ones, strict=True)
    ]
    merged = shards[0].merge(shards[1])
    same(merged.values, both.values)
    same(merged.sampling_se, both.sampling_se)
    same_list(merged.rows(), both.rows())
    same(merged.columns().sampling_se, both.columns().sampling_se)
    assert merged.provenance == both.provenance
    same(merged.validation, np.sqrt((3 * (errors * 3) ** 2 + (errors * 7) ** 2) / 4))
    merged.save(tmp_path / "kept")
    folder = merged.moments.folder
    del merged
    assert not folder.exists()
    same(load(tmp_path / "kept").values, both.values)
    shards[0].merge(shards[1], tmp_path / "here")
    same(load(tmp_path / "here").values, both.values)


def test_only_like_is_merged_with_like(tmp_path):
    one, other = whole(seed=0), in_shards(whole(seed=1), tmp_path)
    for first, second in ((one, other), (other, one)):
        with pytest.raises(ValueError, match="one valuation is of a sharded table"):
            first.merge(second)
    third = in_shards(whole(seed=2), tmp_path / "third")
    with pytest.raises(ValueError, match="must not hold one of the two valuations"):
        other.merge(third, tmp_path)


def test_a_copy_elsewhere_is_whole_and_replaces_what_was_there(tmp_path):
    one = whole()
    whole(seed=5).save(tmp_path / "copy")
    other = in_shards(one, tmp_path / "first")
    other.save(tmp_path / "copy")
    assert len(list((tmp_path / "copy").glob("rows-*"))) == 0
    copy = load(tmp_path / "copy")
    same(copy.values, one.values)
    assert copy.provenance == one.provenance
    other.save(tmp_path / "first")
    same(load(tmp_path / "first").values, one.values)
    one.save(tmp_path / "first")
    assert len(list((tmp_path / "first").glob("values-*"))) == 0


def test_a_changed_file_is_not_copied(tmp_path):
    other = in_shards(whole(), tmp_path / "first")
    file = sorted((tmp_path / "first").glob("values-*"))[0]
    content = bytearray(file.read_bytes())
    content[100] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="sha256 differs"):
        other.save(tmp_path / "copy")
    assert not (tmp_path / "copy" / file.name).exists()
    assert not (tmp_path / "copy" / "manifest.json").exists()


def test_a_changed_page_is_refused_where_single_cells_are_read(tmp_path):
    other = in_shards(whole((50, 4)), tmp_path, 1)
    (file,) = tmp_path.glob("values-*")
    content = bytearray(file.read_bytes())
    content[content.index(np.float64(other.loc[0, "c0"]).tobytes())] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match="restore it from a copy"):
        other.loc[0, "c0"]


def test_what_is_not_finite_is_not_written(tmp_path):
    for bad in (np.nan, np.inf):
        for name, shape in {
            "mean": (3, 2),
            "sum_sq": (3, 2),
            "row_mean": 3,
            "row_sum_sq": 3,
        }.items():
            group = {"mean": np.ones((3, 2)), "sum_sq": np.ones((3, 2))}
            group |= {"row_mean": np.ones(3), "row_sum_sq": np.ones(3), name: np.full(shape, bad)}
            with pytest.raises(ValueError, match="not finite"):
                value_files.write_groups(tmp_path, 0, 0, [group])
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_forced_to_disk_unless_it_need_not_last(tmp_path, monkeypatch):
    forced = []
    monkeypatch.setattr("os.fsync", forced.append)
    group = {"mean": np.ones((2, 3)), "row_mean": np.ones(2)}
    lasting = value_files.write_groups(tmp_path / "a", 0, 0, [group])
    n_forced = len(forced)
    assert n_forced > 0
    assert value_files.write_groups(tmp_path / "b", 0, 0, [group], durable=False) == lasting
    assert len(forced) == n_forced
