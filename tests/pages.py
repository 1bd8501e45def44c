"""Run what a Markdown page shows, and compare what comes with what it says.

    python tests/pages.py README.md docs/reference/runs.md
    python tests/pages.py --pictures docs/reference/runs.md

The second command also takes the pictures of a page from what its blocks wrote.

How to write a page. All blocks of a page run in order, in one new folder:

- ``python``: runs in one namespace for the whole page. A ``text`` block after it is what it prints.
- ``console``: a line ``$ command`` runs in bash; ``> `` (or a backslash at the end of the line
  before) continues it, here-documents too. Other lines are what the command prints; of a command
  that fails, also its messages. Shell variables last for one block. A failure is an error of the
  page, unless the next command looks at ``$?``.
- ``...`` in what is shown matches anything.
- ``<!-- file: owners.toml -->`` before a block of any language writes it to the folder instead.
- ``<!-- data: adult_train.csv -->`` anywhere copies a table of the shared data to the folder
  (``adult_train.csv.gz`` as it is, without ``.gz`` decompressed); ``raha_hospital_dirty.csv as
  hospital.csv`` gives it another name.
- ``<!-- not run: reason -->`` before a block keeps it from running; its syntax is still looked at.
- ``<!-- needs: mlflow==3.17.2 -->`` before a block keeps it from running, too, but for a test that
  installs these packages (requirements of pip, with spaces between them).
- ``![What it shows](../images/long-runs/errors.png)``, in a folder named like the page, is a
  picture that the blocks make: they write ``errors.png``, or a page ``errors.html`` to look at.

Every other block is refused, but for ``math`` and for directives of Sphinx. Only the standard
library is used here, so that a page can be tried where nothing but the wheel is installed.
"""

import ast
import contextlib
import doctest
import gzip
import importlib.util
import io
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parents[1].parent / "shared" / "data"
_FENCE = re.compile(r"^ *(`{3,}|~{3,})\s*(.*?)\s*$")
_MARK = re.compile(r"^ *<!-- (file|not run|needs|data): (.+?) -->\s*$")
_PICTURE = re.compile(r"!\[[^\]]+\]\(\.\./images/(.+)/(.+)\.png\)")
_ENDED = "this command ended with"


@dataclass(frozen=True)
class Block:
    """A fenced block, where it stands, and the mark before it."""

    language: str
    content: str
    position: str
    mark: str = ""
    said: str = ""


@dataclass(frozen=True)
class Page:
    """What stands on a page that can be run or looked at."""

    blocks: tuple[Block, ...]
    data: tuple[str, ...]
    pictures: tuple[str, ...]


# Reading ----------------------------------------------------------------------------------------


def read(path):
    """The blocks and marks of a page."""
    path = Path(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    shown = map(_PICTURE.match, lines)
    marks = [match.groups() for match in map(_MARK.match, lines) if match]
    return Page(
        blocks=tuple(_blocks(lines, path.name)),
        data=tuple(said for kind, said in marks if kind == "data"),
        pictures=tuple(found[2] for found in shown if found and found[1] == path.stem),
    )


def _blocks(lines, name):
    mark, number = ("", ""), 0
    while number < len(lines):
        line, fence = lines[number], _FENCE.match(lines[number])
        number += 1
        # A directive in four backticks holds Markdown, which is read like the rest.
        if fence and len(fence[1]) == 3:
            end = _end(lines, number, f"{name}, line {number}")
            content = "\n".join(lines[number:end]) + "\n"
            indent = len(line) - len(line.lstrip())
            content = re.sub(f"^ {{{indent}}}", "", content, flags=re.MULTILINE)
            yield Block(fence[2], content, f"{name}, line {number}", *mark)
            mark, number = ("", ""), end + 1
        elif found := _MARK.match(line):
            mark = found.groups()
        elif line.strip():
            mark = ("", "")


def _end(lines, start, position):
    for number in range(start, len(lines)):
        if lines[number].strip() in ("```", "~~~"):
            return number
    raise AssertionError(f"{position}: the block has no end")


# Running ----------------------------------------------------------------------------------------


def run(path, take=None, needs="", commands=()):
    """Run a page in a new folder; return how many blocks were run.

    Blocks that need other packages run only if ``needs`` names these; ``commands`` are the folders
    of the commands that come with them.
    """
    page = read(path)
    target = Path(path).resolve().parents[1] / "images" / Path(path).stem
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _surroundings(commands):
        for name in page.data:
            _copy_data(name)
        ran = _run_blocks(page.blocks, needs)
        for name in page.pictures:
            made = _find_picture(name)
            if take:
                take(made.resolve(), target / f"{name}.png")
        return ran


def _find_picture(name):
    for made in (Path(f"{name}.png"), Path(f"{name}.html")):
        if made.is_file():
            return made
    raise AssertionError(f"the page shows {name}.png, but no block wrote it, or {name}.html")


@contextlib.contextmanager
def _surroundings(commands):
    before, log = dict(os.environ), logging.getLogger("cellworth")
    handlers, level = log.handlers[:], log.level
    beside = map(str, (*commands, Path(sys.executable).parent))
    os.environ["PATH"] = os.pathsep.join([*beside, os.environ.get("PATH", "")])
    os.environ.update(MPLBACKEND="Agg", COLUMNS="100")
    os.environ.setdefault("CELLWORTH_DATA", str(DATA))
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        # A page shows how to listen; the next one must not hear it.
        log.handlers[:], log.level = handlers, level


def _copy_data(said):
    name, _, called = said.partition(" as ")
    if (DATA / name).is_file():
        shutil.copyfile(DATA / name, called or name)
    else:
        Path(called or name).write_bytes(gzip.decompress((DATA / f"{name}.gz").read_bytes()))


def _run_blocks(blocks, needs):
    namespace, printed, ran = {"__name__": "__main__"}, None, 0
    for block in blocks:
        came, printed = printed, None
        if block.mark == "not run" or (block.mark == "needs" and block.said != needs):
            check_syntax(block)
        elif block.mark == "file":
            Path(block.said).parent.mkdir(parents=True, exist_ok=True)
            Path(block.said).write_text(block.content, encoding="utf-8")
        elif block.language == "python":
            printed = _run_python(block, namespace)
            ran += 1
        elif block.language == "console":
            _run_console(block)
            ran += 1
        elif block.language == "text" and came is not None:
            _compare(block.content, came, block.position)
        elif not _is_for_sphinx(block.language):
            raise AssertionError(_refusal(block))
    return ran


def _is_for_sphinx(language):
    is_code = re.match(r"\{(code|literalinclude|doctest|testcode|eval)", language)
    return language == "math" or (language.startswith("{") and not is_code)


def _refusal(block):
    if block.language == "text":
        return f"{block.position}: this text is not what a Python block before it prints"
    return (
        f"{block.position}: a block of {block.language or 'no language'!r} is not run; make it "
        "python or console, or say before it where it goes or why not (file: ..., not run: ...)"
    )


def _run_python(block, namespace):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(block.content, block.position, "exec"), namespace)  # noqa: S102 (our own page)
    return output.getvalue()


def _compare(shown, came, position):
    shown, came = (
        "".join(line.rstrip() + "\n" for line in text.strip("\n").splitlines())
        for text in (shown, came)
    )
    if not doctest.OutputChecker().check_output(shown, came, doctest.ELLIPSIS):
        raise AssertionError(f"{position} shows\n{shown}\nbut this came\n{came}")


# Commands ---------------------------------------------------------------------------------------


def _run_console(block):
    commands = _commands(block)
    script = "".join(f"{command}\n{_REPORT}\n" for command, _ in commands)
    done = _bash("-c", script)
    printed, messages = (
        re.split(rf"{_ENDED} (\d+)\n", text) for text in (done.stdout, done.stderr)
    )
    for number, (command, shown) in enumerate(commands):
        position = f"{block.position}, `{command}`"
        if 2 * number + 1 >= len(printed):
            raise AssertionError(f"{position} ended the shell\n{messages[-1]}")
        came, status = printed[2 * number], int(printed[2 * number + 1])
        if status:
            came += messages[2 * number]
            later = commands[number + 1][0] if number + 1 < len(commands) else ""
            if "$?" not in later:
                raise AssertionError(f"{position} failed with status {status}\n{came}")
        _compare(shown, came, position)


def _bash(*arguments):
    return subprocess.run(  # noqa: S603 (our own page)
        ["bash", *arguments],  # noqa: S607 (the one that a reader has)
        capture_output=True,
        text=True,
        check=False,
    )


# Printed on both streams, so that output and messages of a command can be separated;
# the status stays what it was, for the next command.
_REPORT = f'_status=$?; echo "{_ENDED} $_status"; echo "{_ENDED} $_status" >&2; (exit $_status)'


def _commands(block):
    commands = []
    for line in block.content.splitlines():
        if line.startswith("$ "):
            commands.append([line[2:], []])
        elif not commands:
            raise AssertionError(f"{block.position}: a console block begins with '$ '")
        elif not commands[-1][1] and (line.startswith("> ") or line == ">"):
            commands[-1][0] += "\n" + line[2:]
        elif not commands[-1][1] and commands[-1][0].endswith("\\"):
            commands[-1][0] += "\n" + line
        else:
            commands[-1][1].append(line)
    return [(command, "\n".join(shown)) for command, shown in commands]


# What cannot be run -----------------------------------------------------------------------------


def check_syntax(block):
    """Read a block that does not run, as far as its language is known here."""
    try:
        _READERS[block.language](block)
    except KeyError:
        raise AssertionError(f"{block.position}: no reader for {block.language!r}") from None
    except (SyntaxError, ValueError) as error:
        raise AssertionError(f"{block.position}: {error}") from error


def _read_shell(block):
    is_session = block.language == "console"
    script = "\n".join(c for c, _ in _commands(block)) if is_session else block.content
    done = _bash("-n", "-c", script)
    if done.returncode:
        raise SyntaxError(done.stderr)


def _read_yaml(block):
    # Not in the standard library: looked at wherever tests run, not where the wheel is alone.
    if importlib.util.find_spec("yaml"):
        import yaml

        try:
            list(yaml.safe_load_all(block.content))
        except yaml.YAMLError as error:
            raise SyntaxError(str(error)) from error


_READERS = {
    "python": lambda block: ast.parse(block.content),
    "json": lambda block: json.loads(block.content),
    "toml": lambda block: tomllib.loads(block.content),
    "yaml": _read_yaml,
    "text": lambda block: None,
    "dockerfile": lambda block: None,
} | dict.fromkeys(("bash", "sh", "console"), _read_shell)


# Pictures ---------------------------------------------------------------------------------------


def _take(made, target):
    """Copy a figure, or photograph the first screen of a page, with a palette of 256 colors."""
    from PIL import Image

    target.parent.mkdir(parents=True, exist_ok=True)
    if made.suffix == ".html":
        _photograph(made, target)
        made = target
    with Image.open(made) as picture:
        small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(target, optimize=True)


def _photograph(page, target):
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        size = {"width": 1024, "height": 768}
        window = browser.new_page(viewport=size, device_scale_factor=1.5)
        window.goto(page.as_uri())
        window.wait_for_timeout(1000)
        window.screenshot(path=target)
        browser.close()


if __name__ == "__main__":
    take = None
    if "--pictures" in sys.argv:
        sys.argv.remove("--pictures")
        import matplotlib as mpl

        mpl.rcParams["savefig.dpi"] = 160
        take = _take
    ran = sum(run(page, take) for page in sys.argv[1:])
    if ran == 0:
        raise SystemExit("no block was found that can be run")
    print(f"{ran} blocks ran as printed")  # noqa: T201
