"""Runs: from a request to a folder of values, in one go, in parts or on many machines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cellworth.cli.folders import (
    VALUATION,
    is_free,
    kind_of,
    refuse_to_overwrite,
    resume_line,
    save_result,
)
from cellworth.cli.printing import note, print_result, progress_is_shown, shown
from cellworth.cli.program import BrokenOffError
from cellworth.cli.requests import FILE, Request, refuse_other_request
from cellworth.cli.valuing import KNN, Question, refuse_what_was_not_agreed
from cellworth.column_info import ColumnTable
from cellworth.listing import ValueList
from cellworth.loading import load
from cellworth.report import round_line
from cellworth.runtime import Dask, Processes, Progress, Serial, Threads
from cellworth.valuation import Valuation

_SHOWN = 5
_SECONDS_TO_ANSWER = 20


@dataclass(frozen=True)
class Place:
    """Where a run takes place and what is kept of it.

    Parameters
    ----------
    checkpoint : path or None
        Folder in which the run is written down.
    shard : tuple of int or None
    jobs : int or None
        Workers on this machine.
    dask : str or None
        Address of a scheduler.
    quiet : bool
    """

    checkpoint: Path | None = None
    shard: tuple[int, int] | None = None
    jobs: int | None = None
    dask: str | None = None
    quiet: bool = False

    @contextmanager
    def settings(self, model: str) -> Iterator[dict[str, Any]]:
        """Settings of a valuer; a cluster is let go of afterwards."""
        how: dict[str, Any] = {"progress": progress_is_shown(self.quiet)}
        if self.checkpoint is not None:
            how["checkpoint"] = self.checkpoint
        if self.shard is not None:
            how["shard"] = self.shard
        if self.dask is not None:
            with _client(self.dask) as client:
                yield {**how, "executor": Dask(client)}
        elif self.jobs is not None:
            many = Threads if model == KNN else Processes
            yield {**how, "executor": Serial() if self.jobs == 1 else many(self.jobs)}
        else:
            yield how


def run_and_save(command: str, request: Request, place: Place, *, force: bool) -> None:
    """Answer a request, write the answer into its folder and print a summary."""
    output = Path(request.output) if request.output else None
    _refuse_one_folder_for_both(output, place.checkpoint)
    if output is not None and place.shard is None:
        # The same request may go on where it was; nothing else is overwritten.
        refuse_to_overwrite(output, force=force, request=request if command == "resume" else None)
    question = Question.of(request)
    lines: list[Mapping[str, Any]] = list(request.rounds)
    with place.settings(request.model) as how:
        valuer = question.valuer(**how, on_round=lambda progress: _add_line(lines, progress))
        refuse_what_was_not_agreed(question, valuer)
        with _written_down(request, place):
            valuation = _fitted(valuer, question, place)
    if place.shard is not None:
        assert place.checkpoint is not None  # noqa: S101 (a shard has one)
        request.save(place.checkpoint)
        _print_shard(request, place.checkpoint, place.shard)
        return
    assert valuation is not None and output is not None  # noqa: S101, PT018 (only shards lack them)
    _refuse_nothing(valuation, request, place)
    request = replace(request, rounds=tuple(lines))
    if place.checkpoint is not None:
        request.save(place.checkpoint)
    output = _beside_a_whole(output, valuation)
    save_result(valuation, request, output)
    print_summary(command, valuation, output)
    if not place.quiet:
        note(f"The values are in {shown(output)}.")
    if valuation.status == "interrupted":
        raise BrokenOffError(_way_on(request, place))


def _refuse_nothing(valuation: Valuation, request: Request, place: Place) -> None:
    """Refuse equal shares of the total that no task has told apart."""
    n_tasks = sum(session.tasks for session in valuation.provenance.sessions)
    if n_tasks > 0 or valuation.status == "exact":
        return
    way = "give a larger --budget or --deadline."
    if place.checkpoint is not None:
        way = f"go on, for longer, with: {resume_line(place.checkpoint, request.model)}"
    raise BrokenOffError(f"The run ended before its first task, so nothing was written; {way}")


def _beside_a_whole(output: Path, valuation: Valuation) -> Path:
    """Where values go: those that were broken off never replace a result that came to its end."""
    if valuation.status != "interrupted" or _may_be_replaced(output):
        return output
    note(f"{shown(output)} is kept as it was, because this run did not come to its end.")
    names = (f"{output.name}.partial{number or ''}" for number in itertools.count())
    return next(path for path in map(output.with_name, names) if _may_be_replaced(path))


def _may_be_replaced(folder: Path) -> bool:
    """Tell whether there is nothing but, perhaps, values that were broken off themselves."""
    if is_free(folder):
        return True
    is_result = folder.is_dir() and kind_of(folder) == VALUATION
    return is_result and load(folder).status == "interrupted"


def print_summary(command: str, valuation: Valuation, output: Path) -> None:
    """Print what came out of a run."""
    document = {"output": shown(output), **summary_of(valuation)}
    print_result(command, document, [repr(valuation), "", repr(valuation.columns())])


def summary_of(valuation: Valuation) -> dict[str, Any]:
    """The figures of a valuation that fit on a page."""
    return {
        "shape": list(valuation.shape),
        "status": valuation.status,
        "method": valuation.provenance.method["name"],
        "total": valuation.total,
        "total_error": valuation.total_error,
        "expected_total": valuation.expected_total,
        "score": valuation.score,
        "baseline": valuation.unearned,
        "scores": None if valuation.scores is None else valuation.scores.to_plain(),
        "largest_standard_error": valuation.largest_error,
        "seconds": valuation.provenance.seconds,
        "column_info": plain_columns(valuation.column_info),
        "columns": entries(valuation.columns()),
        "lowest": entries(valuation.lowest(_SHOWN)),
        "highest": entries(valuation.highest(_SHOWN)),
    }


def plain_columns(columns: ColumnTable | None) -> list[dict[str, Any]] | None:
    """What each raw column was taken for, for a document; None where nobody knows."""
    return None if columns is None else columns.to_plain()


def entries(values: ValueList) -> list[dict[str, Any]]:
    """One dictionary per value; an error that nobody knows is None."""
    return [
        {name: entry[name] for name in entry if name not in ("rank", "count")}
        | {"validation_error": entry.get("validation_error")}
        for entry in values
    ]


def _refuse_one_folder_for_both(output: Path | None, checkpoint: Path | None) -> None:
    if output is None or checkpoint is None:
        return
    run = checkpoint.resolve()
    if output.resolve() in (run, *run.parents):
        raise ValueError(
            f"-o is {shown(output)} and --checkpoint is {checkpoint}; give the values a folder "
            "that does not hold the run."
        )


def _add_line(lines: list[Mapping[str, Any]], progress: Progress) -> None:
    if not lines or progress.tasks > lines[-1]["tasks"]:
        lines.append(round_line(progress))


def _fitted(valuer: Any, question: Question, place: Place) -> Valuation | None:
    owners = question.owners()
    more = {} if owners is None else {"owners": owners}
    try:
        valuer.fit(**question.data(), **more)
    except KeyboardInterrupt as error:
        # There is nothing to go on from before the run itself has begun.
        if place.checkpoint is None or kind_of(place.checkpoint) is None:
            raise
        raise BrokenOffError(_way_on(question.request, place)) from error
    if place.shard is not None:
        return None
    valuation: Valuation = valuer.valuation_
    return valuation


@contextmanager
def _written_down(request: Request, place: Place) -> Iterator[None]:
    """Keep the request in the checkpoint, unless it is refused before the run begins."""
    folder = place.checkpoint
    if folder is None:
        yield
        return
    if folder.exists() and kind_of(folder) == VALUATION:
        raise FileExistsError(f"{folder} holds a result; give another folder as --checkpoint.")
    if folder.exists() and kind_of(folder) is not None:
        refuse_other_request(folder, request)
    was_there = folder.exists()
    is_new = not (folder / FILE).exists()
    request.save(folder)
    try:
        yield
    finally:
        # Other shards may have begun with the file meanwhile; theirs is the same.
        if is_new and place.shard is None and kind_of(folder) is None:
            (folder / FILE).unlink()
            if not was_there:
                folder.rmdir()


def _print_shard(request: Request, folder: Path, shard: tuple[int, int]) -> None:
    at, n_shards = shard
    document = {"checkpoint": str(folder), "shard": at, "shards": n_shards}
    line = (
        f"Shard {at} of {n_shards} is done; once all are, "
        f"{resume_line(folder, request.model)} gives the values."
    )
    print_result("shard", document, [line])


def _way_on(request: Request, place: Place) -> str:
    if place.checkpoint is None:
        return "Broken off: these values are of what was done by then."
    return f"Broken off; go on with: {resume_line(place.checkpoint, request.model)}"


@contextmanager
def _client(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError("--dask needs distributed; pip install 'cellworth[dask]'.") from error
    try:
        client = Client(address, timeout=_SECONDS_TO_ANSWER)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ConnectionError(f"no scheduler answers at {address} ({error}).") from error
    with client:
        yield client
