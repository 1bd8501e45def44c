"""Diagnostics: how unlikely cells are, why rows help or hurt, and what changing cells does.

Examples
--------
>>> from cellworth.diagnostics import anomaly_scores
>>> X, y = [["red"], ["red"], ["blue"], ["blue"], ["red"]], [0, 0, 1, 1, 1]
>>> anomaly_scores(X, y).shape
(5, 1)
"""

from cellworth.diagnostics.anomaly import anomaly_scores
from cellworth.diagnostics.comparison import Comparison, compare_models
from cellworth.diagnostics.curves import RemovalCurve, removal_curve
from cellworth.diagnostics.explain import Explanation, explain_column, explain_row
from cellworth.diagnostics.interactions import PairInteractions, measure_interactions

__all__ = [
    "Comparison",
    "Explanation",
    "PairInteractions",
    "RemovalCurve",
    "anomaly_scores",
    "compare_models",
    "explain_column",
    "explain_row",
    "measure_interactions",
    "removal_curve",
]
