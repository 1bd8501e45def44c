"""Agreements: what owners fix before anything is valued, in a TOML file."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import version
from typing import Any

from scipy.special import betainc

from cellworth.data.arguments import is_integer
from cellworth.data.io import local_path, write_atomically
from cellworth.data.owners import Owners, check_entries, count_rows, list_keys, read_toml
from cellworth.data.sharded_table import ShardedTable, as_table
from cellworth.data.tables import Table, TableLike
from cellworth.data.text import preview, shorten
from cellworth.payouts.allocation import check_any_owner
from cellworth.payouts.payout import Payout, split_revenue
from cellworth.payouts.policy import Policy, ValidationDraw, check_policy, describe_shared
from cellworth.valuation.column_info import name_kind
from cellworth.valuation.valuation import Valuation
from cellworth.valuers.valuer import Valuer

FORMAT = "cellworth agreement"
VERSION = 3
# In place of a hash, if a rule draws validation rows.
_DRAWN = "drawn"
# Hashes of data that is delivered after the agreement.
_LATER = ("data_sha256", "distances_sha256", "sample_weight_sha256", "validation", "holdings")
# Validation rows of a party are too many if chance gives any honest party of a delivery as many
# about this often.
_MIN_CHANCE = 1e-4
# Fields of a file of owners beside the list of them.
_RULES = ("overlaps", "source", "keys", "rest")


@dataclass(frozen=True, eq=False)
class Agreement:
    """Owners, terms of the valuation and policy of the split, fixed before values are known.

    Parameters
    ----------
    owners : tuple of mappings
        Name, rows and columns of each holding, as in the file.
    terms : mapping
        What the valuation must match: names and types of the columns, target, game or model,
        scoring, hash of the validation rows, seed, and the name and all parameters of the valuer.
    policy : Policy
    text : str
        The file as it was written.
    contract : str or None
        Id of the contract.
    created : datetime or None
        When the agreement was written.
    previous : str or None
        Digest of the agreement that this one amends.
    rules : mapping
        What to do with a cell that two owners claim (``overlaps``), the column with the owner of
        each row (``source``), further columns that only rules use (``keys``), and who gets the
        cells that no owner claims (``rest``); see :meth:`~cellworth.Owners.from_toml`.
    parties : mapping of str to float
        Owners whom the column ``source`` or rules of rows name, with the share of the rows that
        each had when the agreement was drafted. A delivered table differs from the agreement if
        ``source`` names others, or if a party has far more of its validation rows than this share.
    validation : ValidationDraw or None
        Rule that draws the validation rows; None if they were fixed by their hash.
    request : mapping
        How ``cellworth value`` reads the table and values it.

    See Also
    --------
    Policy, split_revenue

    Examples
    --------
    >>> from cellworth import KNNValuer, Owners
    >>> from cellworth.payouts import Agreement, OwnerValuer, Policy
    >>> X, y = [[0.0, 1.0], [1.0, 5.0], [9.0, 5.0], [8.0, 9.0]], [0, 0, 1, 1]
    >>> X_val = [[0.1, 1.0], [1.1, 5.0], [9.1, 5.0], [8.1, 9.0]]
    >>> owners = Owners(X).assign("ann", columns="x0").assign("bob", columns="x1")
    >>> data = {"X": X, "y": y, "X_val": X_val, "y_val": y}
    >>> valuer = OwnerValuer(KNNValuer(1), random_state=0)
    >>> agreement = Agreement.draft(valuer, owners, Policy(negative="carry"), **data)
    >>> valuation = valuer.fit(**data, owners=owners).valuation_
    >>> [str(amount) for amount in agreement.split(valuation, X, amount="100.00").amounts]
    ['62.50', '37.50']

    A valuation with other settings is rejected:

    >>> other = OwnerValuer(KNNValuer(3)).fit(**data, owners=owners).valuation_
    >>> agreement.list_differences(other)[0]
    'n_neighbors is 3, but 1 was agreed on'

    An amendment refers to the agreement before it:

    >>> amended = Agreement.draft(valuer, owners, Policy(unit="5"), amends=agreement, **data)
    >>> amended.previous == agreement.digest
    True
    """

    owners: tuple[Mapping[str, Any], ...]
    terms: Mapping[str, Any]
    policy: Policy
    text: str
    contract: str | None = None
    created: datetime | None = None
    previous: str | None = None
    rules: Mapping[str, Any] = field(default_factory=dict)
    parties: Mapping[str, float] = field(default_factory=dict)
    validation: ValidationDraw | None = None
    request: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def draft(
        cls,
        valuer: Valuer,
        owners: Owners,
        policy: Policy | None = None,
        *,
        contract: str | None = None,
        validation: ValidationDraw | None = None,
        created: datetime | None = None,
        amends: Agreement | None = None,
        request: Mapping[str, Any] | None = None,
        **data: Any,
    ) -> Agreement:
        """Draft an agreement on the owners, the valuation and the policy of the split.

        Parameters
        ----------
        valuer : Valuer
            Unfitted, with all its settings; its ``random_state`` must be an integer.
        owners : Owners
        policy : Policy, default=None
            None means ``Policy()``.
        contract : str, default=None
            Id of the contract; None means that of the agreement before.
        validation : ValidationDraw, default=None
            Rule that drew the validation rows in ``data``, and that will draw those of tables that
            are delivered later.
        created : datetime with time zone, default=None
            None means now.
        amends : Agreement, default=None
            The agreement that this one replaces, which it names by its digest.
        request : mapping, default=None
            How ``cellworth value`` reads the table and values it.
        **data
            The arguments of ``fit``: X, y, X_val, y_val; a ShardedTable as X has its own y.
        """
        import tomli_w

        check_valuer(valuer)
        check_any_owner(owners)
        held = owners.check_covered("the agreement").to_plain()
        terms, counts = _draft_terms(valuer, data, validation), count_rows(held, owners.given)
        if amends is not None and contract is None:
            contract = amends.contract
        plain = {
            "format": FORMAT,
            "version": VERSION,
            "cellworth": version("cellworth"),
            "contract": contract,
            "created": datetime.now(UTC).replace(microsecond=0) if created is None else created,
            "previous": None if amends is None else amends.digest,
            "validation": None if validation is None else asdict(validation),
            **{name: rule for name, rule in held.items() if name != "owners"},
            "request": None if request is None else dict(request),
            "shared": describe_shared(terms["empty"]),
            "valuation": terms,
            "policy": asdict(check_policy(policy)),
            "owners": held["owners"],
            "parties": {name: n / owners.shape[0] for name, n in counts.items()} or None,
        }
        plain = {name: setting for name, setting in plain.items() if setting is not None}
        text = tomli_w.dumps(plain)
        agreement = cls.from_plain(tomllib.loads(text), text, called="the draft")
        change = None if amends is None else agreement.describe_change_of_contract(amends)
        if change is not None:
            raise ValueError(f"this is no amendment: {change}")
        return agreement

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
        terms, drawn = plain.get("valuation"), plain.get("validation")
        if not isinstance(terms, Mapping) or not terms.get("validation_sha256"):
            raise ValueError(
                f"{called} does not say what is valued; add [valuation] with validation_sha256, "
                "scoring, game and seed."
            )
        contract = plain.get("contract")
        if contract is not None and not (isinstance(contract, str) and contract.isprintable()):
            raise ValueError(f"contract of {called} must be text on one line, got {contract!r}.")
        return cls(
            tuple(check_entries(plain, called)),
            terms,
            _read_section(Policy, plain.get("policy", {}), "policy", called),
            text,
            **{name: plain.get(name) for name in ("contract", "created", "previous")},
            rules={name: plain[name] for name in _RULES if name in plain},
            parties=plain.get("parties", {}),
            validation=None
            if drawn is None
            else _read_section(ValidationDraw, drawn, "validation", called),
            request=plain.get("request", {}),
        )

    @property
    def digest(self) -> str:
        """Hash of the text; amendments and bundles name it."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def describe_change_of_contract(self, before: Agreement) -> str | None:
        """Describe why this is neither an agreement before it nor its amendment; else None."""
        if self.digest == before.digest:
            return None
        if self.previous != before.digest:
            return "it does not name the digest of the agreement before it."
        if self.contract != before.contract:
            return f"its contract is {self.contract!r}, but was {before.contract!r}."
        return None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file."""
        with write_atomically(local_path(path, "path")) as file:
            file.write(self.text.encode())

    def owners_of(self, X: TableLike | ShardedTable) -> Owners:
        """Return the owners of the delivered table, which has the columns of source and keys."""
        plain = {"owners": list(self.owners), **self.rules}
        owners = Owners.from_plain(plain, X, called="the agreement")
        return owners.check_covered("the agreement")

    def list_differences(self, valuation: Valuation) -> list[str]:
        """Return in what a valuation differs from the agreement; empty if in nothing."""
        seeds = [session.seed for session in valuation.provenance.sessions]
        provenance = valuation.provenance
        valuer = provenance.method.get("valuer", {})
        seed = seeds[0] if len(seeds) == 1 else seeds
        came = _make_terms(provenance.problem_spec, valuer, seed, self.validation)
        agreed = dict(self.terms)
        # Exact values have no seed, even if one was agreed on; types of columns need the table.
        if seeds == [None]:
            came["seed"] = agreed.get("seed")
        info = valuation.column_info
        came["columns"] = [] if info is None else sorted(info.names)
        agreed["columns"] = sorted(agreed["columns"])
        came["target"] = agreed.get("target")
        return list(compare_settings(came, agreed))

    def list_differences_of_data(self, valuer: Valuer, **data: Any) -> list[str]:
        """Return in what a problem, before it is valued, differs from the agreement."""
        return list(compare_settings(_draft_terms(valuer, data, self.validation), self.terms))

    def list_differences_of_table(
        self, X: TableLike | ShardedTable, X_val: TableLike | None = None
    ) -> list[str]:
        """Return in what a delivered table differs: columns, types, rows, and who was drawn."""
        X = as_table(X)
        X_val = None if X_val is None else Table.from_data(X_val, called="X_val")
        types, keys = _name_types(X), list_keys(self.rules, "the agreement")
        came = {name: kind for name, kind in types.items() if name not in keys}
        differences = list(compare_settings({"columns": came}, {"columns": self.terms["columns"]}))
        differences += [f"column {name!r} names owners, but is missing" for name in keys
                        if name not in types]  # fmt: skip
        if self.validation is not None:
            drawn = self.validation.difference(X, X_val)
            differences += [drawn] if drawn else []
        return [*differences, *self._compare_parties(X, X_val)]

    def _compare_parties(self, X: Table | ShardedTable, X_val: Table | None) -> Iterator[str]:
        """Yield who is no party, and who supplies more validation rows than its agreed share."""
        from scipy.stats import hypergeom

        kept = 1.0 if self.validation is None else 1.0 - self.validation.share
        # Without a draw, validation rows are fixed by their hash.
        tables = [X, X_val] if kept < 1.0 and X_val is not None else [X]
        counts = [count_rows({**self.rules, "owners": self.owners}, table) for table in tables]
        if others := [name for name in {**counts[0], **counts[-1]} if name not in self.parties]:
            are = "is no party" if len(others) == 1 else "are no parties"
            yield f"source names {preview(others)}, which {are} of the agreement"
        for name, n in counts[1].items() if len(tables) == 2 else ():
            n_rows, agreed = tables[1].shape[0], self.parties.get(name, 1.0)
            # Agreed shares are those of training rows then: they differ by chance, too.
            padded = betainc(n * kept, (n_rows - n) * kept + 1, agreed)
            # Ids may be chosen such that more of one's rows are drawn than of others'.
            chosen = hypergeom.sf(n - 1, n_rows + X.shape[0], n + counts[0].get(name, 0), n_rows)
            if min(padded, chosen) < _MIN_CHANCE / (2 * len(counts[1])):
                yield f"{name!r} has {n} of {n_rows} validation rows, but agreed on {agreed:.1%}"

    def split(
        self,
        valuation: Valuation,
        X: TableLike | ShardedTable,
        *,
        amount: str | int | Decimal,
        carried: Mapping[str, float] | str | os.PathLike[str] | None = None,
    ) -> Payout:
        """Split an amount as agreed; raise ValueError if the valuation is not the agreed one.

        X is the table as delivered, with the columns of source and keys.
        """
        differences = self.list_differences(valuation) + self.list_differences_of_table(X)
        if differences:
            raise ValueError(
                f"what was valued differs from the agreement: "
                f"{'; '.join(dict.fromkeys(differences))}. Value the table as agreed, or draft a "
                "new agreement."
            )
        return split_revenue(
            valuation,
            self.owners_of(X),
            amount=amount,
            policy=self.policy,
            carried=carried,
            agreement=self.text,
        )


def check_valuer(valuer: Any) -> None:
    """Raise TypeError unless this is an unfitted valuer."""
    if not isinstance(valuer, Valuer):
        raise TypeError(
            f"valuer must be a valuer such as KNNValuer(5, random_state=0), got {valuer!r}."
        )


def compare_settings(
    came: Mapping[str, Any], agreed: Mapping[str, Any], where: str = "agreed on", of: str = ""
) -> Iterator[str]:
    """Yield the settings that differ, with those in tables."""
    for name in sorted(set(came) | set(agreed)):
        one, other = came.get(name), agreed.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from compare_settings(one, other, where, f"{of}{name}.")
        elif one != other:
            texts = ["missing" if side is None else shorten(repr(side)) for side in (one, other)]
            yield f"{of}{name} is {texts[0]}, but {texts[1]} was {where}"


def _draft_terms(
    valuer: Valuer, data: Mapping[str, Any], validation: ValidationDraw | None
) -> dict[str, Any]:
    seed = getattr(valuer, "random_state", None)
    if hasattr(valuer, "random_state") and not is_integer(seed):
        raise ValueError(
            f"random_state of the valuer must be an integer, got {seed!r}; without a seed, no "
            "owner can recompute the values."
        )
    spec, X = valuer.problem_spec(**data), data["X"]
    difference = None if validation is None else validation.difference(X, data.get("X_val"))
    if difference is not None:
        raise ValueError(f"{difference}; pass the data that validation.split(X, y) returns.")
    seed = None if seed is None else int(seed)
    target = X.target if isinstance(X, ShardedTable) else getattr(data["y"], "name", None)
    terms = {"target": target} if isinstance(target, str) else {}
    return (
        terms | _make_terms(spec, valuer.describe(), seed, validation) | {"columns": _name_types(X)}
    )


def _make_terms(
    problem_spec: Mapping[str, Any],
    valuer: Mapping[str, str],
    seed: Any,
    validation: ValidationDraw | None,
) -> dict[str, Any]:
    """Return the terms of an agreement as TOML has them."""
    terms = {name: _to_toml(problem_spec[name]) for name in problem_spec if name not in _LATER}
    sha256 = problem_spec.get("data_sha256", {}).get("validation", "none")
    drawn = validation is not None and problem_spec.get("validation") == "held out"
    return terms | {
        "validation_sha256": _DRAWN if drawn else sha256,
        "seed": _to_toml(seed),
        "valuer": _to_toml(valuer),
    }


def _name_types(X: TableLike | ShardedTable) -> dict[str, str]:
    """Return the types of all columns: number, category, date and so on; of shards, of Arrow."""
    if isinstance(X, ShardedTable):
        return {name: str(X.schema.field(name).type) for name in X.names.tolist()}
    table = Table.from_data(X, called="X")
    names = map(str, table.names.tolist())
    return {name: name_kind(table.read(position)) for position, name in enumerate(names)}


def _to_toml(setting: Any) -> Any:
    """Return a setting as TOML; text is as Python prints it, without quotes, None is "none"."""
    if isinstance(setting, Mapping):
        return {str(name): _to_toml(part) for name, part in setting.items()}
    if isinstance(setting, list | tuple):
        return [_to_toml(part) for part in setting]
    if setting is None or setting == "None":
        return "none"
    return setting.strip("'") if isinstance(setting, str) else setting


def _read_section(kind: Any, plain: Any, name: str, called: str) -> Any:
    """Make a policy or a draw from a section of the file, which must have the fields of it."""
    known = {field.name for field in fields(kind)}
    needed = {field.name for field in fields(kind) if field.default is MISSING}
    if not isinstance(plain, Mapping) or not needed <= plain.keys() <= known:
        came = ", ".join(plain) if isinstance(plain, Mapping) else repr(plain)
        raise ValueError(f"[{name}] of {called} must have {', '.join(sorted(known))}, got {came}.")
    return kind(**plain)
