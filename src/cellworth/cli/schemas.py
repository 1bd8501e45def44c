"""The JSON documents of the command line as types, and their JSON Schemas (draft 2020-12).

A command builds its document as one of these dictionaries; :func:`document_schema` reads the same
type. A class's docstring becomes the description of its objects.
"""

from __future__ import annotations

import inspect
import types
from dataclasses import dataclass, is_dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from cellworth.cli.app import VERSION

Schema = dict[str, Any]

Count = Annotated[int, ("minimum", 0)]
Seconds = Annotated[float, ("minimum", 0)]
Label = str | float | bool
Number = float | None
Holds = Literal["cellworth valuation", "cellworth checkpoint", "cellworth bundle"]

Step = Literal[
    "signatures", "proof", "cells", "amounts", "chain", "files", "split", "agreement", "data",
    "values",
]  # fmt: skip

_PRIMITIVES = {
    str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null",
}  # fmt: skip


@dataclass(frozen=True)
class RunSettings:
    """Settings of a run."""

    table: str
    table_sha256: str
    target: str
    id: str | None = None
    drop: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    delimiter: str | None = None
    encoding: str = "utf-8"
    decimal: str = "."
    sheet: str | None = None
    shards: bool = False
    val: str | None = None
    val_sha256: str | None = None
    val_rows: int | Literal["all"] | None = None
    row_groups: str | None = None
    column_groups: dict[str, list[str]] | None = None
    categorical: tuple[str, ...] = ()
    model: str = "knn"
    neighbors: Count = 5
    scoring: str | None = None
    labels: bool = False
    game: Literal["cells", "owners"] = "cells"
    cv: Count = 5
    seed: Count = 0
    passes: int | None = None
    budget: int | None = None
    deadline: float | None = None
    error: float | None = None
    output: str | None = None


class Round(TypedDict):
    """State of a run after a round."""

    tasks: float
    seconds: float | None
    error: float | None
    total: float | None


class ColumnValue(TypedDict):
    """Value of a column, with its standard errors."""

    column: Label
    value: Number
    sampling_se: Number
    validation_se: Number


class CellValue(ColumnValue):
    """Value of a cell, with its standard errors."""

    row: Label


class ScoresDocument(TypedDict):
    """Score of the table, and plain scores for comparison."""

    scoring: str
    n_classes: int | None
    n_validation_rows: Count
    n_given_rows: Count
    n_folds: Count
    accuracy: Number
    majority: Number
    r2: Number
    rmse: Number


class ColumnDocument(TypedDict):
    """How a raw column was interpreted."""

    name: str
    read_as: Literal["number", "category", "date", "duration", "own distance", "not known"]
    missing: Count
    distinct: Count
    at_least: bool
    distance: str
    notes: list[str]


class ValuesDocument(TypedDict):
    """Summary of a valuation."""

    shape: tuple[Count, Count]
    status: Literal["exact", "estimated", "interrupted"]
    method: str
    total: Number
    total_error: Number
    expected_total: Number
    score: Number
    baseline: Number
    scores: ScoresDocument | None
    largest_standard_error: Number
    seconds: Seconds
    column_info: list[ColumnDocument] | None
    columns: list[ColumnValue]
    lowest: list[CellValue]
    highest: list[CellValue]


class ValueDocument(ValuesDocument):
    """Summary of the values that a run wrote to the folder ``output``."""

    output: str


class PartitionDocument(TypedDict):
    """A finished share of a run."""

    checkpoint: str
    partition: Count
    partitions: Count


class MergeDocument(TypedDict):
    """Contents of the merged folder ``output``."""

    output: str
    holds: Holds
    values: ValuesDocument | None


class PlanDocument(TypedDict):
    """Estimated cost of a run."""

    sampler: str
    shape: tuple[Count, Count]
    utilities: Number
    seconds: Number
    seconds_per_utility: float
    allowed: bool
    scoring: str | None
    n_validation_rows: int | None
    column_info: list[ColumnDocument] | None


class ProgressDocument(TypedDict):
    """How far a run, or one partition of it, is."""

    title: str
    event: Literal["start", "progress", "end", "failed"]
    time: str
    active: bool
    done: float
    tasks: int
    count: str
    seconds: float
    seconds_left: float | None
    error: float | None


class InfoDocument(TypedDict):
    """Contents of a folder."""

    folder: str
    holds: Holds
    request: RunSettings | None
    created: str | None
    versions: dict[str, str] | None
    values: ValuesDocument | None
    progress: list[ProgressDocument] | None


class SuspectDocument(TypedDict):
    """A suspicious cell."""

    rank: Count
    row: Label
    column: Label
    cell: Label | None
    typical: Label | None
    anomaly_score: float
    value: Number
    sampling_se: Number
    validation_se: Number
    reason: str


class SuspectsDocument(TypedDict):
    """Suspicious cells, the most suspicious one first."""

    by: Literal["anomaly_score", "value"]
    cells: list[SuspectDocument]


class FindingDocument(TypedDict):
    """A finding: row ids of its cells, and for each its position in ``columns`` or null for all."""

    kind: str
    columns: list[str]
    rows: list[Label]
    positions: list[Count] | None
    finding: str
    action: str
    advice: str
    false_rate: Annotated[float, ("minimum", 0), ("maximum", 1)]
    value: Number


class AuditDocument(TypedDict):
    """What is wrong with a table, worst first, and what is unusual and may well be right."""

    n_rows: Count
    n_columns: Count
    findings: list[FindingDocument]
    unusual: list[FindingDocument]


class CellOfRow(ColumnValue):
    """Value and content of one cell of a row."""

    cell: Label | None


class CellOfColumn(TypedDict):
    """Value and content of one cell of a column."""

    row: Label
    value: Number
    sampling_se: Number
    validation_se: Number
    cell: Label | None


class SimilarDocument(TypedDict):
    """A similar row or column."""

    label: Label
    value: Number


class ExplainDocument(TypedDict):
    """Value of one row or column, and of its cells."""

    side: Literal["row", "column"]
    label: Label
    value: Number
    sampling_se: Number
    validation_se: Number
    parts: list[CellOfRow | CellOfColumn]
    similar: list[SimilarDocument]


class ReportDocument(TypedDict):
    """Path and size of the report."""

    output: str
    bytes: Count


class LimitDocument(TypedDict):
    """A figure and its limit, and findings behind it (20 at most)."""

    name: Literal["interrupted", "min_total", "reference", "max", "max_findings"]
    found: Number
    limit: float
    passed: bool
    sentence: str
    findings: list[str]


class CheckDocument(TypedDict):
    """All checks, and whether all passed."""

    passed: bool
    checks: list[LimitDocument]


class DraftDocument(TypedDict):
    """An agreement, its digest, and that of the agreement that it amends."""

    output: str
    digest: str
    previous: str | None
    owners: list[str]
    policy: dict[str, str | float | bool | dict[str, str] | None]
    valuation: dict[str, Any]


class OwnerDocument(TypedDict):
    """Value, share and amount of an owner, with 95% intervals of value and amount."""

    owner: str
    value: float
    low: Number
    high: Number
    share: float
    amount: str
    amount_low: str | None
    amount_high: str | None


class OwnerFindingDocument(TypedDict):
    """A finding of the gate about owners."""

    kind: str
    owners: list[str]
    figure: Number
    sentence: str
    stake: Number | None
    count: int | None


class IntervalPlanDocument(TypedDict):
    """Validation rows that would halve the intervals of amounts."""

    currency: str
    width_now: float
    width_then: float
    rows_now: Count
    rows_then: Count
    times_tasks: float


class SplitDocument(TypedDict):
    """A payout."""

    amount: str
    currency: str
    owners: list[OwnerDocument]
    unassigned: float
    carried: dict[str, float]
    held: str
    ties: list[list[str]]
    undecided: list[tuple[str, str]]
    plan: IntervalPlanDocument | None
    findings: list[OwnerFindingDocument]
    bundle: str | None
    digest: str | None
    report: str | None
    statements: str | None
    previous: str | None


class SourceDocument(TypedDict):
    """What one source would add to the score, alone and as its share of the gain of all."""

    owner: str
    alone: float
    alone_low: Number
    alone_high: Number
    shared: float
    shared_low: Number
    shared_high: Number


class CompareDocument(TypedDict):
    """What sources would add to the score of what a buyer has."""

    base: list[str]
    base_score: float
    full_score: float
    scored: str
    sources: list[SourceDocument]


class StatementDocument(TypedDict):
    """What one owner may see of a payout."""

    owner: str
    amount: str
    value: float
    share: float
    interval: tuple[Number, Number]
    amount_interval: tuple[str, str] | None
    carried: float
    cells: Count
    labels: Count
    total_amount: str
    total_value: float
    currency: str
    owners: Count
    score: str | None


class SignDocument(TypedDict):
    """The file of a signature, and the public key with which it is verified."""

    output: str
    public_key: str | None


class ProveDocument(TypedDict):
    """Files of owners' proofs, in the order of owners, and of the summary."""

    owners: list[str]
    summary: str


class VerifyDocument(TypedDict):
    """Verdict on a bundle, what was checked, and the first difference."""

    verdict: bool
    checked: list[Step]
    difference: str | None


DOCUMENTS: dict[str, type] = {
    "audit": AuditDocument,
    "check": CheckDocument,
    "compare": CompareDocument,
    "draft": DraftDocument,
    "explain": ExplainDocument,
    "info": InfoDocument,
    "merge": MergeDocument,
    "plan": PlanDocument,
    "prove": ProveDocument,
    "report": ReportDocument,
    "resume": ValueDocument,
    "partition": PartitionDocument,
    "sign": SignDocument,
    "split": SplitDocument,
    "statement": StatementDocument,
    "suspects": SuspectsDocument,
    "value": ValueDocument,
    "verify": VerifyDocument,
}


def document_schema(name: str) -> Schema:
    """Return the JSON Schema of the document that a command prints with ``--json``."""
    schema = type_schema(DOCUMENTS[name])
    head = {"format": {"const": f"cellworth {name}"}, "version": {"const": VERSION}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"cellworth {name} --json",
        **schema,
        "properties": head | schema["properties"],
        "required": [*head, *schema["required"]],
    }


def type_schema(kind: Any) -> Schema:  # noqa: PLR0911 (one for each kind of type)
    """Return the JSON Schema of a type: dictionaries, lists, unions, literals and plain values."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return {**type_schema(arguments[0]), **dict(arguments[1:])}
    if kind in _PRIMITIVES:
        return {"type": _PRIMITIVES[kind]}
    if kind is Any:
        return {}
    if is_typeddict(kind) or is_dataclass(kind):
        return _object_schema(kind)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return _union_schema(arguments)
    if origin is dict:
        return {"type": "object", "additionalProperties": type_schema(arguments[1])}
    if origin is list or arguments[1:] == (...,):
        return {"type": "array", "items": type_schema(arguments[0])}
    if origin is tuple and len(set(map(repr, arguments))) == 1:
        size = {"minItems": len(arguments), "maxItems": len(arguments)}
        return {"type": "array", "items": type_schema(arguments[0]), **size}
    raise TypeError(f"{kind} has no JSON Schema; use a type that the other documents use.")


def _object_schema(kind: Any) -> Schema:
    hints = get_type_hints(kind, include_extras=True)
    return {
        "type": "object",
        "description": (inspect.getdoc(kind) or "").split("\n")[0],
        "properties": {name: type_schema(hint) for name, hint in hints.items()},
        "required": list(hints),
        "additionalProperties": False,
    }


def _union_schema(members: tuple[Any, ...]) -> Schema:
    schemas = [type_schema(member) for member in members]
    if all(schema.keys() == {"type"} for schema in schemas):
        return {"type": [schema["type"] for schema in schemas]}
    return {"anyOf": schemas}


def fits_type(kind: Any, given: Any) -> bool:
    """Tell whether a value read from JSON has a type; tuples are lists there."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return fits_type(arguments[0], given)
    if origin in (Union, types.UnionType):
        return any(fits_type(one, given) for one in arguments)
    if origin in (tuple, list):
        return isinstance(given, list) and all(fits_type(arguments[0], one) for one in given)
    if origin is dict:
        values = given.values() if isinstance(given, dict) else [...]
        return all(fits_type(arguments[1], one) for one in values)
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        same = isinstance(given, dict) and given.keys() == hints.keys()
        return same and all(fits_type(hints[name], given[name]) for name in hints)
    if origin is Literal:
        allowed: tuple[Any, ...] = arguments
    else:
        given, allowed = type(given), (int, float) if kind is float else (kind,)
    return given in allowed
