"""How often findings of the audit are right, by kind, on real tables as they are published.

A person looked at every finding once and wrote into ``audit_reviews.csv`` whether it is true
(something is wrong), useful (nothing is wrong, but a model or a reader should know), or false, and
why. One table counts at most five findings of a kind. The corpus is that of ``audit_tables``: what
was found in the half for development changed the checks; the held-out half was reviewed once, after
that, and chose nothing but the kinds that are called unusual. Both halves are listed apart, beside
the certainty that the audit prints. ``fixes`` are all cells that ``fix()`` changes by default.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pandas as pd

import cellworth
from cellworth.findings import certainty
from cellworth.findings.data_audit import Audit
from cellworth.findings.finding import Finding
from experiments import audit_tables
from experiments.frame import Row, Tables, log

REVIEWS = Path(__file__).with_name("audit_reviews.csv")
MAX_OF_A_TABLE = 5
QUICK = {"n_tables": 3}


def run(data: Path = Path(), n_tables: int = 0, labels: int = 0) -> Tables:
    """Audit the tables of both halves and compare the findings with their reviews.

    ``labels=1`` also looks for wrong labels, which takes most of the time.
    """
    reviewed = pd.read_csv(REVIEWS).set_index(["table", "kind", "key"])["review"].to_dict()
    found: list[Row] = []
    fixes: list[Row] = []
    n_silent, n_audited = Counter[bool](), Counter[bool]()
    for held_out in (False, True):
        sources = audit_tables.read(data, held_out=held_out)
        for source in [*sources][: n_tables or None]:
            audit, fixed = audit_source(source, quick=not labels)
            lines = [*list_findings(source.name, audit)]
            log(source.name, len(lines))
            n_audited[held_out] += 1
            n_silent[held_out] += all(_is_unusual(line["kind"]) for line in lines)
            for line in lines:
                review = reviewed.get((line["table"], line["kind"], line["key"]), "not reviewed")
                found.append(line | {"held out": held_out, "review": review})
            fixes += [{"table": source.name, "change": change} for change in fixed]
    return {
        "precision": [*measure_precision(pd.DataFrame(found))],
        "tables": [
            {
                "half": "held out" if half else "development",
                "tables": n_audited[half],
                "nothing looks wrong": n_silent[half],
            }
            for half in (False, True)
        ],
        "fixes": fixes or [{"table": "all", "change": "none"}],
        "not reviewed": [line for line in found if line["review"] == "not reviewed"]
        or [{"table": "none"}],
    }


def audit_source(source: audit_tables.Source, *, quick: bool = False) -> tuple[Audit, list[str]]:
    """Return what the checks of a table are sure of, and what ``fix()`` changes by default."""
    with warnings.catch_warnings(), mock.patch.dict(certainty.MEASURED, clear=True):
        warnings.simplefilter("ignore")
        audit = cellworth.audit(source.X, source.y, quick=quick)
        fixed = audit.fix()
    names = fixed.table.names
    seen = Counter(f"{names[c.column]}: {c.before!r} -> {c.after!r}" for c in fixed.changes)
    return audit, [f"{change} ({count})" for change, count in seen.items()]


def list_findings(name: str, audit: Audit) -> Iterator[Row]:
    """Yield the first five findings of each kind."""
    counts = Counter[str]()
    for finding in audit:
        counts[finding.kind] += 1
        if counts[finding.kind] <= MAX_OF_A_TABLE:
            key = name_finding(finding, audit)
            yield {"table": name, "kind": finding.kind, "key": key, "finding": finding.sentence}


def name_finding(finding: Finding, audit: Audit) -> str:
    """Return a name that a finding keeps if its sentence is worded anew."""
    if finding.kind == "wrong label":
        return finding.sentence.split(" the label ")[-1]
    if not finding.columns or len(finding.rows) == 0:
        return ", ".join(finding.columns[:3]) or "rows"
    rows, columns = finding.cells(audit.table)
    first = min(zip(rows.tolist(), columns.tolist(), strict=True))
    cell = audit.table.column(first[1])[first[0]]
    return f"{', '.join(finding.columns[:3])}: {str(cell)[:40]!r}"


def measure_precision(found: pd.DataFrame) -> Iterator[Row]:
    """Yield how many findings of a kind were true or useful, in both halves."""
    stated = {kind: certainty.read_false_rate(kind) for kind in found["kind"].unique()}
    certain = {kind for kind, rate in stated.items() if rate is not None and rate < 0.105}
    groups = [
        *found.groupby("kind"),
        ("all that say 90% or more", found[found["kind"].isin(certain)]),
        ("all but unusual kinds", found[~found["kind"].map(_is_unusual)]),
    ]
    for kind, own in groups:
        line: Row = {"kind": kind}
        rate = stated.get(str(kind))
        line["stated"] = None if rate is None else f"{1 - rate:.0%}"
        for half in (False, True):
            lines = own[(own["held out"] == half) & (own["review"] != "not reviewed")]
            n_right = int(lines["review"].isin(["true", "useful"]).sum())
            where = "held out" if half else "development"
            line[where] = f"{n_right} of {len(lines)}" if len(lines) else None
            line[f"{where}, share"] = n_right / len(lines) if len(lines) else None
        yield line


def _is_unusual(kind: str) -> bool:
    """Return whether findings of a kind are called unusual."""
    false_rate = certainty.read_false_rate(kind)
    return false_rate is not None and 1.0 - false_rate < certainty.MIN_PRECISION
