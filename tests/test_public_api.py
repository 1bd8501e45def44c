"""What users import: every name works, is documented, and costs little to load."""

import ast
import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.utils.estimator_checks import check_estimator

import cellworth
import words
from cellworth import KNNValuer, ModelValuer, OutOfBagValuer, Runtime
from cellworth.cli.commands import main
from cellworth.data.arguments import check_random_state
from cellworth.runtime import MaxTasks, Serial
from cellworth.sampling import LeaveOneOut

PUBLIC = words.public_things()


def test_every_result_has_a_view_for_notebooks():
    results = {path for path, thing in PUBLIC.items() if hasattr(thing, "to_frame")}
    results |= {"payouts.Verdict"}
    assert len(results) > 10
    assert [path for path in sorted(results) if not hasattr(PUBLIC[path], "_repr_html_")] == []


# What messages say of other programs, of scikit-learn's shapes, of options, and of HTML.
NO_PARAMETERS = {
    "align", "code", "fits", "memory_limit", "n_samples", "pad", "passes", "sandbox", "srcdoc",
    "style", "threads_per_worker",
}  # fmt: skip


def test_what_a_message_tells_to_pass_is_a_parameter():
    known = {name for thing in PUBLIC.values() for name in words.parameters_of(thing)}
    methods = [
        getattr(thing, name)
        for thing in PUBLIC.values()
        if isinstance(thing, type)
        for name in vars(thing)
        if not name.startswith("_")
    ]
    known |= {name for method in methods for name in words.parameters_of(method)}
    named = set()
    for path in Path(cellworth.__file__).parent.glob("*/*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and id(node) not in described:
                named |= set(re.findall(r"(?<![\w.\-])([a-z]\w*)=(?!=)", str(node.value)))
    assert named - known == NO_PARAMETERS


MODULES = [each.name for each in pkgutil.walk_packages(cellworth.__path__, "cellworth.")]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith("__main__")])
def test_examples_run_with_their_own_imports(name):
    """Readers copy an example from the reference into an empty session with numpy as np."""
    runner = doctest.DocTestRunner(verbose=False)
    for example in doctest.DocTestFinder().find(importlib.import_module(name), globs={"np": np}):
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0


def run_python(code):
    done = subprocess.run(  # noqa: S603 (this interpreter, our own code)
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


NEEDED = ("joblib", "narwhals", "numpy", "pyarrow", "scipy", "sklearn")
HEAVY = (
    "matplotlib",
    "dask",
    "distributed",
    "jinja2",
    "pandas",
    "polars",
    "numba",
    "ray",
)
LOADED = "import sys; {0}; print(*sorted(m for m in sys.modules if m in {1!r}))"


def test_importing_cellworth_loads_no_library():
    assert run_python(LOADED.format("import cellworth", HEAVY + NEEDED)) == ""


@pytest.mark.slow
def test_all_names_can_be_imported_where_no_heavy_package_is_installed():
    blocked = f"import sys; sys.modules.update(dict.fromkeys({HEAVY!r})); from cellworth import *"
    run_python(f"{blocked}; import cellworth; print(cellworth.__version__)")


WITHOUT_NUMBA_AND_PYARROW = """
import sys
class WithoutPyArrow:
    def find_spec(name, *_):
        if name.partition(".")[0] == "pyarrow":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, WithoutPyArrow)
sys.modules["numba"] = None
from sklearn.datasets import load_wine
from sklearn.tree import DecisionTreeClassifier
from cellworth import ModelValuer, audit, report
X, y = load_wine(return_X_y=True)
X[[3, 30, 90], 0] = 999
assert "missing code" in {finding.kind for finding in audit(X, y, quick=True)}
valuer = ModelValuer(DecisionTreeClassifier(random_state=0), estimator="exact")
groups = {"row_groups": [i % 2 for i in range(89)], "column_groups": [j % 2 for j in range(13)]}
valuer.fit(X[::2], y[::2], X_val=X[1::2], y_val=y[1::2], **groups)
page = report.render(report.summarize(valuer.valuation_, X[::2], y[::2]))
print(*valuer.valuation_.provenance.versions, len(page))
"""


@pytest.mark.slow
def test_models_and_audits_run_without_numba_and_tables_in_memory_without_pyarrow():
    *versions, length = run_python(WITHOUT_NUMBA_AND_PYARROW).split()
    assert "scikit-learn" in versions
    assert "numba" not in versions
    assert int(length) > 10_000


def cpu_seconds(*arguments):
    """CPU time of a Python process."""
    resource = pytest.importorskip("resource", reason="Windows does not tell it")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)  # noqa: S603
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.alone
def test_importing_cellworth_is_quick():
    bare = min(cpu_seconds("-c", "pass") for _ in range(5))
    # The best of several: the machine may be busy.
    assert any(cpu_seconds("-c", "import cellworth") - bare <= 0.15 for _ in range(5))


@pytest.mark.alone
@pytest.mark.parametrize("command", [[], *([name] for name in sorted(main.commands))], ids=str)
def test_help_is_quick(command):
    asked = ("-m", "cellworth", *command, "--help")
    assert any(cpu_seconds(*asked) <= 0.3 for _ in range(5))


def stub_names():
    """Names of the stub file and the modules that it takes them from."""
    stub = ast.parse(Path(cellworth.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    assert all(alias.name == alias.asname for node in imports for alias in node.names)
    return {alias.name: node.module for node in imports for alias in node.names}, stub


def test_the_stub_and_the_lazy_names_agree():
    names, stub = stub_names()
    lazy = {name: f"cellworth.{module}" for name, module in cellworth._MODULES.items()}
    packages = dict.fromkeys(cellworth._SUBPACKAGES, "cellworth")
    assert names == lazy | packages
    listed = next(node.value for node in stub.body if isinstance(node, ast.Assign))
    assert ast.literal_eval(listed) == sorted(names)


def test_names_are_listed_before_they_are_loaded_and_unknown_ones_are_refused():
    code = "import cellworth; print('KNNValuer' in dir(cellworth), 'KNNValuer' in vars(cellworth))"
    assert run_python(code) == "True False"
    with pytest.raises(AttributeError, match="no attribute 'KNNvaluer'"):
        _ = cellworth.KNNvaluer


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_seed_is_drawn_from_a_generator(make):
    one, other = make(3), make(3)
    drawn = [check_random_state(one) for _ in range(2)]
    assert drawn[0] != drawn[1]
    assert drawn == [check_random_state(other) for _ in range(2)]


def test_an_integer_is_its_own_seed_and_none_draws_a_new_one():
    assert check_random_state(np.int64(3)) == 3
    assert check_random_state(None) != check_random_state(None)


# scikit-learn's own checks --------------------------------------------------------------------


class TwoFolds:
    """Scores the small tables of scikit-learn's checks in two folds."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(X, y, cv=2, sample_weight=sample_weight)


class TwoFoldKNNValuer(KNNValuer):
    def fit(self, X, y):
        return super().fit(X, y, cv=2)


class TwoFoldModelValuer(TwoFolds, ModelValuer):
    pass


def nightly(valuer):
    return pytest.param(valuer, marks=pytest.mark.nightly)


VALUERS = [
    TwoFoldKNNValuer(n_neighbors=2, n_passes=2, runtime=Runtime(executor=Serial())),
    OutOfBagValuer(n_trees=3),
    nightly(OutOfBagValuer(DummyRegressor(), n_trees=3)),
    nightly(TwoFoldModelValuer(DummyRegressor(), stop=MaxTasks(1))),
    nightly(TwoFoldModelValuer(DummyRegressor(), semivalue=LeaveOneOut())),
]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@pytest.mark.filterwarnings("ignore:R.2 score is not well-defined")
@pytest.mark.parametrize("valuer", VALUERS, ids=repr)
def test_scikit_learn_accepts_a_valuer(valuer):
    with warnings.catch_warnings():
        # Its tables are made up: rows come twice, and a column may tell the target.
        warnings.simplefilter("ignore", cellworth.DataWarning)
        results = check_estimator(valuer, on_fail=None, on_skip=None)
    assert len(results) > 30
    assert [r for r in results if r["status"] not in ("passed", "skipped", "xfail")] == []
