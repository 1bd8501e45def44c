"""Every block of every page runs as printed, or says why it does not."""

import os
import subprocess
import venv
from pathlib import Path

import pytest

import pages

ROOT = Path(__file__).parents[1]
BUILT = ROOT / "docs" / "_build"


def all_pages():
    found = [page for page in ROOT.glob("docs/**/*.md") if BUILT not in page.parents]
    return [ROOT / "README.md", *sorted(found)]


@pytest.mark.nightly
@pytest.mark.parametrize("page", all_pages(), ids=lambda page: page.stem)
def test_a_page_prints_what_it_shows(page):
    pages.run(page)


def test_every_picture_that_a_page_made_is_shown_by_it():
    made = {path.relative_to(ROOT / "docs" / "images") for path in ROOT.glob("docs/images/*/*.png")}
    shown = {
        Path(page.stem) / f"{name}.png"
        for page in all_pages()
        for name in pages.read(page).pictures
    }
    assert made == shown
    assert len(shown) >= 12


def needs():
    """What blocks of all pages need, each with its page."""
    found = ((page, block) for page in all_pages() for block in pages.read(page).blocks)
    return sorted({(page, block.said) for page, block in found if block.mark == "needs"})


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("page", "packages"), needs(), ids=lambda value: getattr(value, "stem", value)
)
def test_a_recipe_prints_what_it_shows_with_the_real_packages(page, packages, tmp_path):
    # In an environment of their own: cellworth is found there as the command of this one.
    venv.create(tmp_path, with_pip=True)
    commands = tmp_path / ("Scripts" if os.name == "nt" else "bin")
    install = [commands / "python", "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*install, *packages.split()], check=True)  # noqa: S603 (named on our page)
    pages.run(page, needs=packages, commands=[commands])


def test_the_readme_has_its_blocks():
    assert sum(b.language == "python" for b in pages.read(ROOT / "README.md").blocks) >= 2


# The runner itself ------------------------------------------------------------------------------


def write_page(folder, *parts):
    page = folder / "page.md"
    page.write_text("\n\n".join(parts))
    return page


def block(language, content):
    return f"```{language}\n{content}\n```"


FINE = {
    "what Python prints": (block("python", "print(1 + 1)"), block("text", "2")),
    "a command": (block("console", "$ echo one && echo two\none\ntwo\n$ echo three\nthree"),),
    "a here-document": (block("console", "$ cat <<'END'\n> a\n>\n> b\n> END\na\n\nb"),),
    "a status": (block("console", "$ (echo no >&2; exit 3)\nno\n$ echo $?\n3"),),
    "messages of what works": (block("console", "$ echo one; echo two >&2\none"),),
    "this interpreter": (
        block("python", "import sys; print(sys.prefix)"), block("text", "..."),
        block("console", "$ python -c 'import cellworth'"),
    ),
    "a file": (
        "<!-- file: new/owners.toml -->", block("toml", "a = 1"),
        block("console", "$ cat new/owners.toml\na = 1"),
    ),
    "data of another name": (
        "<!-- data: wine.csv as a.csv -->", block("console", "$ wc -l a.csv\n179 ...")
    ),
    "data decompressed": ("<!-- data: wine.csv -->", block("console", "$ wc -l wine.csv\n179 ...")),
    "a directive": (block("{toctree}", "a"), "````{grid}\n```python\nprint(1)\n```\n````"),
    "a picture": (
        block("python", "open('it.html', 'w').close()"), "![It](../images/page/it.png)"
    ),
    "what needs a package": ("<!-- needs: airflow -->", block("console", "$ no such command")),
    "a job that is not run": (
        "<!-- not run: there is no Slurm here -->", block("bash", "sbatch --array=0-9 shards.sh")
    ),
}  # fmt: skip


@pytest.mark.parametrize("parts", list(FINE.values()), ids=list(FINE))
def test_a_page_may_show(parts, tmp_path):
    pages.run(write_page(tmp_path, *parts))


NOT_RUN = "<!-- not run: only to look at -->"
WRONG = {
    "something else": ((block("python", "print(1 + 1)"), block("text", "3")), "but this came\n2"),
    "text from nowhere": ((block("text", "3"),), "not what a Python block before it prints"),
    "no language": ((block("", "ls"),), "a block of 'no language' is not run"),
    "a language that is not run": ((block("bash", "ls"),), "a block of 'bash' is not run"),
    "code in a directive": ((block("{code-block} python", "1"),), "is not run"),
    "a mark with words after it": ((NOT_RUN, "Look:", block("bash", "ls")), "is not run"),
    "a command that prints more": ((block("console", "$ echo one"),), "but this came\none"),
    "a command that fails": ((block("console", "$ false\n$ true"),), "failed with status 1"),
    "a shell that ends": ((block("console", "$ exit 0\n$ true"),), "ended the shell"),
    "a picture of nothing": (("![It](../images/page/it.png)",), "but no block wrote it"),
    "an open block": (("```python\nprint(1)",), "has no end"),
    "wrong Python": ((NOT_RUN, block("python", "def")), "invalid syntax"),
    "wrong shell": ((NOT_RUN, block("bash", "if true")), "unexpected end of file"),
    "wrong YAML": ((NOT_RUN, block("yaml", "a: [")), "expected the node content"),
    "an unknown language": ((NOT_RUN, block("klingon", "nuqneH")), "no reader for"),
}


@pytest.mark.parametrize(("parts", "complaint"), list(WRONG.values()), ids=list(WRONG))
def test_a_page_may_not_show(parts, complaint, tmp_path):
    with pytest.raises(AssertionError, match=complaint):
        pages.run(write_page(tmp_path, *parts))


def test_what_needs_packages_runs_where_they_are(tmp_path):
    page = write_page(tmp_path, "<!-- needs: b==1 -->", block("console", "$ tool\n1"))
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho 1\n")
    tool.chmod(0o755)
    assert pages.run(page) == pages.run(page, needs="a==1", commands=[tmp_path]) == 0
    assert pages.run(page, needs="b==1", commands=[tmp_path]) == 1
