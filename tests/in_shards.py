"""Valuations to compare: held as a whole, and the same figures in shards."""

from itertools import pairwise

import numpy as np

from cellworth import Blocks, Valuation
from cellworth.moments import Moments, Tally, with_margins
from cellworth.provenance import Provenance, Session
from cellworth.sharded_valuation import finish
from cellworth.value_files import write_values

SHAPLEY = {"row_semivalue": "Shapley()", "column_semivalue": "Shapley()"}


def whole(shape=(50, 4), sweeps=3, *, seed=0, status="estimated", question=SHAPLEY):
    """Values with ties, as a run of some sweeps may leave them."""
    rng = np.random.default_rng((seed, *shape))
    n_rows, n_columns = shape
    truth = np.random.default_rng(shape).normal(0.3, size=shape)
    seen = [with_margins(np.round(truth + rng.normal(size=shape), 1)) for _ in range(sweeps)]
    came = Provenance.now(question, {"name": "KNNValuer"}, Session(seed, sweeps), Tally(12), 1.0)
    return Valuation(
        Blocks.cut(np.arange(n_rows), [f"c{j}" for j in range(n_columns)]),
        Moments.of_all(seen),
        expected_total=0.5,
        empty="prior",
        status=status,
        provenance=came,
        unearned=0.25,
    )


def in_shards(valuation, folder, n_shards=3, *, validation=None):
    """The same figures in files, cut at uneven rows and written from the last to the first."""
    entries = shards_of(valuation, folder, n_shards)
    moments = valuation.moments
    return finish(
        folder,
        entries,
        shape=valuation.shape,
        column_labels=valuation.column_labels,
        count=int(moments.count[-1, -1]),
        columns=(moments.mean[-1], moments.spread[-1]),
        validation=validation,
        expected_total=valuation.expected_total,
        empty=valuation.empty,
        status=valuation.status,
        provenance=valuation.provenance,
        unearned=valuation.unearned,
        owned=valuation.owned,
        scores=valuation.scores,
    )


def shards_of(valuation, folder, n_shards=3):
    """Write the files, without a manifest; returns their entries."""
    n_rows = valuation.shape[0]
    ends = np.unique((np.linspace(0, 1, n_shards + 1) ** 1.5 * n_rows).astype(int)).tolist()
    moments = valuation.moments
    entries = []
    for number, (start, end) in reversed(list(enumerate(pairwise(ends)))):
        cells, sums = np.s_[start:end, :-1], np.s_[start:end, -1]
        mean, spread = moments.mean, moments.spread
        once = moments.count[-1, -1] == 1
        entries.append(
            write_values(
                folder,
                number,
                start,
                mean[cells],
                None if once else spread[cells],
                mean[sums],
                None if once else spread[sums],
            )
        )
    return entries
