"""Agreements: what owners fix before anything is valued, in a TOML file."""

from __future__ import annotations

import hashlib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Protocol

from cellworth.data.arguments import is_integer
from cellworth.data.io import local_path, write_atomically
from cellworth.data.owners import Owners, are_players, check_entries, list_keys, read_toml
from cellworth.data.sharded_table import ShardedTable, as_table
from cellworth.data.tables import Table, TableLike
from cellworth.payouts.allocation import check_any_owner
from cellworth.payouts.payout import Payout, split_revenue
from cellworth.payouts.policy import Policy, ValidationDraw, check_policy, describe_shared
from cellworth.valuation.column_info import name_kind
from cellworth.valuation.valuation import Valuation

FORMAT = "cellworth agreement"
VERSION = 1
# In place of a hash, if a rule draws validation rows.
_DRAWN = "drawn"
# Hashes of data that is delivered after the agreement.
_LATER = ("data_sha256", "distances_sha256", "sample_weight_sha256", "validation", "holdings")
# Fields of a file of owners beside the list of them.
_RULES = ("overlaps", "source", "keys", "rest")


class AnyValuer(Protocol):
    """A valuer of any kind, as agreements and bundles use it."""

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
        What the valuation must match: names and types of the columns, target, game or model,
        scoring, hash of the validation rows, seed, and the name and all parameters of the valuer.
    policy : Policy
    text : str
        The file as it was written.
    contract : str or None
        Id of the contract.
    period : tuple of two dates or None
        First and last day for which amounts are shared.
    payout_date : date or None
    created : datetime or None
        When the agreement was written.
    previous : str or None
        Digest of the agreement that this one amends.
    rules : mapping
        What to do with a cell that two owners claim (``overlaps``), the column with the owner of
        each row (``source``), further columns that only rules use (``keys``), and who gets the
        cells that no owner claims (``rest``); see :meth:`~cellworth.Owners.from_toml`.
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
    period: tuple[date, date] | None = None
    payout_date: date | None = None
    created: datetime | None = None
    previous: str | None = None
    rules: Mapping[str, Any] = field(default_factory=dict)
    validation: ValidationDraw | None = None
    request: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def draft(
        cls,
        valuer: AnyValuer,
        owners: Owners,
        policy: Policy | None = None,
        *,
        contract: str | None = None,
        period: tuple[date, date] | None = None,
        payout_date: date | None = None,
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
        period : tuple of two dates, default=None
            First and last day for which amounts are shared.
        payout_date : date, default=None
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

        _check_types(valuer, owners, policy)
        held = owners.check_covered("the agreement").to_plain()
        terms = _draft_terms(valuer, data, validation)
        if amends is not None and contract is None:
            contract = amends.contract
        plain = {
            "format": FORMAT,
            "version": VERSION,
            "cellworth": version("cellworth"),
            "contract": contract,
            "created": datetime.now(UTC).replace(microsecond=0) if created is None else created,
            "previous": None if amends is None else amends.digest,
            "payout_date": payout_date,
            "period": None if period is None else _name_days(period),
            "validation": None if validation is None else asdict(validation),
            **{name: rule for name, rule in held.items() if name != "owners"},
            "request": None if request is None else dict(request),
            "shared": describe_shared(terms["empty"]),
            "valuation": terms,
            "policy": asdict(check_policy(policy)),
            "owners": held["owners"],
        }
        plain = {name: setting for name, setting in plain.items() if setting is not None}
        _check_head(plain, "the draft")
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
        terms, policy = plain.get("valuation"), plain.get("policy", {})
        if not isinstance(terms, Mapping) or not terms.get("validation_sha256"):
            raise ValueError(
                f"{called} does not say what is valued; add [valuation] with validation_sha256, "
                "scoring, game and seed."
            )
        known = {field.name for field in fields(Policy)}
        if not isinstance(policy, Mapping) or set(policy) - known:
            odd = ", ".join(sorted(set(policy) - known)) if isinstance(policy, Mapping) else policy
            raise ValueError(
                f"[policy] of {called} must have only {', '.join(sorted(known))}, got {odd}."
            )
        owners = tuple(check_entries(plain, called))
        rules = {name: plain[name] for name in _RULES if name in plain}
        head = _check_head(plain, called)
        return cls(
            owners,
            terms,
            Policy(**policy),
            text,
            **head,
            rules=rules,
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
        if self.created is None or before.created is None or self.created < before.created:
            return "it was written before the agreement that it amends."
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

    @property
    def keys(self) -> list[str]:
        """Columns of the delivered table that only tell whose a row is."""
        return list_keys(self.rules, "the agreement")

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
        differences = list(_compare(came, agreed))
        # If owners are players, the ids of the rows are known at the split only.
        if not are_players(valuation.blocks):
            differences += self._find_drawn(valuation.blocks.rows.ids)
        return differences

    def list_differences_of_data(self, valuer: AnyValuer, **data: Any) -> list[str]:
        """Return in what a problem, before it is valued, differs from the agreement."""
        return list(_compare(_draft_terms(valuer, data, self.validation), self.terms))

    def list_differences_of_table(self, X: TableLike | ShardedTable) -> list[str]:
        """Return in what a delivered table differs: its columns, their types, its rows."""
        types, keys = _name_types(X), self.keys
        came = {name: kind for name, kind in types.items() if name not in keys}
        differences = list(_compare({"columns": came}, {"columns": self.terms["columns"]}))
        differences += [f"column {name!r} names owners, but is missing" for name in keys
                        if name not in types]  # fmt: skip
        if self.validation is not None:
            differences += self._find_drawn(as_table(X).row_ids)
        return differences

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

    def _find_drawn(self, row_ids: Any) -> list[str]:
        """Say if the agreed rule draws one of these training rows for validation."""
        if self.validation is None or not self.validation.select(row_ids).any():
            return []
        return ["training rows include rows that the agreed rule draws for validation"]


def _check_types(valuer: Any, owners: Any, policy: Any) -> None:
    needed = ("problem_spec", "describe")
    if isinstance(valuer, type) or not all(hasattr(valuer, name) for name in needed):
        raise TypeError(
            f"valuer must be a valuer such as KNNValuer(5, random_state=0), got {valuer!r}."
        )
    check_any_owner(owners)
    check_policy(policy)


def _find_target(data: Mapping[str, Any]) -> Any:
    """Return the name of the labels, which a table in shards holds itself; None if unknown."""
    if isinstance(data.get("X"), ShardedTable):
        return data["X"].target
    missing = [name for name in ("X", "y") if data.get(name) is None]
    if missing:
        raise ValueError(
            f"{' and '.join(missing)} must not be None; pass the arguments of fit: "
            "Agreement.draft(valuer, owners, X=X, y=y, X_val=X_val, y_val=y_val)."
        )
    return getattr(data["y"], "name", None)


def _compare(came: Mapping[str, Any], agreed: Mapping[str, Any], of: str = "") -> Iterator[str]:
    """Yield the settings that differ from the agreed ones, with those in tables."""
    for name in sorted(set(came) | set(agreed)):
        one, other = came.get(name), agreed.get(name)
        if isinstance(one, Mapping) and isinstance(other, Mapping):
            yield from _compare(one, other, f"{of}{name}.")
        elif one != other:
            texts = ["missing" if side is None else repr(side) for side in (one, other)]
            yield f"{of}{name} is {texts[0]}, but {texts[1]} was agreed on"


def _draft_terms(
    valuer: AnyValuer, data: Mapping[str, Any], validation: ValidationDraw | None
) -> dict[str, Any]:
    seed = getattr(valuer, "random_state", None)
    if hasattr(valuer, "random_state") and not is_integer(seed):
        raise ValueError(
            f"random_state of the valuer must be an integer, got {seed!r}; without a seed, no "
            "owner can recompute the values."
        )
    target = _find_target(data)
    difference = None if validation is None else validation.difference(data)
    if difference is not None:
        raise ValueError(f"{difference} Pass the data that validation.split(X, y) returns.")
    seed = None if seed is None else int(seed)
    terms = {"target": target} if isinstance(target, str) else {}
    spec = valuer.problem_spec(**data)
    return (
        terms
        | _make_terms(spec, valuer.describe(), seed, validation)
        | {"columns": _name_types(data["X"])}
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
    return terms | {
        "validation_sha256": sha256 if validation is None else _DRAWN,
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


def _name_days(period: Any) -> dict[str, Any]:
    if not isinstance(period, tuple | list) or len(period) != 2:
        raise ValueError(f"period must be two dates, the first and the last day, got {period!r}.")
    return {"from": period[0], "to": period[1]}


def _check_head(plain: Mapping[str, Any], called: str) -> dict[str, Any]:
    """Check and return contract, period, dates and the agreement before."""
    for name in ("contract", "previous"):
        text = plain.get(name)
        if text is not None and not (isinstance(text, str) and text.strip() and text.isprintable()):
            raise ValueError(f"{name} of {called} must be text on one line, got {text!r}.")
    created = plain.get("created")
    if created is not None and (not isinstance(created, datetime) or created.tzinfo is None):
        raise ValueError(
            f"created of {called} must be a time with its zone, such as 2026-01-31T12:00:00Z, got "
            f"{created!r}."
        )
    period = plain.get("period", {})
    days: list[Any] = list(period.values()) if isinstance(period, Mapping) else []
    named = isinstance(period, Mapping) and list(period) in ([], ["from", "to"])
    if not named or not all(map(_is_day, days)) or sorted(days) != days:
        raise ValueError(
            f"period of {called} must have a first and a last day, such as {{from = 2026-01-01, "
            f"to = 2026-01-31}}, got {period!r}."
        )
    day = plain.get("payout_date")
    if day is not None and not _is_day(day):
        raise ValueError(f"payout_date of {called} must be a date, got {day!r}.")
    return {
        "contract": plain.get("contract"),
        "period": tuple(days) if period else None,
        "payout_date": day,
        "created": created,
        "previous": plain.get("previous"),
        "validation": _read_draw(plain.get("validation"), called),
    }


def _read_draw(plain: Any, called: str) -> ValidationDraw | None:
    if plain is None:
        return None
    if not isinstance(plain, Mapping) or plain.keys() != {"share", "seed"}:
        raise ValueError(
            f"validation of {called} must have share and seed, such as {{share = 0.25, seed = "
            f"'any text'}}, got {plain!r}."
        )
    return ValidationDraw(**plain)


def _is_day(day: Any) -> bool:
    return isinstance(day, date) and not isinstance(day, datetime)
