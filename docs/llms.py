"""Write llms.txt (a list of all pages) and llms-full.txt (their text) beside the HTML pages.

As https://llmstxt.org proposes: the project's sentence, then links with one line each.
"""

import re
from pathlib import Path

from docutils import nodes

_SECTIONS = {
    "guide": "Guide",
    "gallery": "Examples",
    "evidence": "Evidence",
    "reference": "Reference",
}
_COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)


def setup(app):
    """Write both files when the build is finished."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(app, exception):
    if exception is None and app.builder.name == "html":
        folder = Path(app.outdir)
        (folder / "llms.txt").write_text("\n".join(_listing(app)) + "\n")
        (folder / "llms-full.txt").write_text("\n\n".join(_texts(app.env)) + "\n")


def _listing(app):
    env = app.env
    yield f"# {app.config.project}"
    yield f"\n> {_first_sentence(env, 'index')}"
    for folder, title in _SECTIONS.items():
        yield f"\n## {title}\n"
        for page in _pages(env, folder):
            sentence = _first_sentence(env, page)
            link = f"- [{env.titles[page].astext()}]({app.builder.get_target_uri(page)})"
            yield f"{link}: {sentence}" if sentence else link


def _pages(env, folder):
    """Return the pages of a folder, without tables of contents."""
    inside = (page for page in env.found_docs if page.split("/")[0] == folder)
    return sorted(page for page in inside if page.split("/")[-1] not in _CONTENTS)


_CONTENTS = {"index", "sg_execution_times", "sg_api_usage"}


def _first_sentence(env, page):
    """Return the first sentence of a page, and the next one if the first is short."""
    for paragraph in env.get_doctree(page).findall(nodes.paragraph):
        if not any(isinstance(above, _ASIDE) for above in _ancestors(paragraph)):
            text = " ".join(paragraph.astext().split())
            end = _END.search(text, _SHORT)
            return text[: end.start()] if end else text
    return ""


# Gallery pages begin with a note about downloads.
_ASIDE = (nodes.note, nodes.table, nodes.field_list)
_END = re.compile(r"(?<=[.?!])\s")
_SHORT = 30


def _ancestors(node):
    while node.parent is not None:
        node = node.parent
        yield node


def _texts(env):
    for folder in ("guide", "evidence", "reference"):
        for page in _pages(env, folder):
            yield _COMMENT.sub("", Path(env.doc2path(page)).read_text(encoding="utf-8")).strip()
