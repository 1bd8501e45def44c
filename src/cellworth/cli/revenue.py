"""Commands that share revenue: draft, split and verify."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any, cast

import click

from cellworth.cli.app import CHECK_FAILED, note, print_result, shorten_path, shows_progress
from cellworth.cli.folders import (
    AUDIT,
    Result,
    check_output_file,
    check_writable,
    get_folder_format,
)
from cellworth.cli.input_files import STDIN
from cellworth.cli.request import LoadedRequest, check_model_trusted, parse_agreement, parse_toml
from cellworth.cli.runs import make_request, read_text
from cellworth.cli.schemas import DraftDocument, FindingDocument, SplitDocument, VerifyDocument
from cellworth.data.io import AnyPath
from cellworth.data.owners import Owners
from cellworth.payouts.agreement import Agreement
from cellworth.payouts.audit import Verdict, verify_audit
from cellworth.payouts.bundle import AGREEMENT, PAYOUT
from cellworth.payouts.payout import Payout, split_revenue
from cellworth.payouts.policy import Policy
from cellworth.runtime.executors import Runtime

_POLICY = tuple(vars(Policy()))
_NOT_FIXED = "cellworth value was not given this agreement, so it was not fixed before the values."


def draft_agreement(*, output: Path, force: bool, **given: Any) -> None:
    """Write an agreement: the command ``draft``."""
    check_output_file(output, force=force)
    policy = Policy(**{name: given.pop(name) for name in _POLICY})
    if given["table"] == STDIN:
        raise click.UsageError("an agreement needs a table that stays; give a file, not stdin.")
    loaded = LoadedRequest.from_request(make_request(**given))
    if loaded.request.deadline is not None:
        raise ValueError(
            "--deadline cannot be agreed on: the values could not be recomputed; leave it out."
        )
    owners = loaded.owners()
    assert owners is not None  # noqa: S101 (the option is required)
    agreement = Agreement.draft(loaded.valuer(), owners, policy, **loaded.data())
    agreement.save(output)
    document: DraftDocument = {
        "output": shorten_path(output.absolute()),
        "owners": owners.names,
        "policy": asdict(policy),
        "valuation": dict(agreement.terms),
    }
    line = f"The agreement of {', '.join(owners.names)} is in {shorten_path(output.absolute())}."
    print_result("draft", document, [line])


def split_amount(*, folder: Path, output: Path | None, **given: Any) -> None:
    """Share an amount among owners: the command ``split``."""
    owner = given["statement"]
    if output is not None:
        check_writable(output)
    with nullcontext() if owner is None else _hide_other_owners(owner):
        result = Result.load(folder, table=given["table"], val=given["val"])
        as_valued = result.request.agreement is not None and given["owners"] is None
        _check_no_policy_options(given["agreement"] is not None or as_valued)
        payout = _make_payout(result, given)
    if owner is not None and owner not in payout.owners:
        raise ValueError(
            f"no owner is called {owner!r}; leave out --statement to see who there is."
        )
    digest = None if output is None else payout.save(output)
    if owner is not None:
        statement = payout.statement(owner)
        print_result("statement", statement.to_dict(), [repr(statement)])
    else:
        print_result("split", _make_payout_document(payout, output, digest), [repr(payout)])
    if output is not None:
        where = shorten_path(output.absolute())
        note(f"The audit is in {where}; its digest, for all owners: {digest}")


def verify_payout(
    *,
    folder: Path,
    digest: str | None,
    agreement: Path | None,
    values_folder: AnyPath | None,
    model: str | None,
    table: str | None,
    val: str | None,
) -> None:
    """Replay an audit: the command ``verify``."""
    anew: dict[str, Any] = {}
    result = None
    if values_folder is not None:
        result = Result.load(values_folder, table=table, val=val)
        check_model_trusted(result.request, model, values_folder)
        _check_one_seed(result, values_folder)
        loaded = result.loaded
        anew = {
            "data": loaded.data(),
            "valuer": loaded.valuer(runtime=Runtime(progress=shows_progress(False))),
        }
    elif table is not None or val is not None or model is not None:
        raise click.UsageError("--table, --val and --model need --values; give it as well.")
    _check_is_audit(folder)
    verdict = verify_audit(folder, digest=digest, agreement=agreement, **anew)
    if verdict and result is not None:
        difference = _describe_other_agreement(folder, result.request.agreement)
        verdict = Verdict(verdict.checked, difference)
    document: VerifyDocument = {
        "verdict": bool(verdict),
        "checked": cast("Any", list(verdict.checked)),
        "difference": verdict.difference,
    }
    print_result("verify", document, [repr(verdict)])
    if not verdict:
        click.get_current_context().exit(CHECK_FAILED)


@contextmanager
def _hide_other_owners(owner: str) -> Iterator[None]:
    """Suppress warnings and errors, which may name other owners and their cells."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"the amount was not split, so there is no statement for {owner!r}; leave out "
                "--statement to see why."
            ) from error


def _check_one_seed(result: Result, folder: AnyPath) -> None:
    """Check that the values have one seed, so that one run can reproduce them."""
    seeds = {session.seed for session in result.valuation.provenance.sessions}
    if len(seeds) > 1:
        raise ValueError(
            f"{folder} holds values merged from {len(seeds)} seeds, which one run cannot "
            "reproduce; verify without --values."
        )


def _check_no_policy_options(agreed: bool) -> None:
    """Check that no option repeats a setting of the agreement."""
    if not agreed:
        return
    context = click.get_current_context()
    for name in ("owners", *_POLICY):
        if context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is settled by the agreement; leave it out.")


def _check_is_audit(folder: Path) -> None:
    """Check that a folder holds an audit; a damaged one gets a verdict."""
    kind = get_folder_format(folder) if not (folder / PAYOUT).exists() else AUDIT
    if kind is not None and kind != AUDIT:
        raise ValueError(f"{folder} holds no audit; give a folder that cellworth split -o wrote.")


def _describe_other_agreement(audit: Path, then: str | None) -> str | None:
    """Describe how the agreement of an audit differs from that of its values; else None."""
    path = audit / AGREEMENT
    if then is None:
        if path.exists():
            warnings.warn(_NOT_FIXED, stacklevel=2)
        return None
    if not path.exists():
        return "the audit holds no agreement, but its values were computed under one."
    line = _describe_first_change(path.read_text(encoding="utf-8"), then)
    if line is None:
        return None
    return (
        f"the agreement of the audit is not the one under which its values were computed: {line}."
    )


def _check_same_agreement(path: Path, text: str, then: str | None) -> None:
    if then is None:
        warnings.warn(_NOT_FIXED, stacklevel=2)
        return
    line = _describe_first_change(text, then)
    if line is not None:
        raise ValueError(
            f"{path} is not the agreement under which these values were computed: {line}; give "
            "the original agreement, or value the table under the new one."
        )


def _describe_first_change(now: str, then: str) -> str | None:
    """Describe the first line in which two texts differ; None if they are equal."""
    if now == then:
        return None
    pairs = zip_longest(now.splitlines(), then.splitlines(), fillvalue="nothing")
    for position, (one, other) in enumerate(pairs, start=1):
        if one != other:
            return f"line {position} is {one or 'empty'}, but was {other or 'empty'}"
    return "its line ends differ"


def _make_payout(result: Result, given: dict[str, Any]) -> Payout:
    request, X = result.request, result.loaded.X
    agreed, owned = given["agreement"], given["owners"]
    if agreed is not None:
        text = read_text(agreed, "agreement")
        agreement = parse_agreement(text)
        _check_same_agreement(agreed, text, request.agreement)
        return agreement.split(result.valuation, X, amount=given["amount"])
    if owned is not None:
        if request.agreement is not None:
            warnings.warn(
                "--owners overrides the agreement under which the values were computed.",
                stacklevel=2,
            )
        text = read_text(owned, "owners")
        owners = Owners.from_plain(parse_toml(text, "owners"), X, called="--owners")
    elif request.agreement is not None:
        agreement = parse_agreement(request.agreement)
        return agreement.split(result.valuation, X, amount=given["amount"])
    else:
        named = result.loaded.owners()
        if named is None:
            raise click.UsageError("no owners were given; give --owners or --agreement.")
        owners = named
    policy = Policy(**{name: given[name] for name in _POLICY})
    return split_revenue(result.valuation, owners, amount=given["amount"], policy=policy)


def _make_payout_document(payout: Payout, output: Path | None, digest: str | None) -> SplitDocument:
    return {
        "amount": str(payout.amount),
        "currency": payout.currency,
        "owners": payout.to_frame("pyarrow").to_pylist(),
        "unassigned": payout.unassigned,
        "carried": dict(payout.carried),
        "undecided": list(payout.undecided),
        "findings": [cast("FindingDocument", asdict(finding)) for finding in payout.findings],
        "audit": None if output is None else shorten_path(output.absolute()),
        "digest": digest,
    }
