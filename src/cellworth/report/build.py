"""Build a report: summarize a valuation as plain data, and save it as one HTML file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Distance, Kind, check_count
from cellworth.data.io import hash_json, local_path, write_atomically
from cellworth.data.owners import Owners
from cellworth.payouts.payout import Payout
from cellworth.report.heatmap_data import MOST_CELLS, QUANTILE, packed_cells
from cellworth.report.page import render
from cellworth.report.sections import (
    Subject,
    checked_rounds,
    discreet_origin,
    listed_cells,
    listed_columns,
    listed_owners,
    listed_rows,
    plain,
    told_origin,
)
from cellworth.valuation.valuation import RowChunk, Valuation, name_of_score

# Errors below this part of a large value are rounding.
_DUST = 1e-12


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
    column_types: Mapping[Any, Kind | Distance] | None = None,
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
    column_types : mapping, default=None
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
    position = local_path(path, "path")
    summary = summarize(
        valuation,
        X,
        y,
        owners=owners,
        payout=payout,
        rounds=rounds,
        k=k,
        column_types=column_types,
        title=title,
        cells=cells,
    )
    with write_atomically(position) as file:
        file.write(render(summary).encode())


def summarize(
    valuation: Valuation,
    X: Any,
    y: Any = None,
    *,
    owners: Owners | None = None,
    payout: Payout | None = None,
    rounds: Iterable[Mapping[str, Any]] | None = None,
    k: int = 100,
    column_types: Mapping[Any, Kind | Distance] | None = None,
    title: str | None = None,
    cells: bool = True,
) -> dict[str, Any]:
    """Gather what a report says: dictionaries, lists, text, numbers and None, ready for JSON.

    Parameters are those of :func:`save`.

    Returns
    -------
    dict
        ``figures`` (score, baseline, total and its error, shares of clear and harmful cells),
        ``columns``, ``column_info`` (what each was taken for), ``cells``, ``rows``, ``owners``,
        ``rounds``, ``provenance`` and ``heatmap``
        (packed); what is not known, or not to be shown, is None. Without cells there is no
        ``fingerprint``, and ``provenance`` holds no hash.

    Examples
    --------
    >>> from cellworth.games import TableGame
    >>> from cellworth import report, value_game
    >>> valuation = value_game(TableGame(np.arange(16.0).reshape(4, 4) ** 2), (2, 2))
    >>> summary = report.summarize(valuation, None)
    >>> summary["shape"], summary["figures"]["total"]
    ([2, 2], 72.0)
    """
    subject = Subject.of(valuation, X, y)
    k = check_count(k, "k")
    if owners is None and payout is not None:
        owners = payout.ownership
    summary: dict[str, Any] = {
        "title": title or f"Value of each {'cell' if subject.of_cells else 'block'}",
        "shape": list(valuation.shape),
        "of_cells": subject.of_cells,
        "row_ids": subject.kind_of_ids,
        "has_classes": subject.target is None or bool(subject.classes),
        "status": valuation.status,
        "fingerprint": None,
        "figures": _figures(valuation),
        "rounds": checked_rounds(rounds),
        "columns": listed_columns(valuation),
        "column_info": _taken_for(valuation, cells=cells),
        "owners": listed_owners(valuation, owners, payout),
        "provenance": discreet_origin(valuation.provenance),
        "cells": None,
        "rows": None,
        "heatmap": None,
    }
    if not cells:
        # The size of a cell near the largest is about that cell; which unit fits is enough.
        summary["figures"]["size"] = _power_of_ten(summary["figures"]["size"])
    else:
        listed, rows = listed_cells(subject, k, column_types), listed_rows(subject)
        wanted = [line["place"] for line in (*listed["cells"], *rows) if line["place"] is not None]
        heatmap = packed_cells(subject, owners, np.array(wanted, dtype=np.intp))
        summary |= {"cells": listed, "rows": rows, "heatmap": heatmap}
        summary["fingerprint"] = _fingerprint(valuation)
        summary["provenance"] = told_origin(valuation.provenance)
    return summary


def _taken_for(valuation: Valuation, *, cells: bool) -> list[dict[str, Any]] | None:
    """What each raw column was taken for; without cells no scale, which is read from them."""
    if valuation.column_info is None:
        return None
    lines = valuation.column_info.to_plain()
    return lines if cells else [line | {"distance": "", "notes": _own(line)} for line in lines]


def _own(line: Mapping[str, Any]) -> list[str]:
    """Notes in words of our own: those that quote a mark of gaps are left out."""
    return [note for note in line["notes"] if not note.startswith(("'", '"'))]


def _figures(valuation: Valuation) -> dict[str, Any]:
    """Figures of the whole table; shares are those that the valuation itself tells."""
    visited = judged = negative = 0
    size, signs = _size(valuation), valuation.sign_counts()
    squares, dust = 0.0, _DUST * size
    told = signs.unknown < signs.total
    for strip in valuation.iter_rows():
        known = ~np.isnan(strip.values)
        errors = strip.errors
        sure = known & (errors > dust)
        visited += int(known.sum())
        negative += int((strip.values[known] < 0).sum())
        judged += int(sure.sum())
        squares += float((errors[sure] ** 2).sum())
    return {
        "score": plain(valuation.score),
        "scored_by": _scored_by(valuation),
        "baseline": plain(valuation.baseline),
        "total": plain(valuation.total),
        "total_error": plain(valuation.total_error),
        "expected_total": plain(valuation.expected_total),
        "residual": plain(valuation.efficiency_residual),
        "adds_up": valuation.provenance.adds_up and not math.isnan(valuation.expected_total),
        "empty": valuation.empty,
        "n_cells": math.prod(valuation.shape),
        "n_visited": visited,
        "negative_share": negative / visited if visited else None,
        "unclear_share": signs.undecided / signs.total if told else None,
        "harmful_share": signs.negative / signs.total if told else None,
        "sampling_alone": valuation.validation_se_only_for_sums,
        "error": math.sqrt(squares / judged) if judged else None,
        "size": size,
    }


def _scored_by(valuation: Valuation) -> dict[str, Any] | None:
    """Name of the score, what it was judged on, and what to compare it with."""
    scores = valuation.scores
    if scores is None:
        return None
    return {
        "name": name_of_score(valuation),
        "task": scores.task,
        "scored_on": scores.scored_on,
        "beside": scores.sentence,
        **{name: plain(getattr(scores, name)) for name in ("accuracy", "majority", "r2", "rmse")},
    }


def _size(valuation: Valuation) -> float:
    """Size of a cell that is large but not the largest, which may be far off."""
    step = -(-math.prod(valuation.shape) // MOST_CELLS)
    some = np.concatenate([_every(step, strip) for strip in valuation.iter_rows()])
    sizes = np.abs(some[~np.isnan(some)])
    return float(np.quantile(sizes, QUANTILE)) if len(sizes) else 0.0


def _every(step: int, strip: RowChunk) -> NDArray[np.float64]:
    """Values whose position in a list of all cells is a multiple of the step."""
    first = -strip.rows.start * strip.values.shape[1] % step
    # A copy: a part of a strip would keep all of it.
    return strip.values.ravel()[first::step].copy()


def _power_of_ten(size: float) -> float:
    return 10.0 ** math.floor(math.log10(size)) if size > 0 else 0.0


def _fingerprint(valuation: Valuation) -> str:
    """Name of these values: marks that were made on one report are found by its next copy."""
    provenance = valuation.provenance
    sessions = [asdict(session) for session in provenance.sessions]
    return hash_json(dict(provenance.problem_spec), sessions, repr(valuation.total))[:16]
