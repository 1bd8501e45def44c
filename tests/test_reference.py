"""Every public name stands in the reference, once."""

import inspect
import re
from collections import Counter
from pathlib import Path

import cellworth

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "index.rst"


def public_names():
    """All that users import: names of the package, and functions and classes of its modules."""
    for name in cellworth.__all__:
        thing = getattr(cellworth, name)
        if inspect.ismodule(thing):
            yield from (f"{name}.{member}" for member in public_members(thing))
        else:
            yield name


def public_members(module):
    own = getattr(module, "__all__", None)
    if own is not None:
        return list(own)
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isfunction(thing) or inspect.isclass(thing))
        and thing.__module__ == module.__name__
    ]


def listed_names():
    """Lines of the autosummary tables."""
    return re.findall(r"^   ([\w.]+)$", REFERENCE.read_text(), re.MULTILINE)


def test_the_reference_lists_every_public_name_once():
    assert Counter(listed_names()) == Counter(public_names())
