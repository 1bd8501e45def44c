"""Reports: a valuation and its table, an audit, or a payout, in one HTML file without network.

:func:`~cellworth.report.save` writes a report. :func:`~cellworth.report.summarize` returns its
contents as plain data, and
:func:`~cellworth.report.render` makes a page of them.
:func:`~cellworth.report.write_audit` writes the findings of an audit,
:func:`~cellworth.report.write_payout` a payout for those who decide on it, and
:func:`~cellworth.report.write_statement` what one owner may see of it. Jinja2 is loaded by the
first page.

Examples
--------
>>> from cellworth.games import TableGame
>>> from cellworth import report, value_game
>>> valuation = value_game(TableGame([[0.0, 0.0], [0.0, 3.0]]), (1, 1))
>>> report.summarize(valuation, None)["figures"]["total"]
3.0
"""

from cellworth.report.build import save, summarize, write_audit
from cellworth.report.look_page import Look, look
from cellworth.report.page import render
from cellworth.report.payout_pages import write_payout, write_statement

__all__ = [
    "Look",
    "look",
    "render",
    "save",
    "summarize",
    "write_audit",
    "write_payout",
    "write_statement",
]
