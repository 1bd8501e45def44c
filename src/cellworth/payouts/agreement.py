"""Agreements: what owners fix before anything is valued, in a TOML file."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from typing import Any, Protocol

from cellworth.data.arguments import is_integer
from cellworth.data.io import local_path, write_atomically
from cellworth.data.owners import Owners, check_entries, read_toml
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import TableLike
from cellworth.payouts.allocation import check_owners_type
from cellworth.payouts.payout import Payout, split_revenue
from cellworth.payouts.policy import Policy, check_policy
from cellworth.valuation.valuation import Valuation

FORMAT = "cellworth agreement"
VERSION = 1
# Hashes of data that is delivered after the agreement.
_LATER = ("data_sha256", "distances_sha256", "sample_weight_sha256", "validation")


class AnyValuer(Protocol):
    """A valuer of any kind, as agreements and audits use it."""

    @property
    def fit(self) -> Callable[..., Any]:
        """Value a table."""

    @property
    def problem_spec(self) -> Callable[..., dict[str, Any]]:
        """Describe the problem that ``fit`` solves."""

    def describe(self) -> dict[str, str]:
        """Spell out the name and the parameters."""


@dataclass(frozen=True, eq=False)
class Agreement:
    """Owners, terms of the valuation and policy of the split, fixed before values are known.

    Parameters
    ----------
    owners : tuple of mappings
        Name, rows and columns of each holding, as in the file.
    terms : mapping
        What the valuation must match: game or model, scoring, hash of the validation rows, seed,
        and the name and all parameters of the valuer, such as sampler, n_passes and stop.
    policy : Policy
    text : str
        The file as it was written.
    overlaps : {"refuse", "equal", "first"}
        What to do with a cell that two owners claim.

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import Agreement, Policy
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> data, valuer = {"X": X, "y": y, "X_val": X, "y_val": y}, KNNValuer(1, random_state=0)
    >>> agreement = Agreement.draft(valuer, owners, Policy(negative="carry"), **data)
    >>> valuation = valuer.fit(**data).valuation_
    >>> [str(amount) for amount in agreement.split(valuation, X, amount="100.00").amounts]
    ['75.00', '25.00']

    A valuation with other settings is rejected:

    >>> agreement.difference(KNNValuer(3, random_state=0).fit(**data).valuation_)
    'n_neighbors is 3, but 1 was agreed on.'
    """

    owners: tuple[Mapping[str, Any], ...]
    terms: Mapping[str, Any]
    policy: Policy
    text: str
    overlaps: str = "refuse"

    @classmethod
    def draft(
        cls, valuer: AnyValuer, owners: Owners, policy: Policy | None = None, **data: Any
    ) -> Agreement:
        """Draft an agreement on the owners, the valuation and the policy of the split.

        Parameters
        ----------
        valuer : Valuer
            Unfitted, with all its settings; its ``random_state`` must be an integer.
        owners : Owners
        policy : Policy, default=None
            None means ``Policy()``.
        **data
            The arguments of ``fit``: X, y, X_val, y_val; a ShardedTable as X has its own y.
        """
        import tomli_w

        _check_types(valuer, owners, policy)
        seed = getattr(valuer, "random_state", None)
        if hasattr(valuer, "random_state") and not is_integer(seed):
            raise ValueError(
                f"random_state of the valuer must be an integer, got {seed!r}; without a seed, no "
                "owner can recompute the values."
            )
        _check_data(data)
        terms = _make_terms(
            valuer.problem_spec(**data), valuer.describe(), None if seed is None else int(seed)
        )
        agreed = asdict(policy or Policy())
        plain = {
            "format": FORMAT,
            "version": VERSION,
            "overlaps": owners.overlaps,
            "valuation": terms,
            "policy": {name: term for name, term in agreed.items() if term is not None},
            "owners": owners.to_plain(),
        }
        return cls.from_plain(plain, tomli_w.dumps(plain), called="the draft")

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str]) -> Agreement:
        """Read an agreement from a TOML file."""
        plain, text = read_toml(path), local_path(path, "path").read_text(encoding="utf-8")
        return cls.from_plain(plain, text, called=str(path))

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any], text: str, *, called: str) -> Agreement:
        """Make an agreement from the parsed content and the text of its file."""
        if plain.get("format") != FORMAT or plain.get("version") != VERSION:
            raise ValueError(
                f"{called} must be an agreement of format {FORMAT!r}, version {VERSION}; write one "
                "with Agreement.draft(...).save(path)."
            )
        terms, policy = plain.get("valuation"), plain.get("policy", {})
        if not isinstance(terms, Mapping) or not terms.get("validation_sha256"):
            raise ValueError(
                f"{called} does not say what is valued; add [valuation] with validation_sha256, "
                "scoring, game and seed."
            )
        if not isinstance(terms.get("valuer", {}), Mapping):
            raise ValueError(
                f"[valuation.valuer] of {called} must be a table, got {terms['valuer']!r}; add the "
                "name and the parameters of the valuer."
            )
        known = {field.name for field in fields(Policy)}
        if not isinstance(policy, Mapping) or set(policy) - known:
            odd = ", ".join(sorted(set(policy) - known)) if isinstance(policy, Mapping) else policy
            raise ValueError(
                f"[policy] of {called} must have only {', '.join(sorted(known))}, got {odd}."
            )
        owners = tuple(check_entries(plain.get("owners"), called))
        return cls(owners, terms, Policy(**policy), text, plain.get("overlaps", "refuse"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file."""
        with write_atomically(local_path(path, "path")) as file:
            file.write(self.text.encode())

    def owners_of(self, X: TableLike | ShardedTable) -> Owners:
        """Return the owners of the delivered table."""
        plain = {"owners": list(self.owners), "overlaps": self.overlaps}
        return Owners.from_plain(plain, X, called="the agreement")

    def difference(self, valuation: Valuation) -> str | None:
        """Return the first difference between a valuation and the agreement; None without one."""
        seeds = [session.seed for session in valuation.provenance.sessions]
        provenance = valuation.provenance
        valuer = provenance.method.get("valuer", {})
        came = _make_terms(provenance.problem_spec, valuer, seeds[0] if len(seeds) == 1 else seeds)
        for name in sorted(set(self.terms) | set(came)):
            if name == "valuer":
                continue
            if name not in self.terms:
                return f"{name} is {came[name]!r}, but the agreement says nothing about it."
            # Exact values have no seed, even if one was agreed on.
            if came.get(name) != self.terms[name] and not (name == "seed" and seeds == [None]):
                return f"{name} is {came.get(name)!r}, but {self.terms[name]!r} was agreed on."
        return _find_other_setting(valuer, self.terms.get("valuer", {}))

    def split(
        self,
        valuation: Valuation,
        X: TableLike | ShardedTable,
        *,
        amount: str | int | Decimal,
        carried: Mapping[str, float] | None = None,
    ) -> Payout:
        """Split an amount as agreed; raise ValueError if the valuation is not the agreed one."""
        difference = self.difference(valuation)
        if difference is not None:
            raise ValueError(
                f"this valuation differs from the agreement: {difference} Value the table as "
                "agreed, or draft a new agreement."
            )
        return split_revenue(
            valuation,
            self.owners_of(X),
            amount=amount,
            policy=self.policy,
            carried=carried,
            agreement=self.text,
        )


def _check_types(valuer: Any, owners: Any, policy: Any) -> None:
    needed = ("problem_spec", "describe")
    if isinstance(valuer, type) or not all(hasattr(valuer, name) for name in needed):
        raise TypeError(
            f"valuer must be a valuer such as KNNValuer(5, random_state=0), got {valuer!r}."
        )
    check_owners_type(owners)
    check_policy(policy)


def _check_data(data: Mapping[str, Any]) -> None:
    needed = ("X",) if isinstance(data.get("X"), ShardedTable) else ("X", "y")
    missing = [name for name in needed if data.get(name) is None]
    if missing:
        raise ValueError(
            f"{' and '.join(missing)} must not be None; pass the arguments of fit: "
            "Agreement.draft(valuer, owners, X=X, y=y, X_val=X_val, y_val=y_val)."
        )


def _find_other_setting(came: Mapping[str, str], agreed: Mapping[str, str]) -> str | None:
    """Describe the first parameter of the valuer that differs from the agreement."""
    for name in sorted(set(came) | set(agreed)):
        if came.get(name) != agreed.get(name):
            one, other = (side.get(name, "not known") for side in (came, agreed))
            return f"{name} of the valuer is {one}, but {other} was agreed on."
    return None


def _make_terms(
    problem_spec: Mapping[str, Any], valuer: Mapping[str, str], seed: Any
) -> dict[str, Any]:
    """Return the terms of an agreement; TOML has no null, so None is written as "none"."""
    terms = {name: problem_spec[name] for name in problem_spec if name not in _LATER}
    terms = {name: "none" if term is None else term for name, term in terms.items()}
    validation = problem_spec.get("data_sha256", {}).get("validation", "none")
    seed = "none" if seed is None else seed
    return terms | {"validation_sha256": validation, "seed": seed, "valuer": dict(valuer)}
