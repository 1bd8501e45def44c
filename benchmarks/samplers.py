"""Measure variance times sorts of the column samplers, relative to random orders.

    python benchmarks/samplers.py --data ../shared/data heart lawschool pol jannis breast30 credit

All samplers are unbiased, so variance between passes is the whole error. The parameters of
QuadratureSampler were chosen on breast9, wine and breast30; the last four tables were not used.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import benchmark_data
from cellworth import KNNValuer, Runtime
from cellworth.sampling import LeverageSampler, PermutationSampler, QuadratureSampler

N_PASSES = 6
N_QUERIES = 60


def variance_times_sorts(given, sampler):
    valuer = KNNValuer(
        sampler=sampler, n_passes=N_PASSES, random_state=0, runtime=Runtime(progress=False)
    )
    X_val, y_val = given.X_val.iloc[:N_QUERIES], given.y_val[:N_QUERIES]
    errors = valuer.fit(given.X, given.y, X_val=X_val, y_val=y_val).standard_errors_
    return (errors**2).mean() * sampler.n_coalitions(given.X.shape[1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the CSV files")
    parser.add_argument("names", nargs="+")
    options = parser.parse_args()
    for name in options.names:
        given = benchmark_data.load(name, options.data)
        n_columns = given.X.shape[1]
        for per_column in (4, 8, 16):
            count = per_column * n_columns
            orders, leverage, quadrature = (
                variance_times_sorts(given, sampler)
                for sampler in (
                    PermutationSampler(per_column), LeverageSampler(count), QuadratureSampler(count)
                )
            )  # fmt: skip
            print(
                f"{name:<10} {n_columns:>3} columns, {per_column:>2} coalitions per column: "
                f"Leverage {leverage / orders:.2f}, Quadrature {quadrature / orders:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
