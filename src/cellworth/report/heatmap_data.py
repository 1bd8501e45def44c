"""Pack the values and contents of cells for the heat map of the page."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Positions
from cellworth.data.owners import Owners
from cellworth.report.page import cell_text, text_of
from cellworth.report.sections import Subject
from cellworth.valuation.valuation import Valuation

# With more cells, or more bytes of text, browsers open the file slowly.
MAX_CELLS = 1_000_000
MAX_BYTES = 4_000_000
# The color scale ends at this quantile, so that one outlier does not make all others pale.
QUANTILE = 0.99
_VALUE_DIGITS, _ERROR_DIGITS = 3, 2

# The largest code of 16 bits means unknown; 0 means zero.
UNKNOWN = 65_535


def pack_cells(subject: Subject, owners: Owners | None, wanted: Positions) -> dict[str, Any]:
    """Pack all rows, or as many as a browser can show.

    Those are the wanted, the lowest and the highest rows, and others at regular intervals.
    """
    n_rows, n_columns = subject.valuation.shape
    n_kept = min(n_rows, max(MAX_CELLS // n_columns, 1))
    while True:
        plain = _pack(subject, owners, _choose_rows(subject.valuation, n_kept, wanted))
        size = sum(len(text) for text in _list_texts(plain))
        if size <= MAX_BYTES or n_kept == 1:
            return plain
        n_kept = max(int(0.95 * n_kept * MAX_BYTES / size), 1)


def _list_texts(plain: Any) -> list[str]:
    if isinstance(plain, dict | list):
        parts = plain.values() if isinstance(plain, dict) else plain
        return [text for part in parts for text in _list_texts(part)]
    return [plain] if isinstance(plain, str) else []


def _choose_rows(valuation: Valuation, n_kept: int, wanted: Positions) -> Positions:
    """Return positions of rows, in table order."""
    n_rows = valuation.shape[0]
    if n_kept >= n_rows:
        return np.arange(n_rows)
    order = np.argsort(valuation.rows().values, kind="stable")
    third = n_kept // 3
    regular = np.linspace(0, n_rows - 1, n_kept).astype(np.intp)
    # In order of importance: the first n_kept different rows are kept.
    offered = np.concatenate([wanted, order[:third], order[::-1][:third], regular])
    _, first = np.unique(offered, return_index=True)
    return np.sort(offered[np.sort(first)[:n_kept]])


def _pack(subject: Subject, owners: Owners | None, kept: Positions) -> dict[str, Any]:
    valuation = subject.valuation
    values, errors = _read_figures(valuation, kept)
    columns = valuation.columns()
    sizes = np.abs(values[np.isfinite(values)])
    in_rows = valuation.rows().part(kept).values
    labels, ids = subject.label_codes(), valuation.blocks.rows.some_labels(kept)
    return {
        "n_rows": len(kept),
        "n_columns": valuation.shape[1],
        "limit": float(np.quantile(sizes, QUANTILE)) if len(sizes) else 0.0,
        "quantile": QUANTILE,
        "columns": [text_of(name) for name in valuation.column_labels.tolist()],
        "column_order": np.argsort(-columns.values, kind="stable").tolist(),
        "row_ids": pack_json([text_of(row) for row in ids.tolist()]),
        "positions": pack(byte_planes(kept.astype(np.uint32))),
        "row_order": pack(byte_planes(np.argsort(in_rows, kind="stable").astype(np.uint32))),
        "values": _pack_decimals(values, _VALUE_DIGITS),
        "error": _pack_decimals(errors, _ERROR_DIGITS) if (errors > 0).any() else None,
        "classes": subject.classes if labels is not None else [],
        "labels": None if labels is None else pack(byte_planes(labels[kept].astype(np.uint16))),
        "owners": None if owners is None else _pack_holdings(valuation, owners, kept),
        "contents": _pack_contents(subject, kept),
    }


def _read_figures(valuation: Valuation, kept: Positions) -> tuple[Floats, Floats]:
    """Return the values and total errors of the rows that are kept."""
    values, errors = (np.empty((len(kept), valuation.shape[1])) for _ in range(2))
    for chunk in valuation.iter_rows():
        here = (kept >= chunk.rows.start) & (kept < chunk.rows.stop)
        positions = kept[here] - chunk.rows.start
        values[here] = chunk.values[positions]
        errors[here] = chunk.errors[positions]
    return values, errors


def _pack_holdings(valuation: Valuation, owners: Owners, kept: Positions) -> dict[str, Any]:
    holdings = owners.project(valuation.blocks)
    return {
        "names": list(holdings.names),
        "row_lines": pack(byte_planes(holdings.row_lines[kept].astype(np.uint32))),
        "lines": holdings.lines.tolist(),
        "claims": [np.flatnonzero(claim).tolist() for claim in holdings.claims],
    }


def _pack_contents(subject: Subject, kept: Positions) -> dict[str, Any] | None:
    """Return the contents of cells: the distinct texts of each column, and a code per row."""
    if subject.table is None or not subject.of_cells:
        return None
    texts, codes = [], []
    for position in range(subject.valuation.shape[1]):
        different, code = _encode_texts(subject.column(position), kept)
        texts.append(different)
        codes.append(code)
    return {"texts": pack_json(texts), "codes": pack(byte_planes(np.concatenate(codes)))}


def _encode_texts(
    column: NDArray[Any] | None, kept: Positions
) -> tuple[list[str] | list[None], NDArray[Any]]:
    codes = np.zeros(len(kept), dtype=np.uint32)
    if column is None:
        # The column of labels has no contents if labels were not given.
        return [None], codes
    known: dict[str, int] = {}
    written: dict[str, str] = {}
    for position, cell in enumerate(column[kept].tolist()):
        # As keys, 1 and True would be equal, and so would 0.0 and -0.0.
        key = repr(cell)
        if key not in written:
            written[key] = cell_text(cell)
        codes[position] = known.setdefault(written[key], len(known))
    return list(known), codes


def encode_decimals(numbers: Floats, digits: int) -> tuple[NDArray[np.uint16], int]:
    """Round numbers to at most three significant digits; return a code of 16 bits for each.

    A code is 1 + 2 * ((exponent - lowest) * n_mantissas + mantissa - first) + (1 if negative). The
    decoded number equals the rounded number exactly. The codes cover 36 decades of three digits;
    smaller numbers become 0. Also return ``lowest``, the smallest exponent of ten that has codes.
    """
    first, n_mantissas = 10 ** (digits - 1), 9 * 10 ** (digits - 1)
    known = np.isfinite(numbers)
    sizes = np.where(known, np.abs(numbers), 0.0)
    mantissas, exponents = _split_decimals(sizes, digits)
    n_decades = (UNKNOWN - 1) // (2 * n_mantissas)
    lowest = int(exponents[sizes > 0].max(initial=0)) - n_decades + 1
    codes = 1 + 2 * ((exponents - lowest) * n_mantissas + mantissas - first) + (numbers < 0)
    codes = np.where((sizes > 0) & (exponents >= lowest), codes, 0)
    return np.where(known, codes, UNKNOWN).astype(np.uint16), lowest


def _pack_decimals(numbers: Floats, digits: int) -> dict[str, Any]:
    codes, lowest = encode_decimals(numbers, digits)
    return {"codes": pack(byte_planes(codes)), "digits": digits, "lowest": lowest}


def byte_planes(numbers: NDArray[Any]) -> bytes:
    """Return all lowest bytes, then all next ones, which compresses well."""
    little = np.ascontiguousarray(numbers.ravel(), dtype=numbers.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, numbers.dtype.itemsize).T.tobytes()


def pack(content: bytes) -> str:
    """Compress bytes to text; equal bytes always give equal text."""
    return base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode()


def pack_json(content: Any) -> str:
    """Compress JSON to text."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return pack(text.encode())


def _split_decimals(sizes: Floats, digits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return mantissas of this many digits, and the exponents of the leading digits."""
    safe = np.where(sizes > 0, sizes, 1.0)
    exponents = np.floor(np.log10(safe)).astype(np.int64)
    mantissas = np.rint(_scale_by_ten(safe, digits - 1 - exponents)).astype(np.int64)
    # The logarithm may be off by one near a power of ten, and rounding may reach the next one.
    for change in (-1, 1):
        off = mantissas < 10 ** (digits - 1) if change < 0 else mantissas >= 10**digits
        exponents = exponents + change * off
        again = np.rint(_scale_by_ten(safe, digits - 1 - exponents)).astype(np.int64)
        mantissas = np.where(off, again, mantissas)
    return mantissas, exponents


def _scale_by_ten(sizes: Floats, powers: NDArray[np.int64]) -> Floats:
    # Powers of ten up to 22 are exact, so dividing rounds once; multiplying by 1e-5 rounds twice.
    tens = 10.0 ** np.abs(powers).astype(np.float64)
    return np.where(powers >= 0, sizes * tens, sizes / tens)
