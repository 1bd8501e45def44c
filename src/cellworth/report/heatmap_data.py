"""The values and contents of cells for the page's heat map, in few bytes."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cellworth.data.arguments import Floats, Positions
from cellworth.data.owners import Owners
from cellworth.report.page import cell_text, text_of
from cellworth.report.sections import Subject
from cellworth.valuation.valuation import Valuation

# More cells, or more bytes of text, and a browser is slow to open the file.
MOST_CELLS = 1_000_000
MOST_BYTES = 4_000_000
# Colours reach their ends at this quantile of the sizes: one far-off cell must not pale all others.
QUANTILE = 0.99
_WORTH_DIGITS, _ERROR_DIGITS = 3, 2

# The largest code of 16 bits says that a figure is not known; 0 is zero.
UNKNOWN = 65_535


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
        "places": pack(byte_planes(kept.astype(np.uint32))),
        "row_order": pack(byte_planes(np.argsort(in_rows, kind="stable").astype(np.uint32))),
        "worth": Decimals.of(worth, _WORTH_DIGITS).to_plain(),
        "error": _known(error),
        "classes": subject.classes if labels is not None else [],
        "labels": None if labels is None else pack(byte_planes(labels[kept].astype(np.uint16))),
        "owners": None if owners is None else _holdings(valuation, owners, kept),
        "contents": _contents(subject, kept),
    }


def _figures(valuation: Valuation, kept: Positions) -> tuple[Floats, Floats]:
    """Worth and joint error of the rows that are kept."""
    worth, error = (np.empty((len(kept), valuation.shape[1])) for _ in range(2))
    for strip in valuation.iter_rows():
        here = (kept >= strip.rows.start) & (kept < strip.rows.stop)
        positions = kept[here] - strip.rows.start
        worth[here] = strip.values[positions]
        error[here] = strip.errors[positions]
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
        "row_lines": pack(byte_planes(holdings.row_lines[kept].astype(np.uint32))),
        "lines": holdings.lines.tolist(),
        "claims": [np.flatnonzero(claim).tolist() for claim in holdings.claims],
    }


def _contents(subject: Subject, kept: Positions) -> dict[str, Any] | None:
    """Contents of cells, each column as its different texts and a code for every row."""
    if subject.table is None or not subject.of_cells:
        return None
    texts, codes = [], []
    for position in range(subject.valuation.shape[1]):
        column = subject.column(position)
        different, code = _dictionary(column, kept)
        texts.append(different)
        codes.append(code)
    return {"texts": packed_json(texts), "codes": pack(byte_planes(np.concatenate(codes)))}


def _dictionary(
    column: NDArray[Any] | None, kept: Positions
) -> tuple[list[str] | list[None], NDArray[Any]]:
    codes = np.zeros(len(kept), dtype=np.uint32)
    if column is None:
        # Where labels were valued and are not at hand, their column has no contents.
        return [None], codes
    known: dict[str, int] = {}
    written: dict[str, str] = {}
    for position, cell in enumerate(column[kept].tolist()):
        # As keys, 1 and True would be one, and so would 0.0 and -0.0.
        key = repr(cell)
        if key not in written:
            written[key] = cell_text(cell)
        codes[position] = known.setdefault(written[key], len(known))
    return list(known), codes


def _plain(numbers: Floats) -> list[float | None]:
    return [number if np.isfinite(number) else None for number in numbers.tolist()]


@dataclass(frozen=True, eq=False)
class Decimals:
    """Numbers rounded to some significant digits, each as a code of 16 bits.

    A code is 1 + 2 * ((exponent - lowest) * n_mantissas + mantissa - first) + (1 if negative), so
    that what a reader sees is what rounding the number itself would give. There is room for 36
    decades of three digits; numbers that are further below the largest become 0.

    Parameters
    ----------
    codes : array of 16-bit codes
    digits : int
    lowest : int
        Exponent of ten of the smallest numbers that are not 0.
    """

    codes: NDArray[np.uint16]
    digits: int
    lowest: int

    @classmethod
    def of(cls, numbers: Floats, digits: int) -> Decimals:
        """Round numbers to so many significant digits, at most three."""
        first, n_mantissas = 10 ** (digits - 1), 9 * 10 ** (digits - 1)
        known = np.isfinite(numbers)
        sizes = np.where(known, np.abs(numbers), 0.0)
        mantissas, exponents = _rounded(sizes, digits)
        n_decades = (UNKNOWN - 1) // (2 * n_mantissas)
        lowest = int(exponents[sizes > 0].max(initial=0)) - n_decades + 1
        codes = 1 + 2 * ((exponents - lowest) * n_mantissas + mantissas - first) + (numbers < 0)
        codes = np.where((sizes > 0) & (exponents >= lowest), codes, 0)
        return cls(np.where(known, codes, UNKNOWN).astype(np.uint16), digits, lowest)

    def to_plain(self) -> dict[str, Any]:
        """Text and numbers, for JSON."""
        return {
            "codes": pack(byte_planes(self.codes)),
            "digits": self.digits,
            "lowest": self.lowest,
        }


def byte_planes(numbers: NDArray[Any]) -> bytes:
    """All lowest bytes, then all next ones: alike bytes side by side compress well."""
    little = np.ascontiguousarray(numbers.ravel(), dtype=numbers.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, numbers.dtype.itemsize).T.tobytes()


def pack(content: bytes) -> str:
    """Bytes as compressed text; the same bytes give the same text at any time."""
    return base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode()


def packed_json(content: Any) -> str:
    """Plain data as compressed text."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return pack(text.encode())


def _rounded(sizes: Floats, digits: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Mantissas of so many digits, and exponents of ten of the leading digit."""
    safe = np.where(sizes > 0, sizes, 1.0)
    exponents = np.floor(np.log10(safe)).astype(np.int64)
    mantissas = np.rint(_scaled(safe, digits - 1 - exponents)).astype(np.int64)
    # The logarithm may be off by one next to a power of ten, and rounding may reach the next.
    for change in (-1, 1):
        off = mantissas < 10 ** (digits - 1) if change < 0 else mantissas >= 10**digits
        exponents = exponents + change * off
        again = np.rint(_scaled(safe, digits - 1 - exponents)).astype(np.int64)
        mantissas = np.where(off, again, mantissas)
    return mantissas, exponents


def _scaled(sizes: Floats, powers: NDArray[np.int64]) -> Floats:
    # Powers of ten up to 22 are exact; to divide by one rounds once, to multiply by 1e-5 twice.
    tens = 10.0 ** np.abs(powers).astype(np.float64)
    return np.where(powers >= 0, sizes * tens, sizes / tens)
