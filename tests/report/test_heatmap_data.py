"""Packed figures: what a reader sees is the number itself, rounded once."""

import numpy as np
import pytest

from cellworth.report.heatmap_data import UNKNOWN, encode_decimals


def round_trip(numbers, digits):
    """Numbers to codes and back to text, as the page does it."""
    first = 10 ** (digits - 1)
    codes, lowest = encode_decimals(np.asarray(numbers), digits)
    for code in codes.ravel().tolist():
        if code in (0, UNKNOWN):
            yield "nan" if code else "0"
            continue
        rest = (code - 1) >> 1
        mantissa = first + rest % (9 * first)
        exponent = lowest + rest // (9 * first)
        text = str(mantissa)
        point = f".{text[1:]}" if len(text) > 1 else ""
        yield f"{'-' if (code - 1) & 1 else ''}{text[0]}{point}e{exponent:+03d}"


@pytest.mark.parametrize("digits", [2, 3])
def test_codes_hold_the_digits_that_python_prints(digits):
    rng = np.random.default_rng(0)
    numbers = rng.normal(size=20_000) * 10.0 ** rng.integers(-12, 3, size=20_000)
    texts = list(round_trip(numbers, digits))
    assert texts == [f"{number:.{digits - 1}e}" for number in numbers.tolist()]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0.9996, "1.00e+00"), (999.6, "1.00e+03"), (1e-5, "1.00e-05"), (0.001, "1.00e-03")],
)
def test_powers_of_ten_are_met_from_both_sides(number, text):
    assert list(round_trip(np.array([number, -number]), 3)) == [
        text,
        f"-{text}",
    ]


def test_zero_and_what_is_not_known_have_codes_of_their_own():
    assert list(round_trip([0.0, -0.0, np.nan, 5.0], 3)) == ["0", "0", "nan", "5.00e+00"]
    assert list(round_trip(np.full(2, np.nan), 3)) == ["nan", "nan"]


def test_numbers_far_below_the_largest_become_zero():
    assert list(round_trip(np.array([1.0, 1e-30, 1e-60]), 3)) == [
        "1.00e+00",
        "1.00e-30",
        "0",
    ]
