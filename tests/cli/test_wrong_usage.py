"""A user's mistake is exit code 2 and a sentence on stderr, never a traceback."""

import gzip
import shutil

import pytest

from shell import TABLE, cellworth

BAD_OWNERS = '[[owners]]\nname = "bank"\ncolumns = ["nothing"]\n'


@pytest.fixture
def desk(home, tmp_path):
    """Paths by name: what is there, what is damaged and what is of another kind."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "manifest.json").write_text('{"format": "something"}')
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "manifest.json").write_text("{")
    shutil.copytree(home.values, tmp_path / "bare")
    (tmp_path / "bare" / "request.json").unlink()
    shutil.copytree(home.values, tmp_path / "odd")
    (tmp_path / "odd" / "request.json").write_text('{"format": "cellworth request", "version": 2}')
    (tmp_path / "bad.toml").write_text("= what")
    (tmp_path / "owners.toml").write_text(BAD_OWNERS)
    (tmp_path / "latin.toml").write_bytes(b"\xe9")
    (tmp_path / "there.html").write_text("mine")
    (tmp_path / "one.csv").write_text(TABLE.replace(",yes", ",no"))
    (tmp_path / "val.csv").write_text("age,label\n1,yes\n2,no\n")
    (tmp_path / "more.csv").write_text(TABLE.replace("town", "city"))
    (tmp_path / "packed.csv").write_bytes(gzip.compress(TABLE.encode()))
    (tmp_path / "gap.csv").write_text(TABLE.replace(",yes\np4,", ",\np4,"))
    (tmp_path / "whole.csv").write_text("a,t\n" + "".join(f"{i},{9 * i}\n" for i in range(20)))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    return {
        "T": home.table, "V": home.values, "O": home.owners, "DEAL": home.deal, "AT": tmp_path,
    }  # fmt: skip


WRONG = {
    "value": "Missing argument",
    "value {T} --target label --id nosuch": "--id is 'nosuch'",
    "value {T} --target label --val 1": "at least 2 folds",
    "value {T} --target label --val-rows 5 --model sklearn.svm:SVC": "give both",
    "value {T} --target label --val {T} --val-rows 99 -o {AT}/v": "has 24 rows",
    "value {T} --target label --val 99 -o {AT}/v": "cv=99 cannot split",
    "value {T} --target label --scoring nice -o {AT}/v": "or leave it out",
    "value {T} --target label --scoring accuracy -o {AT}/v":
        "--scoring must be the share of the K nearest rows with the correct label, got 'accuracy'",
    "value {T} --target label --scoring neg_mean_squared_error -o {AT}/v": "must hold numbers",
    "value {T} --target label --seed -1": "--seed",
    "value {T} --target label --stop fits=5 -o {AT}/v": "give passes with --model knn",
    "value {T} --target label --stop time=soon": "is not a limit",
    "value {T} --target label --checkpoint {V} -o {AT}/v": "holds a result",
    "value {T} --target label -o {T}": "is a file",
    "value {T} --target label -o {AT}/x --checkpoint {AT}/x": "must not contain the checkpoint",
    "report {V} -o {AT}/none/report.html": "is in a folder that does not exist",
    "split {V} --amount 1.00 -o {T}/bundle": "which is a file",
    "verify {V} --model knn": "need --values",
    "value {T} --target label --val {AT}/val.csv -o {AT}/v": "lacks the columns",
    "value {AT}/one.csv --target label -o {AT}/v": "got one class",
    "value {T} --target label --val {AT}/more.csv --drop town -o {AT}/v":
        "X_val has the columns 'city' that X lacks",
    "value {AT}/gap.csv --target label -o {AT}/v": "y must have a label for every row",
    "value {AT}/whole.csv --target t -o {AT}/v": "cannot be greater than the number of members",
    "value {AT}/packed.csv --target label -o {AT}/v": "rename it to end in .gz",
    "value /dev/null --target a -o {AT}/v": "cannot be read twice; give a file",
    "value {T} --target Lable -o {AT}/v": "did you mean 'label'?",
    "value {T} --target label --drop label -o {AT}/v": "--target and --drop both name 'label'",
    "value {T} --target label --model sklearn.tree:DecisionTreeClassifier --scoring acuracy":
        "got 'acuracy'",
    "value {T} --target label --owners nosuch -o {AT}/v": "column of owners is 'nosuch'",
    "value {T} --target label --owners {AT}/bad.toml -o {AT}/v": "not valid TOML",
    "value {T} --target label --owners {AT}/owners.toml -o {AT}/v": "'nothing'",
    "value {T} --target label --owners {AT}/latin.toml -o {AT}/v": "not UTF-8",
    "value {T} --owners {O} --agreement {DEAL}": "settled by the agreement",
    "value {T}": "Missing option '--target'",
    "value {T} --target label --agreement s3://bucket/x": "must be a local path, got 's3://bucket",
    "value {T} --agreement {O} -o {AT}/v": "must be an agreement",
    "value {T} --target label --agreement {DEAL} -o {AT}/v": "settled by the agreement",
    "value {T} --target label --model sklearn.tree:DecisionTreeClassifier --stop passes=2":
        "--stop passes is for --model knn",
    "value {T} --target label --categorical nosuch -o {AT}/v": "nosuch",
    "value {T} --target label --workers 0": "neither a number of workers nor an address",
    "value {T} --target label --nonsense": "No such option",
    "resume {AT}/none": "does not exist",
    "resume {AT}/empty": "holds no run",
    "merge {V} {AT}/other --into {AT}/m": "holds no values",
    "merge {V} --into {AT}/m": "give two or more",
    "merge {V} {V} --into {AT}/m": "exact values cannot be improved",
    "info {AT}/none": "does not exist",
    "info {AT}/other": "was not written by cellworth",
    "info {AT}/torn": "not valid JSON",
    "explain {AT}/empty --row p1": "holds no values",
    "explain {AT}/bare --row p1": "holds values but no request.json",
    "explain {AT}/odd --row p1": "was changed after it was written",
    "audit {T} -o {AT}/x.xlsx": "give a file that ends in",
    "audit {T} -o {AT}/empty": "is a folder",
    "audit {T} --target label --values {AT}/empty": "holds no",
    "explain {V}": "give either --row or --column",
    "explain {V} --row nosuch": "no row is called 'nosuch'",
    "explain {V} --column nosuch": "no column is called 'nosuch'",
    "report {V} -o {AT}/there.html": "--force",
    "report {V} -o {AT}/x.pdf": "ends in .html",
    "check {T} --max any=200%": "is not a share",
    "check {T} --max any": "'any' has no share",
    "check {T} --max luck=1%": "--max is given for 'luck'",
    "check {T}": "no limit was given",
    "check {T} --max any=0 -o {AT}/x.txt": "ends in .json, .xml or .md",
    "check {T} --max any=0 --keep {AT}/x.csv": "ends in .parquet",
    "agree {O} -o {AT}/d.toml": "must say table and target",
    "agree {AT}/none.toml -o {AT}/d.toml": "must be a file",
    "agree {O} -o {DEAL}": "--force",
    "split {V}": "Missing option '--amount'",
    "split {V} --amount much": "much",
    "split {V} --amount 100.001": "100.001",
    "split {V} --amount 1.00 -o {AT}/full": "must be new or empty",
    "split {V} --amount 1.00 --agreement {O}": "is not the agreement under which",
    "verify {AT}/empty": "has no manifest.json",
    "verify {V}": "holds no bundle",
    "verify {V} --table {T}": "need --values",
}  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_a_mistake_is_one_sentence_and_exit_code_2(desk, monkeypatch, tmp_path, line):
    monkeypatch.chdir(tmp_path)
    before = sorted(map(str, tmp_path.rglob("*")))
    done = cellworth(*(word.format(**desk) for word in line.split()))
    assert done.code == 2
    assert done.out == ""
    assert "Traceback" not in done.err
    last = done.err.strip().split("\n")[-1]
    assert last.startswith("Error: ")
    assert WRONG[line] in last
    # A mistake leaves nothing behind.
    assert sorted(map(str, tmp_path.rglob("*"))) == before
