"""Commands about owners: draft, split, sign, prove and verify."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click

from cellworth.cli.app import CHECK_FAILED, note, print_result, shorten_path, shows_progress
from cellworth.cli.folders import (
    BUNDLE,
    Result,
    check_jinja,
    check_output_file,
    check_writable,
    get_folder_format,
)
from cellworth.cli.input_files import STDIN
from cellworth.cli.request import LoadedRequest, check_model_trusted, parse_agreement
from cellworth.cli.runs import make_request, read_owners, read_text
from cellworth.data.io import AnyPath, write_atomically
from cellworth.data.owners import Owners
from cellworth.payouts.agreement import Agreement
from cellworth.payouts.allocation import IntervalPlan
from cellworth.payouts.bundle import AGREEMENT, PAYOUT
from cellworth.payouts.chain import find_chain, verify_chain, verify_proof, write_proofs
from cellworth.payouts.payout import Payout, split_revenue
from cellworth.payouts.policy import Policy, ValidationDraw
from cellworth.payouts.replay import Verdict, verify_bundle
from cellworth.payouts.signatures import (
    generate_key,
    read_bundle_time,
    read_signing_times,
    sign,
    verify_signatures,
)
from cellworth.report.payout_pages import write_payout, write_statement, write_statements
from cellworth.runtime.run_settings import Runtime

_POLICY = tuple(vars(Policy()))
_HEAD = ("contract", "parties", "period", "payout_date")
_NOT_FIXED = "cellworth value was not given this agreement, so it was not fixed before the values."


def draft_agreement(
    *, output: Path, readable: Path | None, amends: Path | None, force: bool, **given: Any
) -> None:
    """Write an agreement: the command ``draft``."""
    check_output_file(output, force=force)
    check_output_file(readable, force=force)
    policy = Policy(**{name: given.pop(name) for name in _POLICY})
    given["game"] = "owners" if policy.game == "owners" else "cells"
    head = _read_head({name: given.pop(name) or None for name in _HEAD})
    if given["table"] == STDIN:
        raise click.UsageError("an agreement needs a table that stays; give a file, not stdin.")
    draw = _read_draw(given.pop("draw_share"), given.pop("draw_seed"), amends)
    loaded = LoadedRequest.from_request(make_request(**given), draw)
    if "time" in loaded.request.stop:
        raise ValueError(
            "--stop time cannot be agreed on: the values could not be recomputed; leave it out."
        )
    owners = loaded.owners()
    if owners is None:
        raise click.UsageError("an agreement needs owners; give --owners.")
    head["validation"] = draw
    agreement = _write_agreement(loaded, owners, policy, head, amends)
    agreement.save(output)
    if readable is not None:
        with write_atomically(readable) as file:
            file.write(agreement.to_markdown().encode())
    document = {
        "output": shorten_path(output.absolute()),
        "digest": agreement.digest,
        "previous": agreement.previous,
        "owners": owners.names,
        "policy": asdict(policy),
        "valuation": dict(agreement.terms),
    }
    line = f"The agreement of {', '.join(owners.names)} is in {shorten_path(output.absolute())}."
    print_result("draft", document, [line])


def _read_head(head: dict[str, Any]) -> dict[str, Any]:
    """Return the head of an agreement; click reads days as times."""
    if head["period"] is not None:
        head["period"] = tuple(day.date() for day in head["period"])
    if head["payout_date"] is not None:
        head["payout_date"] = head["payout_date"].date()
    return head


def _read_draw(share: float | None, seed: str | None, amends: Path | None) -> ValidationDraw | None:
    """Return the rule for validation rows; an amendment keeps the one before."""
    if (share is None) != (seed is None):
        raise click.UsageError("--draw-share and --draw-seed are given together.")
    if share is not None and seed is not None:
        return ValidationDraw(share, seed)
    return None if amends is None else parse_agreement(read_text(amends, "amends")).validation


def _write_agreement(
    loaded: LoadedRequest,
    owners: Owners,
    policy: Policy,
    head: dict[str, Any],
    amends: Path | None,
) -> Agreement:
    valuer, data = loaded.valuer(), loaded.data()
    if amends is None:
        return Agreement.draft(valuer, owners, policy, **head, **data)
    before = parse_agreement(read_text(amends, "amends"))
    if head.pop("contract") not in (None, before.contract):
        raise click.UsageError("--contract is that of the agreement before; leave it out.")
    return before.amend(valuer=valuer, owners=owners, policy=policy, **head, **data)


def split_amount(*, folder: Path, output: Path | None, **given: Any) -> None:
    """Share an amount among owners: the command ``split``."""
    owner, page, pages = given["statement"], given["report"], given["statements"]
    if output is not None:
        check_writable(output)
    _check_pages(owner, page, pages)
    with nullcontext() if owner is None else _hide_other_owners(owner):
        result = Result.load(folder, table=given["table"], val=given["val"], of_owners=True)
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
        if page is not None:
            write_statement(statement, page, digest=digest, agreement=payout.agreement)
    else:
        plan = payout.plan()
        document = _make_payout_document(payout, plan, digest, output, page, pages)
        print_result("split", document, [repr(one) for one in (payout, plan) if one is not None])
        if page is not None:
            write_payout(payout, page, digest=digest)
        if pages is not None:
            write_statements(payout, pages, digest=digest)
    if output is not None:
        where = shorten_path(output.absolute())
        note(f"The bundle is in {where}; its digest, for all owners: {digest}")


def _check_pages(owner: str | None, page: Path | None, pages: Path | None) -> None:
    """Check, before anything is computed, that pages can be written and replace nothing."""
    if page is None and pages is None:
        return
    check_jinja()
    if owner is not None and pages is not None:
        raise click.UsageError("--statements is for all owners; leave out --statement.")
    check_output_file(page, force=True)
    if pages is not None:
        check_writable(pages)
    for path in (page, pages):
        if path is not None and path.exists():
            raise FileExistsError(f"{path} exists already; give another name.")


def verify_payout(
    *,
    folder: Path,
    digest: str | None,
    agreement: Path | None,
    chain: bool,
    signed_by: tuple[Path, ...],
    values_folder: AnyPath | None,
    model: str | None,
    table: str | None,
    val: str | None,
) -> None:
    """Replay a bundle: the command ``verify``."""
    if folder.is_file():
        if chain or any((agreement, values_folder, table, val, model)):
            raise click.UsageError(
                "a proof is verified alone; give only --digest and --signed-by with it."
            )
        verdict = verify_proof(folder, digest=digest)
        if verdict and signed_by:
            difference = _describe_missing_signature([folder], None, signed_by)
            verdict = Verdict(("signatures", *verdict.checked), difference)
        _print_verdict(verdict)
        return
    anew: dict[str, Any] = {}
    result = None
    if values_folder is not None:
        result = Result.load(values_folder, table=table, val=val, of_owners=True)
        check_model_trusted(result.request, model, values_folder)
        _check_one_seed(result, values_folder)
        loaded = result.loaded
        anew = {
            "data": loaded.data(delivered=result.request.agreement is not None),
            "valuer": loaded.valuer(runtime=Runtime(progress=shows_progress())),
        }
    elif table is not None or val is not None or model is not None:
        raise click.UsageError("--table, --val and --model need --values; give it as well.")
    _check_is_bundle(folder)
    verdict = verify_bundle(folder, digest=digest, agreement=agreement, **anew)
    bundles = find_chain(folder) if chain else [folder]
    if verdict and chain:
        verdict = Verdict(("chain", *verdict.checked), verify_chain(bundles).difference)
    if verdict and signed_by:
        difference = _describe_missing_signature(bundles, agreement, signed_by)
        verdict = Verdict(("signatures", *verdict.checked), difference)
    if verdict and result is not None:
        difference = _describe_other_agreement(folder, result.request.agreement)
        verdict = Verdict(verdict.checked, difference)
    _print_verdict(verdict)


def _print_verdict(verdict: Verdict) -> None:
    document = {
        "verdict": bool(verdict),
        "checked": list(verdict.checked),
        "difference": verdict.difference,
    }
    print_result("verify", document, [repr(verdict)])
    if not verdict:
        click.get_current_context().exit(CHECK_FAILED)


def _describe_missing_signature(
    bundles: list[Path], agreement: Path | None, keys: tuple[Path, ...]
) -> str | None:
    """Describe the first signature that is missing or wrong; None if all are there."""
    for target in bundles if agreement is None else [agreement, *bundles]:
        verdict = verify_signatures(target, keys)
        if not verdict:
            return verdict.difference
    if agreement is None:
        return None
    agreed, paid = max(read_signing_times(agreement, keys)), read_bundle_time(bundles[-1])
    if paid < agreed:
        return f"the bundle is of {paid}, before the agreement was signed ({agreed})."
    return None


def write_owner_proofs(*, folder: Path, output: Path) -> None:
    """Write what each owner may see, with a proof: the command ``prove``."""
    _check_is_bundle(folder)
    check_writable(output)
    *owners, summary = (shorten_path(file.absolute()) for file in write_proofs(folder, output))
    document = {"owners": owners, "summary": summary}
    print_result("prove", document, [*owners, summary])


def sign_target(*, target: Path, key: Path, new_key: bool) -> None:
    """Sign an agreement or a bundle: the command ``sign``."""
    public = generate_key(key) if new_key else None
    signature = sign(target, key)
    where = shorten_path(signature.absolute())
    shown = None if public is None else shorten_path(public.absolute())
    document = {"output": where, "public_key": shown}
    lines = [f"The signature is in {where}."]
    if shown is not None:
        lines.append(f"The public key, for everyone who verifies it, is in {shown}.")
    print_result("sign", document, lines)


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


def _check_is_bundle(folder: Path) -> None:
    """Check that a folder holds a bundle; a damaged one gets a verdict."""
    kind = get_folder_format(folder) if not (folder / PAYOUT).exists() else BUNDLE
    if kind is not None and kind != BUNDLE:
        raise ValueError(f"{folder} holds no bundle; give a folder that cellworth split -o wrote.")


def _describe_other_agreement(bundle: Path, then: str | None) -> str | None:
    """Describe how the agreement of a bundle differs from that of its values; else None."""
    path = bundle / AGREEMENT
    if then is None:
        if path.exists():
            warnings.warn(_NOT_FIXED, stacklevel=2)
        return None
    if not path.exists():
        return "the bundle holds no agreement, but its values were computed under one."
    line = _describe_first_change(path.read_text(encoding="utf-8"), then)
    if line is None:
        return None
    return (
        f"the agreement of the bundle is not the one under which its values were computed: {line}."
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
    request, val = result.request, result.loaded.val
    agreed, owned = given["agreement"], given["owners"]
    terms: dict[str, Any] = {
        "amount": given["amount"],
        "carried": given["carried"],
        "X_val": None if val is None else val.X,
    }
    if given["reserve"] is not None:
        if val is None:
            raise click.UsageError("--reserve is compared with validation rows; there are none.")
        terms |= {"y_val": val.y, "reserve": result.loaded.read_reserve(given["reserve"])}
    if agreed is not None:
        text = read_text(agreed, "agreement")
        agreement = parse_agreement(text)
        _check_same_agreement(agreed, text, request.agreement)
        loaded = result.loaded.with_owners(owners=None, agreement=text)
        return agreement.split(result.valuation, loaded.with_keys, loaded.delivered_y, **terms)
    if owned is not None:
        if request.agreement is not None:
            warnings.warn(
                "--owners overrides the agreement under which the values were computed.",
                stacklevel=2,
            )
        text = read_owners(owned)
        named = result.loaded.with_owners(owners=text, agreement=None).owners()
    elif request.agreement is not None:
        agreement = parse_agreement(request.agreement)
        loaded = result.loaded
        return agreement.split(result.valuation, loaded.with_keys, loaded.delivered_y, **terms)
    else:
        named = result.loaded.owners()
    if named is None:
        raise click.UsageError("no owners were given; give --owners or --agreement.")
    if request.owners_play:
        given = given | {"game": "owners"}
    policy = Policy(**{name: given[name] for name in _POLICY})
    return split_revenue(result.valuation, named, policy=policy, y=result.loaded.y, **terms)


def _make_payout_document(
    payout: Payout, plan: IntervalPlan | None, digest: str | None, *written: Path | None
) -> dict[str, Any]:
    bundle, page, pages = (
        None if path is None else shorten_path(path.absolute()) for path in written
    )
    return {
        "amount": str(payout.amount),
        "currency": payout.currency,
        "owners": payout.to_frame("pyarrow").to_pylist(),
        "unassigned": payout.unassigned,
        "carried": dict(payout.carried),
        "held": str(payout.held),
        "ties": list(map(list, payout.ties)),
        "undecided": list(payout.undecided),
        "plan": None if plan is None else asdict(plan),
        "findings": [asdict(finding) for finding in payout.findings],
        "bundle": bundle,
        "digest": digest,
        "report": page,
        "statements": pages,
        "previous": payout.previous,
    }
