"""Report: what a valuation says about a table, in one HTML file that needs no network.

:func:`save` writes it. :func:`summarize` gives what it says as plain data, and :func:`render` makes
a page of that. Jinja2 is loaded when the first page is made (``pip install 'cellworth[report]'``).
"""

from cellworth.report.rendering import render
from cellworth.report.rounds import round_line
from cellworth.report.saving import save
from cellworth.report.summaries import summarize

__all__ = ["render", "round_line", "save", "summarize"]
