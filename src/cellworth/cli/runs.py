"""Commands that run: value, resume and warm-up, locally or on a cluster."""

from __future__ import annotations

import itertools
import logging
import signal
import socket
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq
import tomli_w

from cellworth.cli.app import (
    TRY_AGAIN,
    WRONG_INPUT,
    InterruptedRunError,
    note,
    print_result,
    shorten_path,
    shows_progress,
)
from cellworth.cli.folders import (
    CHECKPOINT,
    VALUATION,
    check_output_folder,
    get_folder_format,
    is_free,
    make_resume_line,
    save_result,
)
from cellworth.cli.input_files import STDIN, keep_stdin
from cellworth.cli.request import (
    AGREED,
    FILE,
    KNN,
    LoadedRequest,
    RunRequest,
    check_agreement,
    check_model_trusted,
    check_same_request,
    read_agreed_settings,
)
from cellworth.data.file_search import names_many
from cellworth.data.io import AnyPath, to_path
from cellworth.data.owners import are_players, read_text_file
from cellworth.runtime.dask_executor import Dask
from cellworth.runtime.forecast import Forecast
from cellworth.runtime.ray_executor import Ray
from cellworth.runtime.run_settings import Runtime
from cellworth.valuation import load
from cellworth.valuation.valuation import Valuation
from cellworth.valuation.values import ValueList

_SHOWN = 5
_SECONDS_TO_ANSWER = 20


def value_table(
    *,
    checkpoint: AnyPath | None,
    workers: int | str | None,
    force: bool,
    dry_run: bool,
    output: AnyPath | None,
    **asked: Any,
) -> None:
    """Value a table: the command ``value``."""
    if dry_run:
        with tempfile.TemporaryDirectory() as folder:
            # A table from stdin is kept beside the output.
            request = make_request(output=Path(folder, "values"), **asked)
            _print_forecast(request, workers)
        return
    run_and_save("value", make_request(output=output, **asked), checkpoint, workers, force=force)


def resume_run(
    *,
    folder: AnyPath,
    table: str | None,
    val: str | None,
    model: str | None,
    stop: dict[str, float],
    workers: int | str | None,
    output: AnyPath | None,
    force: bool,
) -> None:
    """Resume a run from its checkpoint: the command ``resume``."""
    if get_folder_format(folder) != CHECKPOINT:
        raise ValueError(f"{folder} holds no run; give the --checkpoint of cellworth value.")
    request = RunRequest.load(folder).with_paths(table, val)
    check_model_trusted(request, model, folder)
    where = request.output if output is None else str(output.absolute())
    request = replace(request, stop=request.stop | stop, output=where)
    run_and_save("resume", request, folder, workers, force=force)


class _DryRunEndError(Exception):
    """Raised instead of the first task of a dry run."""


def _print_forecast(request: RunRequest, workers: int | str | None) -> None:
    """Print what a run would do and about how long it takes."""
    forecasts: list[Forecast] = []

    def end(forecast: Forecast) -> None:
        forecasts.append(forecast)
        raise _DryRunEndError

    loaded = LoadedRequest.from_request(request)
    _describe_source(loaded)
    with (
        _connect(workers, Runtime(progress=shows_progress(), on_start=end)) as runtime,
        suppress(_DryRunEndError),
    ):
        valuer = loaded.valuer(workers, runtime)
        check_agreement(loaded, valuer)
        _fit(valuer, loaded, None)
    (forecast,) = forecasts
    document = {
        "sampler": forecast.sampler,
        "shape": forecast.shape,
        "utilities": float(forecast.utilities),
        "seconds": forecast.seconds,
        "cores": forecast.n_cores,
        "text": str(forecast),
        "column_info": valuer.columns_.to_plain(),
    }
    lines = [f"{forecast.sampler}: {forecast}", "", repr(valuer.columns_)]
    print_result("forecast", document, lines)


def _describe_source(loaded: LoadedRequest) -> None:
    """Say how a table in many files is read."""
    request, (n_rows, n_columns) = loaded.request, loaded.train.X.shape
    if not request.shards and not names_many(request.table, {}):
        return
    how = "in shards; --no-shards reads it into memory"
    if not request.shards:
        how = "into memory; --shards reads it in shards"
    note(f"{request.table} has {n_rows:,} rows x {n_columns:,} columns and is read {how}.")


def run_and_save(
    command: str,
    request: RunRequest,
    checkpoint: AnyPath | None,
    workers: int | str | None,
    *,
    force: bool,
) -> None:
    """Run a request, write its result and print a summary."""
    output = to_path(request.output, "-o")
    inside = f"{output.resolve().as_posix()}/"
    if checkpoint is not None and f"{checkpoint.resolve().as_posix()}/".startswith(inside):
        raise ValueError(
            f"-o must not contain the checkpoint, got {shorten_path(output)} and --checkpoint "
            f"{checkpoint}; give another folder for the values."
        )
    # Only resume may replace a result of the same request.
    check_output_folder(output, force=force, request=request if command == "resume" else None)
    loaded = LoadedRequest.from_request(request)
    _describe_source(loaded)
    where = Runtime(checkpoint=checkpoint, progress=shows_progress())
    with _connect(workers, where) as runtime:
        valuer = loaded.valuer(workers, runtime)
        check_agreement(loaded, valuer)
        with nullcontext() if checkpoint is None else _keep_request(request, checkpoint):
            valuation = _fit(valuer, loaded, checkpoint)
    _check_any_task(valuation, request, checkpoint)
    output = _choose_output(output, valuation)
    save_result(valuation, request, output)
    document = {"output": shorten_path(output), **summarize_valuation(valuation)}
    listed = valuation.rows() if are_players(valuation.blocks) else valuation.columns()
    print_result(command, document, [repr(valuation), "", repr(listed)])
    note(f"The values are in {shorten_path(output)}.")
    if valuation.status == "interrupted":
        raise InterruptedRunError(_describe_interruption(request, checkpoint))


def make_request(
    *,
    table: str,
    val: str | None,
    shards: bool | None,
    row_id: str | None,
    owners: str | None = None,
    agreement: Path | None = None,
    output: AnyPath | None = None,
    **asked: Any,
) -> RunRequest:
    """Return the request of the command-line options."""
    if agreement is not None:
        return _make_agreed_request(table, val, agreement, output)
    if asked["target"] is None:
        raise click.UsageError("Missing option '--target'.")
    folds = RunRequest.cv
    if val is not None and val.isdecimal():
        folds, val = int(val), None
        if folds < 2:
            raise click.UsageError("--val is a table, or at least 2 folds.")
    if val is None and asked["val_rows"] is not None and asked["model"] != KNN:
        raise click.UsageError("--val-rows draws rows of --val; give both.")
    owners = None if owners is None else read_owners(owners)
    folder = output or Path(_name_output(table))
    if table == STDIN:
        # Beside the result; if that is in an object store, here.
        table = str(keep_stdin(folder if isinstance(folder, Path) else Path(folder.name)))
        note(f"stdin is kept in {shorten_path(Path(table).absolute())}, for later commands.")
    return RunRequest.from_files(
        table=table,
        val=val,
        shards=shards,
        cv=folds,
        id=row_id,
        owners=owners,
        output=str(folder.absolute()),
        **asked,
    )


def read_owners(given: str) -> str:
    """Return the content of a file of owners; a column that names them is a file of one line."""
    if given.endswith(".toml"):
        return read_text_file(given, "--owners")
    return tomli_w.dumps({"source": given})


def _make_agreed_request(
    table: str, val: str | None, agreement: Path, output: AnyPath | None
) -> RunRequest:
    """Return the request of an agreement; no option may repeat or change a setting of it."""
    context = click.get_current_context()
    given = [
        option.opts[-1]
        for option in context.command.params
        if option.name in {*AGREED, "row_id", "owners"} - {"val"}
        and context.get_parameter_source(option.name) == click.core.ParameterSource.COMMANDLINE
    ]
    if given:
        raise click.UsageError(
            f"{', '.join(given)}: settled by the agreement, so that it is left out."
        )
    text = read_text_file(agreement, "--agreement")
    settings = read_agreed_settings(text)
    # Validation rows may have moved; their hash is compared.
    agreed_val = settings.pop("val")
    if agreed_val is not None and val is None:
        val = str(agreement.absolute().parent / agreed_val)
    folder = output or Path(_name_output(table))
    return RunRequest.from_files(
        table=table, val=val, **settings, agreement=text, output=str(folder.absolute())
    )


def _name_output(table: str) -> str:
    """Return the default folder of the result, named after the file or folder."""
    if table == STDIN:
        return "stdin.values"
    parts = [part for part in PurePosixPath(table).parts if not set(part) & set("*?[/:")]
    return f"{(parts or [''])[-1].partition('.')[0] or 'table'}.values"


def _check_any_task(valuation: Valuation, request: RunRequest, checkpoint: AnyPath | None) -> None:
    """Check that a task was finished: without one, all values would be equal."""
    n_tasks = sum(session.tasks for session in valuation.provenance.sessions)
    if n_tasks > 0 or valuation.status == "exact":
        return
    advice, code = "give --stop a larger limit.", WRONG_INPUT
    if checkpoint is not None:
        code = TRY_AGAIN
        advice = f"resume it with: {make_resume_line(checkpoint, request.model)}"
    raise InterruptedRunError(
        f"The run ended before its first task, so nothing was written; {advice}", code
    )


def _choose_output(output: AnyPath, valuation: Valuation) -> AnyPath:
    """Return the output folder; an interrupted run never replaces a complete result."""
    if valuation.status != "interrupted" or _may_be_replaced(output):
        return output
    note(f"{shorten_path(output)} is unchanged, because this run was interrupted.")
    names = (f"{output.name}.partial{number or ''}" for number in itertools.count())
    paths = (output.with_name(name) for name in names)
    return next(path for path in paths if _may_be_replaced(path))


def _may_be_replaced(folder: AnyPath) -> bool:
    """Return whether a folder is free or holds the values of an interrupted run."""
    if is_free(folder):
        return True
    is_result = folder.is_dir() and get_folder_format(folder) == VALUATION
    return is_result and load(folder).status == "interrupted"


def summarize_valuation(valuation: Valuation) -> dict[str, Any]:
    """Return the main figures of a valuation."""
    return {
        "shape": valuation.shape,
        "status": valuation.status,
        "method": valuation.provenance.method["name"],
        "total": valuation.total,
        "total_error": valuation.total_error,
        "expected_total": valuation.expected_total,
        "score": valuation.score,
        "baseline": valuation.baseline,
        "scores": valuation.scores and valuation.scores.to_plain(),
        "largest_standard_error": valuation.largest_error,
        "seconds": valuation.provenance.seconds,
        "column_info": valuation.column_info and valuation.column_info.to_plain(),
        "columns": list_values(valuation.columns()),
        "lowest": list_values(valuation.lowest(_SHOWN)),
        "highest": list_values(valuation.highest(_SHOWN)),
    }


def list_values(values: ValueList) -> list[Any]:
    """Return one dictionary per value; an unknown error is None."""
    return [
        {name: entry[name] for name in entry if name not in ("rank", "count")}
        | {"validation_se": entry.get("validation_se")}
        for entry in values
    ]


def _fit(valuer: Any, loaded: LoadedRequest, checkpoint: AnyPath | None) -> Valuation:
    owners = loaded.owners()
    more = {} if owners is None else {"owners": owners}
    try:
        valuer.fit(**loaded.data(), **more)
    except KeyboardInterrupt as error:
        # Before the run has begun there is nothing to resume.
        if checkpoint is None or get_folder_format(checkpoint) is None:
            raise
        raise InterruptedRunError(_describe_interruption(loaded.request, checkpoint)) from error
    valuation: Valuation = valuer.valuation_
    return valuation


@contextmanager
def _keep_request(request: RunRequest, folder: AnyPath) -> Iterator[None]:
    """Keep the request in the checkpoint, unless the run fails before it begins."""
    if folder.exists() and get_folder_format(folder) == VALUATION:
        raise FileExistsError(f"{folder} holds a result; give another folder as --checkpoint.")
    if folder.exists() and get_folder_format(folder) is not None:
        check_same_request(folder, request)
    was_there = folder.exists()
    is_new = not (folder / FILE).exists()
    request.save(folder)
    try:
        yield
    finally:
        if is_new and get_folder_format(folder) is None:
            (folder / FILE).unlink()
            if not was_there:
                folder.rmdir()


def _describe_interruption(request: RunRequest, checkpoint: AnyPath | None) -> str:
    if checkpoint is None:
        return "Interrupted: these values are based on the tasks completed so far."
    return f"Interrupted; resume with: {make_resume_line(checkpoint, request.model)}"


@contextmanager
def _connect(workers: int | str | None, runtime: Runtime) -> Iterator[Runtime]:
    """Yield the runtime on the workers; leaving the context ends a connection to a cluster."""
    if not isinstance(workers, str):
        yield runtime
    elif workers.startswith("ray:"):
        with _connect_to_ray(workers.removeprefix("ray:")):
            yield replace(runtime, executor=Ray())
    else:
        with _connect_to_dask(workers) as client:
            yield replace(runtime, executor=Dask(client))


@contextmanager
def _connect_to_dask(address: str) -> Iterator[Any]:
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError(
            "a Dask scheduler needs distributed; pip install 'cellworth[dask]'."
        ) from error
    try:
        client = Client(address, timeout=_SECONDS_TO_ANSWER)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise ValueError(
            f"--workers must be an address such as tcp://host:8786 ({error})."
        ) from error
    except OSError as error:
        raise ConnectionError(f"no scheduler answers at {address} ({error}).") from error
    with client:
        yield client


@contextmanager
def _connect_to_ray(address: str) -> Iterator[None]:
    try:
        import ray
    except ImportError as error:
        raise ImportError("a Ray cluster needs ray; pip install 'cellworth[ray]'.") from error
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        raise ValueError(f"--workers must be an address such as ray:host:6379, got {address!r}.")
    try:
        # Ray itself would try for minutes, and then end this process.
        socket.create_connection((host, int(port)), timeout=_SECONDS_TO_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ConnectionError(f"no Ray cluster answers at {address} ({error}).") from error
    on_signal = signal.getsignal(signal.SIGTERM)
    ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    # Ray's own handler would end the run without its result.
    signal.signal(signal.SIGTERM, on_signal)
    try:
        yield
    finally:
        ray.shutdown()


def warm_up() -> None:
    """Value tiny tables of all kinds, so that all kernels are compiled and kept on disk."""
    from cellworth.knn import kernels

    cached = getattr(getattr(kernels.fill_keys, "_cache", None), "cache_path", None)
    if cached is None:
        raise OSError(
            "no folder for compiled kernels can be written; set NUMBA_CACHE_DIR to one that can."
        )
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        # Tables of ten rows are suspicious in many ways.
        warnings.simplefilter("ignore")
        _value_tiny_tables(Path(folder))
    click.echo(f"kernels are compiled and kept in {cached}")


def _value_tiny_tables(folder: Path) -> None:
    from cellworth import KNNValuer, ShardedKNNValuer, ShardedTable
    from cellworth.knn import BinnedRanks, NeighborAgreement
    from cellworth.sampling import ExhaustiveSampler, PermutationSampler

    rows = [{"a": n % 7, "b": n * n % 5, "c": str(n % 2)} for n in range(20)]
    X = pa.Table.from_pylist(rows)
    # Many rows have longer sort keys, and orders of many columns are not multiplied.
    many = pa.table({str(k): [n / 7 for n in range(9_000)] for k in range(33)})
    settings: dict[str, Any] = {"random_state": 0, "runtime": Runtime(progress=False)}
    targets: dict[str, list[Any]] = {
        "two": [n % 2 for n in range(20)],
        "three": [str(n % 3) for n in range(20)],
        "number": [n / 7 for n in range(20)],
    }
    for name, y in targets.items():
        samplers: list[Any] = [PermutationSampler(1), ExhaustiveSampler()]
        for sampler, ranking in itertools.product(samplers, (None, BinnedRanks(1))):
            valuer = KNNValuer(1, sampler=sampler, ranking=ranking, n_passes=1, **settings)
            valuer.fit(X, y, cv=2)
            valuer.fit(X, y, cv=2, row_groups=[n // 2 for n in range(20)])
        long = KNNValuer(1, sampler=PermutationSampler(1), n_passes=1, **settings)
        long.fit(many, y * 450, X_val=many[:20], y_val=y)
        for scoring in (NeighborAgreement(divisor="n_voters"), "neg_brier_score"):
            if name != "number":
                KNNValuer(1, scoring=scoring, **settings).fit(X, y, cv=2)
        path = folder / f"{name}.parquet"
        pq.write_table(X.append_column("y", pa.array(y)), path)
        sharded = ShardedKNNValuer(1, sampler=PermutationSampler(1), n_passes=1, **settings)
        sharded.fit(ShardedTable.from_files(path, target="y"), X_val=X, y_val=y)
