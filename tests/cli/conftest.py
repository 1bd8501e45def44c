"""A small table, its owners and its values, made once for all tests of a file."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from shell import OWNERS, TABLE, TERMS, fine


@dataclass(frozen=True)
class Home:
    """Paths of a folder in which things were valued."""

    folder: Path

    @property
    def table(self):
        return self.folder / "people.csv"

    @property
    def owners(self):
        return self.folder / "owners.toml"

    @property
    def terms(self):
        return self.folder / "terms.toml"

    @property
    def deal(self):
        return self.folder / "deal.toml"

    @property
    def values(self):
        return self.folder / "values"

    @property
    def asked(self):
        return [self.table, "--target", "label", "--id", "name", "-k", "3"]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A table with an agreement, and values that were computed as agreed."""
    home = Home(tmp_path_factory.mktemp("home"))
    home.table.write_text(TABLE)
    home.owners.write_text(OWNERS)
    home.terms.write_text(TERMS)
    fine("agree", home.terms, "-o", home.deal)
    fine("value", home.table, "--agreement", home.deal, "-o", home.values)
    return home
