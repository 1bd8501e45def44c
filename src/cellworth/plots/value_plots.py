"""Plots of bars: lists of values, one row or column, owners, and two valuations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from cellworth.data.arguments import Floats, check_count
from cellworth.data.text import with_minus
from cellworth.findings.cells import check_valuation
from cellworth.findings.explain import Explanation
from cellworth.payouts.payout import Payout
from cellworth.plots.figure_style import (
    GRAY,
    NEGATIVE,
    POSITIVE,
    SCORE_UNITS,
    SMALL,
    Axes,
    check_type,
    color_signs,
    compute_size,
    format_labels,
    format_signed,
    get_axes,
    hide_frame,
    text_color,
    text_of,
    write_legend_above,
    write_lines,
    write_title,
)
from cellworth.sampling.moments import WIDTH_95, combine_errors
from cellworth.valuation.valuation import Valuation
from cellworth.valuation.values import ValueList

_THICKNESS = 0.7


def waterfall(explanation: Explanation, *, max_bars: int = 12, ax: Axes | None = None) -> Axes:
    """Draw the value of a row or column as the sum of the values of its cells.

    Each bar begins where the one above it ends. Whiskers are 95% intervals, from the errors that
    are known. The bar for several cells together has none, because their errors are dependent.
    If the explanation knows the table, names say what cells hold: ``age = 39``.

    Parameters
    ----------
    explanation : Explanation
        What :func:`~cellworth.explain_row` or :func:`~cellworth.explain_column` returns.
    max_bars : int, default=12
        The largest cells get a bar each, and all others one together.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    cellworth.explain_row, cellworth.explain_column

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth.games import TableGame
    >>> from cellworth import explain_row, value_game
    >>> from cellworth.plots import waterfall
    >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
    >>> ax = waterfall(explain_row(value_game(game, (2, 2)), 0), ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['0', '1', 'row 0']
    """
    advice = "give what explain_row or explain_column returns."
    check_type(explanation, Explanation, "explanation", advice)
    names = _name_cells(explanation.parts, explanation.cells)
    most = check_count(max_bars, "max_bars")
    names, values, errors, n_unvisited = _list_parts(names, explanation.parts, most)
    total = f"{explanation.side} {text_of(explanation.label)}"
    values = np.append(values, explanation.value)
    error = combine_errors(explanation.sampling_se, explanation.validation_se)
    ax = get_axes(ax, compute_size(len(values) + 1))
    _draw_steps(ax, values, np.append(errors, error))
    note = f"\n{n_unvisited:,} cells were not sampled" if n_unvisited else ""
    ax.set_xlabel(f"value ({SCORE_UNITS}){note}", size=SMALL)
    write_title(ax, f"What {total} is worth")
    write_lines(ax, [*names, total], format_signed(values.tolist()))
    return ax


def _name_cells(listing: ValueList, cells: Sequence[Any] | None) -> list[str]:
    """Return the label of each part, with what its cell holds if that is known."""
    labels = listing.labels["column" if "column" in listing.labels else "row"].tolist()
    if cells is None:
        return format_labels(labels)
    contents = ("missing" if cell is None else text_of(cell) for cell in cells)
    return [f"{name} = {held}" for name, held in zip(format_labels(labels), contents, strict=True)]


def _list_parts(
    names: list[str], listing: ValueList, most: int
) -> tuple[list[str], Floats, Floats, int]:
    """Return names, values and errors, largest first and the rest as one; count unknown values."""
    errors = combine_listed(listing)
    order = np.argsort(-np.abs(listing.values), kind="stable")
    order = order[~np.isnan(listing.values[order])]
    n_shown = len(order) if len(order) <= most else most - 1
    shown, rest = np.split(order, [n_shown])
    listed, values, errors = [names[i] for i in shown], listing.values[shown], errors[shown]
    if len(rest):
        listed.append(f"other {len(rest):,}")
        values, errors = np.append(values, listing.values[rest].sum()), np.append(errors, np.nan)
    return listed, values, errors, len(names) - len(order)


def _draw_steps(ax: Axes, values: Floats, errors: Floats) -> None:
    """Draw parts one after the other, and their total, which is the last."""
    starts = np.concatenate([[0.0], np.cumsum(values[:-1])])
    starts[-1] = 0.0
    _draw_bars(ax, values, starts, np.column_stack([values, values]) + _compute_whiskers(errors))
    ax.axhline(len(values) - 1.5, color=GRAY, linewidth=0.8, linestyle=":")
    ends = starts[:-1] + values[:-1]
    ax.vlines(
        ends, np.arange(len(ends)), np.arange(1, len(ends) + 1), color=GRAY, linewidth=0.7, zorder=1
    )


def _compute_whiskers(errors: Floats) -> Floats:
    """Return the ends of 95% intervals around zero; NaN without a known error above 0."""
    reach = np.where(errors > 0, WIDTH_95 * errors, np.nan)
    return np.column_stack([-reach, reach])


def _draw_bars(ax: Axes, values: Floats, starts: Floats, intervals: Floats) -> None:
    """Draw bars from their starts, with whiskers for known intervals."""
    hide_frame(ax)
    ax.tick_params(axis="x", labelsize=SMALL)
    # Otherwise bars would end at the frame.
    ax.use_sticky_edges = False
    lines = np.arange(len(values))
    colors = color_signs(values)
    ax.barh(lines, values, left=starts, height=_THICKNESS, color=colors, zorder=2)
    known = ~np.isnan(intervals).any(axis=1) & ~np.isnan(values)
    if known.any():
        reach = np.abs(intervals[known] - values[known, np.newaxis]).T
        ends = starts[known] + values[known]
        ax.errorbar(
            ends, lines[known], xerr=reach, ecolor=text_color(ax), elinewidth=1.0, capsize=2.5,
            fmt="none", zorder=3,
        )  # fmt: skip
    ax.axvline(0.0, color=text_color(ax), linewidth=0.8, zorder=4)


def combine_listed(listing: ValueList) -> Floats:
    """Return both kinds of errors of each value together, as far as they are known."""
    return combine_errors(listing.sampling_se, listing.validation_se)


def bar(listing: ValueList, *, max_bars: int = 20, ax: Axes | None = None) -> Axes:
    """Draw a list of values as bars with 95% intervals, highest first.

    Parameters
    ----------
    listing : ValueList
        For example ``valuation.columns()``, ``valuation.rows()`` or ``valuation.lowest(10)``. For
        cohorts, value the table with ``row_groups``, and give ``valuation.rows()``.
    max_bars : int, default=20
        Longer lists show the values of largest absolute value.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    compare, beeswarm

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth.games import TableGame
    >>> from cellworth import value_game
    >>> from cellworth.plots import bar
    >>> game = TableGame([[0, 0, 0, 0], [0, 3, -1, 2], [0, 1, 2, 3], [0, 4, 1, 5]])
    >>> ax = bar(value_game(game, (2, 2)).rows(), ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['1', '0']
    """
    check_type(listing, ValueList, "listing", "give a list such as valuation.columns().")
    values = listing.values
    order = choose_largest(values, check_count(max_bars, "max_bars"))
    ax = get_axes(ax, compute_size(len(order) + 2))
    errors = combine_listed(listing)[order]
    intervals = values[order, np.newaxis] + _compute_whiskers(errors)
    _draw_bars(ax, values[order], np.zeros(len(order)), intervals)
    labels = {name: column for name, column in listing.labels.items() if name != "rank"}
    names = [", ".join(map(str, each)) for each in zip(*labels.values(), strict=True)]
    n_more = len(values) - len(order)
    note = f"\n{n_more:,} more are smaller" if n_more else ""
    ax.set_xlabel(f"value of a {' and '.join(labels)} ({SCORE_UNITS}){note}", size=SMALL)
    write_title(ax, f"Value by {' and '.join(labels)}")
    write_lines(ax, format_labels([names[i] for i in order]), format_signed(values[order]))
    return ax


def choose_largest(values: Floats, most: int) -> list[int]:
    """Return the positions of the largest absolute values, highest value first, NaN last."""
    largest = np.sort(np.argsort(-np.abs(values), kind="stable")[:most])
    falling: list[int] = largest[np.argsort(-values[largest], kind="stable")].tolist()
    return falling


def compare(
    before: Valuation,
    after: Valuation,
    *,
    labels: tuple[str, str] = ("before", "after"),
    max_columns: int = 20,
    ax: Axes | None = None,
) -> Axes:
    """Draw the values of columns in two valuations, the largest change on top.

    Columns are matched by name; one that only one valuation has gets a single point. Whiskers are
    95% intervals. The numbers on the right are the changes.

    Parameters
    ----------
    before, after : Valuation
        For example of last month's table and of this month's, valued by the same method.
    labels : tuple of two str, default=("before", "after")
    max_columns : int, default=20
        Wider tables show the columns that changed most.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    bar

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth.games import TableGame
    >>> from cellworth import value_game
    >>> from cellworth.plots import compare
    >>> last = value_game(TableGame([[0, 0, 0, 0], [0, 3, -1, 2]]), (1, 2))
    >>> this = value_game(TableGame([[0, 0, 0, 0], [0, 3, 4, 8]]), (1, 2))
    >>> ax = compare(last, this, ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['1', '0']
    """
    for each in (before, after):
        check_valuation(each)
    names, values, errors = match_columns(before.columns(), after.columns())
    n_shown = min(check_count(max_columns, "max_columns"), len(names))
    values, errors = values[:n_shown], errors[:n_shown]
    ax = get_axes(ax, compute_size(n_shown + 3))
    _draw_changes(ax, values, errors, labels)
    more = f"\n{n_shown} of {len(names):,} columns" if n_shown < len(names) else ""
    ax.set_xlabel(f"value of a column ({SCORE_UNITS}){more}", size=SMALL)
    texts = format_signed(values[:, 1] - values[:, 0])
    alone = {(True, False): f"only {labels[1]}", (False, True): f"only {labels[0]}"}
    lacking = np.isnan(values).tolist()
    beside = [alone.get(tuple(each), text) for each, text in zip(lacking, texts, strict=True)]
    write_title(ax, "How the values of columns changed", above=2.0 * SMALL)
    write_lines(ax, format_labels(names[:n_shown]), beside)
    return ax


def match_columns(*listings: ValueList) -> tuple[list[str], Floats, Floats]:
    """Match the columns of two valuations by name, the largest change first.

    Returns all names, and values and errors of shape (n_names, 2), NaN for absent columns.
    """
    columns = [
        {
            str(name): (float(value), float(error))
            for name, value, error in zip(
                each.labels["column"].tolist(), each.values, combine_listed(each), strict=True
            )
        }
        for each in listings
    ]
    names = list(dict.fromkeys([name for each in columns for name in each]))
    absent = math.nan, math.nan
    found = np.array([[each.get(name, absent) for each in columns] for name in names])
    values = found[:, :, 0]
    changes = values[:, 1] - values[:, 0]
    sizes = np.abs(np.where(np.isnan(changes), np.nansum(values, axis=1), changes))
    order = np.argsort(-sizes, kind="stable")
    return [names[i] for i in order], values[order], found[order, :, 1]


def _draw_changes(ax: Axes, values: Floats, errors: Floats, labels: tuple[str, str]) -> None:
    """Draw two points per line, and an arrow from the first to the second."""
    hide_frame(ax)
    ax.tick_params(axis="x", labelsize=SMALL)
    ax.axvline(0.0, color=text_color(ax), linewidth=0.8, zorder=1)
    lines = np.arange(len(values))
    rises = values[:, 1] >= values[:, 0]
    for color, chosen in ((POSITIVE, rises), (NEGATIVE, ~rises)):
        both = chosen & ~np.isnan(values).any(axis=1)
        ax.hlines(lines[both], *values[both].T, color=color, linewidth=3.0, alpha=0.6, zorder=2)
    styles = ((0.12, "white", GRAY), (-0.12, POSITIVE, POSITIVE))
    for column, (shift, face, edge) in enumerate(styles):
        reach = WIDTH_95 * np.nan_to_num(errors[:, column])
        ax.errorbar(
            values[:, column], lines - shift, xerr=reach, fmt="o", markersize=6.0, color=edge,
            markerfacecolor=face, ecolor=GRAY, elinewidth=0.8, label=text_of(labels[column]),
            zorder=3,
        )  # fmt: skip
    write_legend_above(ax, ncols=2)


def owners(payout: Payout, *, ax: Axes | None = None) -> Axes:
    """Draw each owner's value with its interval, highest first, and each owner's amount.

    A note says how many pairs of owners have an undecided order; ``payout.undecided`` lists them.

    Parameters
    ----------
    payout : Payout
        What :func:`~cellworth.payouts.split_revenue` returns.
    ax : matplotlib axes, default=None
        None makes a new figure.

    Returns
    -------
    matplotlib axes

    See Also
    --------
    cellworth.payouts.split_revenue, bar

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import OwnerValuer, split_revenue
    >>> from cellworth.plots import owners
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> held = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> valuation = OwnerValuer(KNNValuer(1)).fit(X, y, cv=2, owners=held).valuation_
    >>> ax = owners(split_revenue(valuation, held, amount="100.00"), ax=Figure().subplots())
    >>> [tick.get_text() for tick in ax.get_yticklabels()]
    ['ann', 'bob']
    """
    check_type(payout, Payout, "payout", "give what split_revenue returns.")
    values = payout.values
    order = np.argsort(-values, kind="stable")
    ax = get_axes(ax, compute_size(len(order) + 2))
    _draw_bars(ax, values[order], np.zeros(len(order)), payout.intervals[order])
    names = [payout.owners[position] for position in order.tolist()]
    n_pairs = math.comb(len(names), 2)
    note = f"\nthe order of {len(payout.undecided):,} of {n_pairs:,} pairs is undecided"
    ax.set_xlabel(f"value ({SCORE_UNITS}){note if payout.undecided else ''}", size=SMALL)
    amounts = []
    for position in order.tolist():
        # Adding 0.0 turns -0.0 into 0.0.
        share = round(100 * float(payout.shares[position]), 1) + 0.0
        amount = with_minus(f"{payout.amounts[position]:,} {payout.currency} ({share:.1f}%)")
        amounts.append(text_of(amount, 60))
    write_title(ax, "What owners' cells are worth, and what they get")
    write_lines(ax, format_labels(names), amounts)
    return ax
