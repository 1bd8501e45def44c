"""Where figures come from, as a report tells it: all of it, or without what tells of the data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cellworth.packing import jsonable
from cellworth.provenance import Provenance

LEFT_OUT = (
    "Hashes are left out: whoever knows most of a table could guess the rest from them. "
    "So are parameters, which may hold contents."
)

# What may be told to people who may not see the table. A game of the user's own may answer with
# anything, and so may parameters of a model.
_QUESTION = (
    "game",
    "model",
    "row_semivalue",
    "column_semivalue",
    "n_neighbors",
    "n_repeats",
    "scoring",
    "scale",
    "empty",
    "validation",
    "value_labels",
    "column_share",
    "contrast",
)
_METHOD = ("name", "design", "sweeps", "stop")
_NAME = re.compile(r"'?(\w[\w. -]{0,79})")
_HASH = re.compile(r"[0-9a-fA-F]{16}")


def told_origin(provenance: Provenance) -> dict[str, Any]:
    """All that is known, as plain data for JSON."""
    told: dict[str, Any] = jsonable(provenance.to_dict())
    return told


def discreet_origin(provenance: Provenance) -> dict[str, Any]:
    """What can be told without the data: names and numbers, no hash, no parameter, no message."""
    told = told_origin(provenance)
    return told | {
        "question": _names_and_numbers(told["question"], _QUESTION),
        "method": _names_and_numbers(told["method"], _METHOD),
        # Messages of failed fits may hold contents of cells.
        "tally": told["tally"] | {"messages": []},
        "left_out": LEFT_OUT,
    }


def _names_and_numbers(settings: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, Any]:
    told = {name: _name_or_number(settings[name]) for name in known if name in settings}
    return {name: setting for name, setting in told.items() if setting is not None}


def _name_or_number(setting: Any) -> Any:
    """A number, or what a text begins with: the name of a class, without what it was given."""
    if isinstance(setting, int | float):
        return setting
    found = _NAME.match(setting) if isinstance(setting, str) else None
    return None if found is None or _HASH.search(found[1]) else found[1].strip()
