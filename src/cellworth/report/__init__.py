"""Reports: a valuation and its table in one HTML file that needs no network.

:func:`~cellworth.report.save` writes a report. :func:`~cellworth.report.summarize` returns its
contents as plain data, and
:func:`~cellworth.report.render` makes a page of them. Jinja2 is loaded by the first page
(``pip install 'cellworth[report]'``).

Examples
--------
>>> from cellworth.games import TableGame
>>> from cellworth import report, value_game
>>> valuation = value_game(TableGame([[0.0, 0.0], [0.0, 3.0]]), (1, 1))
>>> report.summarize(valuation, None)["figures"]["total"]
3.0
"""

from cellworth.report.build import save, summarize
from cellworth.report.page import render
from cellworth.report.sections import round_line

__all__ = ["render", "round_line", "save", "summarize"]
