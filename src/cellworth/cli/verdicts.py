"""Verdicts of ``check`` as files that pipelines read: JSON, JUnit and Markdown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any
from xml.etree import ElementTree as ET

from cellworth.cli.app import format_document
from cellworth.data.io import AnyPath, write_atomically
from cellworth.data.text import visible_text

_MARKUP = re.compile(r"([\\`*_{}\[\]<>|#~!&@])")


def write_verdict(path: AnyPath, document: Mapping[str, Any], table: str) -> None:
    """Write the verdict on a table in the format of the ending of a file."""
    text = WRITERS[path.suffix](document, table)
    with write_atomically(path) as file:
        file.write(text.encode())


def _as_junit(document: Mapping[str, Any], table: str) -> str:
    """Return a test suite with one case for each check."""
    failed = sum(not one["passed"] for one in document["checks"])
    counts = {"tests": str(len(document["checks"])), "failures": str(failed)}
    suites = ET.Element("testsuites", counts)
    named = {"name": f"cellworth check {visible_text(table)}", **counts}
    suite = ET.SubElement(suites, "testsuite", named)
    for one in document["checks"]:
        name = visible_text(one["sentence"])
        case = ET.SubElement(suite, "testcase", classname=f"cellworth.{one['name']}", name=name)
        if not one["passed"]:
            ET.SubElement(case, "failure", message=name).text = "\n".join(_describe(one))
    return ET.tostring(suites, encoding="unicode", xml_declaration=True)


def _as_markdown(document: Mapping[str, Any], table: str) -> str:
    """Return a table with one line for each check."""
    verdict = "passed" if document["passed"] else "failed"
    lines = [f"**cellworth check of {_escape(table)}: {verdict}**", "", "| | check |", "|---|---|"]
    for one in document["checks"]:
        shown = "<br>".join(map(_escape, _describe(one)))
        lines.append(f"| {'ok' if one['passed'] else '**FAIL**'} | {shown} |")
    return "\n".join([*lines, ""])


def _describe(one: Mapping[str, Any]) -> list[str]:
    findings = [] if one["passed"] else one["findings"]
    return [visible_text(text) for text in (one["sentence"], *findings)]


def _escape(text: str) -> str:
    """Show the contents of cells as they are: no markup, no links, no mentions."""
    return _MARKUP.sub(lambda found: f"&#{ord(found[1])};", visible_text(text))


WRITERS: dict[str, Callable[[Mapping[str, Any], str], str]] = {
    ".json": lambda document, _: format_document("check", document),
    ".xml": _as_junit, ".md": _as_markdown,
}  # fmt: skip
