"""look: one page about a table: what is wrong, what it is worth, and who gets what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cellworth.data.owners import Owners
from cellworth.data.tables import TableLike, VectorLike
from cellworth.findings.data_audit import Audit, audit
from cellworth.payouts.payout import Payout, split_revenue
from cellworth.payouts.policy import Policy
from cellworth.report.build import summarize, summarize_audit
from cellworth.report.page import Page, fill_template, render
from cellworth.runtime.run_settings import Runtime
from cellworth.valuation.valuation import Valuation

_POLICY = Policy(game="cells", currency="%")


@dataclass(frozen=True, repr=False)
class Look(Page):
    """A look at a table: a page, and what it was made of; made by :func:`~cellworth.look`.

    A notebook shows the page, and :meth:`save` writes it.

    Parameters
    ----------
    html : str
        The page.
    height : int, default=720
        Height of its frame in a notebook, in pixels.
    audit : Audit
        What is wrong with the table.
    valuation : Valuation, default=None
        What its cells are worth; None without labels.
    payout : Payout, default=None
        What owners get of 100 percent; None without owners.

    See Also
    --------
    cellworth.look

    Examples
    --------
    >>> from cellworth import look
    >>> look([[age, "yes" if age % 2 else "no"] for age in range(20, 60)], on_audit=None)
    Audit of 40 rows x 2 columns: one finding (1 x id column)
    """

    audit: Audit | None = None
    valuation: Valuation | None = None
    payout: Payout | None = None

    def __repr__(self) -> str:
        title = self.audit.title if self.audit else ""
        parts = (repr(part) for part in (self.valuation, self.payout) if part is not None)
        return "\n\n".join([title, *parts])


def look(
    X: TableLike,
    y: VectorLike | None = None,
    *,
    X_val: TableLike | None = None,
    y_val: VectorLike | None = None,
    owners: Owners | None = None,
    protected: Sequence[str] = (),
    title: str = "A look at a table",
    on_audit: Callable[[Audit], object] | None = print,
    runtime: Runtime | None = None,
) -> Look:
    """Look at a table: what is wrong with it, what its cells are worth, and who gets what.

    Findings are printed as soon as they are there, within seconds; values of nearest neighbors
    take about a minute. The rest is on one page.

    Parameters
    ----------
    X : data frame or array of shape (n_rows, n_columns)
    y : array of shape (n_rows,), default=None
        Its labels, or numbers. None leaves out all values.
    X_val, y_val : table and labels, default=None
        Validation rows. None: the rows of X, by cross-validation.
    owners : Owners, default=None
        Who holds which cells. Each gets a share of 100 percent: what its cells are worth together.
        Before money is paid, value owners as players: :class:`~cellworth.payouts.OwnerValuer`.
    protected : sequence of str, default=()
        Columns whose contents are never called wrong because they are rare.
    title : str, default="A look at a table"
    on_audit : callable, default=print
        Called with the audit as soon as it is finished.
    runtime : Runtime, default=None
        Where and how values are computed.

    Returns
    -------
    Look
        Its ``save(path)`` writes the page; ``audit``, ``valuation`` and ``payout`` are what it was
        made of.

    See Also
    --------
    cellworth.audit, KNNValuer, cellworth.report.save

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from cellworth import look
    >>> X = [[age, "yes" if age % 2 else "no"] for age in range(20, 60)]
    >>> X[3] = [999, "yes"]
    >>> found = look(X, [age < 40 for age in range(20, 60)])  # doctest: +NORMALIZE_WHITESPACE
    Audit of 40 rows x 2 columns: one finding (1 x missing code)
       0  missing code: 999 in one cell of x0 probably stands for a missing value; the others are
          20 to 59.
          Make them missing values. Row 3.
    >>> with TemporaryDirectory() as folder:
    ...     found.save(Path(folder) / "look.html")
    >>> found.valuation.shape
    (40, 2)
    """
    held_out: dict[str, Any] = {} if X_val is None else {"X_val": X_val, "y_val": y_val}
    found = audit(X, y, **held_out, protected=protected)
    if on_audit is not None:
        on_audit(found)
    code = {
        "arguments": ", ".join(
            ["X", *["y"][: y is not None], *(f"{name}={name}" for name in held_out)]
        ),
        "protected": list(protected),
    }
    return make_look(found, X, y, held_out, owners=owners, title=title, runtime=runtime, code=code)


def make_look(
    found: Audit, X: TableLike, y: VectorLike | None, held_out: Mapping[str, Any], *,
    owners: Owners | None, title: str, runtime: Runtime | None, code: Mapping[str, Any],
) -> Look:  # fmt: skip
    """Value an audited table, and make its page with the code of its chapters."""
    # Loaded by the first look at labels: it takes a second.
    from cellworth.valuers.knn_valuer import KNNValuer

    if y is None:
        summary = {"title": title, "audit": summarize_audit(found)}
        return Look(fill_template("audit.html.j2", summary), audit=found)
    with_labels = owners is not None and bool(owners.share_of_labels())
    valuer = KNNValuer(random_state=0, runtime=runtime)
    valuer.fit(X, y, **held_out, owners=owners, value_labels=with_labels)
    valuation, payout = valuer.valuation_, None
    if owners is not None:
        payout = split_revenue(valuation, owners, amount="100.00", policy=_POLICY)
    summary = summarize(valuation, X, y, owners=owners, title=title, audit=found, payout=payout)
    return Look(render(summary | {"code": code}), 720, found, valuation, payout)
