"""Text from a table, made safe to show in a terminal, a page or a notebook."""

from __future__ import annotations

import unicodedata

# Controls, marks of direction, halves of characters.
_HIDDEN = {"Cc", "Cf", "Cs"}
_CONTROL_PICTURES = 0x2400


def visible_text(text: str, keep: str = "") -> str:
    """Replace characters that a terminal obeys or a reader cannot see by pictures of them.

    Parameters
    ----------
    text : str
    keep : str
        Control characters that stay, such as line ends.
    """
    if text.isprintable():
        return text
    return "".join(one if one in keep else _picture(one) for one in text)


def _picture(character: str) -> str:
    if ord(character) < 0x20:
        return chr(_CONTROL_PICTURES + ord(character))
    # Surrogates cannot be encoded; direction marks would reorder the text around them.
    return "\N{REPLACEMENT CHARACTER}" if unicodedata.category(character) in _HIDDEN else character
