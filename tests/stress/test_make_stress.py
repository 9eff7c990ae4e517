"""``make stress``: all parts run whatever one of them finds, each is reported, and one that fails is make's exit code.

The program is a fake that writes a page and ends as the test says: the real one takes a quarter of an hour. That the
real one knows the words that it is given is looked at with its ``--help``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.docs.pages import PROJECT
from tests.stress.support import PROGRAM

SETTABLE = re.findall(r"^(\w+) \?=", (PROJECT / "Makefile").read_text(), re.MULTILINE)
PARTS = ["kill-table", "power-cut", "filesystems", "hosts", "remote", "takeover", "bugs", "all"]
FAKE = """\
#!/bin/sh
{program} "$@" --help > /dev/null || exit 2
echo "$@" >> words
part=$1
while [ $# -gt 1 ]; do [ "$1" = --report ] && report=$2; [ "$1" = --junit ] && junit=$2; shift; done
[ -e build/stress/all.html ] && [ $part != all ] && exit 3  # yesterday's
case $part in
    {silent}) exit 1;;
    {fails}) echo '<title>FAILED: x</title>' > "$report"; exit 1;;
    *) echo '<title>ok: x</title>' > "$report"; echo '<testsuites/>' > "$junit";;
esac
"""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("fails, silent, code", [("nothing", "nothing", 0), ("kill-table", "bugs", 2)])
def test_every_part_runs_and_leaves_its_files_and_a_failed_one_fails_it_all(
    fails: str, silent: str, code: int, tmp_path: Path
) -> None:
    shutil.copy(PROJECT / "Makefile", tmp_path)
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "stamp").write_text(f"{tmp_path}\n")
    fake = tmp_path / "lockcache-stress"
    fake.write_text(FAKE.format(program=PROGRAM, fails=fails, silent=silent))
    fake.chmod(0o755)
    left = tmp_path / "build" / "stress"
    left.mkdir(parents=True)
    for part in ("bugs", "all"):
        (left / f"{part}.html").write_text("<title>ok: yesterday</title>")
    # Nothing of the make that runs these tests: its flags and variables (ARGS, WORKERS) are not for this one.
    given = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MAKE", "MFLAGS")) and name not in SETTABLE
    }
    command = ["make", "stress", f"BIN={tmp_path}", "STAMP=stamp", "STRESS_SECONDS=7"]
    ran = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == code, ran.stdout + ran.stderr
    words = (tmp_path / "words").read_text().splitlines()
    assert [line.split()[0] for line in words] == PARTS
    assert "all --seconds 7 --report build/stress/all.html --junit build/stress/all.xml" in words
    ended = dict(re.findall(r"^stress: (\S+) +(.*)$", ran.stdout, re.MULTILINE))
    assert list(ended) == PARTS
    for part, said in ended.items():
        verdict = "FAILED" if part in (fails, silent) else "ok"
        page = "no report" if part == silent else f"build/stress/{part}.html"
        assert said.split(maxsplit=1) == [verdict, page]
    kept = [part for part in PARTS if part != silent]
    assert {path.stem for path in left.glob("*.html")} == set(kept)
