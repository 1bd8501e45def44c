"""Commands about money: draft, split and verify."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

import click

from cellworth.cli import options
from cellworth.cli.computing import asked_options, read_text, request_of
from cellworth.cli.folders import AUDIT, Result, kind_of, refuse_file, refuse_unwritable
from cellworth.cli.printing import note, print_result, progress_is_shown, shown
from cellworth.cli.program import NO
from cellworth.cli.valuing import Question, agreement_of, refuse_code_unasked, toml_of
from cellworth.owners import Owners
from cellworth.payouts import Agreement, Payout, Policy, Verdict, split_revenue, verify_audit
from cellworth.payouts.bundle import AGREEMENT, PAYOUT
from cellworth.payouts.policy import CheckPolicy, Negative, Players

_USUAL = Policy()

policy_options = options.joined(
    click.option("--currency", default=_USUAL.currency, show_default=True),
    click.option("--unit", default=_USUAL.unit, show_default=True, help="Smallest amount paid."),
    click.option(
        "--negative", type=click.Choice(get_args(Negative)), default=_USUAL.negative,
        show_default=True, help="Owners worth less than nothing get nothing, owe it, or pay.",
    ),
    click.option("--minimum", default=_USUAL.minimum, show_default=True, help="For every owner."),
    click.option("--label-owner", metavar="NAME", help="Who holds the labels."),
    click.option("--label-share", help="Share for labels that do not play, such as 0.10."),
    click.option(
        "--game", type=click.Choice(get_args(Players)), default=_USUAL.game, show_default=True,
        help="Single cells are the players, or whole blocks.",
    ),
    click.option(
        "--gate", type=click.Choice(get_args(CheckPolicy)), default=_USUAL.gate, show_default=True,
        help="What happens if copies or harmful owners are found.",
    ),
)  # fmt: skip
_POLICY = tuple(vars(_USUAL))
_NOT_FIXED = "cellworth value was not given this agreement, so it was not fixed before the values."


@click.command(
    epilog=options.example(
        "cellworth draft adult.csv.gz --target income --owners owners.toml -o deal.toml"
    )
)
@asked_options
@click.option("--owners", type=options.PATH, required=True, help="TOML: who holds which cells.")
@policy_options
@click.option("-o", "--output", type=options.PATH, required=True, help="The agreement, TOML.")
@options.force
@options.as_json
def draft(output: Path, force: bool, as_json: bool, **given: Any) -> None:
    """Write down what is agreed on before TABLE is valued: owners, question and policy.

    Then give cellworth value the same options and --agreement in place of --owners.
    """
    refuse_file(output, force=force)
    policy = Policy(**{name: given.pop(name) for name in _POLICY})
    question = Question.of(request_of(**given))
    if question.request.deadline is not None:
        raise ValueError("--deadline cannot be agreed on: nobody could compute the values again.")
    owners = question.owners()
    assert owners is not None  # noqa: S101 (the option is required)
    agreement = Agreement.draft(question.valuer(), owners, policy, **question.data())
    agreement.save(output)
    document = {
        "output": shown(output.absolute()),
        "owners": owners.names,
        "policy": asdict(policy),
        "valuation": dict(agreement.terms),
    }
    told = f"The agreement of {', '.join(owners.names)} is in {shown(output.absolute())}."
    print_result("draft", document, [told])


@click.command(
    epilog=options.example(
        "cellworth split values --agreement deal.toml --amount 100000.00 -o audit"
    )
)
@click.argument("folder", type=options.PATH)
@click.option("--amount", required=True, help="What is shared, such as 100000.00.")
@click.option("--agreement", type=options.PATH, help="As cellworth draft wrote it.")
@click.option("--owners", type=options.PATH, help="TOML: who holds which cells.")
@policy_options
@click.option("--statement", metavar="OWNER", help="Print what this owner may see, and no more.")
@options.files_moved
@click.option("-o", "--output", type=options.PATH, help="New folder for an audit of the payout.")
@options.as_json
@click.pass_context
def split(ctx: click.Context, /, *, folder: Path, output: Path | None, **given: Any) -> None:
    """Share an amount among the owners of the cells whose values are in FOLDER.

    Owners and policy come from --agreement, else from --owners and the options here, else from
    what cellworth value was given. If that was an agreement, no other one is taken.
    """
    owner = given["statement"]
    if output is not None:
        refuse_unwritable(output)
    with nullcontext() if owner is None else _nothing_about_others(owner):
        result = Result.load(folder, table=given["table"], val=given["val"])
        as_valued = result.request.agreement is not None and given["owners"] is None
        _refuse_both(ctx, given["agreement"] is not None or as_valued)
        payout = _payout(result, given)
    if owner is not None and owner not in payout.owners:
        raise ValueError(
            f"no owner is called {owner!r}; leave out --statement to see who there is."
        )
    seal = None if output is None else payout.save(output)
    if owner is not None:
        statement = payout.statement(owner)
        print_result("statement", statement.to_dict(), [repr(statement)])
    else:
        print_result("split", _payout_document(payout, output, seal), [repr(payout)])
    if output is not None:
        note(f"The audit is in {shown(output.absolute())}; its seal, for all owners: {seal}")


@click.command(epilog=options.example("cellworth verify audit --seal 5d41402abc --values values"))
@click.argument("folder", type=options.PATH)
@click.option("--seal", help="What cellworth split gave out.")
@click.option("--agreement", type=options.PATH, help="Your own copy of the agreement.")
@click.option(
    "--values", "values_folder", type=options.PATH,
    help="Folder of cellworth value: all values are computed anew from its table.",
)  # fmt: skip
@options.model_again
@options.files_moved
@options.as_json
@click.pass_context
def verify(
    ctx: click.Context,
    /,
    *,
    folder: Path,
    seal: str | None,
    agreement: Path | None,
    values_folder: Path | None,
    model: str | None,
    table: Path | None,
    val: Path | None,
    as_json: bool,
) -> None:
    """Replay the audit in FOLDER and say whether it holds; exit code 1 if it does not.

    With --values and a --model of yours its code is run.
    """
    anew: dict[str, Any] = {}
    result = None
    if values_folder is not None:
        result = Result.load(values_folder, table=table, val=val)
        refuse_code_unasked(result.request, model, values_folder)
        _refuse_many_seeds(result, values_folder)
        question = result.question
        anew = {
            "data": question.data(),
            "valuer": question.valuer(progress=progress_is_shown(False)),
        }
    elif table is not None or val is not None or model is not None:
        raise click.UsageError(
            "--table, --val and --model go with --values, which says what was asked."
        )
    _refuse_no_audit(folder)
    verdict = verify_audit(folder, seal=seal, agreement=agreement, **anew)
    if verdict and result is not None:
        difference = _other_agreement(folder, result.request.agreement)
        verdict = Verdict(verdict.checked, difference)
    document = {
        "verdict": bool(verdict),
        "checked": list(verdict.checked),
        "difference": verdict.difference,
    }
    print_result("verify", document, [repr(verdict)])
    if not verdict:
        ctx.exit(NO)


@contextmanager
def _nothing_about_others(owner: str) -> Iterator[None]:
    """Keep warnings and reasons to oneself, which name other owners and what they hold."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"nothing can be split, so there is no statement for {owner!r}; leave out "
                "--statement to see why."
            ) from error


def _refuse_many_seeds(result: Result, folder: Path) -> None:
    """Refuse values that no single run gives."""
    seeds = {session.seed for session in result.valuation.provenance.sessions}
    if len(seeds) > 1:
        raise ValueError(
            f"{folder} holds values that were merged of {len(seeds)} seeds, which one run cannot "
            "give again; verify without --values."
        )


def _refuse_both(ctx: click.Context, agreed: bool) -> None:
    """Refuse options that an agreement has settled."""
    if not agreed:
        return
    for name in ("owners", *_POLICY):
        if ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE:
            option = name.replace("_", "-")
            raise click.UsageError(f"--{option} is settled by the agreement; leave it out.")


def _refuse_no_audit(folder: Path) -> None:
    """Refuse a folder of another kind; a damaged audit gets a verdict."""
    kind = kind_of(folder) if not (folder / PAYOUT).exists() else AUDIT
    if kind is not None and kind != AUDIT:
        raise ValueError(f"{folder} holds no audit; give a folder that cellworth split -o wrote.")


def _other_agreement(audit: Path, then: str | None) -> str | None:
    """Tell how the agreement of an audit differs from that under which values were made."""
    path = audit / AGREEMENT
    if then is None:
        if path.exists():
            warnings.warn(_NOT_FIXED, stacklevel=2)
        return None
    if not path.exists():
        return "the audit holds no agreement, but its values were made under one."
    line = _first_change(path.read_text(encoding="utf-8"), then)
    if line is None:
        return None
    return f"the agreement of the audit is not that under which its values were made: {line}."


def _refuse_other_agreement(path: Path, text: str, then: str | None) -> None:
    if then is None:
        warnings.warn(_NOT_FIXED, stacklevel=2)
        return
    line = _first_change(text, then)
    if line is not None:
        raise ValueError(
            f"{path} is not the agreement under which these values were made: {line}; give the "
            "agreement of then, or value the table under the new one."
        )


def _first_change(now: str, then: str) -> str | None:
    """First line in which two texts differ, in words; None if there is none."""
    if now == then:
        return None
    pairs = zip_longest(now.splitlines(), then.splitlines(), fillvalue="nothing")
    for place, (one, other) in enumerate(pairs, start=1):
        if one != other:
            return f"line {place} is {one or 'empty'}, but was {other or 'empty'}"
    return "its line ends differ"


def _payout(result: Result, given: dict[str, Any]) -> Payout:
    request, X = result.request, result.question.X
    agreed, owned = given["agreement"], given["owners"]
    if agreed is not None:
        text = read_text(agreed, "agreement")
        agreement = agreement_of(text)
        _refuse_other_agreement(agreed, text, request.agreement)
        return agreement.split(result.valuation, X, amount=given["amount"])
    if owned is not None:
        if request.agreement is not None:
            warnings.warn("--owners sets aside what was agreed before the values.", stacklevel=2)
        text = read_text(owned, "owners")
        owners = Owners.from_plain(toml_of(text, "owners"), X, called="--owners")
    elif request.agreement is not None:
        agreement = agreement_of(request.agreement)
        return agreement.split(result.valuation, X, amount=given["amount"])
    else:
        named = result.question.owners()
        if named is None:
            raise click.UsageError("nobody is named; give --owners or --agreement.")
        owners = named
    policy = Policy(**{name: given[name] for name in _POLICY})
    return split_revenue(result.valuation, owners, amount=given["amount"], policy=policy)


def _payout_document(payout: Payout, output: Path | None, seal: str | None) -> dict[str, Any]:
    lines = zip(
        payout.owners,
        payout.values.tolist(),
        payout.intervals.tolist(),
        payout.shares.tolist(),
        payout.amounts,
        strict=True,
    )
    return {
        "amount": str(payout.amount),
        "currency": payout.currency,
        "owners": [
            {
                "owner": name,
                "value": value,
                "low": low,
                "high": high,
                "share": share,
                "amount": str(amount),
            }
            for name, value, (low, high), share, amount in lines
        ],
        "nobody": payout.nobody,
        "carried": dict(payout.carried),
        "undecided": [list(pair) for pair in payout.undecided],
        "findings": [asdict(finding) for finding in payout.findings],
        "audit": None if output is None else shown(output.absolute()),
        "seal": seal,
    }
