"""Findings: what is wrong with a table, and what to do about it.

Examples
--------
>>> from cellworth import audit
>>> X = [[age, "yes" if age % 2 else "no"] for age in range(20, 60)]
>>> X[3] = [999, "yes"]
>>> audit(X)[0].kind
'missing code'
"""

from cellworth.findings.data_audit import Audit, audit
from cellworth.findings.finding import Action, Finding

__all__ = ["Action", "Audit", "Finding", "audit"]
