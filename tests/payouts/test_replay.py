"""Bundles: untouched ones verify anywhere, and no tampering stays unseen."""

import json
import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.datasets import load_wine
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeClassifier

from cellworth import KNNValuer, ModelValuer, Owners, Runtime, load
from cellworth.payouts import Agreement, Policy, split_revenue, verify_bundle
from cellworth.runtime import MaxTasks
from cellworth.sampling import PermutationSampler
from forging import rehashed

X, y = load_wine(return_X_y=True, as_frame=True)
ORDER = np.random.default_rng(0).permutation(len(X))[:90]
X = X.iloc[ORDER, [0, 6, 9, 12]].reset_index(drop=True)
y = y.iloc[ORDER].reset_index(drop=True)
DATA = {"X": X[:60], "y": y[:60], "X_val": X[60:], "y_val": y[60:]}
NAMES = list(X.columns)
OWNERS = (
    Owners(DATA["X"])
    .assign("ann", rows=slice(0, 30), columns=NAMES[:2])
    .assign("bob", rows=slice(30, None), columns=NAMES[:2])
    .assign("eve", columns=NAMES[2])
)
SETTINGS = {"sampler": PermutationSampler(3), "n_passes": 3, "random_state": 7}
VALUER = KNNValuer(3, **SETTINGS)
POLICY = Policy(game="cells", negative="carry")
ALL = ("files", "split", "agreement", "data", "values")


def paid(owners=OWNERS):
    agreement = Agreement.draft(VALUER, owners, POLICY, **DATA)
    valuation = KNNValuer(3, **SETTINGS).fit(**DATA, owners=owners).valuation_
    return agreement.split(valuation, DATA["X"], amount="1000.00")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("payout") / "bundle"
    digest = paid().save(folder)
    return folder, digest


@pytest.fixture
def copy(bundle, tmp_path):
    shutil.copytree(bundle[0], tmp_path / "copy")
    return tmp_path / "copy"


@contextmanager
def unpacked(bundle):
    """Give the files of the archive of values in a folder, and pack them again."""
    with TemporaryDirectory() as folder:
        shutil.unpack_archive(bundle / "values.zip", folder)
        yield Path(folder)
        (bundle / "values.zip").unlink()
        shutil.make_archive(bundle / "values", "zip", folder)


def rewritten(file, change):
    plain = json.loads(file.read_bytes())
    file.write_text(json.dumps(change(plain) or plain, indent=1))


def changed(bundle, name, change):
    """Change a JSON file, and the manifest with it."""
    if (bundle / name).exists():
        rewritten(bundle / name, change)
    else:
        with unpacked(bundle) as folder:
            rewritten(folder / name, change)
    rehashed(bundle)


def test_an_untouched_bundle_verifies_wherever_it_is(bundle, copy):
    for folder in (bundle[0], copy):
        verdict = verify_bundle(folder, data=DATA, valuer=VALUER, digest=bundle[1])
        assert verdict, verdict
        assert verdict.checked == ALL
        assert repr(verdict) == "yes: files, split, agreement, data, values agree"


@pytest.mark.parametrize("kind", [pl.from_pandas, pa.Table.from_pandas, lambda table: table])
def test_the_library_of_the_data_does_not_matter(bundle, kind):
    data = DATA | {"X": kind(DATA["X"]), "X_val": kind(DATA["X_val"].reset_index(drop=True))}
    data["y_val"] = y[60:].to_numpy()
    assert verify_bundle(bundle[0], data=data, valuer=VALUER)


@pytest.mark.parametrize(
    "rules",
    [
        {"undecided": "equal"},
        {"undecided": "hold", "negative": "floor"},
    ],
)
def test_rules_for_what_is_undecided_and_for_parties_are_replayed(rules, tmp_path):
    policy = Policy(game="cells", **rules)
    agreement = Agreement.draft(VALUER, OWNERS, policy, **DATA)
    agreement.save(tmp_path / "deal.toml")
    assert Agreement.from_toml(tmp_path / "deal.toml").policy == policy
    valuation = KNNValuer(3, **SETTINGS).fit(**DATA, owners=OWNERS).valuation_
    payout = agreement.split(valuation, DATA["X"], amount="1000.00")
    digest = payout.save(tmp_path / "bundle")
    assert sum(payout.amounts) + payout.held == 1000
    assert (
        verify_bundle(tmp_path / "bundle", data=DATA, valuer=VALUER, digest=digest).checked == ALL
    )


def test_joint_errors_are_recomputed(tmp_path):
    """Errors of pairs of owners move what is held back, but no error of a single owner."""
    valuation = KNNValuer(3, **SETTINGS).fit(**DATA, owners=OWNERS).valuation_
    errors = valuation.owned.validation.copy()
    errors[len(OWNERS.names) :] *= 0.9
    forged = replace(valuation, owned=replace(valuation.owned, validation=errors))
    payout = split_revenue(
        forged, OWNERS, amount="1000.00", policy=Policy(game="cells", undecided="hold")
    )
    payout.save(tmp_path / "bundle")
    assert verify_bundle(tmp_path / "bundle", data=DATA)
    verdict = verify_bundle(tmp_path / "bundle", data=DATA, valuer=VALUER)
    assert "the errors of the owners' values differ" in verdict.difference


def test_without_data_the_verdict_says_what_was_left_out(bundle):
    verdict = verify_bundle(bundle[0])
    assert verdict.checked == ALL[:3]
    assert repr(verdict).endswith("values were not recomputed")


@pytest.mark.slow
def test_another_process_gives_the_same_verdict(bundle):
    call = f"verify_bundle({str(bundle[0])!r}, digest={bundle[1]!r})"
    code = f"from cellworth.payouts import verify_bundle; print({call})"
    done = subprocess.run(  # noqa: S603 (our own line)
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("yes: files, split, agreement agree")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def all_files(folder):
    return sorted(f.relative_to(folder).as_posix() for f in folder.rglob("*") if f.is_file())


def test_each_file_that_is_changed_by_a_bit_removed_or_swapped_is_named(bundle, tmp_path):
    names = all_files(bundle[0])
    assert names == ["agreement.toml", "manifest.json", "payout.json", "values.zip"]
    for position, name in enumerate(names):
        for tampering in ("changed", "removed", "swapped"):
            folder = tmp_path / f"{position} {tampering}"
            shutil.copytree(bundle[0], folder)
            if tampering == "changed":
                flip(folder / name)
            elif tampering == "removed":
                (folder / name).unlink()
            else:
                other = names[position - 1]
                shutil.copy(bundle[0] / other, folder / name)
            verdict = verify_bundle(folder)
            assert not verdict, (name, tampering)
            # A bit of the manifest may be one of the name of a file.
            if name != "manifest.json":
                assert name in repr(verdict), (name, tampering, verdict)
            assert verdict.checked == ()


@pytest.mark.parametrize("name", ["more.txt", ".hidden"])
def test_a_file_that_is_added_is_named(copy, name):
    (copy / name).write_bytes(b"x")
    assert name in repr(verify_bundle(copy))


def set_amounts(plain):
    one, two = plain["owners"][0], plain["owners"][1]
    one["amount"], two["amount"] = two["amount"], one["amount"]


def set_owner(position, key, value):
    def change(plain):
        plain["owners"][position][key] = value

    return change


def set_key(key, value):
    return lambda plain: plain | {key: value}


def set_policy(key, value):
    return lambda plain: plain | {"policy": plain["policy"] | {key: value}}


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (set_amounts, "amount of ann should be "),
        (set_owner(0, "amount", "999.99"), "but the bundle has 999.99."),
        (set_owner(0, "value", 0.9), "value of ann should be "),
        (set_owner(1, "name", "zoe"), "owners of the payout"),
        (set_owner(2, "holds", "0" * 64), "holds of eve should be "),
        (set_owner(2, "sampling_se", 0.0), "sampling_se of eve should"),
        (set_owner(2, "validation_se", 0.0), "validation_se of eve should"),
        (set_key("amount", "2000.00"), "amount of ann should be "),
        (set_key("unassigned", 0.0), "unassigned of the payout"),
        (set_key("baseline", 0.0), "baseline of the payout"),
        (set_key("carried", {"ann": -0.1}), "carried of the payout"),
        (set_key("brought", {"ann": -0.1}), "amount of ann should be "),
        (set_key("agreement_sha256", None), "agreement_sha256 of the payout"),
        (set_key("note", "paid"), "note of the payout"),
        (set_policy("negative", "floor"), "policy of the agreement"),
        (set_policy("currency", "USD"), "policy of the agreement"),
    ],
)
def test_numbers_that_are_changed_with_their_hashes_do_not_add_up(copy, change, where):
    changed(copy, "payout.json", change)
    verdict = verify_bundle(copy)
    assert not verdict
    assert where in verdict.difference


def test_a_name_that_stands_twice_in_a_file_is_found(copy):
    text = (copy / "payout.json").read_text()
    (copy / "payout.json").write_text(
        text.replace('{\n "owners"', '{\n "unassigned": 1,\n "owners"')
    )
    rehashed(copy)
    assert "payout.json was changed after it was written" in verify_bundle(copy).difference


def test_holdings_that_are_changed_with_all_that_follows_break_the_agreement(tmp_path):
    stolen = (
        Owners(DATA["X"])
        .assign("ann", rows=slice(0, 40), columns=NAMES[:2])
        .assign("bob", rows=slice(40, None), columns=NAMES[:2])
        .assign("eve", columns=NAMES[2])
    )
    honest = paid()
    forged = split_revenue(honest.valuation, stolen, amount="1000.00", policy=POLICY)
    replace(forged, agreement=honest.agreement).save(tmp_path / "a")
    assert verify_bundle(tmp_path / "a")
    verdict = verify_bundle(tmp_path / "a", data=DATA)
    assert verdict.difference == "the cells of ann are not those in the agreement."


def test_other_values_with_all_that_follows_are_found_by_valuing_again(tmp_path):
    honest = paid()
    moments = honest.valuation.moments
    mean = moments.mean.copy()
    mean[3, 1] += 0.01
    other = replace(honest.valuation, moments=replace(moments, mean=mean), owned=None)
    forged = split_revenue(other, OWNERS, amount="1000.00", policy=POLICY)
    digest = replace(forged, agreement=honest.agreement).save(tmp_path / "a")
    assert verify_bundle(tmp_path / "a", data=DATA, digest=digest)
    verdict = verify_bundle(tmp_path / "a", data=DATA, valuer=VALUER)
    assert "the values differ when they are recomputed" in repr(verdict)


@pytest.mark.parametrize("figure", ["baseline", "validation", "spread", "status"])
def test_errors_and_the_baseline_are_recomputed_too(tmp_path, figure):
    valuation = paid().valuation
    owned = valuation.owned
    changes = {
        "baseline": {"baseline": 0.1},
        "validation": {"owned": replace(owned, validation=owned.validation / 9)},
        "spread": {
            "owned": replace(owned, moments=replace(owned.moments, sum_sq=owned.moments.sum_sq / 9))
        },
        "status": {"status": "interrupted"},
    }
    forged = replace(valuation, **changes[figure])
    split_revenue(forged, OWNERS, amount="1000.00", policy=POLICY).save(tmp_path / "a")
    assert verify_bundle(tmp_path / "a", data=DATA)
    verdict = verify_bundle(tmp_path / "a", data=DATA, valuer=VALUER)
    where = "the errors of the owners" if figure in ("validation", "spread") else figure
    assert where in verdict.difference


def test_an_older_valid_valuation_instead_of_the_valuation_is_found(copy, tmp_path):
    other = KNNValuer(3, **(SETTINGS | {"random_state": 8})).fit(**DATA, owners=OWNERS).valuation_
    with unpacked(copy) as folder:
        shutil.rmtree(folder / "valuation")
        other.save(folder / "valuation")
    rehashed(copy)
    assert "amount of ann should be " in verify_bundle(copy).difference


def test_an_owners_own_copy_of_the_agreement_must_be_the_one_in_the_bundle(bundle, tmp_path):
    own = tmp_path / "mine.toml"
    text = (bundle[0] / "agreement.toml").read_bytes()
    own.write_bytes(text)
    assert verify_bundle(bundle[0], agreement=own)
    own.write_bytes(text.replace(b"carry", b"floor"))
    expected = "the agreement of the bundle differs from the given one."
    assert verify_bundle(bundle[0], agreement=own).difference == expected
    split_revenue(paid().valuation, OWNERS, amount="1", policy=POLICY).save(tmp_path / "bare")
    expected = "the agreement of the bundle differs from the given one."
    assert verify_bundle(tmp_path / "bare", agreement=own).difference == expected
    with pytest.raises(FileNotFoundError, match=r"nope\.toml"):
        verify_bundle(bundle[0], agreement=tmp_path / "nope.toml")
    with pytest.raises(TypeError, match="agreement must be a path, got 5"):
        verify_bundle(bundle[0], agreement=5)


def test_an_agreement_that_is_taken_away_leaves_its_trace(copy):
    (copy / "agreement.toml").unlink()
    rehashed(copy)
    assert "agreement_sha256" in verify_bundle(copy).difference


def test_an_agreement_that_is_changed_leaves_its_trace(copy):
    text = (copy / "agreement.toml").read_text()
    (copy / "agreement.toml").write_text(text.replace('"carry"', '"floor"'))
    rehashed(copy)
    assert "agreement_sha256" in verify_bundle(copy).difference


def test_the_digest_reveals_what_no_replay_can(bundle, tmp_path):
    payout = paid()
    digest = replace(payout, agreement=None).save(tmp_path / "a")
    assert digest != bundle[1]
    assert verify_bundle(tmp_path / "a", data=DATA, valuer=VALUER, digest=digest)
    assert "agreement" not in verify_bundle(tmp_path / "a").checked
    assert "the digest is" in verify_bundle(tmp_path / "a", digest=bundle[1]).difference


@pytest.mark.parametrize("name", ["X", "y", "X_val", "y_val"])
def test_other_data_is_named(bundle, name):
    table = DATA[name].copy()
    if table.ndim == 2:
        table.iloc[0, 0] += 1e-9
    else:
        table.iloc[0] = 2 - table.iloc[0] // 2
    where = "validation" if name.endswith("val") else name
    verdict = verify_bundle(bundle[0], data=DATA | {name: table})
    assert verdict.difference.startswith(f"{where} is not the data that was valued")


def test_rows_under_other_ids_are_found(bundle):
    renamed = DATA["X"].set_axis(range(100, 160))
    labels = DATA["y"].set_axis(range(100, 160))
    verdict = verify_bundle(bundle[0], data=DATA | {"X": renamed, "y": labels})
    assert "other ids" in verdict.difference


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"random_state": 8}, "seeds is [8], but [7] was in the bundle"),
        ({"n_neighbors": 5}, "n_neighbors is 5, but 3 was in the bundle"),
        ({"n_passes": 2}, "n_passes is '2', but '3' was in the bundle"),
    ],
)
def test_a_valuer_with_other_settings_is_named(bundle, settings, where):
    valuer = KNNValuer(**({"n_neighbors": 3} | SETTINGS | settings))
    assert where in verify_bundle(bundle[0], data=DATA, valuer=valuer).difference


def small_model_bundle(folder):
    table, labels = DATA["X"][::6], DATA["y"][::6]
    owners = Owners(table).assign("ann", columns=NAMES[:2]).assign("bob", columns=NAMES[2:])
    data = DATA | {"X": table, "y": labels}
    valuer = ModelValuer(
        DecisionTreeClassifier(max_depth=2, random_state=0),
        stop=MaxTasks(2), random_state=0,
    )  # fmt: skip
    valuation = valuer.fit(**data).valuation_
    split_revenue(valuation, owners, amount="10.00", policy=Policy(game="cells")).save(folder)
    return data, valuer


@pytest.mark.slow
def test_a_replay_takes_nothing_from_a_checkpoint(tmp_path):
    data, valuer = small_model_bundle(tmp_path / "a")
    valuer = valuer.set_params(runtime=Runtime(checkpoint=tmp_path / "nowhere"))
    assert verify_bundle(tmp_path / "a", data=data, valuer=valuer).checked[-1] == "values"
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.slow
def test_integer_targets_that_the_training_rows_lack_are_no_difference(tmp_path):
    table = pd.DataFrame({"a": np.arange(9.0), "b": np.arange(9.0) % 5})
    data = {"X": table[:5], "y": np.arange(5), "X_val": table[5:], "y_val": np.arange(5, 9)}
    owners = Owners(data["X"]).assign("ann", columns="a").assign("bob", columns="b")
    valuer = ModelValuer(LinearRegression(), estimator="exact")
    split_revenue(
        valuer.fit(**data).valuation_,
        owners,
        amount="10",
        policy=Policy(game="cells", negative="signed"),
    ).save(tmp_path / "a")
    assert verify_bundle(tmp_path / "a", data=data, valuer=valuer)


EVIL = {
    "codes below zero": ("holdings.json", lambda p: p | {"lines": [[-1] * 4, [-1] * 4]}),
    "codes too high": ("holdings.json", lambda p: p | {"lines": [[99] * 4, [99] * 4]}),
    "no lines": ("holdings.json", lambda p: p | {"lines": []}),
    "claims of text": ("holdings.json", lambda p: p | {"claims": "all"}),
    "claims of two": (
        "holdings.json",
        lambda p: p | {"claims": [[2 * c for c in line] for line in p["claims"]]},
    ),
    "no names": ("holdings.json", lambda p: p | {"names": []}),
    "one name twice": ("holdings.json", lambda p: p | {"names": ["ann", "ann", "eve"]}),
    "a list for names": ("holdings.json", lambda p: p | {"names": [["ann"], ["bob"], ["eve"]]}),
    "not a number": ("payout.json", set_key("amount", "NaN")),
    "infinite": ("payout.json", set_key("amount", "Infinity")),
    "no amount": ("payout.json", set_key("amount", "much")),
    "a million digits": ("payout.json", set_key("amount", "1E+1000000")),
    "a float": ("payout.json", set_key("amount", 1000.0)),
    "a list": ("payout.json", set_key("amount", [])),
    "a tiny unit": ("payout.json", set_policy("unit", "1E-1000000")),
    "a unit of nothing": ("payout.json", set_policy("unit", "0")),
    "no policy": ("payout.json", set_key("policy", None)),
    "another policy": ("payout.json", set_policy("colour", "red")),
    "brought NaN": ("payout.json", set_key("brought", {"ann": float("nan")})),
    "brought infinity": ("payout.json", set_key("brought", {"ann": float("-inf")})),
    "brought text": ("payout.json", set_key("brought", {"ann": "much"})),
    "brought list": ("payout.json", set_key("brought", [1])),
    "no owners": ("payout.json", set_key("owners", 5)),
    "facts of text": ("payout.json", set_key("facts", "none")),
    "values NaN": ("payout.json", set_owner(0, "value", float("nan"))),
    "a path": (
        "valuation/manifest.json",
        lambda p: p | {"files": p["files"] | {"rows": {"file": "../x.parquet", "sha256": ""}}},
    ),
    "baseline of text": ("valuation/manifest.json", set_key("baseline", "all")),
    "no provenance": ("valuation/manifest.json", set_key("provenance", {})),
    "owned by no one": ("valuation/manifest.json", set_key("owned", {"names": 1})),
}


@pytest.mark.parametrize("what", EVIL)
def test_whatever_a_bundle_holds_the_answer_is_a_verdict(copy, what):
    changed(copy, *EVIL[what])
    verdict = verify_bundle(copy, data=DATA)
    assert not verdict
    assert len(verdict.difference) < 1000
    # What is wrong is said, not only the type of the error.
    assert not verdict.difference.endswith("Error).")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"[" * 100_000, b"\xff\xfe", b'{"files": 1e999}', b"1" * 9999]
)
@pytest.mark.parametrize("name", ["manifest.json", "payout.json", "values.zip"])
def test_json_that_is_none_is_a_difference(copy, name, content):
    (copy / name).write_bytes(content)
    if name != "manifest.json":
        rehashed(copy)
    assert not verify_bundle(copy)


def test_a_link_out_of_the_folder_is_not_followed(copy, tmp_path):
    outside = tmp_path / "payout.json"
    shutil.move(copy / "payout.json", outside)
    (copy / "payout.json").symlink_to(outside)
    assert verify_bundle(copy).difference == "payout.json is a link or a device, not a file."


def test_names_that_lead_out_of_the_folder_are_only_names(copy):
    manifest = json.loads((copy / "manifest.json").read_bytes())
    manifest["files"]["../../secret"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest, indent=1))
    assert verify_bundle(copy).difference == "../../secret is missing."


def test_wrong_arguments_get_one_sentence(bundle, copy, tmp_path):
    with pytest.raises(
        FileNotFoundError, match=r"has no manifest.json; give a folder that payout.save"
    ):
        verify_bundle(tmp_path)
    with pytest.raises(ValueError, match="a valuer needs data; pass data="):
        verify_bundle(bundle[0], valuer=VALUER)
    with pytest.raises(ValueError, match=r"data must be the arguments of fit, .*, got DataFrame"):
        verify_bundle(bundle[0], data=X)
    with pytest.raises(ValueError, match=r"data must be the arguments of fit, .*, got X, z"):
        verify_bundle(bundle[0], data={"X": X, "z": y})
    with pytest.raises(TypeError, match=r"valuer must be a valuer such as .*, got <class "):
        verify_bundle(bundle[0], data=DATA, valuer=KNNValuer)
    with pytest.raises(FileExistsError, match="folder must be new or empty"):
        paid().save(copy)


def test_a_saved_bundle_can_be_read_with_ordinary_tools(copy):
    plain = json.loads((copy / "payout.json").read_bytes())
    assert [owner["name"] for owner in plain["owners"]] == ["ann", "bob", "eve"]
    with unpacked(copy) as folder:
        assert load(folder / "valuation").shape == (60, 4)
