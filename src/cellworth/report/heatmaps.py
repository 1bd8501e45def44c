"""The cells of the heat map, packed: worth, error and content, row by row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.blocks import Positions
from cellworth.owners import Owners
from cellworth.report.codes import Decimals, byte_planes, packed, packed_json
from cellworth.report.subjects import Subject, cell_text, text_of
from cellworth.valuation import Valuation

Floats = NDArray[np.float64]

# More cells, or more bytes of text, and a browser is slow to open the file.
MOST_CELLS = 1_000_000
MOST_BYTES = 4_000_000
# Colours reach their ends at this quantile of the sizes: one far-off cell must not pale all others.
QUANTILE = 0.99
_WORTH_DIGITS, _ERROR_DIGITS = 3, 2


def packed_cells(subject: Subject, owners: Owners | None, wanted: Positions) -> dict[str, Any]:
    """All rows, or as many as a browser can take: wanted, lowest, highest, and evenly spread ones.

    Parameters
    ----------
    subject : Subject
    owners : Owners or None
    wanted : array of positions
        Rows of the valuation that are kept if any are.
    """
    n_rows, n_columns = subject.valuation.shape
    n_kept = min(n_rows, max(MOST_CELLS // n_columns, 1))
    while True:
        plain = _packed(subject, owners, _kept(subject.valuation, n_kept, wanted))
        size = sum(len(text) for text in _texts(plain))
        if size <= MOST_BYTES or n_kept == 1:
            return plain
        n_kept = max(int(0.95 * n_kept * MOST_BYTES / size), 1)


def _texts(plain: Any) -> list[str]:
    if isinstance(plain, dict | list):
        parts = plain.values() if isinstance(plain, dict) else plain
        return [text for part in parts for text in _texts(part)]
    return [plain] if isinstance(plain, str) else []


def _kept(valuation: Valuation, n_kept: int, wanted: Positions) -> Positions:
    """Positions of rows, in the table's order."""
    n_rows = valuation.shape[0]
    if n_kept >= n_rows:
        return np.arange(n_rows)
    order = np.argsort(valuation.rows().values, kind="stable")
    third = n_kept // 3
    spread = np.linspace(0, n_rows - 1, n_kept).astype(np.intp)
    # Whoever comes first stays: the order of these lists is that of their importance.
    offered = np.concatenate([wanted, order[:third], order[::-1][:third], spread])
    _, first = np.unique(offered, return_index=True)
    return np.sort(offered[np.sort(first)[:n_kept]])


def _packed(subject: Subject, owners: Owners | None, kept: Positions) -> dict[str, Any]:
    valuation = subject.valuation
    worth, error = _figures(valuation, kept)
    columns = valuation.columns()
    sizes = np.abs(worth[np.isfinite(worth)])
    in_rows = valuation.rows().part(kept).values
    labels, ids = subject.label_codes(), valuation.blocks.rows.some_labels(kept)
    return {
        "n_rows": len(kept),
        "n_columns": valuation.shape[1],
        "limit": float(np.quantile(sizes, QUANTILE)) if len(sizes) else 0.0,
        "quantile": QUANTILE,
        "columns": [text_of(name) for name in valuation.column_labels.tolist()],
        "column_worth": _plain(columns.values),
        "column_order": np.argsort(-columns.values, kind="stable").tolist(),
        "row_ids": packed_json([text_of(row) for row in ids.tolist()]),
        "places": packed(byte_planes(kept.astype(np.uint32))),
        "row_order": packed(byte_planes(np.argsort(in_rows, kind="stable").astype(np.uint32))),
        "worth": Decimals.of(worth, _WORTH_DIGITS).to_plain(),
        "error": _known(error),
        "classes": subject.classes if labels is not None else [],
        "labels": None if labels is None else packed(byte_planes(labels[kept].astype(np.uint16))),
        "owners": None if owners is None else _holdings(valuation, owners, kept),
        "contents": _contents(subject, kept),
    }


def _figures(valuation: Valuation, kept: Positions) -> tuple[Floats, Floats]:
    """Worth and joint error of the rows that are kept."""
    worth, error = (np.empty((len(kept), valuation.shape[1])) for _ in range(2))
    for strip in valuation.strips():
        here = (kept >= strip.rows.start) & (kept < strip.rows.stop)
        places = kept[here] - strip.rows.start
        worth[here] = strip.values[places]
        error[here] = strip.errors[places]
    return worth, error


def _known(errors: Floats) -> dict[str, Any] | None:
    """Errors as codes; None where there are none to tell: exact values, or nothing known."""
    if not (errors > 0).any():
        return None
    return Decimals.of(errors, _ERROR_DIGITS).to_plain()


def _holdings(valuation: Valuation, owners: Owners, kept: Positions) -> dict[str, Any]:
    holdings = owners.on(valuation.blocks)
    return {
        "names": list(holdings.names),
        "row_lines": packed(byte_planes(holdings.row_lines[kept].astype(np.uint32))),
        "lines": holdings.lines.tolist(),
        "claims": [np.flatnonzero(claim).tolist() for claim in holdings.claims],
    }


def _contents(subject: Subject, kept: Positions) -> dict[str, Any] | None:
    """Contents of cells, each column as its different texts and a code for every row."""
    if subject.table is None or not subject.of_cells:
        return None
    texts, codes = [], []
    for place in range(subject.valuation.shape[1]):
        column = subject.column(place)
        different, code = _dictionary(column, kept)
        texts.append(different)
        codes.append(code)
    return {"texts": packed_json(texts), "codes": packed(byte_planes(np.concatenate(codes)))}


def _dictionary(
    column: NDArray[Any] | None, kept: Positions
) -> tuple[list[str] | list[None], NDArray[Any]]:
    codes = np.zeros(len(kept), dtype=np.uint32)
    if column is None:
        # Where labels were valued and are not at hand, their column has no contents.
        return [None], codes
    known: dict[str, int] = {}
    written: dict[str, str] = {}
    for place, cell in enumerate(column[kept].tolist()):
        # As keys, 1 and True would be one, and so would 0.0 and -0.0.
        key = repr(cell)
        if key not in written:
            written[key] = cell_text(cell)
        codes[place] = known.setdefault(written[key], len(known))
    return list(known), codes


def _plain(numbers: Floats) -> list[float | None]:
    return [number if np.isfinite(number) else None for number in numbers.tolist()]
