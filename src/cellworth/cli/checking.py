"""The command check: limits for a pipeline, with an exit code."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from cellworth.certainty import SAMPLING_ALONE
from cellworth.cli import options
from cellworth.cli.folders import Result, stands_alone
from cellworth.cli.printing import print_result
from cellworth.cli.program import NO
from cellworth.diagnostics import cell_suspicion
from cellworth.loading import load
from cellworth.valuation import Valuation, named_score


@dataclass(frozen=True)
class Check:
    """A figure, the limit that it must keep, and whether it does.

    ``unknown`` is the part of the figure that nobody knows, and which is counted against it.
    """

    name: str
    found: float
    limit: float
    passed: bool
    sentence: str
    unknown: float | None = None


@click.command(epilog=options.example("cellworth check values --max-harmful 2% --min-total 0.1"))
@click.argument("folder", type=options.PATH)
@click.option(
    "--max-harmful", type=options.share, metavar="SHARE",
    help="Most cells, as 2% or 0.02, whose value is below 0 by more than 1.96 times its error "
    "(of sampling and of the choice of validation rows together; of sampling alone for a table in "
    "shards), or whose value or error is not known.",
)  # fmt: skip
@click.option("--min-total", type=options.finite, help="Least that all cells are worth together.")
@click.option("--max-suspects", type=click.IntRange(min=0), help="Most suspicious cells.")
@click.option(
    "--suspicion-above", type=options.finite,
    help="Beyond this a cell counts as suspicious; at most about 2 log(rows).",
)  # fmt: skip
@click.option(
    "--allow-interrupted", is_flag=True,
    help="Hold values of a run that was broken off against the limits, too; else they fail.",
)  # fmt: skip
@options.files_moved
@options.as_json
@click.pass_context
def check(
    ctx: click.Context,
    /,
    *,
    folder: Path,
    max_harmful: float | None,
    min_total: float | None,
    max_suspects: int | None,
    suspicion_above: float | None,
    allow_interrupted: bool,
    table: Path | None,
    val: Path | None,
    as_json: bool,
) -> None:
    """Hold the values in FOLDER against limits; exit code 1 if one is broken."""
    if max_harmful is None and min_total is None and max_suspects is None:
        raise click.UsageError("no limit came; give --max-harmful, --min-total or --max-suspects.")
    if (max_suspects is None) != (suspicion_above is None):
        raise click.UsageError("--max-suspects and --suspicion-above go together; give both.")
    of_suspects = max_suspects is not None or table is not None or val is not None
    if stands_alone(folder) and not of_suspects:
        valuation = load(folder)
    else:
        result = Result.load(folder, table=table, val=val)
        valuation = result.valuation
    checks = [
        *_of_status(valuation, allow_interrupted),
        *_of_values(valuation, max_harmful, min_total),
    ]
    if max_suspects is not None and suspicion_above is not None:
        checks.append(_of_suspects(result, max_suspects, suspicion_above))
    passed = all(one.passed for one in checks)
    lines = [f"{'ok  ' if one.passed else 'FAIL'}  {one.sentence}" for one in checks]
    print_result("check", {"passed": passed, "checks": list(map(asdict, checks))}, lines)
    if not passed:
        ctx.exit(NO)


def shares_harmful(valuation: Valuation) -> tuple[float, float]:
    """Share of the blocks that are worth less than nothing beyond their error, and of unknown ones.

    A block is unknown if its value or its error is.
    """
    signs = valuation.signs()
    return signs.negative / signs.total, signs.unknown / signs.total


def _of_status(valuation: Valuation, allowed: bool) -> Iterator[Check]:
    """Values of a run that was broken off are none that a pipeline should go on with."""
    if valuation.status != "interrupted":
        return
    scores = valuation.scores
    done = f" ({scores.judged_on})" if scores is not None else ""
    told = f"the run was broken off before its end{done}"
    advice = "allowed" if allowed else "go on with cellworth resume, or give --allow-interrupted"
    yield Check("interrupted", 1.0, float(allowed), allowed, f"{told}; {advice}")


def _of_values(
    valuation: Valuation, max_harmful: float | None, min_total: float | None
) -> Iterator[Check]:
    if max_harmful is not None:
        harmful, unknown = shares_harmful(valuation)
        # What nobody knows may be harmful: a gate that is not sure stays shut.
        share = harmful + unknown
        told = f"{harmful:.2%} of the cells are harmful"
        told += f" and {unknown:.2%} are not known" if unknown else ""
        told += f" ({SAMPLING_ALONE})" if valuation.lacks_validation_errors else ""
        told += f", at most {max_harmful:.2%} may be"
        yield Check("max_harmful", share, max_harmful, share <= max_harmful, told, unknown)
    if min_total is not None:
        total = valuation.total
        scored = _told_score(valuation)
        told = f"all cells are worth {total:.4g}{scored}, at least {min_total:.4g} is asked for"
        yield Check("min_total", total, min_total, total >= min_total, told)


def _told_score(valuation: Valuation) -> str:
    if valuation.scores is None or math.isnan(valuation.score):
        return ""
    return f" (score {named_score(valuation)}, baseline {valuation.unearned:.4g})"


def _of_suspects(result: Result, most: int, above: float) -> Check:
    question = result.question
    suspicion = cell_suspicion(question.X, question.y, kinds=question.kinds)
    count = int((suspicion > above).sum())
    told = f"{count} cells have a suspicion above {above:g}, at most {most} may"
    return Check("max_suspects", count, most, count <= most, told)
