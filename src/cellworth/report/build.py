"""Build a report: summarize a valuation or an audit as plain data, and save one HTML file."""

from __future__ import annotations

import math
import os
from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from cellworth.data.arguments import Labels, check_count
from cellworth.data.io import hash_json, jsonable, to_path
from cellworth.data.owners import Owners
from cellworth.data.tables import TableLike, VectorLike
from cellworth.data.text import format_count
from cellworth.findings import data_audit
from cellworth.findings.data_audit import Audit
from cellworth.findings.finding import Finding
from cellworth.payouts.payout import Payout
from cellworth.report.heatmap_data import MAX_CELLS, QUANTILE, pack_cells
from cellworth.report.page import Page, fill_template, render, start_upper, text_of
from cellworth.report.payout_pages import summarize_payout
from cellworth.report.sections import (
    Subject,
    list_cells,
    list_changes,
    list_columns,
    list_owners,
    list_rows,
    plain,
    public_provenance,
)
from cellworth.valuation.valuation import Valuation, name_of_score

# An audit lists this many findings, this many unusual cells, and this many rows of each.
_FINDINGS, _UNUSUAL, _ROWS = 500, 100, 10
_TIMES = "\N{MULTIPLICATION SIGN}"
# Errors below this share of a large value are rounding.
_ROUNDING = 1e-12


def save(
    valuation: Valuation,
    path: str | os.PathLike[str],
    X: TableLike | None = None,
    y: VectorLike | None = None,
    *,
    owners: Owners | None = None,
    k: int = 100,
    title: str | None = None,
    cells: bool = True,
    before: Valuation | None = None,
    audit: Audit | None = None,
    payout: Payout | None = None,
) -> None:
    """Write a report of a valuation: one HTML file for any browser.

    It loads nothing and sends nothing. It shows contents of cells; save one with ``cells=False``
    for people who may not see the table.

    Parameters
    ----------
    valuation : Valuation
    path : path
        An existing file is replaced.
    X : data frame or array, default=None
        The table that was valued. None leaves out contents, and what an audit says of it.
    y : array of shape (n_rows,), default=None
        Its labels.
    owners : Owners, default=None
        Owners of the cells.
    k : int, default=100
        Number of cells of lowest value to list.
    title : str, default=None
    cells : bool, default=True
        False leaves out single rows and cells, and hashes of the data, from which contents could
        be guessed.
    before : Valuation, default=None
        An earlier valuation, such as last month's; a section says how columns changed since then.
    audit : Audit, default=None
        What :func:`~cellworth.audit` found in the table. The report then begins with a chapter of
        it, unless ``cells=False``. None: one sentence says what a quick audit of X finds.
    payout : Payout, default=None
        Who gets what; the report then ends with a chapter of it.

    See Also
    --------
    cellworth.look, summarize, write_payout, cellworth.plots.heatmap

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from cellworth import KNNValuer, report
    >>> X, y = [[1, 5], [2, 5], [8, 6], [9, 4]], ["small", "small", "large", "large"]
    >>> valuation = KNNValuer(n_neighbors=1).fit(X, y, cv=2).valuation_
    >>> with TemporaryDirectory() as folder:
    ...     report.save(valuation, Path(folder) / "report.html", X, y)
    ...     print((Path(folder) / "report.html").read_text(encoding="utf-8")[:15])
    <!doctype html>
    """
    to_path(path, "path")
    summary = summarize(
        valuation, X, y, owners=owners, k=k, title=title, cells=cells, before=before, audit=audit,
        payout=payout,
    )  # fmt: skip
    Page(render(summary)).save(path)


def summarize(
    valuation: Valuation,
    X: TableLike | None,
    y: VectorLike | None = None,
    *,
    owners: Owners | None = None,
    k: int = 100,
    title: str | None = None,
    cells: bool = True,
    before: Valuation | None = None,
    audit: Audit | None = None,
    payout: Payout | None = None,
) -> dict[str, Any]:
    """Return the contents of a report as plain data, ready for JSON.

    Parameters
    ----------
    valuation, X, y, owners, k, title, cells, before, audit, payout
        As in :func:`~cellworth.report.save`.

    Returns
    -------
    dict
        ``verdict`` (what an audit of the table says in one sentence), ``figures`` (score, baseline,
        total and its error, shares of cells whose interval has zero or is below it), ``columns``,
        ``changes``, ``column_info`` (how each was interpreted), ``cells``, ``rows``, ``owners``,
        ``provenance``, ``heatmap`` (packed), and the chapters ``audit`` and ``payout``. What is
        unknown or hidden is None.
        Without cells there is no ``values_hash``, and ``provenance`` has no hash.

    See Also
    --------
    render, save

    Examples
    --------
    >>> from cellworth.games import TableGame
    >>> from cellworth import report, value_game
    >>> valuation = value_game(TableGame(np.arange(16.0).reshape(4, 4) ** 2), (2, 2))
    >>> summary = report.summarize(valuation, None)
    >>> summary["shape"], summary["figures"]["total"]
    ([2, 2], 72.0)
    """
    subject = Subject.from_table(valuation, X, y)
    k = check_count(k, "k")
    seen = data_audit.audit(X, y, quick=True) if audit is None and X is not None else audit
    summary: dict[str, Any] = {
        "title": title or f"Value of each {'cell' if subject.of_cells else 'block'}",
        "shape": list(valuation.shape),
        "of_cells": subject.of_cells,
        "row_ids": subject.kind_of_ids,
        "target": None if (name := getattr(y, "name", None)) is None else str(name),
        "has_classes": subject.target is None or bool(subject.classes),
        "status": valuation.status,
        "values_hash": None,
        "verdict": None if seen is None else _read_verdict(seen),
        "figures": _compute_figures(valuation),
        "columns": list_columns(valuation),
        "changes": None if before is None else list_changes(before, valuation),
        "column_info": _list_column_info(valuation, cells=cells),
        "owners": list_owners(valuation, owners),
        "provenance": public_provenance(valuation.provenance),
        "audit": None,
        "payout": None if payout is None else summarize_payout(payout),
        "code": None,
        "cells": None,
        "rows": None,
        "heatmap": None,
    }
    if not cells:
        # The size of a large cell is about that cell; its power of ten is enough for the unit.
        size = summary["figures"]["size"]
        summary["figures"]["size"] = 10.0 ** math.floor(math.log10(size)) if size > 0 else 0.0
    else:
        listed, rows = list_cells(subject, k), list_rows(subject)
        wanted = np.array([line["position"] for line in (*listed, *rows)], dtype=np.intp)
        heatmap = pack_cells(subject, owners, wanted)
        summary |= {"cells": listed, "rows": rows, "heatmap": heatmap}
        summary["audit"] = None if audit is None else summarize_audit(audit)
        summary["values_hash"] = _hash_values(valuation)
        summary["provenance"] = jsonable(valuation.provenance.to_dict())
    return summary


def write_audit(
    found: Audit, path: str | os.PathLike[str], *, title: str = "Audit of a table"
) -> None:
    """Write an audit: one HTML file for any browser, which loads nothing and has no script.

    It shows contents of cells.

    Parameters
    ----------
    found : Audit
        What :func:`~cellworth.audit` returned.
    path : path
        An existing file is replaced.
    title : str, default="Audit of a table"

    See Also
    --------
    cellworth.audit

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from cellworth import audit, report
    >>> found = audit([[age, "yes" if age % 2 else "n/a"] for age in range(20, 60)])
    >>> with TemporaryDirectory() as folder:
    ...     report.write_audit(found, Path(folder) / "audit.html")
    ...     print((Path(folder) / "audit.html").read_text(encoding="utf-8")[:15])
    <!doctype html>
    """
    summary = {"title": title, "audit": summarize_audit(found)}
    Page(fill_template("audit.html.j2", summary)).save(path)


def summarize_audit(found: Audit) -> dict[str, Any]:
    """Return the contents of the chapter of an audit as plain data."""
    counts = Counter(finding.kind for finding in found.findings)
    ids = found.table.row_ids
    return {
        "verdict": _read_verdict(found),
        "checked": ", ".join(found.checked),
        "n_findings": len(found.findings),
        "n_unusual": len(found.unusual),
        "kinds": counts.most_common(),
        "findings": [_summarize_finding(each, ids) for each in found.findings[:_FINDINGS]],
        "unusual": [_summarize_finding(each, ids) for each in found.unusual[:_UNUSUAL]],
    }


def _read_verdict(found: Audit) -> str:
    """Return the first sentence of an audit: what it found, or that nothing looks wrong."""
    counts = Counter(finding.kind for finding in found.findings)
    listed = ", ".join(
        f"{n:,} {_TIMES} {kind}" if n > 1 else kind for kind, n in counts.most_common()
    )
    said = start_upper(format_count(len(found), "finding")) if listed else "Nothing looks wrong"
    n_rows, n_columns = found.table.shape
    size = f"{format_count(n_rows, 'row')} {_TIMES} {format_count(n_columns, 'column')}"
    return f"{said} in {size}{f': {listed}' if listed else ''}."


def _summarize_finding(finding: Finding, row_ids: Labels) -> dict[str, Any]:
    rows = np.unique(finding.rows)
    return {
        "kind": finding.kind,
        "columns": list(finding.columns),
        "sentence": finding.sentence,
        "advice": finding.advice,
        "count": len(finding.rows),
        "n_rows": len(rows),
        "rows": [text_of(row_id) for row_id in row_ids[rows[:_ROWS]].tolist()],
    }


def _list_column_info(valuation: Valuation, *, cells: bool) -> list[dict[str, Any]] | None:
    """Return how each raw column was interpreted; without cells no scale, which depends on them."""
    if valuation.column_info is None:
        return None
    lines = valuation.column_info.to_plain()
    return lines if cells else [line | {"distance": ""} for line in lines]


def _compute_figures(valuation: Valuation) -> dict[str, Any]:
    """Return the figures of the whole table."""
    visited = n_errors = negative = 0
    size, signs = _measure_large_cell(valuation), valuation.sign_counts()
    squares, rounding = 0.0, _ROUNDING * size
    any_known = signs.unknown < signs.total
    for chunk in valuation.iter_rows():
        known = ~np.isnan(chunk.values)
        errors = chunk.errors
        sure = known & (errors > rounding)
        visited += int(known.sum())
        negative += int((chunk.values[known] < 0).sum())
        n_errors += int(sure.sum())
        squares += float((errors[sure] ** 2).sum())
    return {
        "score": plain(valuation.score),
        "scored_by": _describe_score(valuation),
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
        "unclear_share": signs.undecided / signs.total if any_known else None,
        "lowering_share": signs.negative / signs.total if any_known else None,
        "sampling_alone": valuation.validation_se_only_for_sums,
        "error": math.sqrt(squares / n_errors) if n_errors else None,
        "size": size,
    }


def _describe_score(valuation: Valuation) -> dict[str, Any] | None:
    """Return the name of the score, its validation rows, and plain scores for comparison."""
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


def _measure_large_cell(valuation: Valuation) -> float:
    """Return the size of a large cell, but not of the largest, which may be an outlier."""
    step, parts = -(-math.prod(valuation.shape) // MAX_CELLS), []
    for chunk in valuation.iter_rows():
        # Cells whose position in a list of all is a multiple of the step.
        first = -chunk.rows.start * chunk.values.shape[1] % step
        # A copy, because a view would keep the whole chunk alive.
        parts.append(chunk.values.ravel()[first::step].copy())
    some = np.concatenate(parts)
    sizes = np.abs(some[~np.isnan(some)])
    return float(np.quantile(sizes, QUANTILE)) if len(sizes) else 0.0


def _hash_values(valuation: Valuation) -> str:
    """Return a hash of the values, by which a new copy of a report finds its marks."""
    provenance = valuation.provenance
    sessions = [asdict(session) for session in provenance.sessions]
    return hash_json(dict(provenance.problem_spec), sessions, repr(valuation.total))[:16]
