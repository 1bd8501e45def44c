"""Configuration of Sphinx: sphinx-build -W --keep-going -n docs docs/_build/html."""

import os
import sys
import tomllib
from contextlib import chdir, redirect_stdout
from importlib.metadata import version as version_of
from io import StringIO
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "cellworth"
author = "The cellworth developers"
copyright = f"2026, {author}"
version = release = version_of("cellworth")
with (Path(__file__).parents[1] / "pyproject.toml").open("rb") as file:
    urls = tomllib.load(file)["project"]["urls"]

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_click",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "llms",
]
exclude_patterns = ["_build", "gallery/*.ipynb", "gallery/*.py", "gallery/*.md5"]
templates_path = ["_templates"]
# Keep the dashes of options and the quotes of Python.
smartquotes = False
nitpicky = True
# A build without network cannot link to scikit-learn's documentation.
nitpick_ignore_regex = [(r"py:.*", r"sklearn\..*")]
if os.environ.get("CELLWORTH_INTERSPHINX"):
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "matplotlib": ("https://matplotlib.org/stable/", None),
        "numpy": ("https://numpy.org/doc/stable/", None),
        "pandas": ("https://pandas.pydata.org/docs/", None),
        "python": ("https://docs.python.org/3/", None),
        "sklearn": ("https://scikit-learn.org/stable/", None),
    }

myst_enable_extensions = ["colon_fence", "dollarmath", "fieldlist"]
myst_heading_anchors = 4

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
# numpydoc sections have the types; methods are documented below their class.
numpydoc_show_class_members = False

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "/plot_",
    "abort_on_example_error": True,
    "capture_repr": ("_repr_html_",),
    "matplotlib_animations": False,
    "download_all_examples": False,
    "first_notebook_cell": '%pip install --quiet "cellworth[all]" lightgbm pandas polars',
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
    "within_subsection_order": "FileNameSortKey",
}

html_theme = "pydata_sphinx_theme"
html_title = "cellworth"
html_baseurl = urls["Documentation"]
html_static_path = ["_static"]
html_css_files = ["cellworth.css"]
# What a link shows in a chat: the template layout.html names the picture.
html_context = {
    "card": urls["Documentation"] + "_static/social-card.png",
    # The list is read when a page is opened, so that a build needs no network.
    "versions": urls["Documentation"] + "versions.json",
    "shown_version": os.environ.get("CELLWORTH_DOCS", "dev"),
}
html_logo = html_favicon = "_static/logo.svg"
html_theme_options = {
    "logo": {"text": "cellworth"},
    "icon_links": [{"name": "Source", "url": urls["Source"], "icon": "fa-brands fa-github"}],
    "header_links_before_dropdown": 6,
    "navbar_end": ["versions", "theme-switcher", "navbar-icon-links"],
    "navbar_align": "left",
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_toc_level": 2,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}
html_show_sourcelink = False
copybutton_exclude = ".linenos, .gp, .go"


def setup(app):
    """Show commands as in a terminal, link to notebooks, and write a live page."""
    app.connect("source-read", _link_to_notebook)
    app.connect("sphinx-click-process-epilog", _as_in_a_terminal)
    app.connect("build-finished", _run_readme)


def _link_to_notebook(app, page, source):
    """Say at the beginning of an example where it can be run; a workflow publishes the branch."""
    folder, _, name = page.rpartition("/")
    if folder == "gallery" and name.startswith("plot_"):
        repository = urls["Source"].removeprefix("https://github.com/")
        colab = f"https://colab.research.google.com/github/{repository}/blob/notebooks/{name}.ipynb"
        binder = f"https://mybinder.org/v2/gh/{repository}/notebooks?labpath={name}.ipynb"
        links = f"`Colab <{colab}>`__ or `Binder <{binder}>`__"
        source[0] = source[0].replace(
            "to download the full example code.",
            f"to download it as a notebook, or run it in {links}.",
        )


def _run_readme(app, error):
    """Run README's first example beside the pages: it saves what the home page opens."""
    if error is None and app.builder.name == "html":
        readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
        code = readme.split("```python\n", 1)[1].split("```", 1)[0]
        with chdir(app.outdir), redirect_stdout(StringIO()):
            exec(compile(code, "README.md", "exec"), {})  # noqa: S102 (our own page)


def _as_in_a_terminal(app, context, lines):
    # Preformatted text of click arrives as a line block: "| Example:", "|   cellworth ...".
    if lines and all(line.startswith("|") or not line for line in lines):
        shown = ["   " + line[2:] for line in lines]
        lines[:] = [".. code-block:: text", "", *shown, ""]
