"""How often findings of each kind were right on tables that chose nothing, and what follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from cellworth.findings.finding import Action, Finding

# True or useful findings, and all findings, on held-out tables; one table counts at most five of a
# kind: python -m experiments audit_precision
MEASURED: dict[str, tuple[int, int]] = {
    "constant column": (6, 6),
    "dates as text": (11, 11),
    "dependency": (0, 3),
    "id column": (9, 9),
    "leak": (15, 15),
    "missing mark": (4, 4),
    "misspelling": (2, 3),
    "mixed formats": (0, 5),
    "outlier": (3, 18),
    "sorted rows": (8, 8),
    "spelling variant": (7, 9),
    "wrong label": (0, 16),
}
# Kinds that were right less often are unusual, and may well be right.
MIN_PRECISION = 0.6
# Findings that are more doubtful than this may well be right, too.
MAX_DOUBT = 0.5
# What was not measured comes after what was right in so many cases.
_UNMEASURED = 0.25
_MAX_UNUSUAL = 10


def read_false_rate(kind: str) -> float | None:
    """Return how often findings of a kind are wrong, by Laplace's rule; None if none was reviewed.

    As if one more had been right and one more wrong: few findings that were all right make no
    certainty.
    """
    if kind not in MEASURED:
        return None
    right, reviewed = MEASURED[kind]
    return 1.0 - (right + 1) / (reviewed + 2)


def divide_findings(found: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Divide findings into probable ones, most certain first, and unusual ones, in groups."""
    probable, unusual = list[Finding](), list[Finding]()
    for finding in found:
        false_rate = read_false_rate(finding.kind)
        is_probable = false_rate is None or 1.0 - false_rate >= MIN_PRECISION
        if is_probable and finding.doubt <= MAX_DOUBT:
            probable.append(replace(finding, false_rate=false_rate))
        else:
            unusual.append(finding)
    return sorted(probable, key=rank), _group(unusual)


def rank(finding: Finding) -> tuple[bool, float, int, float]:
    """Return a key: first what has cells or rows, the most certain and least repeated first."""
    false_rate = _UNMEASURED if finding.false_rate is None else finding.false_rate
    n_cells = len(finding.rows)
    return n_cells == 0, round(false_rate, 1), n_cells, finding.doubt


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
        action=Action("check", text="check them"),
        sentence=f"{first.sentence[:-1]}; and {len(group) - 1:,} more like this.",
    )
