"""Findings: what is wrong with a table, what to do about it, and why rows help or hurt.

Examples
--------
>>> from cellworth import audit
>>> X = [[age, "yes" if age % 2 else "no"] for age in range(20, 60)]
>>> X[3] = [999, "yes"]
>>> audit(X)[0].kind
'missing code'
"""

from cellworth.findings.anomaly import anomaly_scores
from cellworth.findings.comparison import Comparison, compare_models
from cellworth.findings.data_audit import Audit, audit
from cellworth.findings.explain import Explanation, explain_column, explain_row
from cellworth.findings.finding import Action, Finding
from cellworth.findings.fit_checks import DataWarning
from cellworth.findings.fixing import Fixed
from cellworth.findings.interactions import PairInteractions, measure_interactions
from cellworth.findings.label_checks import label_scores

__all__ = [
    "Action",
    "Audit",
    "Comparison",
    "DataWarning",
    "Explanation",
    "Finding",
    "Fixed",
    "PairInteractions",
    "anomaly_scores",
    "audit",
    "compare_models",
    "explain_column",
    "explain_row",
    "label_scores",
    "measure_interactions",
]
