"""How often findings of each kind were right on tables that chose nothing, and what follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from cellworth.findings.finding import Finding

# True or useful findings, and all findings, on held-out tables; one table counts at most five of a
# kind: python -m experiments audit_precision
MEASURED: dict[str, tuple[int, int]] = {}
# Fewer reviewed findings say nothing.
_MIN_REVIEWED = 5
# Kinds that were right less often are unusual, and may well be right.
_MIN_PRECISION, _MAX_PRECISION = 0.6, 0.99
_MAX_DOUBT = 0.5
# What was not measured comes after what was right in so many cases.
_UNMEASURED = 0.25
_MAX_UNUSUAL = 10


def read_false_rate(kind: str) -> float | None:
    """Return the share of findings of a kind that were wrong; None if too few were reviewed."""
    right, reviewed = MEASURED.get(kind, (0, 0))
    return None if reviewed < _MIN_REVIEWED else 1.0 - min(right / reviewed, _MAX_PRECISION)


def divide_findings(found: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Divide findings into probable ones, most certain first, and unusual ones, in groups."""
    probable, unusual = list[Finding](), list[Finding]()
    for finding in found:
        false_rate = read_false_rate(finding.kind)
        is_probable = false_rate is None or 1.0 - false_rate >= _MIN_PRECISION
        if is_probable and finding.doubt <= _MAX_DOUBT:
            probable.append(replace(finding, false_rate=false_rate))
        else:
            unusual.append(finding)
    return sorted(probable, key=rank), _group(unusual)


def rank(finding: Finding) -> tuple[float, bool, int, float]:
    """Return a key that puts the most certain and least repeated findings first."""
    false_rate = _UNMEASURED if finding.false_rate is None else finding.false_rate
    n_cells = len(finding.rows)
    return round(false_rate, 1), n_cells == 0, n_cells, finding.doubt


def _group(unusual: Sequence[Finding]) -> list[Finding]:
    """Make one finding of those of one kind in the same columns; return the most unusual ones."""
    groups: dict[tuple[str, tuple[str, ...]], list[Finding]] = defaultdict(list)
    for finding in sorted(unusual, key=lambda each: each.doubt):
        groups[finding.kind, finding.columns].append(finding)
    joined = [group[0] if len(group) == 1 else _join(group) for group in groups.values()]
    return joined[:_MAX_UNUSUAL]


def _join(group: Sequence[Finding]) -> Finding:
    first, positions = group[0], None
    if first.positions is not None:
        positions = np.concatenate([each.positions for each in group if each.positions is not None])
    return replace(
        first,
        rows=np.concatenate([each.rows for each in group]),
        positions=positions,
        sentence=f"{first.sentence[:-1]}; and {len(group) - 1:,} more like this.",
    )
