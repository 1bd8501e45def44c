"""Summaries of columns: exact sums and quantiles, the same bits however a column is cut."""

import dataclasses
import math
import pickle
import sys
from fractions import Fraction
from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cellworth.sampling.statistics import (
    MAX_EXACT,
    MAX_KEYS,
    CategorySummary,
    NumberSummary,
    limit_keys,
)

floats = st.lists(
    st.floats(allow_infinity=False, allow_nan=True)
    | st.sampled_from(
        [0.0, -0.0, 5e-324, -5e-324, 1e308, -1e308, 1e9 + 1, 1e9 - 1, 0.1, 16777217.0]
    )
    | st.floats(width=32, allow_infinity=False, allow_nan=False),
    max_size=40,
)
wholes = st.lists(st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(-3, 3), max_size=40)
percents = (0, 1, 5, 25, 50, 75, 95, 99, 100)


def gathered(cells, cuts=()):
    """The summary of parts that are added in turn."""
    return reduce(NumberSummary.merge, map(NumberSummary.from_cells, np.split(cells, cuts)))


def assert_same_bits(one, other):
    for field in dataclasses.fields(one):
        mine, yours = getattr(one, field.name), getattr(other, field.name)
        assert repr(np.asarray(mine).tolist()) == repr(np.asarray(yours).tolist()), field.name


@pytest.mark.slow
@settings(deadline=None)
@pytest.mark.parametrize(("numbers", "dtype"), [(floats, float), (wholes, np.int64)])
@given(st.data(), st.randoms())
def test_numbers_have_one_summary_in_any_order_and_however_cut(numbers, dtype, data, random):
    cells = data.draw(numbers)
    whole = NumberSummary.from_cells(np.array(cells, dtype=dtype))
    shuffled = np.array(random.sample(cells, len(cells)), dtype=dtype)
    cuts = sorted(random.randint(0, len(cells)) for _ in range(3))
    assert_same_bits(gathered(shuffled, cuts), whole)
    parts = [NumberSummary.from_cells(part) for part in np.split(shuffled, cuts)]
    random.shuffle(parts)
    assert_same_bits(reduce(NumberSummary.merge, parts), whole)
    assert_same_bits(parts[0].merge(parts[1]).merge(parts[2].merge(parts[3])), whole)


def test_distinct_numbers_are_counted():
    cells = np.repeat([0.5, -3.0, -0.0, 1e9, np.nan], [3, 1, 4, 200, 2])
    assert NumberSummary.from_cells(cells).distinct == {-3.0: 1, 0.0: 4, 0.5: 3, 1e9: 200}


def test_means_and_deviations_are_rounded_once():
    cells = np.random.default_rng(0).normal(1e6, 1, 1001)
    summary = NumberSummary.from_cells(cells)
    center = summary.mean()
    assert center == math.fsum(cells) / 1001
    differences = [Fraction(cell) - Fraction(center) for cell in cells.tolist()]
    truth = float(sum(differences)), float(sum(each**2 for each in differences))
    assert summary.deviations(center) == truth


@settings(deadline=None)
@given(floats.filter(lambda cells: any(cell == cell for cell in cells)))
def test_the_variance_is_that_of_fractions_rounded_once(cells):
    known = [Fraction(cell) for cell in cells if cell == cell]
    mean = sum(known) / len(known)
    variance = sum((cell - mean) ** 2 for cell in known) / len(known)
    summary = NumberSummary.from_cells(np.array(cells))
    if variance > Fraction(sys.float_info.max):
        assert summary.variance() >= sys.float_info.max
    else:
        assert summary.variance() == float(variance)
    assert summary.count == len(known)
    assert summary.n_missing == len(cells) - len(known)


@settings(deadline=None)
@given(wholes.filter(len))
def test_the_variance_of_integers_is_exact(cells):
    mean = Fraction(sum(cells), len(cells))
    variance = sum((cell - mean) ** 2 for cell in cells) / len(cells)
    assert gathered(np.array(cells)).variance() == float(variance)


def test_adjacent_numbers_keep_their_order():
    for cells in (np.linspace(-1.0, -1.0 + 2**-50, 9), np.linspace(1.0, 1.0 + 2**-50, 5)):
        for percent in (0, 13, 50, 99):
            found = NumberSummary.from_cells(cells).percentile(percent)
            assert found == np.percentile(cells, percent)


def test_the_middle_of_two_numbers_is_numpys_to_the_bit():
    for pair in np.random.default_rng(0).random((50, 2)) * [1.0, 1e3]:
        assert NumberSummary.from_cells(pair).percentile(50) == np.percentile(pair, 50)


@settings(deadline=None)
@given(
    st.lists(st.floats(-1e300, 1e300) | st.integers(-5, 5).map(float), min_size=1),
    st.sampled_from(percents),
)
def test_quantiles_of_few_distinct_numbers_are_numpys_to_the_bit(cells, percent):
    known = np.array(cells)
    assert NumberSummary.from_cells(known).percentile(percent) == np.percentile(known, percent)


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**53), min_size=1), st.sampled_from(percents))
def test_quantiles_of_moments_count_from_the_first(cells, percent):
    moments = np.array(cells)
    since = (moments - moments.min()).astype(float)
    assert NumberSummary.from_cells(moments).percentile(percent) == np.percentile(since, percent)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_narrow_numbers_are_those_that_survive_as_float32(cells):
    known = np.array(cells)
    with np.errstate(over="ignore"):
        survive = bool((known.astype(np.float32) == known).all())
    assert gathered(known).narrow == survive
    assert NumberSummary.from_cells(known).narrow == survive


def draws(name, n_rows=1_000_000):
    rng = np.random.default_rng(0)
    return {
        "heavy tails": lambda: rng.standard_t(2, size=n_rows),
        "far from zero": lambda: 1e9 + rng.uniform(-1, 1, n_rows),
        "timestamps": lambda: 1_600_000_000_000_000 + rng.integers(0, 10**14, n_rows),
    }[name]()


@pytest.mark.slow
@pytest.mark.parametrize("most", [MAX_KEYS, MAX_EXACT])
@pytest.mark.parametrize("name", ["heavy tails", "far from zero", "timestamps"])
def test_a_million_distinct_numbers_give_one_summary_and_sharp_quantiles(name, most):
    cells = draws(name)
    summary = NumberSummary.from_cells(cells, most)
    assert summary.shift > 0
    assert len(summary.keys) <= MAX_KEYS
    shuffled = np.random.default_rng(1).permutation(cells)
    # The first two parts keep all of their numbers, if 65,536 are kept.
    parts = [
        NumberSummary.from_cells(part, most) for part in np.split(shuffled, [1000, 41_000, 341_000])
    ]
    assert_same_bits(parts[2].merge(parts[0]).merge(parts[3].merge(parts[1])), summary)
    assert summary.variance() == pytest.approx(float(np.var(cells - cells.min())), rel=1e-12)
    since = cells - (cells.min() if summary.integral else 0)
    for low, high in ((25, 75), (5, 95), (1, 99)):
        scatter = np.subtract(*np.percentile(since, (high, low)))
        assert summary.percentile(high) - summary.percentile(low) == pytest.approx(
            scatter, rel=3e-4 if low == 25 else 1e-3
        )


@pytest.mark.parametrize("most", [MAX_KEYS, MAX_EXACT])
def test_the_fewest_bits_are_dropped(most):
    keys = np.arange(most + 1)
    assert NumberSummary.from_cells(keys[:-1], most).shift == 0
    summary = NumberSummary.from_cells(keys, most)
    bits = math.ceil(math.log2((most + 1) / MAX_KEYS))
    assert summary.shift == bits
    assert summary.counts.tolist() == np.bincount(keys >> bits).tolist()


def test_a_summary_in_buckets_takes_16_kilobytes():
    assert (limit_keys(MAX_EXACT), limit_keys(MAX_EXACT + 1)) == (MAX_EXACT, MAX_KEYS)
    # Numbers of all sizes have the longest exact sums.
    cells = np.ldexp(np.random.default_rng(0).random(200_000), np.arange(200_000) % 2098 - 1074)
    summary = NumberSummary.from_cells(np.append(cells, -cells), MAX_KEYS)
    assert len(summary.keys) > MAX_KEYS / 2
    assert len(pickle.dumps(summary)) < 16_000


@settings(deadline=None)
@given(st.lists(st.none() | st.sampled_from("abcd"), min_size=1), st.randoms())
def test_categories_merge_in_any_order(cells, random):
    def of(first, part):
        known = [(first + i, cell) for i, cell in enumerate(part) if cell is not None]
        counts = {cell: sum(c == cell for _, c in known) for _, cell in known}
        firsts = {cell: min(i for i, c in known if c == cell) for _, cell in known}
        return CategorySummary(counts, firsts, sum(cell is None for cell in part))

    cut = random.randint(0, len(cells))
    merged = of(cut, cells[cut:]).merge(of(0, cells[:cut]))
    whole = of(0, cells)
    assert (merged.counts, merged.n_missing) == (whole.counts, whole.n_missing)
    assert merged.values == list(dict.fromkeys(cell for cell in cells if cell is not None))
    assert merged.count + merged.n_missing == len(cells)
