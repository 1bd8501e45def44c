"""Commands about owners: agree, split and verify."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import tomli_w

from cellworth.cli.app import CHECK_FAILED, note, print_result, shorten_path, shows_progress
from cellworth.cli.folders import (
    BUNDLE,
    Result,
    check_output_file,
    check_writable,
    get_folder_format,
)
from cellworth.cli.request import (
    AGREED,
    LoadedRequest,
    RunRequest,
    check_model_trusted,
    parse_agreement,
)
from cellworth.data.io import AnyPath
from cellworth.data.owners import parse_toml, read_text_file
from cellworth.payouts.agreement import Agreement
from cellworth.payouts.bundle import PAYOUT
from cellworth.payouts.payout import Payout
from cellworth.payouts.policy import Policy, ValidationDraw, describe_shared
from cellworth.payouts.replay import verify_bundle
from cellworth.report.payout_pages import write_payout, write_statements
from cellworth.runtime.run_settings import Runtime

_OWNERS = ("source", "keys", "overlaps", "rest", "owners")
# Settings of the table and of the method, as the file has them.
_TABLE = (
    "target", "id", "drop", "missing", "categorical", "delimiter", "encoding", "decimal", "shards",
)  # fmt: skip
_METHOD = ("model", "neighbors", "scoring", "score", "seed", "stop")
_VALIDATION = ("table", "rows", "share", "seed", "folds")
_SECTIONS = {"validation": _VALIDATION, "method": _METHOD, "policy": tuple(vars(Policy()))}


def write_agreement(*, terms: Path, output: Path, force: bool) -> None:
    """Write an agreement: the command ``agree``."""
    check_output_file(output, force=force)
    plain = parse_toml(read_text_file(terms, "terms"), str(terms))
    _check_terms(plain, terms)
    request, draw = _read_request(plain, terms.absolute().parent, output.absolute())
    loaded = LoadedRequest.from_request(request, draw)
    owners = loaded.owners()
    if owners is None:
        raise ValueError(f"{terms} names no owners; add source = COLUMN, or a list [[owners]].")
    amends = plain.get("amends")
    agreement = Agreement.draft(
        loaded.valuer(),
        owners,
        Policy(**plain.get("policy", {})),
        contract=plain.get("contract"),
        validation=draw,
        amends=None if amends is None else parse_agreement(read_text_file(amends, "amends")),
        request=_keep_settings(request, output.absolute()),
        **loaded.data(),
    )
    agreement.save(output)
    document = {
        "output": shorten_path(output.absolute()),
        "digest": agreement.digest,
        "previous": agreement.previous,
        "owners": owners.names,
        "policy": asdict(agreement.policy),
        "valuation": dict(agreement.terms),
    }
    lines = [
        f"The agreement of {', '.join(owners.names)} is in {shorten_path(output.absolute())}.",
        describe_shared(agreement.terms["empty"]),
        f"Its digest: {agreement.digest}",
    ]
    print_result("agree", document, lines)


def _check_terms(plain: Mapping[str, Any], terms: Path) -> None:
    """Check that a file has the known settings, and those without which there is no agreement."""
    known = {"table", "contract", "amends", *_TABLE, *_OWNERS, *_SECTIONS}
    odd = [name for name in plain if name not in known]
    for section, names in _SECTIONS.items():
        if not isinstance(plain.get(section, {}), Mapping):
            raise ValueError(f"{section} of {terms} must be a table, such as [{section}].")
        odd += [f"{section}.{name}" for name in plain.get(section, {}) if name not in names]
    if odd:
        raise ValueError(
            f"{terms} has unknown settings: {', '.join(odd)}; leave them out. There are "
            f"{', '.join(sorted(known))}."
        )
    missing = [name for name in ("table", "target") if name not in plain]
    if missing:
        raise ValueError(f"{terms} must say {' and '.join(missing)}.")
    if "time" in plain.get("method", {}).get("stop", {}):
        raise ValueError(
            f"{terms} stops after a time, which cannot be agreed on: the values could not be "
            "recomputed; leave it out."
        )


def _read_request(
    plain: Mapping[str, Any], folder: Path, output: Path
) -> tuple[RunRequest, ValidationDraw | None]:
    """Return the request of a file, and the rule that draws validation rows, if it has one."""
    chosen = plain.get("validation", {})
    owners = {name: plain[name] for name in _OWNERS if name in plain}
    game = plain.get("policy", {}).get("game", Policy().game)
    asked = {name: plain[name] for name in _TABLE if name in plain} | dict(plain.get("method", {}))
    asked |= {"val_rows": chosen["rows"]} if "rows" in chosen else {}
    asked |= {"cv": chosen["folds"]} if "folds" in chosen else {}
    request = RunRequest.from_files(
        table=str(folder / plain["table"]),
        val=str(folder / chosen["table"]) if "table" in chosen else None,
        owners=tomli_w.dumps(owners) if owners else None,
        game=game,
        output=str(output),
        **RunRequest.check_settings(asked, "the terms"),
    )
    drawn = {"share", "seed"} & set(chosen)
    if not drawn:
        return request, None
    if len(drawn) == 1 or "table" in chosen:
        raise ValueError("validation must have a table, or share and seed, or neither.")
    return request, ValidationDraw(chosen["share"], chosen["seed"])


def _keep_settings(request: RunRequest, output: Path) -> dict[str, Any]:
    """Return the settings that ``value --agreement`` takes; paths are relative to the file."""
    settings = {name: getattr(request, name) for name in AGREED}
    if request.val is not None:
        settings["val"] = os.path.relpath(request.val, output.parent)
    return {name: list(one) if isinstance(one, tuple) else one for name, one in settings.items()
            if one is not None}  # fmt: skip


def split_amount(*, folder: Path, output: Path | None, **given: Any) -> None:
    """Share an amount among owners: the command ``split``."""
    page, pages = given["report"], given["statements"]
    if output is not None:
        check_writable(output)
    _check_pages(page, pages)
    result = Result.load(folder, table=given["table"], val=given["val"], of_owners=True)
    payout = _make_payout(result, given)
    digest = None if output is None else payout.save(output)
    document = _make_payout_document(payout, digest, output, page, pages)
    print_result("split", document, [repr(payout)])
    if page is not None:
        write_payout(payout, page, digest=digest)
    if pages is not None:
        write_statements(payout, pages, digest=digest)
    if output is not None:
        where = shorten_path(output.absolute())
        note(f"The bundle is in {where}; its digest, for all owners: {digest}")


def _check_pages(page: Path | None, pages: Path | None) -> None:
    """Check, before anything is computed, that pages can be written and replace nothing."""
    if page is None and pages is None:
        return
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
    values_folder: AnyPath | None,
    model: str | None,
    table: str | None,
    val: str | None,
) -> None:
    """Replay a bundle: the command ``verify``."""
    anew: dict[str, Any] = {}
    if values_folder is not None:
        result = Result.load(values_folder, table=table, val=val, of_owners=True)
        check_model_trusted(result.request, model, values_folder)
        seeds = {session.seed for session in result.valuation.provenance.sessions}
        if len(seeds) > 1:
            raise ValueError(
                f"{values_folder} holds values merged from {len(seeds)} seeds, which one run "
                "cannot reproduce; verify without --values."
            )
        loaded = result.loaded
        anew = {
            "data": loaded.data(with_keys=True),
            "valuer": loaded.valuer(runtime=Runtime(progress=shows_progress())),
        }
    elif table is not None or val is not None or model is not None:
        raise click.UsageError("--table, --val and --model need --values; give it as well.")
    # A damaged bundle gets a verdict.
    kind = get_folder_format(folder) if not (folder / PAYOUT).exists() else BUNDLE
    if kind is not None and kind != BUNDLE:
        raise ValueError(f"{folder} holds no bundle; give a folder that cellworth split -o wrote.")
    verdict = verify_bundle(folder, digest=digest, agreement=agreement, **anew)
    document = {
        "verdict": bool(verdict),
        "checked": list(verdict.checked),
        "difference": verdict.difference,
        "left": list(verdict.left),
    }
    print_result("verify", document, [repr(verdict)])
    if not verdict:
        click.get_current_context().exit(CHECK_FAILED)


def _make_payout(result: Result, given: dict[str, Any]) -> Payout:
    """Split as agreed; what was valued must be what was agreed, with or without the file then."""
    text = result.request.agreement
    if given["agreement"] is not None:
        text = read_text_file(given["agreement"], "--agreement")
    if text is None:
        raise click.UsageError(
            "these values were computed under no agreement; write one with cellworth agree, and "
            "give it as --agreement."
        )
    if result.request.agreement not in (None, text):
        raise ValueError(
            f"{given['agreement']} is not the agreement under which these values were computed; "
            "leave it out, or value the table under it."
        )
    agreement = parse_agreement(text)
    request = result.request.under(text)
    differences = result.request.list_differences(request)
    if differences:
        raise ValueError(
            f"the values differ from the agreement: {'; '.join(differences)}; value the table "
            "under it."
        )
    table = LoadedRequest.from_request(request).train.delivered
    return agreement.split(
        result.valuation, table, amount=given["amount"], carried=given["carried"]
    )


def _make_payout_document(
    payout: Payout, digest: str | None, *written: Path | None
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
        "facts": [asdict(fact) for fact in payout.facts],
        "bundle": bundle,
        "digest": digest,
        "report": page,
        "statements": pages,
        "previous": payout.previous,
    }
