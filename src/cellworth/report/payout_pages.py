"""Pages of a payout: one for the board, and one for each owner with its own cells only."""

from __future__ import annotations

import math
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats
from cellworth.data.text import with_minus
from cellworth.payouts.facts import SHARED
from cellworth.payouts.payout import Payout, Statement
from cellworth.payouts.policy import describe_shared
from cellworth.report.page import (
    Page,
    Unit,
    count_decimals,
    draw_bars,
    fill_template,
    start_upper,
    text_of,
)
from cellworth.report.sections import plain, sum_by_column
from cellworth.valuation.valuation import Valuation, format_score

# Columns named for each owner, cells listed at each end, letters of a name in the name of a file.
_COLUMNS, _CELLS, _LETTERS = 3, 15, 40
# Pairs of owners that are named as undecided.
_PAIRS = 20
# Differences below this share of a value are rounding.
_ROUNDING = 1e-9

_NAMES = {
    "negative": "negative values",
    "undecided": "undecided order",
    "game": "value of an owner",
}
_RULES = {
    ("negative", "floor"): "An owner of negative value gets nothing.",
    ("negative", "carry"): "An owner of negative value gets nothing, and the shortfall reduces its "
    "later payouts.",
    ("negative", "signed"): "An owner of negative value pays.",
    ("undecided", "pay"): "Estimates are paid, also where the order is undecided.",
    ("undecided", "equal"): "Owners whose values cannot be distinguished get equal parts.",
    ("undecided", "hold"): "Every owner gets the lower end of its interval; the rest is held back.",
    ("game", "cells"): "The value of an owner is the sum of the values of its cells.",
    ("game", "owners"): "Each owner joined with all of its cells or not at all; an owner under two "
    "names gets more.",
}
_ALWAYS_OPEN = (
    "Whether the names are those of separate parties: contracts say who someone is.",
    "Whether the contents of cells are true, and whether owners had the right to hand them in: "
    "values say what cells do for this model, not where they come from.",
    "Whether the values hold for another model, another score, or people unlike the validation "
    "rows.",
)


def write_payout(
    payout: Payout,
    path: str | os.PathLike[str],
    *,
    digest: str | None = None,
    title: str | None = None,
) -> None:
    """Write a payout for those who decide on it: one HTML file, which prints well.

    Who gets how much with which uncertainty, why, what was checked, and what could not be. It
    names owners and columns, and holds no row and no cell. It loads nothing and has no script.

    Parameters
    ----------
    payout : Payout
    path : path
        An existing file is replaced.
    digest : str, default=None
        What ``payout.save`` returned, so that readers can verify the bundle.
    title : str, default=None

    See Also
    --------
    cellworth.payouts.split_revenue, write_statement

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from cellworth import KNNValuer, Owners, report
    >>> from cellworth.payouts import OwnerValuer, split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuer = OwnerValuer(KNNValuer(1))
    >>> valuation = valuer.fit(X, y, X_val=X_val, y_val=y, owners=owners).valuation_
    >>> payout = split_revenue(valuation, owners, amount="100.00")
    >>> with TemporaryDirectory() as folder:
    ...     report.write_payout(payout, Path(folder) / "payout.html")
    ...     print((Path(folder) / "payout.html").read_text(encoding="utf-8")[:15])
    <!doctype html>
    """
    content = summarize_payout(payout) | {"digest": digest, "head": _read_head(payout.agreement)}
    title = title or f"Payout of {content['amount']} {payout.currency}"
    page = fill_template("payout.html.j2", {"title": title, "payout": content})
    Page(page).save(path)


def summarize_payout(payout: Payout) -> dict[str, Any]:
    """Return the contents of the chapter of a payout as plain data."""
    lines = _list_owners(payout)
    return {
        # As many digits as the amounts have.
        "amount": _money(payout.amount.quantize(payout.amounts[0])),
        "currency": payout.currency,
        "lines": lines,
        "bars": draw_bars([line["drawn"] for line in lines]),
        "decimals": count_decimals(payout.values.tolist()),
        "held": _money(payout.held) if payout.held else None,
        "ties": payout.ties,
        "n_paid": sum(amount > 0 for amount in payout.amounts),
        "first": max(lines, key=lambda line: line["share"]),
        "alone": payout.amounts.count(max(payout.amounts)) == 1,
        "undecided": payout.undecided[:_PAIRS],
        "n_undecided": len(payout.undecided),
        "score": _describe_score(payout.valuation),
        "rules": _list_rules(payout),
        "checks": [*_check_sums(payout), _check_facts(payout)],
        "open": [*_list_unchecked(payout), *_ALWAYS_OPEN],
        "record": _make_record(payout),
        "run": _describe_run(payout.valuation),
    }


def write_statement(
    statement: Statement,
    path: str | os.PathLike[str],
    *,
    digest: str | None = None,
    agreement: str | None = None,
) -> None:
    """Write the statement of one owner: one HTML file, which prints well.

    It is made of a :class:`~cellworth.payouts.Statement` alone, so it holds nothing about other
    owners' cells.

    Parameters
    ----------
    statement : Statement
        What ``payout.statement(owner)`` returned.
    path : path
        An existing file is replaced.
    digest : str, default=None
        What ``payout.save`` returned, so that the owner can verify the bundle.
    agreement : str, default=None
        Text of the agreement: ``payout.agreement``. Its contract, dates and digest are shown.

    See Also
    --------
    cellworth.payouts.Statement, write_payout

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from cellworth import KNNValuer, Owners, report
    >>> from cellworth.payouts import OwnerValuer, split_revenue
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuer = OwnerValuer(KNNValuer(1))
    >>> valuation = valuer.fit(X, y, X_val=X_val, y_val=y, owners=owners).valuation_
    >>> payout = split_revenue(valuation, owners, amount="100.00")
    >>> with TemporaryDirectory() as folder:
    ...     report.write_statement(payout.statement("bob"), Path(folder) / "bob.html")
    ...     print("ann" in (Path(folder) / "bob.html").read_text(encoding="utf-8").split())
    False
    """
    summary = _summarize_statement(statement) | {"digest": digest, "head": _read_head(agreement)}
    Page(fill_template("statement.html.j2", summary)).save(path)


def write_statements(payout: Payout, folder: Path, *, digest: str | None = None) -> None:
    """Write the statement of every owner into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for owner, name in zip(payout.owners, _name_files(payout.owners), strict=True):
        path, statement = folder / f"{name}.html", payout.statement(owner)
        write_statement(statement, path, digest=digest, agreement=payout.agreement)


def _name_files(owners: tuple[str, ...]) -> Iterator[str]:
    """Return a name that is safe in every file system, and unique by its number."""
    digits = len(str(len(owners)))
    for number, owner in enumerate(owners, start=1):
        safe = re.sub(r"[^a-z0-9]+", "-", owner.lower())[:_LETTERS].strip("-")
        yield f"{number:0{digits}}-{safe}".rstrip("-")


def _list_owners(payout: Payout) -> list[dict[str, Any]]:
    valuation, labels = payout.valuation, payout.ownership.share_of_labels()
    by_column = sum_by_column(valuation, payout.ownership.project(valuation.blocks))
    names = [text_of(name) for name in valuation.column_labels.tolist()]
    intervals, shares = payout.intervals.tolist(), payout.shares.tolist()
    of_cells = payout.policy.game != "owners"
    lines = []
    for i, owner in enumerate(payout.owners):
        ends = payout.amount_intervals[i]
        low, high = (None, None) if ends is None else map(float, ends)
        lines.append(
            {
                "owner": owner,
                "amount": _money(payout.amounts[i]),
                "amount_interval": _format_ends(ends),
                "drawn": {"value": float(payout.amounts[i]), "low": low, "high": high},
                "share": shares[i],
                "value": float(payout.values[i]),
                "low": plain(intervals[i][0]),
                "high": plain(intervals[i][1]),
                "n_cells": payout.ownership.n_cells_of(owner),
                "n_labels": labels.get(owner, 0),
                "columns": _find_largest(names, by_column[i]) if of_cells else [],
                "carried": payout.carried.get(owner),
                "brought": payout.brought.get(owner),
            }
        )
    return lines


def _format_ends(ends: Sequence[Decimal | str] | None) -> str | None:
    return None if ends is None else " to ".join(_money(Decimal(end)) for end in ends)


def _find_largest(names: list[str], values: Floats) -> list[dict[str, Any]]:
    """Return the columns of largest size, largest first, without rounding errors."""
    order = np.argsort(-np.abs(values), kind="stable")[:_COLUMNS].tolist()
    least = _ROUNDING * np.abs(values).max()
    return [
        {"column": names[j], "value": float(values[j])} for j in order if abs(values[j]) > least
    ]


def _describe_score(valuation: Valuation) -> dict[str, Any] | None:
    """Return what the whole table is worth to the model; None if its score is unknown."""
    if math.isnan(valuation.score):
        return None
    scores = valuation.scores
    return {
        "score": format_score(valuation),
        "scored_on": None if scores is None else scores.scored_on,
        "beside": "" if scores is None else scores.sentence,
        "baseline": plain(valuation.baseline),
        "total": plain(valuation.expected_total),
    }


def _list_rules(payout: Payout) -> list[dict[str, str]]:
    """List the policy: a sentence for each setting that has one, else its name and value."""
    policy = asdict(payout.policy)
    rules = [
        {
            "name": _NAMES.get(name, name.replace("_", " ")),
            "text": _RULES.get((name, str(setting)), str(setting)),
        }
        for name, setting in policy.items()
        if name not in ("currency", "unit")
    ]
    unit = f"Amounts are multiples of {policy['unit']} {policy['currency']}."
    shared = describe_shared(payout.valuation.empty)
    return [*rules, {"name": "score", "text": shared}, {"name": "rounding", "text": unit}]


def _check_sums(payout: Payout) -> Iterator[dict[str, Any]]:
    """Check what follows from the payout itself."""
    total = sum(payout.amounts, payout.held)
    held = f", with the {_money(payout.held)} that are held back" if payout.held else ""
    text = f"They add up to {_money(total)}{held}."
    yield _make_check("Do the amounts add up?", total == payout.amount, text)
    valuation = payout.valuation
    if valuation.provenance.adds_up and not math.isnan(valuation.expected_total):
        residual = abs(valuation.efficiency_residual)
        ok = residual <= _ROUNDING * max(abs(valuation.expected_total), 1.0)
        text = "They do, up to rounding." if ok else f"They differ from it by {residual:.2g}."
        yield _make_check("Do the values add up to what the table adds to the score?", ok, text)
    failed = valuation.provenance.tally.failed
    text = "None failed." if not failed else f"{failed:,} failed and were replaced by a fallback."
    yield _make_check("Did computations fail?", not failed, text)
    done = valuation.status != "interrupted"
    text = "It was." if done else "It was interrupted; resume and finish it before you pay."
    yield _make_check("Was the valuation finished?", done, text)


def _check_facts(payout: Payout) -> dict[str, Any]:
    """Say what is certain about the rows."""
    sentences = [fact.sentence for fact in payout.facts] or ["Nothing is."]
    return _make_check(
        "Is anything to be settled about rows or owners?",
        all(fact.kind == SHARED for fact in payout.facts),
        *sentences,
    )


def _make_check(asked: str, ok: bool, *texts: str) -> dict[str, Any]:
    return {"asked": asked, "ok": ok, "texts": [start_upper(text) for text in texts]}


def _list_unchecked(payout: Payout) -> Iterator[str]:
    """List what could not be checked for this payout."""
    if payout.agreement is None:
        yield "Whether the rules were fixed before the values were known: there is no agreement."
    if np.isnan(payout.errors.together).any():
        yield "How uncertain the values are: errors of owners' sums were not estimated."
    elif payout.errors.validation is None:
        yield "How much other validation rows would change: their error is unknown."


def _make_record(payout: Payout) -> list[tuple[str, str]]:
    """List what identifies the computation, without hashes of the data."""
    provenance = payout.valuation.provenance
    n_rows, n_columns = payout.valuation.shape
    seeds = [str(one.seed) for one in provenance.sessions if one.seed is not None]
    record = [
        ("Table", f"{n_rows:,} rows and {n_columns:,} columns"),
        ("Valuer", str(provenance.method["name"])),
        ("Seeds", ", ".join(seeds) or "none: the values are exact"),
    ]
    if payout.unassigned:
        record.append(("Value without an owner", f"{payout.unassigned:.4g}, which is not paid out"))
    versions = provenance.versions
    return [
        *record,
        ("Versions", ", ".join(f"{name} {versions[name]}" for name in sorted(versions))),
    ]


def _read_head(agreement: str | None) -> dict[str, Any] | None:
    """Return contract and digest of an agreement; None without one."""
    if agreement is None:
        return None
    try:
        contract = tomllib.loads(agreement).get("contract")
    except tomllib.TOMLDecodeError:
        contract = None
    return {"contract": contract, "digest": sha256(agreement.encode()).hexdigest()}


def _describe_run(valuation: Valuation) -> dict[str, str]:
    provenance = valuation.provenance
    status = {"exact": "Exact values", "estimated": "Estimated", "interrupted": "Interrupted"}
    return {
        "status": status[valuation.status],
        "method": str(provenance.method["name"]),
        "created": provenance.created,
        "version": provenance.versions["cellworth"],
    }


def _summarize_statement(statement: Statement) -> dict[str, Any]:
    """Return the contents of the page of one owner as plain data, from its statement alone."""
    totals, cells = statement.totals, statement.cells
    if cells["row"] == [statement.owner]:
        # The owner was a player, and its cells have no values of their own.
        cells = {name: [] for name in cells}
    values, shares = np.array(cells["value"], dtype=float), np.array(cells["share"], dtype=float)
    columns = _sum_own_columns(cells["column"], values * shares)
    low, high = map(plain, totals["interval"])
    rest = statement.value - float((values * shares).sum())
    return {
        "title": f"Statement for {statement.owner}",
        "owner": statement.owner,
        "amount": _money(abs(statement.amount)),
        "pays": statement.amount < 0,
        "value": statement.value,
        "low": low,
        "high": high,
        "amount_interval": _format_ends(totals["amount_interval"]),
        "totals": dict(totals) | {"total_amount": _money(Decimal(totals["total_amount"]))},
        "columns": columns,
        "bars": draw_bars(columns),
        "decimals": count_decimals([statement.value, totals["total_value"]]),
        "rest": rest
        if columns and abs(rest) > _ROUNDING * max(np.abs(values).sum(), 1e-300)
        else None,
        "unit": Unit.fitting(float(np.abs(values).max(initial=0.0))),
        **_list_own_cells(cells, values),
    }


def _sum_own_columns(names: list[Any], values: Floats) -> list[dict[str, Any]]:
    """Return the sum of the owner's cells in each column, highest first."""
    sums: dict[str, float] = {}
    for name, value in zip(map(text_of, names), values.tolist(), strict=True):
        sums[name] = sums.get(name, 0.0) + value
    lines = [{"column": name, "value": v, "low": None, "high": None} for name, v in sums.items()]
    return sorted(lines, key=lambda line: -line["value"])


def _list_own_cells(cells: Mapping[str, list[Any]], values: Floats) -> dict[str, Any]:
    """Return the owner's cells of highest and of lowest value, no cell twice."""
    order = np.argsort(-values, kind="stable").tolist()
    n_high = min(_CELLS, -(-len(order) // 2))
    n_low = min(_CELLS, len(order) - n_high)
    ends = {"highest": order[:n_high], "lowest": order[::-1][:n_low]}
    return {
        name: [
            {
                "row": text_of(cells["row"][i]),
                "column": text_of(cells["column"][i]),
                "value": plain(values[i]),
                "error": plain(cells["sampling_se"][i]),
                "share": cells["share"][i],
            }
            for i in positions
        ]
        for name, positions in ends.items()
    }


def _money(amount: Decimal) -> str:
    return with_minus(f"{amount:,}")
