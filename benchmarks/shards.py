"""Measure time and memory of values of a sharded table, and how both grow.

    python benchmarks/shards.py FOLDER --rows 10000000 --shards 16 --queries 64 --gigabytes 2
    python benchmarks/shards.py FOLDER --growth
    python benchmarks/shards.py FOLDER --accuracy --rows 1000000 --queries 16
    python benchmarks/shards.py FOLDER --numeric    # a target of numbers, in memory

The mixture of benchmarks/mixture.py is written to FOLDER as Parquet unless it exists. Each
measurement is its own process, with one thread and a hard limit of its address space. A cell
evaluation is one cell in the ranking of one query: rows x columns x queries, each for the prefixes
of one order of the columns. Seconds are CPU times of both passes over the shards.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import mixture

ROWS_PER_SHARD = 625_000
PHASES = ("prepare", "count", "merge", "finalize", "accumulate")


def write_mixture(folder, n_rows, n_files=16):
    """Return the folder of a mixture with this many rows, written once."""
    path = Path(folder) / f"{n_rows}"
    if not (path / "done").exists():
        mixture.write(path, n_rows, n_files, rows_per_group=max(min(62_500, n_rows // 64), 100))
        (path / "done").touch()
    return path


def time_phases(seconds):
    """Record the CPU time of every phase of a round."""
    from cellworth.knn.algorithms import KNNShardAlgorithm

    for name in (*PHASES, "open", "write"):
        method = getattr(KNNShardAlgorithm, name)

        def time_phase(self, *given, method=method, name=name):
            began = time.thread_time()
            try:
                return method(self, *given)
            finally:
                seconds[name] = seconds.get(name, 0.0) + time.thread_time() - began

        setattr(KNNShardAlgorithm, name, time_phase)


def load_validation(folder, n_queries):
    """Return validation rows and labels, written once, because drawing them is slow."""
    path = Path(folder) / f"{n_queries}-queries.parquet"
    if not path.exists():
        X_val, y_val = mixture.queries(n_queries)
        pq.write_table(X_val.append_column("label", pa.array(y_val)), path)
    rows = pq.ParquetFile(path).read(use_threads=False)
    return rows.drop_columns("label"), rows["label"].to_pylist()


def measure(folder, n_shards, n_queries, n_columns=None, limit=0.0):
    """Value the cells of a table in this process; return figures by name."""
    if limit:
        resource.setrlimit(resource.RLIMIT_AS, (int(limit * 2**30),) * 2)
    from cellworth import Runtime, ShardedKNNValuer, ShardedTable
    from cellworth.runtime import Serial
    from cellworth.sampling import PermutationSampler

    X_val, y_val = load_validation(Path(folder).parent, n_queries)
    names = X_val.column_names[: n_columns or None]
    valuer = ShardedKNNValuer(
        10,
        sampler=PermutationSampler(1),
        n_passes=1,
        random_state=0,
        runtime=Runtime(executor=Serial(), progress=False),
    )
    # Compile the kernels, or load them from their cache, before timing.
    small = ShardedTable.from_files(
        write_mixture(Path(folder).parent, 10_000, 2), target="label", columns=names
    )
    valuer.fit(small, X_val=X_val.select(names).slice(0, 2), y_val=y_val[:2])
    seconds = {}
    time_phases(seconds)
    sorting = sort_nanoseconds()
    table = ShardedTable.from_files(folder, target="label", columns=names, shards=n_shards)
    began = time.perf_counter()
    valuation = valuer.fit(table, X_val=X_val.select(names), y_val=y_val).valuation_
    wall = time.perf_counter() - began
    n_rows, n_columns = table.shape
    # A pass draws an order of the columns twice for each query.
    n_cells = 2 * n_rows * n_columns * n_queries
    rounds = sum(seconds.get(name, 0.0) for name in PHASES)
    return {
        "rows": n_rows,
        "columns": n_columns,
        "shards": table.n_shards,
        "queries": n_queries,
        "evaluations per second": n_cells / rounds,
        "evaluations per sorted number": min(sorting, sort_nanoseconds()) * n_cells / rounds / 1e9,
        "nanoseconds": {n: round(s / n_cells * 1e9, 3) for n, s in seconds.items()},
        "wall seconds": wall,
        "peak megabytes": peak_kilobytes() / 1024,
        "residual": valuation.efficiency_residual,
    }


def sort_nanoseconds():
    """Return the CPU time of sorting, per number: how fast this machine is just now."""
    numbers = np.random.default_rng(0).random(1_000_000)
    times = []
    for _ in range(5):
        began = time.thread_time()
        np.argsort(numbers, kind="stable")
        times.append(time.thread_time() - began)
    return min(times) / len(numbers) * 1e9


def peak_kilobytes():
    """Return the peak memory of this process, without its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])


def in_process(folder, **given):
    """Measure in a separate process."""
    load_validation(folder.parent, given["n_queries"])
    write_mixture(folder.parent, 10_000, 2)
    code = f"import json, shards; print(json.dumps(shards.measure({str(folder)!r}, **{given!r})))"
    done = subprocess.run(  # noqa: S603 (this very program)
        [sys.executable, "-c", code],
        check=False,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
        # Arrow's own allocator reserves gigabytes of address space.
        env=os.environ | {"ARROW_DEFAULT_MEMORY_POOL": "system"},
    )
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def show(found):
    phases = ", ".join(f"{name} {each:.2f}" for name, each in found["nanoseconds"].items())
    print(
        f"{found['rows']:>11,} x {found['columns']:<3} {found['shards']:>3} shards, "
        f"{found['queries']} queries: {found['evaluations per second'] / 1e6:.0f} million cell "
        f"evaluations per second and core; ns: {phases}; wall {found['wall seconds']:.1f} s; peak "
        f"{found['peak megabytes']:.0f} MB; residual {found['residual']:.1g}",
        flush=True,
    )


def exact_values(rows, X_val, y_val):
    """Return values by sorting all rows on every prefix, with the distances of the bins."""
    from cellworth.knn import KNNGame, kernels
    from cellworth.knn.algorithms import QueryTasks
    from cellworth.sampling import PermutationSampler, Shapley

    labels = rows["label"].to_numpy()
    game = KNNGame(rows.drop_columns("label"), labels, X_val, y_val, n_neighbors=10)
    tasks = QueryTasks(
        game=game, sampler=PermutationSampler(1), row_semivalue=Shapley(),
        column_semivalue=Shapley(), with_label=False, ranking=None, seed=0,
    )  # fmt: skip
    distances = replace(game.distances, scales=game.distances.fine)
    training, ((coalitions, weights),) = tasks._training(0), tasks.schedule.draw(0)
    without_columns = tasks._without_columns(training)
    cells, values = np.zeros((game.shape[1], len(labels))), np.empty((1, len(labels)))
    for task in map(tasks, range(len(tasks.schedule.parts))):
        queries = task.part.pieces[0].queries.tolist()
        for position, order in zip(queries, tasks.schedule.orders(task), strict=True):
            query = tasks.schedule.queries.query(training.scales, 0, position)
            measured = distances.measure(0, position)[order]
            for members, counted in zip(coalitions.members, weights, strict=False):
                # Indices of the distinct distances fit into a key beside the row.
                dense = np.unique(measured[members].sum(axis=0), return_inverse=True)[1]
                keys = np.sort((dense << training.shift) | training.payload(query))[None]
                chances = training.chances
                kernels.class_values(keys, training.shift, chances.single, chances.running, values)
                for name in np.flatnonzero(counted):
                    cells[order[name]] += counted[name] / len(y_val) * values[0]
            for name in np.flatnonzero(weights[-1]):
                alone = without_columns(query)[0]
                cells[order[name]] += weights[-1, name] / len(y_val) * alone
    return cells.T


def accuracy(folder, n_queries):
    """Compare values of a sharded table with exact ranking in memory."""
    from cellworth import Runtime, ShardedKNNValuer, ShardedTable
    from cellworth.knn import BinnedRanks
    from cellworth.sampling import PermutationSampler

    X_val, y_val = load_validation(folder.parent, n_queries)
    rows = pa.concat_tables(
        pq.ParquetFile(path).read(use_threads=False) for path in sorted(folder.glob("*.parquet"))
    )
    exact = exact_values(rows, X_val, y_val)
    table = ShardedTable.from_files(folder, target="label", shards=16)
    for bins in (BinnedRanks(), BinnedRanks(1000, 0.01)):
        valuer = ShardedKNNValuer(
            10,
            sampler=PermutationSampler(1),
            n_passes=1,
            random_state=0,
            ranking=bins,
            runtime=Runtime(progress=False),
        )
        ours = valuer.fit(table, X_val=X_val, y_val=y_val).valuation_
        one, other = exact.ravel(), ours.values.ravel()
        n_lowest = len(one) // 100
        lowest = [set(np.argpartition(each, n_lowest)[:n_lowest].tolist()) for each in (one, other)]
        print(
            f"{table.shape[0]:,} rows, {n_queries} queries, {bins}: relative RMS error "
            f"{np.sqrt(np.mean((one - other) ** 2)) / one.std():.3%}, lowest 1% in common "
            f"{len(lowest[0] & lowest[1]) / n_lowest:.2%}, totals differ by "
            f"{exact.sum() - ours.total:.1g}, columns by "
            f"{np.abs(exact.sum(axis=0) - ours.columns().values).max():.1g}",
            flush=True,
        )


def numeric():
    """Compare bins with exact ranking for a numeric target, and its time with that of classes."""
    from cellworth import KNNValuer, Runtime
    from cellworth.knn import BinnedRanks
    from cellworth.sampling import PermutationSampler

    def value(n_rows, n_columns, ranking, as_classes=False):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(n_rows + 30, n_columns))
        y = X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=len(X))
        y = y > 0 if as_classes else y
        valuer = KNNValuer(
            10,
            sampler=PermutationSampler(1),
            n_passes=1,
            ranking=ranking,
            random_state=0,
            n_jobs=1,
            runtime=Runtime(progress=False),
        )
        began = time.process_time()
        valuer.fit(X[:n_rows], y[:n_rows], X_val=X[n_rows:], y_val=y[n_rows:])
        return valuer.values_.ravel(), time.process_time() - began

    for n_rows, bins in ((4_000, BinnedRanks(200)), (30_000, BinnedRanks())):
        (exact, _), (ours, _) = value(n_rows, 5, None), value(n_rows, 5, bins)
        print(
            f"{n_rows:,} rows, {bins}: relative RMS error "
            f"{np.sqrt(np.mean((exact - ours) ** 2)) / exact.std():.3%}, totals differ by "
            f"{abs(exact.sum() - ours.sum()):.1g}"
        )
    seconds = {True: [], False: []}
    for as_classes in (True, False) * 4:
        seconds[as_classes].append(value(200_000, 12, BinnedRanks(), as_classes)[1])
    ratio = min(seconds[False]) / min(seconds[True])
    print(f"200,000 x 12: numbers take {ratio:.2f} times the time of two classes, best of 4")


def growth(folder, n_queries=64):
    """Measure the cost per row at several lengths and widths, in turns; the best of two counts.

    Shards have about as many rows as they would have on a cluster.
    """
    lengths, widths = [100_000, 316_000, 1_000_000, 3_160_000, 10_000_000], [5, 10, 20]
    asked = [(n_rows, 20) for n_rows in lengths] + [(1_000_000, m) for m in widths[:-1]]
    best = {}
    for _ in range(2):
        for n_rows, n_columns in asked:
            figures = in_process(
                write_mixture(folder, n_rows),
                n_shards=max(round(n_rows / ROWS_PER_SHARD), 1),
                n_queries=n_queries,
                n_columns=n_columns,
            )
            show(figures)
            each = 1e9 / figures["evaluations per second"]
            best[n_rows, n_columns] = min(best.get((n_rows, n_columns), np.inf), each)
    costs = np.array([best[n_rows, 20] for n_rows in lengths])
    totals = costs * lengths
    slope = np.polyfit(np.log(lengths), np.log(totals), 1)[0]
    wide = np.array([best[1_000_000, m] * m for m in widths])
    slope_of_columns = np.polyfit(np.log(widths), np.log(wide), 1)[0]
    print(f"ns per cell evaluation, by rows: {dict(zip(lengths, costs.round(2), strict=True))}")
    print(f"largest over smallest {costs.max() / costs.min():.2f}; exponent of rows {slope:.3f}")
    by_columns = {m: round(best[1_000_000, m], 2) for m in widths}
    print(f"by columns: {by_columns}; exponent of columns {slope_of_columns:.3f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="where the mixture is, or is written")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--shards", type=int, default=16)
    parser.add_argument("--queries", type=int, default=64)
    parser.add_argument("--gigabytes", type=float, default=0.0, help="limit of the address space")
    parser.add_argument("--growth", action="store_true")
    parser.add_argument("--accuracy", action="store_true")
    parser.add_argument("--numeric", action="store_true")
    options = parser.parse_args()
    if options.numeric:
        numeric()
        return
    if options.accuracy:
        accuracy(write_mixture(options.folder, options.rows), options.queries)
        return
    if options.growth:
        growth(options.folder)
        return
    show(
        in_process(
            write_mixture(options.folder, options.rows),
            n_shards=options.shards,
            n_queries=options.queries,
            limit=options.gigabytes,
        )
    )


if __name__ == "__main__":
    main()
