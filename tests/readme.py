"""Run the Python blocks of a Markdown page and compare what they print with what it shows.

    python tests/readme.py README.md

A block that is followed by a ``text`` block must print that text. Only the standard library is
used here, so that the page can be tried in an environment that holds nothing but the wheel.
"""

import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path

_BLOCK = re.compile(r"^```(python|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(page):
    """Run all blocks in one namespace; return how many ran."""
    blocks = _BLOCK.findall(Path(page).read_text())
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        return _run_blocks(page, blocks)


def _run_blocks(page, blocks):
    namespace, printed, ran = {}, None, 0
    for language, content in blocks:
        if language == "python":
            printed = _run_block(content, namespace, f"{page}, Python block {ran + 1}")
            ran += 1
        elif printed is not None:
            shown = [line.rstrip() for line in content.strip().splitlines()]
            came = [line.rstrip() for line in printed.strip().splitlines()]
            if shown != came:
                raise AssertionError(f"{page} shows\n{content}\nbut this came\n{printed}")
            printed = None
    return ran


def _run_block(content, namespace, called):
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(content, called, "exec"), namespace)  # noqa: S102 (our own page)
    return output.getvalue()


if __name__ == "__main__":
    ran = sum(run(page) for page in sys.argv[1:])
    if ran == 0:
        raise SystemExit("no Python block was found")
    print(f"{ran} blocks ran as printed")  # noqa: T201
