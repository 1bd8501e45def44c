"""Measure the speed of all parts as ratios, and compare two commits.

    python benchmarks/compare.py                      # this checkout
    python benchmarks/compare.py --against HEAD~20    # this one and an older commit, in turns
    python benchmarks/compare.py --against HEAD~20 --bits   # do results have the same bits?

A piece is timed in turns with a fixed piece of work (a sort, a product of matrices, a loop), which
any other program slows down alike. The figure is the ratio of their least CPU times, in one
thread. A commit is compared by the pieces of this file, in processes of its own; a piece that it
does not have is left out. The program ends with 1 if a piece became slower than ``--limit``, or has
other bits. Compare bits on one machine: BLAS differs between others.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 1.3
TURNS, ROUNDS = 7, 3
# Seconds after which a piece gets no more turns, if it had two.
_ENOUGH = 2.0


@cache
def table(n_rows=600, n_columns=14):
    """Return a table, labels, and as many validation rows as a tenth."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows + n_rows // 10, n_columns)).round(1)
    y = (X[:, 0] + X[:, 1] * X[:, 2] + rng.normal(size=len(X)) > 0).astype(int)
    return {"X": X[:n_rows], "y": y[:n_rows], "X_val": X[n_rows:], "y_val": y[n_rows:]}


def quiet():
    from cellworth import Runtime
    from cellworth.runtime import Serial

    return Runtime(Serial(), progress=False)


def knn(**settings):
    """Return a fit of nearest neighbors: one pass over an order of the columns."""
    from cellworth import KNNValuer
    from cellworth.sampling import PermutationSampler

    settings = {"sampler": PermutationSampler(1), "n_passes": 1, "random_state": 0} | settings
    return KNNValuer(5, runtime=quiet(), **settings)


@cache
def knn_valuation():
    return knn().fit(**table()).valuation_


def kernels():
    """Rank and value rows for the validation rows of one task, without set-up."""
    valuer = knn()
    tasks = valuer._prepare(**table(2000), n_validation=None).tasks
    return lambda: tasks.contribution(tasks(0))


def numeric_target():
    given = table()
    given = given | {"y": given["X"][:, 0], "y_val": given["X_val"][:, 0]}
    return lambda: knn().fit(**given)


def count_in_bins():
    from cellworth.knn import BinnedRanks

    return lambda: knn(ranking=BinnedRanks()).fit(**table())


def sampler(name, n_coalitions):
    def prepare():
        from cellworth import sampling
        from cellworth.sampling import column_samplers

        made = getattr(column_samplers, name)(n_coalitions)
        rng = np.random.default_rng(0)
        return lambda: [made.draw(14, sampling.Shapley(), rng) for _ in range(10)]

    return prepare


def estimator(name, n_utilities):
    def prepare():
        from cellworth import sampling, value_game
        from cellworth.games import TableGame
        from cellworth.runtime import MaxUtilities

        game = TableGame(np.random.default_rng(0).random((64, 32)))
        given = {"estimator": getattr(sampling, name)(), "stop": MaxUtilities(n_utilities)}
        return lambda: value_game(game, random_state=0, runtime=quiet(), **given)

    return prepare


def exact_valuer():
    from sklearn.naive_bayes import GaussianNB

    from cellworth import ModelValuer

    groups = {"row_groups": np.arange(600) % 3, "column_groups": np.arange(14) % 3}
    return lambda: ModelValuer(GaussianNB(), runtime=quiet(), estimator="exact").fit(
        **table(), **groups
    )


def out_of_bag():
    from cellworth import OutOfBagValuer

    given = {key: table()[key] for key in ("X", "y")}
    return lambda: OutOfBagValuer(n_trees=30, random_state=0, runtime=quiet()).fit(**given)


def finder(name):
    def prepare():
        from cellworth import findings

        given = table(150, 6)
        return lambda: getattr(findings, name)(given["X"], given["y"])

    return prepare


def payout():
    from cellworth import Owners
    from cellworth.payouts import Policy, split_revenue

    given = table()
    owners = Owners(given["X"]).assign("left", columns=[f"x{j}" for j in range(7)])
    owners = owners.assign("right", columns=[f"x{j}" for j in range(7, 14)])
    valuation = knn().fit(**given, owners=owners).valuation_
    policy = Policy(game="cells")
    return lambda: split_revenue(valuation, owners, amount="10000.00", policy=policy)


def save():
    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "values"
    valuation = knn_valuation()

    def write(keep=folder):
        shutil.rmtree(path, ignore_errors=True)
        valuation.save(path)

    return write


def load():
    from cellworth import load as read

    folder = tempfile.TemporaryDirectory()
    path = Path(folder.name) / "values"
    knn_valuation().save(path)
    return lambda keep=folder: read(path).values.sum()


def report():
    from cellworth import report as pages

    valuation, given = knn_valuation(), table()
    return lambda: pages.render(pages.summarize(valuation, given["X"], given["y"], title="Speed"))


def start(*arguments):
    """Return a new process, whose CPU time counts."""
    return lambda: (
        lambda: subprocess.run(  # noqa: S603 (this interpreter)
            [sys.executable, *arguments], check=True, capture_output=True
        )
    )


PIECES: dict[str, Callable[[], Callable[[], object]]] = {
    "kernels: ranks and values of a task": kernels,
    "KNNValuer, sorted ranks": lambda: lambda: knn().fit(**table()),
    "KNNValuer, binned ranks": count_in_bins,
    "KNNValuer, numeric target": numeric_target,
    "PermutationSampler": sampler("PermutationSampler", 4),
    "QuadratureSampler": sampler("QuadratureSampler", 56),
    "AntitheticPermutations": estimator("AntitheticPermutations", 600),
    "GaussianProcess": estimator("GaussianProcess", 200),
    "ModelValuer, exact": exact_valuer,
    "OutOfBagValuer": out_of_bag,
    "audit": finder("audit"),
    "anomaly_scores": finder("anomaly_scores"),
    "split_revenue": payout,
    "save": save,
    "load": load,
    "report": report,
    "start-up: import": start("-c", "import cellworth"),
    "start-up: KNNValuer": start("-c", "from cellworth import KNNValuer"),
    "start-up: command line": start("-m", "cellworth", "--version"),
}


def do_fixed_work():
    """Sort, multiply and loop: about what the pieces do."""
    rng = np.random.default_rng(0)
    numbers, matrix = rng.random(200_000), rng.random((150, 150))
    for _ in range(3):
        np.sort(numbers)
        matrix @ matrix
    return sum(i * i for i in range(50_000))


def cpu_seconds():
    """Return the CPU time of this process and of those it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def measure_ratio(piece, turns):
    """Return the least CPU time of a piece over that of the fixed work, timed in turns."""
    piece()  # Compile or load the kernels, fill caches
    best = [math.inf, math.inf]
    spent = 0.0
    for turn in range(turns):
        # Slow pieces have little noise.
        if turn >= 2 and spent > _ENOUGH:
            break
        for position, work in enumerate((piece, do_fixed_work)):
            began = cpu_seconds()
            work()
            seconds = cpu_seconds() - began
            best[position], spent = min(best[position], seconds), spent + seconds
    return best[0] / best[1]


def digest_bits(piece, turns):
    """Return a digest of what a piece returns; None if that is no values, numbers or money."""
    found = piece()
    found = getattr(found, "valuation_", found)
    names = ("values", "sampling_se", "validation_se", "counts", "amounts")
    parts = [getattr(found, name) for name in names if hasattr(found, name)]
    if isinstance(found, (float, np.ndarray)):
        parts = [found]
    # Amounts of money are decimals.
    parts = [np.asarray(part, dtype=float) for part in parts if not callable(part)]
    return hashlib.sha256(b"".join(map(bytes, parts))).hexdigest() if parts else None


def measure(names, turns, take=measure_ratio):
    """Return the ratio of each piece; one that this version cannot run is left out."""
    warnings.simplefilter("ignore")
    found = {}
    with threadpool_limits(1):
        for name in names:
            try:
                found[name] = take(PIECES[name](), turns)
            except (ImportError, AttributeError, TypeError) as error:
                print(f"{name} is left out: {error}", file=sys.stderr)
    return found


def measure_in(checkout, names, turns, *flags):
    """Measure another checkout of the package in a process of its own."""
    command = [sys.executable, __file__, "--json", "--turns", str(turns), "--only", *names, *flags]
    environment = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run(  # noqa: S603 (this very file)
        command, cwd=checkout, env=environment, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def measure_both(commit, names, *flags, rounds, turns):
    """Return the least of what this checkout and a commit measured in some rounds, in turns."""
    with tempfile.TemporaryDirectory() as folder:
        other, git = Path(folder) / "checkout", ["git", "-C", str(ROOT), "worktree"]
        added = [*git, "add", "--detach", str(other), commit]
        subprocess.run(added, check=True, capture_output=True)  # noqa: S603 (the user's commit)
        try:
            rows = [
                [measure_in(each, names, turns, *flags) for each in (ROOT, other)]
                for _ in range(rounds)
            ]
        finally:
            removed = [*git, "remove", "--force", str(other)]
            subprocess.run(removed, check=True, capture_output=True)  # noqa: S603
    return [
        {name: min(each[name] for each in some) for name in names if all(name in e for e in some)}
        for some in zip(*rows, strict=True)
    ]


def compare_bits(commit, names):
    """Print and return the names of pieces whose results have other bits than those of a commit."""
    ours, theirs = measure_both(commit, names, "--bits", rounds=1, turns=1)
    changed = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    n_compared = sum(name in theirs and digest is not None for name, digest in ours.items())
    print(*(f"changed  {name}" for name in changed), sep="\n", end="\n" if changed else "")
    print(f"{n_compared} pieces compared, {len(changed)} with other bits")
    return changed


def show_both(ours, theirs, limit):
    """Print both and their ratio; return the names of pieces that became slower."""
    print(f"{'piece':<38} {'before':>8} {'now':>8} {'now / before':>13}")
    slower = []
    for name in ours:
        if name not in theirs:
            print(f"{name:<38} {'-':>8} {ours[name]:>8.2f}")
            continue
        change = ours[name] / theirs[name]
        slower += [name] * (change > limit)
        mark = "  slower" * (change > limit)
        print(f"{name:<38} {theirs[name]:>8.2f} {ours[name]:>8.2f} {change:>13.2f}{mark}")
    return slower


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit")
    parser.add_argument("--limit", type=float, default=LIMIT, help="slower than this is too slow")
    parser.add_argument("--only", nargs="+", choices=PIECES, default=list(PIECES), metavar="PIECE")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="processes of each commit")
    parser.add_argument("--json", action="store_true", help="print ratios as JSON")
    parser.add_argument("--bits", action="store_true", help="compare results, not times")
    options = parser.parse_args(arguments)
    if options.against and options.bits:
        sys.exit(bool(compare_bits(options.against, options.only)))
    if options.against:
        times = {"rounds": options.rounds, "turns": options.turns}
        both = measure_both(options.against, options.only, **times)
        sys.exit(bool(show_both(*both, options.limit)))
    found = measure(options.only, options.turns, digest_bits if options.bits else measure_ratio)
    if options.json:
        print(json.dumps(found))
    else:
        for name, each in found.items():
            print(f"{name:<38} {each if options.bits else f'{each:>8.2f}'}")


if __name__ == "__main__":
    main()
