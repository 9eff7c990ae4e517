# SPDX-License-Identifier: Apache-2.0
"""A directory that real TileLang fills, on the CPU, kept by a daemon: TileLang compiles again what is missing."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import run
from tests.daemon.daemon_process import RunningDaemon, run_daemon
from tests.frameworks.support import ROOT, Programs, answer, tell

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

KERNELS = range(4)


def assert_all_well(answers: list[dict[str, object]]) -> None:
    assert [(found["wrong"], found["failed"]) for found in answers] == [(0, 0)] * len(answers), answers


def bytes_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def test_the_commands_know_all_that_tilelang_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs, own = Programs("tilelang", tmp_path), tmp_path / "own"
    assert_all_well(programs.run(1, [1, 2], "everything"))
    entries = [json.loads(line) for line in run("ls", "--json", own).stdout.splitlines()]
    places = [*own.glob("*/*/kernels/*"), *own.glob("*/*/autotuner/*"), *own.glob("*/cuda-binaries/*")]
    assert len(places) == 6
    assert {each["name"] for each in entries} == {str(place.relative_to(own)) for place in places}
    assert [each["label"] for each in entries if each["kind"] == "so"] == ["scale_kernel"] * 4
    stats = json.loads(run("stats", "--json", own).stdout)
    assert (stats["layout"], stats["entries"]) == ("tilelang", 6)
    assert stats["bytes"] == sum(map(bytes_of, places))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 61)
    assert json.loads(run("clear", "--yes", "--json", own).stdout)["removed_entries"] == 6
    assert not any(place.exists() for place in places)


def test_a_daemon_evicts_whole_entries_and_tilelang_compiles_them_again(tmp_path: Path) -> None:
    programs, own = Programs("tilelang", tmp_path), tmp_path / "own"
    assert programs.run(1, KERNELS)[0]["compiled"] == len(KERNELS)
    size = max(bytes_of(entry) for entry in own.glob("*/*/kernels/*"))
    assert run_daemon("--once", "--settle", "1ms", "--max-size", f"{2 * size}B", own).returncode == 0
    left = [*own.glob("*/*/kernels/*")]
    assert 0 < len(left) <= 2
    assert {len([*entry.iterdir()]) for entry in left} == {5}
    [again] = programs.run(1, KERNELS)
    assert_all_well([again])
    assert again["compiled"] == len(KERNELS) - len(left)


def test_programs_at_work_survive_a_daemon_that_evicts(tmp_path: Path) -> None:
    programs, own = Programs("tilelang", tmp_path), tmp_path / "own"
    [first] = programs.run(1, KERNELS)
    size = max(bytes_of(entry) for entry in own.glob("*/*/kernels/*"))
    with (
        RunningDaemon("--settle", "1ms", "--max-size", f"{2 * size}B", own) as daemon,
        programs.started(3) as running,
    ):
        for process in running:
            tell(process, [*KERNELS] * 20)
        answers = [answer(process) for process in running]
        assert daemon.process.poll() is None
    assert_all_well([first, *answers])
    # Each compiled more than it lacked at its start: entries went while it was at work.
    assert sum(int(str(found["compiled"])) for found in answers) > 3 * len(KERNELS)


def test_all_that_tilelang_writes_is_kept_by_the_patterns_of_the_guide(tmp_path: Path) -> None:
    programs = Programs("tilelang", tmp_path)
    guide = (ROOT / "docs/guides/kept-folders.md").read_text()
    patterns = {*re.findall(r"'(TILELANG_CACHE_DIR/[^']+)'", guide)}
    keep = [word for pattern in sorted(patterns) for word in ("--keep", pattern)]
    for node, compiled in (("one", 2), ("other", 0)):
        prefix = (sys.executable, "-m", "lockcache", "run", *keep, "--")
        own = str(tmp_path / node)
        words = ["everything"] * (node == "one")
        with programs.started(1, *words, prefix=prefix, TILELANG_CACHE_DIR=own) as [process]:
            tell(process, [1, 2])
            found = answer(process)
            process.stdin.close()
            process.wait()
        assert (found["wrong"], found["failed"], found["compiled"]) == (0, 0, compiled)
    kept = {path.relative_to(tmp_path / "other") for path in (tmp_path / "other").rglob("*.*") if path.is_file()}
    written = {path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*.*") if path.is_file()}
    assert kept == written
    assert {path.parts[-3] for path in kept} == {"kernels", "autotuner", "cuda-binaries"}
