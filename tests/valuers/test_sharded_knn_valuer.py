"""Values of tables in shards: the same bits as in memory, however cut and whoever works."""

import copy
import datetime
import pickle
import signal
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

from cellworth import (
    DataWarning,
    KNNValuer,
    Owners,
    Runtime,
    ShardedKNNValuer,
    ShardedTable,
    load,
)
from cellworth.knn import BinnedRanks, NeighborAgreement
from cellworth.knn.shard_tasks import KNNShardAlgorithm
from cellworth.runtime import (
    MaxTasks,
    MaxUtilities,
    Processes,
    Serial,
    TargetStandardError,
    Threads,
)
from cellworth.sampling import (
    Banzhaf,
    ExhaustiveSampler,
    LeaveOneOut,
    PermutationSampler,
    QuadratureSampler,
)
from experiments.baselines import LeverageSampler
from fit_settings import split_settings
from matrices import rarely
from sharded_tables import travelled

N_ROWS, N_QUERIES = 3000, 30


def rows(n_rows, seed):
    """Numbers, whole numbers, text, dates and gaps, and labels that depend on them."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({f"number{j}": rng.normal(size=n_rows).astype("float32") for j in range(3)})
    X["count"] = rng.integers(0, 9, n_rows)
    X["text"] = rng.choice(["red", "green", "blue", None], n_rows, p=[0.4, 0.3, 0.2, 0.1])
    X["day"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 999, n_rows), "D")
    X.loc[rng.random(n_rows) < 0.03, "number1"] = np.nan
    signal = X["number0"] + (X["text"] == "red") + rng.normal(size=n_rows)
    return X, np.where(signal > 0.5, "yes", "no")


X, Y = rows(N_ROWS, 0)
JUDGES = dict(zip(("X_val", "y_val"), rows(N_QUERIES, 1), strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("table")
    X.assign(label=Y).to_parquet(path / "rows.parquet", row_group_size=100)
    return path


@pytest.fixture(autouse=True)
def few_rounds(monkeypatch):
    """Cut a pass into four rounds instead of twelve; in memory and in shards alike."""
    monkeypatch.setattr("cellworth.knn.tasks._MIN_PARTS", 4)


def table(folder, n_shards=4):
    return ShardedTable.from_files(folder, target="label", shards=n_shards)


def valuer(**settings):
    settings = {
        "ranking": BinnedRanks(100),
        "sampler": PermutationSampler(1),
        "n_passes": 1,
        "random_state": 0,
        **settings,
    }
    return ShardedKNNValuer(5, **settings)


def in_memory(**settings):
    """The same settings for the same table in memory."""
    return KNNValuer(**valuer(**settings).get_params(deep=False))


def same(sharded, whole):
    """Everything that both can tell, to the bit."""
    assert np.array_equal(sharded.values, whole.values)
    assert np.array_equal(sharded.sampling_se, whole.sampling_se, equal_nan=True)
    for one, other in ((sharded.rows(), whole.rows()), (sharded.columns(), whole.columns())):
        assert np.array_equal(one.values, other.values)
        assert np.array_equal(one.sampling_se, other.sampling_se, equal_nan=True)
    for name in ("total", "expected_total", "baseline", "status", "empty", "shape"):
        assert getattr(sharded, name) == getattr(whole, name)
    assert sharded.scores.to_plain() == whole.scores.to_plain()
    assert sharded.column_labels.tolist() == whole.column_labels.tolist()
    # Sums over rows are taken in another order there.
    np.testing.assert_allclose(
        sharded.columns().validation_se, whole.columns().validation_se, rtol=1e-9
    )
    as_sure(sharded, whole)


def as_sure(sharded, whole):
    """Validation errors of cells, rows and owners."""
    for one, other in ((sharded, whole), (sharded.rows(), whole.rows())):
        np.testing.assert_allclose(one.validation_se, other.validation_se, rtol=1e-9, atol=1e-15)
    assert sharded.sign_counts() == whole.sign_counts()
    assert (sharded.owned is None) == (whole.owned is None)
    if whole.owned is not None:
        assert sharded.owned.keys == whole.owned.keys
        for name in ("values", "sampling_se", "validation_se"):
            one, other = (getattr(valuation.owners(), name) for valuation in (sharded, whole))
            np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-16)


def some_owners(X):
    """Owners of rows that lie together, of every other row, of a column, and of single cells."""
    owners = Owners(X, overlaps="equal").assign("ann", rows=slice(0, 900)).assign("eve", rows=[7])
    owners = owners.assign("bob", rows=np.arange(900, N_ROWS, 2)).assign("joe", columns="text")
    return owners.assign("dan", rows=np.arange(901, N_ROWS, 2), columns=["day", "count"])


SETTINGS = [
    {"sampler": LeverageSampler(24), "n_passes": 2},
    {"sampler": QuadratureSampler(20)},
    {"value_labels": True, "sampler": PermutationSampler(2)},
    {"empty": "zero", "scoring": "balanced_neighbor_agreement"},
    {"semivalue": (Banzhaf(), None)},
    {"column_types": {"count": "categorical"}, "scale": "std"},
    {"scoring": NeighborAgreement(radius=1.7), "n_passes": 2},
]


@pytest.mark.slow
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_shards_are_worth_what_they_are_in_memory(folder, settings):
    settings, given = split_settings(settings)
    whole = in_memory(**settings).fit(X, Y, **JUDGES, **given).valuation_
    same(valuer(**settings).fit(table(folder), **JUDGES, **given).valuation_, whole)


@pytest.mark.slow
@pytest.mark.parametrize(
    "stop",
    [
        MaxTasks(9),
        MaxUtilities(800),
        TargetStandardError(1e-3) | MaxTasks(200),
        *rarely(TargetStandardError(1e-2) & MaxTasks(30)),
    ],
    ids=str,
)
def test_a_rule_ends_a_run_over_shards_where_it_ends_one_in_memory(folder, stop):
    seen, whole_seen = [], []
    settings = {"stop": stop, "n_passes": None}
    whole = in_memory(**settings, runtime=Runtime(on_round=whole_seen.append)).fit(X, Y, **JUDGES)
    sharded = valuer(**settings, runtime=Runtime(on_round=seen.append)).fit(table(folder), **JUDGES)
    assert sharded.valuation_.provenance.sessions == whole.valuation_.provenance.sessions
    same(sharded.valuation_, whole.valuation_)
    assert [progress.tasks for progress in seen] == [progress.tasks for progress in whole_seen]
    for one, other in zip(seen, whole_seen, strict=True):
        assert one.utilities == other.utilities
        assert one.errors.fewest == other.errors.fewest
        for name in ("largest", "mean_square"):
            figures = (getattr(each.errors, name) for each in (one, other))
            np.testing.assert_allclose(*figures, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "n_shards"),
    [
        ({"sampler": LeverageSampler(24), "n_passes": 3}, 7),
        ({"value_labels": True, "scoring": "balanced_neighbor_agreement"}, 2),
    ],
    ids=str,
)
def test_owners_are_as_sure_as_in_memory(folder, settings, n_shards):
    settings, given = split_settings(settings)
    given |= JUDGES
    whole = in_memory(**settings).fit(X, Y, **given, owners=some_owners(X)).valuation_
    cut = table(folder, n_shards)
    same(valuer(**settings).fit(cut, **given, owners=some_owners(cut)).valuation_, whole)


@pytest.mark.slow
def test_a_class_with_one_validation_row_is_as_sure_as_in_memory(folder):

    rng, X_val = np.random.default_rng(2), JUDGES["X_val"]
    labels = rng.integers(0, 4, N_ROWS)
    one = np.append(rng.integers(0, 3, N_QUERIES - 1), 3)
    settings = {"scoring": "balanced_neighbor_agreement", "n_passes": 2}
    whole = in_memory(**settings).fit(X, labels, X_val=X_val, y_val=one).valuation_
    path = folder.parent / "classes"
    path.mkdir(exist_ok=True)
    X.assign(label=labels).to_parquet(path / "rows.parquet", row_group_size=1000)
    found = valuer(**settings).fit(table(path, 3), X_val=X_val, y_val=one).valuation_
    for which in (lambda v: v.validation_se, lambda v: v.rows().validation_se):
        np.testing.assert_allclose(which(found), which(whole), rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_shards", "executor"),
    [(1, Serial()), (16, Threads(2)), (5, Processes(2))],
    ids=repr,
)
def test_it_does_not_matter_how_a_table_is_cut_or_who_works(folder, n_shards, executor):
    settings = {"n_passes": 2, "runtime": Runtime(executor=executor)}
    whole = in_memory(n_passes=2).fit(X, Y, **JUDGES).valuation_
    same(valuer(**settings).fit(table(folder, n_shards), **JUDGES).valuation_, whole)


@pytest.mark.slow
@pytest.mark.parametrize("n_rows", [80, 81, 161])
def test_few_rows_are_worth_in_shards_what_they_are_in_memory(tmp_path, n_rows):
    X, y = rows(n_rows, 2)
    X.assign(label=y).to_parquet(tmp_path / "rows.parquet", row_group_size=25)
    settings = {"sampler": LeverageSampler(24), "n_passes": 2, "random_state": 0}
    few = {"ranking": BinnedRanks(80), **settings}
    whole = in_memory(**few).fit(X, y, **JUDGES).valuation_
    same(valuer(**few).fit(table(tmp_path, 3), **JUDGES).valuation_, whole)
    exact = KNNValuer(5, **settings).fit(X, y, **JUDGES).valuation_
    # Up to twice the nearest rows, all are ranked.
    off = np.abs(whole.values - exact.values).max() / exact.values.std()
    assert off < (1e-9 if n_rows < 160 else 0.05)


@pytest.mark.slow
def test_leaving_columns_out_looks_at_one_coalition_more_than_there_are(folder):
    settings = {"sampler": None, "n_passes": None, "semivalue": (None, LeaveOneOut())}
    settings |= {"random_state": None}
    whole = in_memory(**settings).fit(X, Y, **JUDGES, value_labels=True).valuation_
    sharded = valuer(**settings).fit(table(folder), **JUDGES, value_labels=True).valuation_
    same(sharded, whole)
    assert sharded.provenance.tally.new == N_QUERIES * (X.shape[1] + 1)
    assert sharded.provenance.method["sampler"] == "ExhaustiveSampler()"


@pytest.mark.parametrize(
    "settings",
    [{"semivalue": (Banzhaf(), None)}, {"value_labels": True}, {"empty": "zero"}],
    ids=str,
)
def test_rows_within_a_radius_are_worth_in_shards_what_exact_ranks_say(folder, settings):
    settings, given = split_settings(settings)
    settings["scoring"] = NeighborAgreement(balanced=True, radius=1.7)
    given |= {name: cells[:12] for name, cells in JUDGES.items()}
    whole = in_memory(ranking=None, **settings).fit(X, Y, **given).valuation_
    found = valuer(**settings).fit(table(folder), **given).valuation_
    np.testing.assert_allclose(found.values, whole.values, atol=1e-12)
    for name in ("score", "baseline", "total"):
        assert getattr(found, name) == pytest.approx(getattr(whole, name), abs=1e-12)
    assert found.scores.accuracy == pytest.approx(whole.scores.accuracy, abs=1e-12)
    assert found.provenance.problem_spec["radius"] == 1.7


def test_what_shards_cannot_score_is_said(folder):
    for scoring, message in (
        (NeighborAgreement(gains={("yes", "yes"): 2}), "NeighborAgreement with a radius alone"),
        (NeighborAgreement(balanced="text"), "groups are for tables in memory"),
        ("neg_brier_score", "got 'neg_brier_score'; the Brier score, gains"),
    ):
        with pytest.raises(ValueError, match=message):
            valuer(scoring=scoring).fit(table(folder), **JUDGES)


def test_each_valuer_names_the_other_for_a_table_of_its_kind(folder):
    with pytest.raises(TypeError, match="got a ShardedTable; use ShardedKNNValuer"):
        KNNValuer().fit(table(folder), **JUDGES)
    with pytest.raises(TypeError, match="got DataFrame; use KNNValuer for a table in memory"):
        ShardedKNNValuer().fit(X, **JUDGES)


def measured(X, seed):
    """A numeric target."""
    noise = np.random.default_rng(seed).normal(size=len(X))
    return 50 + 3 * X["number0"].to_numpy(float) + (X["text"] == "red") + noise


NUMBERS = measured(X, 7)
MEASURED = {"X_val": JUDGES["X_val"], "y_val": measured(JUDGES["X_val"], 8)}


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    path = tmp_path_factory.mktemp("numbers")
    X.assign(label=NUMBERS).to_parquet(path / "rows.parquet", row_group_size=100)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "n_shards", "executor"),
    [
        ({}, 1, Serial()),
        ({"sampler": LeverageSampler(24), "n_passes": 3}, 7, Threads(2)),
        ({"value_labels": True, "sampler": PermutationSampler(2)}, 3, Processes(2)),
        ({"empty": "zero", "semivalue": (Banzhaf(), None)}, 3, Threads(2)),
        ({"scoring": "neg_mean_squared_error", "value_labels": True, "empty": "zero"}, 2, Serial()),
    ],
    ids=str,
)
def test_numeric_targets_are_worth_in_shards_what_they_are_in_memory(
    numbers, settings, n_shards, executor
):
    settings, given = split_settings(settings)
    given |= MEASURED
    whole = in_memory(**settings).fit(X, NUMBERS, **given, owners=some_owners(X)).valuation_
    cut = table(numbers, n_shards)
    settings |= {"runtime": Runtime(executor=executor)}
    found = valuer(**settings).fit(cut, **given, owners=some_owners(cut)).valuation_
    same(found, whole)
    assert found.scores.n_classes is None
    assert 0 < found.scores.r2 < 1
    assert np.isnan(found.scores.accuracy)


def resume_once(cut, given, checkpoint):
    """Value a table in one pass, and resume for a second."""
    runtime = Runtime(checkpoint=checkpoint)
    valuer(runtime=runtime).fit(cut, **given)
    return valuer(n_passes=2, runtime=runtime).fit(cut, **given).valuation_


@pytest.mark.slow
def test_a_rule_on_errors_ends_a_run_of_a_numeric_target(numbers):
    """Errors are in units of the score, so rules must not see fixed point."""
    settings = {"stop": TargetStandardError(0.3) | MaxTasks(400), "n_passes": None}
    whole = in_memory(**settings).fit(X, NUMBERS, **MEASURED).valuation_
    found = valuer(**settings).fit(table(numbers), **MEASURED).valuation_
    same(found, whole)
    assert found.provenance.sessions == whole.provenance.sessions
    assert found.provenance.sessions[0].tasks < 400
    assert 0.1 < found.sampling_se.max() <= 0.3


def test_whole_numbers_that_look_like_classes_are_told(tmp_path):
    labels = np.arange(3000) % 60
    cut, judges = labelled(tmp_path, labels), {"X_val": pd.DataFrame({"x": [1.0]}), "y_val": [3]}
    with pytest.warns(DataWarning, match="60 integers 0 to 59.* treated as a numeric target"):
        valuer().fit(cut, **judges)


@pytest.mark.slow
def test_columns_play_in_groups(folder):
    groups = {"numbers": ["number0", "number1", "number2"], "rest": ["count", "text", "day"]}
    whole = in_memory().fit(X, Y, **JUDGES, column_groups=groups).valuation_
    same(valuer().fit(table(folder), **JUDGES, column_groups=groups).valuation_, whole)


@pytest.mark.slow
def test_groups_of_rows_are_worth_what_they_are_in_memory(folder, monkeypatch):
    settings = {"sampler": LeverageSampler(24), "stop": MaxTasks(40) | TargetStandardError(1e-3)}
    settings |= {"n_passes": None}
    cut, given = table(folder, 3), JUDGES | {"row_groups": np.arange(N_ROWS) % 7}
    owners = Owners(X).assign("ann", columns=list(X.columns[:2])).assign("bob", columns="day")
    with small_rounds(monkeypatch):
        whole = in_memory(**settings).fit(X, Y, **given, owners=owners).valuation_
        found = valuer(**settings).fit(cut, **given, owners=owners).valuation_
    same(found, whole)
    assert found.row_labels.tolist() == whole.row_labels.tolist()
    assert type(found) is type(whole)
    assert found.provenance.sessions == whole.provenance.sessions


@pytest.mark.slow
def test_groups_of_rows_resume_and_are_saved(folder, tmp_path, monkeypatch):
    cut, given = table(folder, 3), JUDGES | {"row_groups": X["count"].to_numpy()}
    with small_rounds(monkeypatch):
        more = resume_once(cut, given, tmp_path / "run")
        whole = in_memory(n_passes=2).fit(X, Y, **given).valuation_
    same(load(tmp_path / "run" / "values"), whole)
    spec = more.provenance.problem_spec
    assert spec == valuer().problem_spec(cut, **given)
    assert spec != valuer().problem_spec(cut, **JUDGES)
    with pytest.raises(ValueError, match="holds another run"):
        valuer(runtime=Runtime(checkpoint=tmp_path / "run")).fit(cut, **JUDGES)


def test_too_many_sums_by_query_are_not_kept(folder, monkeypatch):
    monkeypatch.setattr("cellworth.knn.shard_tasks._MAX_QUERY_SUMS", 10)
    for more in ({"row_groups": X["count"].to_numpy()}, {"owners": some_owners(table(folder))}):
        found = valuer(n_passes=2).fit(table(folder), **JUDGES, **more).valuation_
        assert "owners" in more or found.validation_se is None
        assert "owners" not in more or found.owners().validation_se is None


@contextmanager
def small_rounds(monkeypatch):
    """Cut queries into many rounds; in memory and in shards alike."""
    for name, size in (("_RANKED_PER_TASK", 2000), ("_MIN_PER_COLUMN", 8)):
        monkeypatch.setattr(f"cellworth.knn.tasks.{name}", size)
    yield


@pytest.mark.slow
def test_errors_come_from_the_first_validation_rows_as_in_memory(folder, monkeypatch):
    monkeypatch.setattr("cellworth.knn.tasks._MAX_OBSERVED", 20)
    with small_rounds(monkeypatch):
        whole = in_memory(n_passes=2).fit(X, Y, **JUDGES, owners=some_owners(X)).valuation_
        cut = table(folder)
        sharded = valuer(n_passes=2).fit(cut, **JUDGES, owners=some_owners(cut)).valuation_
    as_sure(sharded, whole)


@pytest.mark.slow
def test_a_run_goes_on_where_it_was(folder, tmp_path, monkeypatch):
    with small_rounds(monkeypatch):
        cut, settings = table(folder), {"runtime": Runtime(checkpoint=tmp_path / "run")}
        given = JUDGES | {"owners": some_owners(cut)}
        once = valuer(**settings).fit(cut, **given).valuation_
        more = valuer(n_passes=3, **settings).fit(cut, **given).valuation_
        whole = in_memory(n_passes=3).fit(X, Y, **JUDGES, owners=some_owners(X)).valuation_
        with pytest.raises(ValueError, match="owners"):
            valuer(**settings).fit(cut, **JUDGES)
    assert once.provenance.sessions[0].tasks * 3 == more.provenance.sessions[0].tasks
    same(more, whole)


class Signalled(KNNShardAlgorithm):
    """ShardAlgorithm during which this process is told to end."""

    moment = -1

    def count(self, rows, prepared):
        if (rows.number, prepared.number) == (0, self.moment):
            signal.raise_signal(signal.SIGINT)
        return super().count(rows, prepared)


@pytest.mark.slow
@pytest.mark.parametrize("in_first_sweep", [True, False])
def test_what_is_done_of_a_run_that_is_broken_off_is_kept_with_a_warning(
    folder, in_first_sweep, monkeypatch
):
    with small_rounds(monkeypatch):
        n_parts = valuer().fit(table(folder), **JUDGES).valuation_.provenance.sessions[0].tasks
        monkeypatch.setattr("cellworth.valuers.sharded_knn_valuer.KNNShardAlgorithm", Signalled)
        monkeypatch.setattr(Signalled, "moment", 3 if in_first_sweep else n_parts + 1)
        words = "of 30 validation rows" if in_first_sweep else "interrupted after one pass; status"
        with pytest.warns(UserWarning, match=words):
            kept = (
                valuer(n_passes=3, runtime=Runtime(executor=Serial()))
                .fit(table(folder), **JUDGES)
                .valuation_
            )
    assert kept.status == "interrupted"
    assert kept.total == pytest.approx(kept.values.sum())


@pytest.mark.slow
def test_shards_that_are_broken_off_are_as_sure_as_memory(folder, monkeypatch):
    settings = {"sampler": ExhaustiveSampler(), "runtime": Runtime(Serial())}
    settings["scoring"] = "balanced_neighbor_agreement"
    monkeypatch.setattr("cellworth.valuers.sharded_knn_valuer.KNNShardAlgorithm", Signalled)
    monkeypatch.setattr(Signalled, "moment", 3)
    with small_rounds(monkeypatch):
        with pytest.warns(UserWarning, match="of 30 validation rows"):
            sharded = valuer(**settings).fit(table(folder), **JUDGES).valuation_
        n_tasks = sharded.provenance.sessions[0].tasks
        with pytest.warns(UserWarning, match="of 30 validation rows"):
            whole = (
                in_memory(**settings).set_params(stop=MaxTasks(n_tasks)).fit(X, Y, **JUDGES)
            ).valuation_
    assert 0 < n_tasks < 30
    same(sharded, whole)


def files_in(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_the_checkpoint_of_another_run_is_refused_and_left_as_it_was(folder, tmp_path):
    settings = {"runtime": Runtime(checkpoint=tmp_path / "run")}
    valuer(**settings).fit(table(folder), **JUDGES)
    before = files_in(tmp_path / "run" / "run")
    for other in ({"empty": "zero"}, {"scale": "std"}):
        with pytest.raises(ValueError, match="another run"):
            valuer(**other, **settings).fit(table(folder), **JUDGES)
    assert files_in(tmp_path / "run" / "run") == before


@pytest.fixture
def unread(monkeypatch):
    """No shard may be read."""

    def refused(*_):
        raise AssertionError("a shard was read")

    monkeypatch.setattr(ShardedTable, "batches", refused)


@pytest.mark.parametrize(
    ("given", "settings", "error", "words"),
    [
        ({"y_val": None}, {}, ValueError, "X_val and y_val must be given"),
        ({}, {"stop": 3}, TypeError, "stop must be a rule such as MaxTasks"),
        (
            {},
            {"runtime": Runtime(checkpoint=__file__)},
            NotADirectoryError,
            "checkpoint must be a folder, got the file",
        ),
    ],
)
@pytest.mark.usefixtures("unread")
def test_what_can_be_refused_early_is_refused_before_the_table_is_read(
    folder, given, settings, error, words
):
    with pytest.raises(error, match=words):
        valuer(**settings).fit(table(folder), **{**JUDGES, **given})


@pytest.mark.slow
def test_files_of_a_valuation_are_gone_with_its_last_user_unless_it_is_saved(folder, tmp_path):
    fitted = valuer().fit(table(folder), **JUDGES)
    home, values = fitted.valuation_.moments.folder, fitted.values_
    assert fitted.feature_names_in_.tolist() == X.columns.tolist()
    with pytest.raises(TypeError, match="save the valuation first and load it there"):
        pickle.dumps(fitted.valuation_)
    fitted.valuation_.save(tmp_path / "values")
    users = [
        fitted.valuation_.rows(),
        *(how(fitted.valuation_) for how in (copy.copy, copy.deepcopy)),
    ]
    del fitted
    while users:
        user = users.pop()
        found = user.values[:3]
        np.testing.assert_allclose(found, values[:3] if users else values[:3].sum(axis=1))
    del user
    assert not home.exists()
    loaded = travelled(load(tmp_path / "values"))
    assert np.array_equal(loaded.values, values)
    assert loaded.provenance.method["valuer"]["name"] == "ShardedKNNValuer"


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        ({}, {"scoring": "neg_mean_squared_error"}, "y must hold numbers for a regressor"),
    ],
)
def test_what_shards_do_without_is_refused(folder, given, settings, message):
    with pytest.raises(ValueError, match=message):
        valuer(**settings).fit(table(folder), **{**JUDGES, **given})


def test_files_that_were_changed_are_not_valued(tmp_path):
    X.assign(label=Y).to_parquet(tmp_path / "rows.parquet", row_group_size=1000)
    before = table(tmp_path, 3)
    X[::-1].assign(label=Y).to_parquet(tmp_path / "rows.parquet", row_group_size=1000)
    with pytest.raises(ValueError, match="was changed since this ShardedTable was created"):
        valuer().fit(before, **JUDGES)


def labelled(folder, labels):
    frame = pd.DataFrame({"x": np.arange(len(labels), dtype=float), "label": labels})
    frame.to_parquet(folder / "rows.parquet")
    return table(folder, 1)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([1] * 6, "the target 'label' must have at least two different labels, got only 1;"),
        ([1.5] * 6, "the target 'label' must have at least two different labels, got only 1.5;"),
        (["a", "a\0", "b"] * 2, "must not end with a null character"),
    ],
)
def test_labels_that_cannot_judge_are_refused(labels, words, tmp_path):
    with pytest.raises(ValueError, match=words):
        valuer().fit(labelled(tmp_path, labels), X_val=pd.DataFrame({"x": [1.0]}), y_val=labels[:1])


@pytest.mark.slow
def test_labels_may_be_dates(tmp_path):
    days = [datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)]
    judges = {"X_val": pd.DataFrame({"x": [1.0, 2.0]}), "y_val": days}
    sharded = ShardedKNNValuer(1).fit(labelled(tmp_path, days * 3), **judges).valuation_
    whole = KNNValuer(1).fit(pd.DataFrame({"x": np.arange(6.0)}), days * 3, **judges).valuation_
    np.testing.assert_allclose(sharded.values, whole.values, atol=1e-12)
