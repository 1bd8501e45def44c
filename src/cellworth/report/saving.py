"""save: a report in a file that is there as a whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from cellworth.files import local_path, written_atomically
from cellworth.neighbours.columns import Distance, Kind
from cellworth.owners import Owners
from cellworth.payouts import Payout
from cellworth.report.rendering import render
from cellworth.report.summaries import summarize
from cellworth.valuation import Valuation


def save(
    path: str | os.PathLike[str],
    valuation: Valuation,
    X: Any,
    y: Any = None,
    *,
    owners: Owners | None = None,
    payout: Payout | None = None,
    rounds: Iterable[Mapping[str, Any]] | None = None,
    k: int = 100,
    kinds: Mapping[Any, Kind | Distance] | None = None,
    title: str | None = None,
    cells: bool = True,
) -> None:
    """Write a report of a valuation: one HTML file, to be opened by any browser.

    It loads nothing from elsewhere and sends nothing. It shows contents of cells: give it only to
    people who may see the table, and others one with ``cells=False``.

    Parameters
    ----------
    path : path
        A file that stands there is replaced.
    valuation : Valuation
    X : data frame, array or None
        The table that was valued. None leaves out contents, and which cells are suspicious.
    y : array of shape (n_rows,), default=None
        Its labels. Without them, cells are listed by worth and not by suspicion.
    owners : Owners, default=None
        Who holds which cells.
    payout : Payout, default=None
        Who gets how much; brings its owners along.
    rounds : list of dict, default=None
        How the run converged: what :func:`round_line` makes of each Progress.
    k : int, default=100
        How many cells to list.
    kinds : mapping, default=None
        As for :func:`cellworth.suspect_cells`: ``{"postcode": "categorical"}`` where the guess
        from a column's type is wrong.
    title : str, default=None
    cells : bool, default=True
        False leaves out all that is about a single row or cell, and hashes of the data, from which
        contents could be guessed: for owners and others who may not see the table.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from cellworth import KNNValuer, report
    >>> X, y = [[1, 5], [2, 5], [8, 6], [9, 4]], ["small", "small", "large", "large"]
    >>> valuation = KNNValuer(n_neighbors=1, cv=2).fit(X, y).valuation_
    >>> with TemporaryDirectory() as folder:
    ...     report.save(Path(folder) / "report.html", valuation, X, y)
    ...     print((Path(folder) / "report.html").read_text(encoding="utf-8")[:15])
    <!doctype html>
    """
    place = local_path(path, "path")
    summary = summarize(
        valuation,
        X,
        y,
        owners=owners,
        payout=payout,
        rounds=rounds,
        k=k,
        kinds=kinds,
        title=title,
        cells=cells,
    )
    with written_atomically(place) as file:
        file.write(render(summary).encode())
