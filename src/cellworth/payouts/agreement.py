"""Agreements: what owners fix before anything is valued, in a TOML file."""

from __future__ import annotations

import ast
import hashlib
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, date, datetime
from decimal import Decimal
from importlib.metadata import version
from typing import Any, Protocol

from cellworth.data.arguments import is_integer
from cellworth.data.io import local_path, write_atomically
from cellworth.data.owners import Owners, are_players, check_entries, list_keys, read_toml
from cellworth.data.sharded_table import ShardedTable
from cellworth.data.tables import TableLike, VectorLike
from cellworth.payouts.allocation import check_owners_type
from cellworth.payouts.copies import count_copies, share_copies
from cellworth.payouts.payout import Payout, split_revenue
from cellworth.payouts.policy import Policy, ValidationDraw, check_policy
from cellworth.valuation.valuation import Valuation

FORMAT = "cellworth agreement"
VERSION = 1
# In place of a hash, if a rule draws validation rows.
DRAWN = "drawn"
# Hashes of data that is delivered after the agreement.
_LATER = ("data_sha256", "distances_sha256", "sample_weight_sha256", "validation", "holdings")
_DRAWN = "training rows include rows that the agreed rule draws for validation."
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
        What the valuation must match: game or model, scoring, hash of the validation rows, seed,
        and the name and all parameters of the valuer, such as sampler, n_passes and stop.
    policy : Policy
    text : str
        The file as it was written.
    contract : str or None
        Id of the contract.
    parties : tuple of str
        Who signs.
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

    See Also
    --------
    Policy, split_revenue, sign

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

    An amendment refers to the agreement before it:

    >>> amended = agreement.amend(policy=Policy(negative="carry", minimum="5"))
    >>> amended.previous == agreement.digest
    True
    """

    owners: tuple[Mapping[str, Any], ...]
    terms: Mapping[str, Any]
    policy: Policy
    text: str
    contract: str | None = None
    parties: tuple[str, ...] = ()
    period: tuple[date, date] | None = None
    payout_date: date | None = None
    created: datetime | None = None
    previous: str | None = None
    rules: Mapping[str, Any] = field(default_factory=dict)
    validation: ValidationDraw | None = None

    @classmethod
    def draft(
        cls,
        valuer: AnyValuer,
        owners: Owners,
        policy: Policy | None = None,
        *,
        contract: str | None = None,
        parties: Sequence[str] | None = None,
        period: tuple[date, date] | None = None,
        payout_date: date | None = None,
        validation: ValidationDraw | None = None,
        created: datetime | None = None,
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
            Id of the contract.
        parties : sequence of str, default=None
            Who signs; None means the owners.
        period : tuple of two dates, default=None
            First and last day for which amounts are shared.
        payout_date : date, default=None
        validation : ValidationDraw, default=None
            Rule that drew the validation rows in ``data``, and that will draw those of tables that
            are delivered later.
        created : datetime with time zone, default=None
            None means now.
        **data
            The arguments of ``fit``: X, y, X_val, y_val; a ShardedTable as X has its own y.
        """
        _check_types(valuer, owners, policy)
        policy = check_policy(policy)
        held = _list_owners(owners)
        head = {
            "contract": contract,
            "created": created,
            "payout_date": payout_date,
            "parties": list(owners.names if parties is None else parties),
            "period": period,
            "validation": None if validation is None else asdict(validation),
        }
        return cls._write(
            head
            | {
                **{name: rule for name, rule in held.items() if name != "owners"},
                "valuation": _draft_terms(valuer, _merge_copies(owners, policy, data), validation),
                "policy": asdict(policy),
                "owners": held["owners"],
            }
        )

    @classmethod
    def _write(cls, content: Mapping[str, Any]) -> Agreement:
        """Write the text of an agreement; what is None is left out."""
        import tomli_w

        period, created = content["period"], content["created"]
        plain: dict[str, Any] = {
            "format": FORMAT,
            "version": VERSION,
            "cellworth": version("cellworth"),
            **content,
            "created": now() if created is None else created,
            "period": None if period is None else _name_days(period),
            "policy": _leave_out_none(content["policy"]),
        }
        plain = _leave_out_none(plain)
        called = "the draft"
        _check_head(plain, called)
        text = tomli_w.dumps(plain)
        return cls.from_plain(tomllib.loads(text), text, called=called)

    def amend(
        self,
        *,
        valuer: AnyValuer | None = None,
        owners: Owners | None = None,
        policy: Policy | None = None,
        parties: Sequence[str] | None = None,
        period: tuple[date, date] | None = None,
        payout_date: date | None = None,
        validation: ValidationDraw | None = None,
        created: datetime | None = None,
        **data: Any,
    ) -> Agreement:
        """Return an agreement that replaces this one and names it by its digest.

        What is None stays as it is.

        Parameters
        ----------
        valuer : Valuer, default=None
            With the arguments of ``fit``, as for :meth:`draft`: new terms of the valuation.
        owners : Owners, default=None
        policy : Policy, default=None
        parties : sequence of str, default=None
            None means the parties as before and owners who are new.
        period : tuple of two dates, default=None
        payout_date : date, default=None
        validation : ValidationDraw, default=None
            Rule that drew the validation rows in ``data``, and that will draw those of tables that
            are delivered later.
        created : datetime with time zone, default=None
            None means now.
        **data
            The arguments of ``fit``, if there is a valuer.
        """
        if (valuer is None) != (not data):
            raise ValueError("valuer and the arguments of fit must be given together.")
        content = tomllib.loads(self.text) | {"created": created, "previous": self.digest}
        content["period"] = self.period if period is None else period
        if payout_date is not None:
            content["payout_date"] = payout_date
        if validation is not None:
            content["validation"] = asdict(validation)
            content["valuation"] = content["valuation"] | {"validation_sha256": DRAWN}
        if owners is not None:
            check_owners_type(owners)
            content = {name: term for name, term in content.items() if name not in _RULES}
            content |= _list_owners(owners)
        if policy is not None:
            content["policy"] = asdict(check_policy(policy))
        if valuer is not None:
            # Keys are not among the arguments of fit.
            whose = owners if owners is not None or self.keys else self.owners_of(data["X"])
            merged = _merge_copies(whose, policy or self.policy, data)
            content["valuation"] = _draft_terms(valuer, merged, validation or self.validation)
        new = () if owners is None else owners.names
        content["parties"] = list(
            dict.fromkeys([*self.parties, *new]) if parties is None else parties
        )
        amended = Agreement._write(content)
        difference = amended.describe_change_of_contract(self)
        if difference is not None:
            raise ValueError(f"this is no amendment: {difference}")
        return amended

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
        owners = tuple(check_entries(plain, called))
        rules = {name: plain[name] for name in _RULES if name in plain}
        head = _check_head(plain, called)
        return cls(owners, terms, Policy(**policy), text, **head, rules=rules)

    @property
    def digest(self) -> str:
        """Hash of the text; amendments, bundles and signatures name it."""
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

    def to_markdown(self) -> str:
        """Return the agreement as a readable page.

        Examples
        --------
        >>> from cellworth import KNNValuer, Owners
        >>> from cellworth.payouts import Agreement
        >>> X, y = [[0.0], [9.0]], [0, 1]
        >>> owners = Owners(X).assign("ann")
        >>> data = {"X": X, "y": y, "X_val": X, "y_val": y}
        >>> agreement = Agreement.draft(KNNValuer(1, random_state=0), owners, contract="A1", **data)
        >>> print(agreement.to_markdown().splitlines()[0])
        # Agreement A1
        """
        return "\n".join(_iter_markdown(self)) + "\n"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file."""
        with write_atomically(local_path(path, "path")) as file:
            file.write(self.text.encode())

    def owners_of(self, X: TableLike | ShardedTable) -> Owners:
        """Return the owners of the delivered table, which has the columns of source and keys."""
        plain = {"owners": list(self.owners), **self.rules}
        owners = Owners.from_plain(plain, X, called="the agreement")
        return owners.check_covered("the agreement")

    def prepare(
        self, X: TableLike | ShardedTable, y: VectorLike | None = None
    ) -> tuple[Owners, Any, Any]:
        """Return owners, table and labels to value: no keys, and equal rows merged if agreed.

        Parameters
        ----------
        X : table
            As delivered, with the columns of source and keys.
        y : array-like of shape (n_rows,), default=None
            Needed if equal rows are merged; see :func:`~cellworth.payouts.share_copies`.

        Examples
        --------
        >>> from cellworth import KNNValuer, Owners
        >>> from cellworth.payouts import Agreement
        >>> X, y = [[0.0], [9.0], [9.0]], [0, 1, 1]
        >>> owners = Owners.by_row(X, ["ann", "bob", "bob"])
        >>> data = {"X": X, "y": y, "X_val": X, "y_val": y}
        >>> agreement = Agreement.draft(KNNValuer(1, random_state=0), owners, **data)
        >>> agreement.policy.duplicates
        'share'
        >>> owners, X, y = agreement.prepare(X, y)
        >>> X.tolist()
        [[0.0], [9.0]]
        """
        owners = self.owners_of(X)
        table: Any = owners.features(X) if owners.keys else X
        if self.policy.duplicates == "pay" or not count_copies(owners):
            return owners, table, y
        if y is None:
            raise ValueError("y must not be None: equal rows are merged, unless labels differ.")
        return share_copies(owners, table, y)

    @property
    def keys(self) -> list[str]:
        """Columns of the delivered table that only tell whose a row is."""
        return list_keys(self.rules, "the agreement")

    def difference(self, valuation: Valuation) -> str | None:
        """Return the first difference between a valuation and the agreement; None without one."""
        seeds = [session.seed for session in valuation.provenance.sessions]
        provenance = valuation.provenance
        valuer = provenance.method.get("valuer", {})
        seed = seeds[0] if len(seeds) == 1 else seeds
        came = _make_terms(provenance.problem_spec, valuer, seed, self.validation)
        # If owners are players, the ids of the rows are known at the split only.
        if not are_players(valuation.blocks) and self._draws_from(valuation.blocks.rows.ids):
            return _DRAWN
        for name in sorted(set(self.terms) | set(came)):
            if name == "valuer":
                continue
            if name not in self.terms:
                return f"{name} is {came[name]!r}, but the agreement says nothing about it."
            # Exact values have no seed, even if one was agreed on.
            if came.get(name) != self.terms[name] and not (name == "seed" and seeds == [None]):
                return f"{name} is {came.get(name)!r}, but {self.terms[name]!r} was agreed on."
        return _find_other_setting(came["valuer"], self.terms.get("valuer", {}))

    def split(
        self,
        valuation: Valuation,
        X: TableLike | ShardedTable,
        y: VectorLike | None = None,
        *,
        amount: str | int | Decimal,
        carried: Mapping[str, float] | str | os.PathLike[str] | None = None,
        X_val: TableLike | None = None,
        y_val: VectorLike | None = None,
        reserve: tuple[TableLike, VectorLike] | None = None,
    ) -> Payout:
        """Split an amount as agreed; raise ValueError if the valuation is not the agreed one.

        X is the table as delivered. Its labels ``y`` are needed if it has equal rows and
        ``duplicates="share"`` was agreed on; value what :meth:`prepare` returns. ``X_val`` is
        needed to find changed copies of validation rows if the valuation was loaded. ``reserve``,
        rows and labels that no owner can know, needs ``y``, ``X_val`` and ``y_val``; see
        :func:`~cellworth.payouts.check_owners`.
        """
        (owners, _, labels), difference = self.prepare(X, y), self.difference(valuation)
        if difference is None and self._draws_from(owners.table.row_ids):
            difference = _DRAWN
        if difference is not None:
            raise ValueError(
                f"this valuation differs from the agreement: {difference} Value the table as "
                "agreed, or draft a new agreement."
            )
        return split_revenue(
            valuation,
            owners,
            amount=amount,
            policy=self.policy,
            carried=carried,
            agreement=self.text,
            X_val=X_val,
            y=labels,
            y_val=y_val,
            reserve=reserve,
        )

    def _draws_from(self, row_ids: Any) -> bool:
        """Return whether the agreed rule draws one of these training rows for validation."""
        return self.validation is not None and bool(self.validation.select(row_ids).any())


def _list_owners(owners: Owners) -> dict[str, Any]:
    return owners.check_covered("the agreement").to_plain()


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


def _find_other_setting(came: Mapping[str, Any], agreed: Mapping[str, Any]) -> str | None:
    """Describe the first parameter of the valuer that differs from the agreement."""
    for name in sorted(set(came) | set(agreed)):
        if came.get(name) != agreed.get(name):
            one, other = (spell(side.get(name, "not known")) for side in (came, agreed))
            return f"{name} of the valuer is {one}, but {other} was agreed on."
    return None


def _merge_copies(
    owners: Owners | None, policy: Policy, data: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return data in which equal rows are merged, if folds, which are agreed on, depend on it."""
    if owners is None or policy.duplicates == "pay" or data.get("X_val") is not None:
        return data
    if data.get("y") is None or not count_copies(owners):
        return data
    _, X, y = share_copies(owners, data["X"], data["y"])
    return {**data, "X": X, "y": y}


def _draft_terms(
    valuer: AnyValuer, data: Mapping[str, Any], validation: ValidationDraw | None
) -> dict[str, Any]:
    seed = getattr(valuer, "random_state", None)
    if hasattr(valuer, "random_state") and not is_integer(seed):
        raise ValueError(
            f"random_state of the valuer must be an integer, got {seed!r}; without a seed, no "
            "owner can recompute the values."
        )
    _check_data(data)
    difference = None if validation is None else validation.difference(data)
    if difference is not None:
        raise ValueError(f"{difference} Pass the data that validation.split(X, y) returns.")
    seed = None if seed is None else int(seed)
    return _make_terms(valuer.problem_spec(**data), valuer.describe(), seed, validation)


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
        "validation_sha256": sha256 if validation is None else DRAWN,
        "seed": "none" if seed is None else seed,
        "valuer": _to_toml(valuer),
    }


def _to_toml(setting: Any) -> Any:
    """Return a setting as TOML: numbers, text, lists and tables; None is "none".

    Reports of runs spell settings as Python prints them. ``Sampler(n=3)`` becomes a table with a
    name, ``Shapley()`` a name alone.
    """
    if isinstance(setting, Mapping):
        return {str(name): _to_toml(part) for name, part in setting.items()}
    if isinstance(setting, list | tuple):
        return [_to_toml(part) for part in setting]
    if setting is None:
        return "none"
    if not isinstance(setting, str):
        return setting
    try:
        return _read_node(ast.parse(setting, mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        # What Python cannot read is text already.
        return setting


_JOINED = {ast.BitOr: "any_of", ast.BitAnd: "all_of"}


def _read_node(node: ast.AST) -> Any:
    """Return a parsed setting as TOML; raise ValueError for anything but data."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        named = {word.arg or "name": _read_node(word.value) for word in node.keywords}
        if {"name", "arguments"} & named.keys():
            raise ValueError("this would hide the name of the class")
        if node.args:
            named["arguments"] = [_read_node(one) for one in node.args]
        return {"name": node.func.id, **named} if named else node.func.id
    if isinstance(node, ast.BinOp) and type(node.op) in _JOINED:
        return {_JOINED[type(node.op)]: [_read_node(node.left), _read_node(node.right)]}
    if isinstance(node, ast.List | ast.Tuple):
        return [_read_node(one) for one in node.elts]
    if isinstance(node, ast.Dict):
        return {
            str(ast.literal_eval(key)): _read_node(value)
            for key, value in zip(node.keys, node.values, strict=True)
            if key is not None
        }
    found = ast.literal_eval(node)
    if found is not None and not isinstance(found, bool | int | float | str):
        raise ValueError(f"{found!r} is not a value of TOML")
    return "none" if found is None else found


def spell(setting: Any) -> str:
    """Return a setting of TOML as text for a sentence: ``Sampler(n=3)`` for a table with a name."""
    if isinstance(setting, Mapping) and setting:
        rest = [f"{key}={spell(part)}" for key, part in setting.items() if key != "name"]
        return f"{setting.get('name', '')}({', '.join(rest)})"
    if isinstance(setting, list):
        return f"[{', '.join(map(spell, setting))}]"
    return "none" if isinstance(setting, Mapping) else str(setting)


def now() -> datetime:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def _leave_out_none(plain: Mapping[str, Any]) -> dict[str, Any]:
    return {name: setting for name, setting in plain.items() if setting is not None}


def _name_days(period: Any) -> dict[str, Any]:
    if not isinstance(period, tuple | list) or len(period) != 2:
        raise ValueError(f"period must be two dates, the first and the last day, got {period!r}.")
    return {"from": period[0], "to": period[1]}


def _check_head(plain: Mapping[str, Any], called: str) -> dict[str, Any]:
    """Check and return contract, parties, period, dates and the agreement before."""
    for name in ("contract", "previous"):
        text = plain.get(name)
        if text is not None and not (isinstance(text, str) and text.strip() and text.isprintable()):
            raise ValueError(f"{name} of {called} must be text on one line, got {text!r}.")
    parties = plain.get("parties", [])
    if not isinstance(parties, list) or not all(isinstance(one, str) and one for one in parties):
        raise ValueError(f"parties of {called} must be a list of names, got {parties!r}.")
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
        "parties": tuple(parties),
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


def _iter_markdown(agreement: Agreement) -> Iterator[str]:
    plain, rest = tomllib.loads(agreement.text), agreement.rules.get("rest")
    yield f"# Agreement {agreement.contract or ''}".rstrip()
    yield ""
    head = {
        "parties": ", ".join(agreement.parties),
        "period": None if agreement.period is None else "{} to {}".format(*agreement.period),
        "payout date": agreement.payout_date,
        "written": agreement.created,
        "cellworth": plain.get("cellworth"),
        "amends": agreement.previous,
        "digest of this agreement": agreement.digest,
        "cells claimed twice": agreement.rules.get("overlaps", "refuse"),
        "column with the owner of each row": agreement.rules.get("source"),
        "cells without a claim": "no owner" if rest is False else rest,
        "validation rows": _spell_draw(agreement.validation),
    }
    yield from _iter_table("", "", _leave_out_none(head))
    yield from ("## Owners", "", "| owner | rows | columns |", "|---|---|---|")
    for one in agreement.owners:
        rows, columns = (spell(one.get(key, "all")) for key in ("rows", "columns"))
        yield f"| {_escape(one['name'])} | {_escape(rows)} | {_escape(columns)} |"
    yield ""
    yield from ("## Policy of the split", "")
    yield from _iter_table("rule", "agreed", _leave_out_none(asdict(agreement.policy)))
    yield from ("## Valuation", "")
    terms = {name: term for name, term in agreement.terms.items() if name != "valuer"}
    yield from _iter_table("setting", "agreed", terms)
    yield from ("## Valuer", "")
    yield from _iter_table("parameter", "agreed", agreement.terms.get("valuer", {}))


def _spell_draw(draw: ValidationDraw | None) -> str | None:
    if draw is None:
        return None
    return f"a share of {draw.share}, drawn by the hash of the row's id and the seed {draw.seed!r}"


def _iter_table(left: str, right: str, lines: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"| {left} | {right} |", "|---|---|")
    for name, setting in lines.items():
        yield f"| {_escape(name)} | {_escape(spell(setting))} |"
    yield ""


def _escape(text: str) -> str:
    """Show text as it is: no markup, no new cells."""
    return "".join(f"&#{ord(c)};" if c in "\\`*[]<>|#~!&@" or c < " " else c for c in text)
