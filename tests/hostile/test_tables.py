"""Hostile tables get one plain sentence, or values that keep all promises.

The push set draws 300 tables, a night 2,000 more. All 20,000 in two processes, with what they find:
``PYTHONPATH=tests python tests/hostile/test_tables.py 20000``; two more arguments are the number of
processes and the first seed.
"""

import json
import multiprocessing
import os
import sys
import tempfile
import warnings

import numpy as np
import pytest

from cellworth import KNNValuer, Runtime, audit, load
from cellworth.runtime import Processes, Threads
from hostile import drawn_tables as tables

# Seeds that once found something.
CASES = [8, 166, 248, 331, 344, 478, 978, 10047, 50034]
# Differences of sums of floats in another order.
ROUNDING = 1e-9


def is_plain(error):
    """Whether an error is ours, and one sentence."""
    text = str(error)
    return (
        type(error) in (ValueError, TypeError)
        and text.endswith((".", "?"))
        and "\n" not in text
        and "Traceback" not in text
        and " object at 0x" not in text
        and len(text) < 1200
    )


def attempt(use):
    """Return what a function returns, or the error that it raises."""
    try:
        return use(), None
    except Exception as error:
        return None, error


def near(one, other):
    return np.allclose(one, other, rtol=0, atol=ROUNDING * max(1.0, np.abs(other).max()))


def fit(drawn, data, runtime=None):
    return KNNValuer(drawn.n_neighbors, runtime=runtime).fit(**data, **drawn.settings).valuation_


def find_faults(seed):
    """Yield what is wrong with the results of one table."""
    drawn = tables.draw(seed)
    data, refused = attempt(drawn.data)
    if refused is not None:
        # The library of the table cannot hold it.
        return
    valuation, error = attempt(lambda: fit(drawn, data))
    if error is not None and not is_plain(error):
        yield f"fit raises {type(error).__name__}: {error}"
    if valuation is not None:
        yield from check_values(drawn, data, valuation)
    if seed % 4 == 0:
        yield from check_audit(data)


def check_values(drawn, data, valuation):
    values = valuation.values
    if not np.isfinite(values).all():
        yield "values are not finite"
    scale = max(1.0, np.abs(values).sum(), abs(valuation.expected_total))
    sums = {
        "all": values.sum() - valuation.total,
        "rows": np.abs(values.sum(axis=1) - valuation.rows().values).max(),
        "columns": np.abs(values.sum(axis=0) - valuation.columns().values).max(),
        "expected": valuation.total - valuation.expected_total,
    }
    yield from (
        f"sums of {what} are off by {off}"
        for what, off in sums.items()
        if not abs(off) <= ROUNDING * scale
    )
    with tempfile.TemporaryDirectory() as folder:
        _, error = attempt(lambda: valuation.save(folder))
        again = None if error else load(folder)
    if error or repr(again) != repr(valuation) or again.values.tobytes() != values.tobytes():
        yield f"another result is loaded than was saved ({error})"
    if not str(valuation._repr_html_()):
        yield "no HTML"
    for runtime in (
        Runtime(Threads(2)),
        *([Runtime(Processes(2))] if drawn.seed % 500 == 0 else []),
    ):
        if fit(drawn, data, runtime).values.tobytes() != values.tobytes():
            yield f"other values on {runtime}"
    renamed = drawn.renamed()
    found, error = attempt(lambda: fit(renamed, renamed.data()).values)
    if error or found.tobytes() != values.tobytes():
        yield f"other values under other names ({error})"
    if drawn.n_val and valuation.status == "exact":
        rng = np.random.default_rng(drawn.seed)
        rows, order = rng.permutation(drawn.n_rows), rng.permutation(len(drawn.columns))
        other, refused = attempt(lambda: drawn.data(rows, order))
        found, error = attempt(lambda: fit(drawn, other).values)
        if not refused and (error or not near(found, values[np.ix_(rows, order)])):
            yield f"other values in another order ({error})"


def check_audit(data):
    found, error = attempt(lambda: audit(data["X"], data["y"]))
    if error is None:
        _, error = attempt(lambda: (str(found), found._repr_html_(), found.to_frame()))
        if error is None:
            _, error = attempt(lambda: json.dumps(found.to_dict(), default=str))
        if error is not None:
            yield f"an audit cannot be shown: {type(error).__name__}: {error}"
    elif not is_plain(error):
        yield f"audit raises {type(error).__name__}: {error}"


def look(seed):
    """Return the seed, what the table is, and what is wrong, warnings included."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for harmless in ("cellworth", "sklearn.exceptions"):
            warnings.filterwarnings("ignore", module=harmless)
        for harmless in (UserWarning, DeprecationWarning, FutureWarning):
            warnings.simplefilter("ignore", harmless)
        found, error = attempt(lambda: list(find_faults(seed)))
    found = [f"{type(error).__name__}: {error}"] if error else found
    return seed, found


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_tables_of_the_push_set(first):
    assert [found for found in map(look, range(first, first + 50)) if found[1]] == []


@pytest.mark.nightly
@pytest.mark.parametrize("first", range(300, 2300, 100))
def test_tables_of_a_night(first):
    assert [found for found in map(look, range(first, first + 100)) if found[1]] == []


@pytest.mark.parametrize("seed", CASES)
def test_a_table_that_once_found_something(seed):
    assert look(seed) == (seed, [])


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    n_tables, n_processes = int(sys.argv[1]), int((sys.argv[2:] or [2])[0])
    first = int((sys.argv[3:] or [0])[0])
    seeds = range(first, first + n_tables)
    with multiprocessing.get_context("spawn").Pool(n_processes) as pool:
        for seed, found in pool.imap_unordered(look, seeds, chunksize=20):
            for fault in found:
                sys.stdout.write(f"{seed}: {fault[:300]}\n")
                sys.stdout.flush()
    sys.stdout.write(f"{n_tables:,} tables drawn\n")
