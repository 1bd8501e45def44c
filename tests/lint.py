"""Check what people read, in seconds: ``python tests/lint.py``.

Words of the glossary, links and lengths of pages, figures of pages against docs/results, and
docstrings of public names. What is wrong is printed, one line each. ``--words`` prints how many
words there are to read.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import sys
import tomllib
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import words  # noqa: E402
from experiments import frame  # noqa: E402

URLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
CODE_BLOCK = re.compile(r"^ *(```+|~~~+).*?^ *\1\s*$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


# Links and lengths ------------------------------------------------------------------------------

LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
DEFINITION = re.compile(r"^\[([^\]\n]+)\]: +(\S+)$", re.MULTILINE)
# Text in brackets, then a label in brackets: without one, the text is the label.
REFERENCE = re.compile(r"(?<![\]!\w])\[([^\]\[]+)\](?:\[([^\]]+)\])?+(?!\()")
# What is looked at, not read: blocks, tables, commands.
NOT_PROSE = re.compile(r"(?ms)^ *(```+|~~~+|:::+).*?^ *\1\s*$|<!--.*?-->|^\|[^\n]*$|^    [^\n]*$")
MAX_WORDS = 1500
# Of README and the guide, with their code.
MAX_GUIDE_WORDS = 14_000
ELSEWHERE = ("http://", "https://", "mailto:")


def pages() -> list[Path]:
    """Return every Markdown page of the project."""
    docs = (page for page in ROOT.glob("docs/**/*.md") if "_build" not in page.parts)
    return [*sorted(ROOT.glob("*.md")), *sorted(docs), *sorted(ROOT.glob(".github/**/*.md"))]


def links(text: str) -> list[str]:
    """Return the targets of all links of a page."""
    text = CODE_BLOCK.sub("", text)
    return LINK.findall(text) + [link for _, link in DEFINITION.findall(text)]


def find_target(page: Path, path: str) -> Path | None:
    """Return the file that a link leads to; None for a link to elsewhere."""
    for kind in ("blob", "raw", "tree"):
        if path.startswith(start := f"{URLS['Source']}/{kind}/main/"):
            return ROOT / path.removeprefix(start)
    if path.startswith(URLS["Documentation"]):
        name = path.removeprefix(URLS["Documentation"]).removesuffix(".html") or "index"
        sources = [ROOT / "docs" / f"{name}{suffix}" for suffix in (".md", ".rst")]
        sources.append(ROOT / "examples" / f"{name.removeprefix('gallery/')}.py")
        return next((source for source in sources if source.exists()), sources[0])
    if path.startswith(ELSEWHERE):
        return None
    return (page.parent / path) if path else page


def check_link(page: Path, link: str) -> Iterator[str]:
    """Yield what is wrong with a link."""
    path, _, anchor = link.partition("#")
    target = find_target(page, path)
    if target is None:
        return
    if not target.exists():
        yield f"{page.name} links to {link}, which is not there"
    elif anchor and anchor not in _anchors(target.read_text(encoding="utf-8")):
        yield f"{page.name} links to {link}, but {target.name} has no such heading"


def _anchors(text: str) -> set[str]:
    """Return the anchors of headings, as GitHub and MyST make them."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", text)
    headings = re.findall(r"^#+ +(.*?)\s*$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


def count_words() -> Counter[str]:
    """Return the words of README and of each folder of the docs, code included, not comments."""
    found = Counter[str]()
    for page in pages():
        name = page.relative_to(ROOT).as_posix()
        if name == "README.md" or name.startswith("docs/"):
            folder = page.parent.name if page.parent.parent.name == "docs" else page.name
            text = re.sub(r"<!--.*?-->", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
            found[folder] += len(text.split())
    return found


def check_pages() -> Iterator[str]:
    """Yield links that lead nowhere, and pages of the docs that answer more than one question."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        for link in links(text):
            yield from check_link(page, link)
        n_words = len(NOT_PROSE.sub("", text).split())
        if page.parent.parent.name == "docs" and n_words > MAX_WORDS:
            yield f"{page.name} has {n_words} words: split it"
    count = count_words()
    to_read = count.total() - count["evidence"] - count["reference"]
    if to_read > MAX_GUIDE_WORDS:
        yield f"README and the guide have {to_read:,} words, at most {MAX_GUIDE_WORDS:,} allowed"
    yield from _check_links_of_readme()


def _check_links_of_readme() -> Iterator[str]:
    """Yield links that the package index, which shows README alone, cannot follow."""
    text = CODE_BLOCK.sub("", (ROOT / "README.md").read_text(encoding="utf-8"))
    for link in links(text):
        if not link.startswith("https://"):
            yield f"README.md links to {link}, which the package index cannot follow"
    shown = REFERENCE.findall(DEFINITION.sub("", text))
    used = {(label or name).lower() for name, label in shown}
    for label in used ^ {label.lower() for label, _ in DEFINITION.findall(text)}:
        yield f"README.md uses the label {label!r} without defining it, or the other way round"


# Figures ----------------------------------------------------------------------------------------

MARKED = re.compile(r"<!-- result: .*?<!-- end of result -->|<!-- figure: .*?<!-- -->", re.DOTALL)
TABLE = re.compile(r"(?:^\|.*\n)+", re.MULTILINE)
CODE = re.compile(r"`[^`]*`")
# What a measured figure looks like: a decimal, a percentage, an error, an amount with a unit.
FIGURE = re.compile(
    r"(?<![\w.])(?:\d[\d,]*)?\.?\d+%|(?<![\w.])\d*\.\d+|\d[\d,]* ± \d[\d,]*|±"
    r"|(?<![\w.,])\d[\d,]* (?:s|seconds|ms|ns|MB|GB|times|points)\b"
)
# Tables of conditions, versions, examples and rules.
NO_MEASUREMENTS = {
    "supported",
    "what, read by later versions",
    "column, distance of two cells",
    "method, value of a block, fits",
    "problem, use, coalitions, sampling error",
    "h(S, F), a, b, a and b",
    "`empty`, rows without columns, columns without rows, valuers",
    "event, when, fields besides `time`, `level` and `message`",
    "kind, example, fix",
    "you want, use, it takes",
    "warning, condition, what to do",
}
# Versions, numbers of papers, comments, and 95% intervals.
NO_FIGURES = re.compile(
    r"(version|Python|pyDVL|cleanlab|Before|From|dask-\w+) \d+(\.\d+)+( and \d\.\d+| to \d\.\d+)?"
    r"|arXiv:[\d.]+|<!--.*?-->|±?1\.96|95%|`[^`]*`|^ {4}.*$|^\|.*$",
    re.MULTILINE,
)
# Settings, definitions, conditions of a measurement and arithmetic: all other figures that pages
# have in their text are those of results.
TYPED = {
    "evidence/anomaly-scores-measured.md": ".05 1% 2% 2.5 40% 5%",
    "evidence/anomaly-scores.md": "0.3 1% 1.349 1.73 60% 90%",
    "evidence/audit.md": "60%",
    "evidence/column-samplers.md": "1.11 ±",
    "evidence/errors-of-models.md": ".95 15% 256_MB 60_times",
    "evidence/estimators.md": "1.15 11% 6.5",
    "evidence/payouts.md": "500_times",
    "evidence/removal.md": "10% 15% 16% 2% 20% 5% 50%",
    "evidence/reproduction.md": "1% 10% 12_times 2% 2.5% 20% 40% 5% 62% 92%",
    "evidence/scale.md": "1.25 1.5 2% 4_MB",
    "evidence/ties.md": "0.1 0.167",
    "guide/audit.md": "60% 8% 90%",
    "guide/choosing-a-method.md": "20_ms",
    "guide/command-line.md": "6.5",
    "guide/data-scientist.md": "20_times 90%",
    "guide/install.md": "0.1",
    "guide/marketplace.md": "000.00",
    "guide/pipelines.md": "1% 5%",
    "guide/two-dimensional-shapley.md": "2_points",
    "reference/agreements.md": "2.5% 97.5%",
    "reference/bibliography.md": "10.24432",
    "reference/extending.md": "3% 91.8%",
    "reference/files.md": "1.1 1.2 512_MB",
    "reference/models.md": "20_ms",
    "reference/nearest-neighbors.md": "0.6 1% 1.349 2% 5% 99%",
    "reference/owners.md": "0.01",
    "reference/report.md": "4_MB",
    "reference/sharded-tables.md": "128_MB 512_MB",
}


def typed_by_hand(text: str) -> str:
    """Return a page without what a result fills in, and without blocks of code."""
    return re.sub(r"^```.*?^```", "", MARKED.sub("", text), flags=re.DOTALL | re.MULTILINE)


def find_tables_of_figures(text: str) -> list[str]:
    """Return the header of each table in which a cell is, or has, a figure."""
    found = []
    for table in TABLE.findall(text):
        lines = table.replace(r"\|", "/").splitlines()
        header, _, *body = ([each.strip() for each in line.split("|")[1:-1]] for line in lines)
        cells = [cell for row in body for cell in row[1:]]
        if any(FIGURE.search(CODE.sub("", c)) or re.match(r"[-+*]*\d", c) for c in cells):
            found.append(", ".join(filter(None, header)))
    return found


def check_figures() -> Iterator[str]:
    """Yield figures of pages that do not come from a complete run of an experiment."""
    found = set()
    for page in frame.pages():
        name = page.relative_to(ROOT).as_posix().removeprefix("docs/")
        text = page.read_text(encoding="utf-8")
        yield from (f"{name}: {said}" for said in _check_marks(text))
        typed = typed_by_hand(text)
        found |= set(find_tables_of_figures(typed))
        figures = {each.replace(" ", "_") for each in FIGURE.findall(NO_FIGURES.sub("", typed))}
        for figure in sorted(figures ^ set(TYPED.get(name, "").split())):
            yield f"{name}: {figure} is typed and not in TYPED, or the other way round"
    for example in sorted((ROOT / "examples").glob("*.py")):
        if "shared/data" in example.read_text(encoding="utf-8"):
            yield f"{example.name}: names a private folder"
    for header in found ^ NO_MEASUREMENTS:
        yield f"table {header!r}: figures without a result, or NO_MEASUREMENTS names it in vain"
    yield from _check_figures_of_readme()
    yield from _check_results()


def _check_marks(text: str) -> Iterator[str]:
    if text.count("<!-- result:") != text.count("<!-- end of result -->"):
        yield "results begin and do not end"
    if text.count("<!-- figure:") != text.count("<!-- -->"):
        yield "figures begin and do not end"
    if "\n<!-- figure:" in text:
        yield "a figure's comment at the start of a line ends the paragraph"
    if frame.update_page(text) != text:
        yield "figures differ from docs/results: python -m experiments --docs"
    if "shared/data" in text:
        yield "names a private folder"
    for name in re.findall(r"python\s-m\sexperiments\s([a-z_]+)", text):
        if name not in frame.names():
            yield f"no experiment is named {name}"
    for file in re.findall(r"(?:benchmarks|experiments)/\w+\.py", text):
        if not (ROOT / file).is_file():
            yield f"{file} is not there"


def _check_figures_of_readme() -> Iterator[str]:
    """Yield figures of README that no result fills in; tables and indented lines count, too."""
    text = CODE.sub("", typed_by_hand((ROOT / "README.md").read_text(encoding="utf-8")))
    text = re.sub(r"(version|Python|pyDVL|cleanlab) \d+(\.\d+)+", "", text)
    for line in text.splitlines():
        if FIGURE.search(line):
            yield f"README.md has a figure without a result: {line}"


def _check_results() -> Iterator[str]:
    for path in sorted(frame.RESULTS.glob("*.json")):
        result = json.loads(path.read_text(encoding="utf-8"))
        if result["experiment"] not in frame.names():
            yield f"{path.name}: no experiment is named {result['experiment']}"
        if result["quick"]:
            yield f"{path.name}: the run was a quick one"
        if result.get("commit", "").endswith("+"):
            yield f"{path.name}: code had changed since the commit that it names"


# Public names -----------------------------------------------------------------------------------

MAX_PARAMETERS = 12
# Results have as many fields as they report; valuers make them, users read them.
RESULTS = {"Valuation", "valuation.ShardedValuation", "payouts.Payout"}
# A row or column label may have any type; others pass the arguments of fit on.
WITHOUT_TYPE = {
    ("findings.Explanation", "label"),
    ("payouts.Agreement", "data"),
    ("payouts.OwnerValuer", "data"),
}
# What numpydoc calls: parameters that are not documented, or documented and not there; no Returns,
# Yields, See Also or Examples; sections that are unknown or in another order.
INCOMPLETE = {"GL06", "GL07", "GL08", "PR01", "PR02", "RT01", "YD01", "SA01", "EX01"}


def check_public_names() -> Iterator[str]:
    """Yield public names that are not documented, not typed, or not in the reference."""
    public = words.public_things()
    reference = (ROOT / "docs" / "reference" / "index.rst").read_text(encoding="utf-8")
    listed = Counter(re.findall(r"^   ([\w.]+)$", reference, re.MULTILINE))
    for name in (listed - Counter([*public])) + (Counter([*public]) - listed):
        yield f"{name} is not public, or not once in docs/reference/index.rst"
    bibliography = ROOT / "docs" / "reference" / "bibliography.md"
    cited = " ".join(bibliography.read_text(encoding="utf-8").split())
    for name, thing in public.items():
        if ">>> " not in (inspect.getdoc(thing) or ""):
            yield f"{name} has no example"
        for entry in _references(thing):
            if entry not in cited:
                yield f"{name} refers to what bibliography.md does not list: {entry}"
        if inspect.isroutine(thing) or inspect.isclass(thing):
            yield from (f"{name}: {said}" for said in _check_callable(name, thing))


def _references(thing: Any) -> list[str]:
    """Return the entries of the References section of a docstring, each in one line."""
    text = inspect.getdoc(thing) or ""
    found = re.search(r"\nReferences\n-+\n(.*?)(\n\n\w+\n-+\n|$)", text, re.DOTALL)
    return [" ".join(entry.split()) for entry in found[1].split("\n\n")] if found else []


def _check_callable(name: str, thing: Any) -> Iterator[str]:
    if len(inspect.getdoc(thing) or "") <= 20:
        yield "has no docstring"
    n_parameters = len(words.parameters_of(thing))
    if n_parameters > MAX_PARAMETERS and name not in RESULTS:
        yield f"takes {n_parameters} parameters"
    for member in _own_functions(thing):
        if not inspect.getdoc(member):
            yield f"{member.__name__} has no docstring"
        parameters = {each for each in inspect.signature(member).parameters if each != "self"}
        if untyped := (parameters | {"return"}) - set(typing.get_type_hints(member)):
            yield f"{member.__name__} has no type for {', '.join(sorted(untyped))}"
    for member in (thing, *_own_functions(thing)):
        for each, parameter in words.parameters_of(member).items():
            is_any = parameter.annotation in {"Any", "Any | None"}
            if is_any and (name, each) not in WITHOUT_TYPE:
                yield f"{each} may be anything"
    yield from _check_sections(name, thing)


def _own_functions(thing: Any) -> list[Any]:
    """Return a function, or the public methods that a class has of its own."""
    if inspect.isfunction(thing):
        return [thing]
    own = [member for name, member in vars(thing).items() if not name.startswith("_")]
    ours = [member for member in own if getattr(member, "__module__", "").startswith("cellworth")]
    return [member for member in ours if inspect.isfunction(member)]


def _check_sections(name: str, thing: Any) -> Iterator[str]:
    # In the dependency group check, which a quick look at words does not need.
    if importlib.util.find_spec("numpydoc") is None:
        return
    from numpydoc.validate import validate

    errors = dict(validate(f"cellworth.{name}")["errors"])
    if getattr(thing, "_is_protocol", False):
        errors.pop("PR01", None)  # the arguments that Python gives to every protocol
    for code in sorted(INCOMPLETE & set(errors)):
        yield f"{errors[code]} ({code})"


# ------------------------------------------------------------------------------------------------


def complaints() -> Iterator[str]:
    """Yield all that is wrong, one line each."""
    for path in words.files():
        yield from words.offences(path)
    yield from check_pages()
    yield from check_figures()
    yield from check_public_names()


if __name__ == "__main__":
    if "--words" in sys.argv:
        counted = count_words()
        lines = [*counted.items(), ("all", counted.total())]
        sys.stdout.writelines(f"{name:20} {n_words:7,}\n" for name, n_words in lines)
        sys.exit()
    found = list(complaints())
    sys.stdout.writelines(f"{complaint}\n" for complaint in found)
    sys.exit(bool(found))
