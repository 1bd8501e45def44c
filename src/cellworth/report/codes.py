"""Figures and texts in few bytes: decimal codes, dictionaries of texts, gzip in base64."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The largest code of 16 bits says that a figure is not known; 0 is zero.
UNKNOWN = 65_535


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
            "codes": packed(byte_planes(self.codes)),
            "digits": self.digits,
            "lowest": self.lowest,
        }


def byte_planes(numbers: NDArray[Any]) -> bytes:
    """All lowest bytes, then all next ones: alike bytes side by side compress well."""
    little = np.ascontiguousarray(numbers.ravel(), dtype=numbers.dtype.newbyteorder("<"))
    return little.view(np.uint8).reshape(-1, numbers.dtype.itemsize).T.tobytes()


def packed(content: bytes) -> str:
    """Bytes as compressed text; the same bytes give the same text at any time."""
    return base64.b64encode(gzip.compress(content, compresslevel=6, mtime=0)).decode()


def packed_json(content: Any) -> str:
    """Plain data as compressed text."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return packed(text.encode())


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
