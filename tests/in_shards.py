"""Valuations to compare: held as a whole, and the same figures in shards."""

from itertools import pairwise

import numpy as np

from cellworth import Valuation
from cellworth.data.blocks import Blocks, NumberedAxis
from cellworth.sampling import Moments
from cellworth.sampling.moments import Tally, append_margins
from cellworth.valuation import storage as value_files
from cellworth.valuation.provenance import Provenance, Session
from cellworth.valuation.sharded_valuation import ShardedValuation, StoredMoments
from cellworth.valuation.storage import ValueFile

SHAPLEY = {"row_semivalue": "Shapley()", "column_semivalue": "Shapley()"}


def whole(shape=(50, 4), n_passes=3, *, seed=0, status="estimated", problem_spec=SHAPLEY):
    """Values with ties, as a run of some n_passes may leave them."""
    rng = np.random.default_rng((seed, *shape))
    n_rows, n_columns = shape
    truth = np.random.default_rng(shape).normal(0.3, size=shape)
    seen = [append_margins(np.round(truth + rng.normal(size=shape), 1)) for _ in range(n_passes)]
    came = Provenance.now(
        problem_spec, {"name": "KNNValuer"}, Session(seed, n_passes), Tally(12), 1.0
    )
    return Valuation(
        Blocks.cut(np.arange(n_rows), [f"c{j}" for j in range(n_columns)]),
        Moments.of_all(seen),
        expected_total=0.5,
        empty="prior",
        status=status,
        provenance=came,
        baseline=0.25,
    )


def in_shards(valuation, folder, n_shards=3, *, validation=None):
    """The same figures in files, cut at uneven rows and written from the last to the first."""
    stored = stored_in(folder, shards_of(valuation, folder, n_shards), valuation, validation)
    stored.save(folder)
    return stored


def stored_in(folder, entries, valuation, validation=None):
    """A Valuation over these files, with the rest of a Valuation held as a whole."""
    moments = valuation.moments
    sums = Moments(moments.count[-1], moments.mean[-1], moments.sum_sq[-1])
    return ShardedValuation(
        Blocks(NumberedAxis(valuation.shape[0]), valuation.blocks.columns),
        StoredMoments(folder, [ValueFile.from_plain(entry) for entry in entries], sums),
        expected_total=valuation.expected_total,
        empty=valuation.empty,
        status=valuation.status,
        provenance=valuation.provenance,
        baseline=valuation.baseline,
        owned=valuation.owned,
        scores=valuation.scores,
        validation=validation,
    )


def shards_of(valuation, folder, n_shards=3):
    """Write the files, without a manifest; returns their entries."""
    n_rows = valuation.shape[0]
    ends = np.unique((np.linspace(0, 1, n_shards + 1) ** 1.5 * n_rows).astype(int)).tolist()
    shards = reversed(list(enumerate(pairwise(ends))))
    return [
        value_files.write_groups(folder, number, start, groups_of(valuation.moments, start, end))
        for number, (start, end) in shards
    ]


def groups_of(moments, start, end):
    """Row groups of some rows of Moments with sums of rows and columns."""
    for first in range(start, end, value_files.GROUP_ROWS):
        rows = slice(first, min(first + value_files.GROUP_ROWS, end))
        group = {"mean": moments.mean[rows, :-1], "row_mean": moments.mean[rows, -1]}
        if moments.count[-1, -1] > 1:
            group |= {"sum_sq": moments.sum_sq[rows, :-1], "row_sum_sq": moments.sum_sq[rows, -1]}
        yield group
