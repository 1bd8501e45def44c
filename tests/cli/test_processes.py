"""The program as a process: streams, exit codes, pipes and shells."""

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from matrices import rarely
from shell import TABLE, fine, started


def done(process):
    out, err = process.communicate(timeout=120)
    return process.returncode, out, err


@pytest.mark.slow
def test_results_go_to_stdout_and_all_else_to_stderr(home, tmp_path):
    (tmp_path / "t.csv").write_text(TABLE.replace("p0,20", "p0,2O"))
    code, out, err = done(
        started("value", "t.csv", "--target", "label", "--id", "name", "--json", cwd=tmp_path)
    )
    assert code == 0
    assert json.loads(out)["output"] == "t.values"
    lines = err.strip().split("\n")
    assert lines[0].startswith("Warning: '2O' in one cell of age is no number")
    assert lines[-1] == "The values are in t.values."
    assert "\r" not in err


@pytest.mark.slow
def test_a_reader_that_goes_away_is_no_error_to_talk_about(home):
    process = started("explain", home.values, "--column", "age", "--json")
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert process.stderr.read() == ""
    process.stderr.close()


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="needs sh")
@pytest.mark.parametrize(
    ("least", "code", "closed"), [("1000", 1, ">&-"), *rarely(("1", 0, ">&- 2>&-"))]
)
def test_a_stream_that_was_closed_beforehand_leads_nowhere(home, least, code, closed):
    words = [sys.executable, "-m", "cellworth", "check", home.table, "--min-rows", least]
    line = ["sh", "-c", f"{shlex.join(map(str, words))} {closed}"]
    found = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603
    assert (found.returncode, found.stderr) == (code, "")


@pytest.mark.nightly
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_full_disk_is_a_reason_to_try_again(home, tmp_path):
    # No file may be larger than 4 kB: the checkpoint can begin, but the result does not fit.
    command = [sys.executable, "-m", "cellworth", "value", *map(str, home.asked)]
    command += ["--checkpoint", str(tmp_path / "run"), "-o", str(tmp_path / "v")]
    limited = ["bash", "-c", f"ulimit -f 4; exec {shlex.join(command)}"]
    code, _, err = done(
        subprocess.Popen(  # noqa: S603 (our own program)
            limited, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    )
    assert code == 75, err
    assert "File too large" in err
    assert not (tmp_path / "v" / "manifest.json").exists()
    # There is space again.
    fine("resume", tmp_path / "run")


@pytest.mark.nightly
def test_letters_that_the_code_page_of_a_pipe_lacks_are_escaped(tmp_path):
    rows = [f"Ulm,{row}" for row in range(20)]
    (tmp_path / "towns.csv").write_text("\n".join(["東京,n", *rows]), encoding="utf-8")
    code_page = os.environ | {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    code, out, err = done(started("audit", "towns.csv", "--quick", cwd=tmp_path, env=code_page))
    assert code == 0, err
    assert r"\u6771\u4eac" in out


@pytest.mark.nightly
def test_a_process_that_ends_at_once_does_so_in_peace(home):
    # Threads that Arrow leaves behind aborted 1 in 3 of these.
    code = f"from cellworth import load; load({str(home.values)!r})"
    for _ in range(8):
        subprocess.run([sys.executable, "-c", code], check=True)  # noqa: S603 (our own code)
