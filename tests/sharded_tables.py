"""Tables of all sorts of columns, written as Parquet, for tests of shards."""

import datetime
import decimal
import pickle
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from cellworth.knn.shard_layout import TableSummary, summarize_shard

KINDS = {"code": "categorical", "digits": "numeric"}


def table_of_all_sorts(n_rows=3000, seed=0):
    """A column of each type that is read, most of them with gaps, and a target of text."""
    rng = np.random.default_rng(seed)

    def with_gaps(cells, type_=None):
        return pa.array(cells, type_, mask=rng.random(n_rows) < 0.1)

    moments = rng.integers(1_600_000_000_000_000, 1_700_000_000_000_000, n_rows)
    cents = rng.integers(0, 1000, n_rows).tolist()
    return pa.table(
        {
            "single": rng.normal(size=n_rows).astype(np.float32),
            "double": with_gaps(rng.normal(size=n_rows) * 1e5),
            "half": rng.normal(size=n_rows).astype(np.float16),
            "whole": rng.integers(0, 9, n_rows),
            "byte": with_gaps(rng.integers(0, 200, n_rows).astype(np.uint8)),
            "text": with_gaps(rng.choice(list("abcdef"), n_rows)),
            "large": with_gaps(rng.choice(["", "b"], n_rows)).cast(pa.large_string()),
            "dictionary": with_gaps(rng.choice(list("xyz"), n_rows)).dictionary_encode(),
            "truth": rng.random(n_rows) < 0.5,
            "doubt": with_gaps(rng.random(n_rows) < 0.3),
            "day": with_gaps((moments // 86_400_000_000).astype(np.int32), pa.date32()),
            "moment": pa.array(moments, pa.timestamp("us")),
            "zoned": with_gaps(moments, pa.timestamp("us", "Europe/Berlin")),
            "nanos": pa.array(moments * 1000 + 5, pa.timestamp("ns")),
            "span": with_gaps(moments // 1000, pa.duration("us")),
            "money": pa.array([decimal.Decimal(cent).scaleb(-2) for cent in cents]),
            "clock": pa.array([datetime.time(cent % 24) for cent in cents]),
            "nothing": pa.nulls(n_rows),
            "unknown": np.full(n_rows, np.nan),
            "code": rng.integers(0, 5, n_rows),
            "digits": with_gaps([f"{cent / 10}" for cent in cents]),
            "y": rng.choice(["no", "yes"], n_rows, p=[0.7, 0.3]),
        }
    )


def write(table, folder, cuts=(), rows_per_group=300):
    """Write a table into files that end at these rows."""
    folder.mkdir(parents=True, exist_ok=True)
    ends = [*cuts, len(table)]
    for k, (start, end) in enumerate(zip([0, *cuts], ends, strict=True)):
        part = table.slice(start, end - start)
        pq.write_table(part, folder / f"{k}.parquet", row_group_size=rows_per_group)
    return folder


def written(folder, target="y", **columns):
    """One file with these columns."""
    return write(pa.table({"x": [1.0, 2.0, 3.0, 4.0], "y": [0, 1, 0, 1]} | columns), folder)


def travelled(thing):
    """What arrives where it is sent."""
    return pickle.loads(pickle.dumps(thing))  # noqa: S301


def summarise_all(table, column_types=None):
    """Summary of all shards, read one after the other."""
    parts = (summarize_shard(table, shard, column_types) for shard in range(table.n_shards))
    return reduce(TableSummary.merge, parts)
