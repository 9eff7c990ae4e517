# SPDX-License-Identifier: Apache-2.0
"""``lockcache stats``, run as an operator runs it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.inspect.measure import spread
from tests.cli.command import run
from tests.daemon.daemon_process import RunningDaemon


@pytest.fixture
def filled(filled: Path) -> Path:
    with FileStreamProgramCache(filled) as cache:
        assert cache.get("a")
        assert cache.get("nothing") is None
    return filled


def stats(*arguments: object) -> dict[str, Any]:
    ended = run("stats", "--json", *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_totals_and_share(filled: Path) -> None:
    found = stats(filled)
    assert (found["bytes"], found["entries"], found["max_size_bytes"], found["share"]) == (1500, 2, 10_000, 0.15)
    assert found["staged"] == {"bytes": 0, "entries": 0}
    assert found["daemon"] is None
    assert "15.0% of the cap" in run("stats", filled).stdout


def test_hits_are_those_that_programs_reported(filled: Path) -> None:
    programs = stats(filled)["programs"]
    assert (programs["hits"], programs["misses"], programs["puts"], programs["hit_ratio"]) == (1, 1, 2, 0.5)
    assert "50.0% hits (1 of 2), 2 puts" in run("stats", filled).stdout


def test_after_a_reset_hits_are_those_since_and_the_totals_stay(filled: Path) -> None:
    before = run("stats", "--reset", filled)
    assert "50.0% hits (1 of 2)" in before.stdout
    assert "no hits or misses reported yet; counted since" in run("stats", filled).stdout
    with FileStreamProgramCache(filled) as cache:
        cache.put_entry("c", Entry(b"code", {"compile_cost_ns": 3 * 10**9}))
        for _ in range(3):
            cache.get("c")
    found = stats(filled)
    assert (found["programs"]["hits"], found["programs"]["saved_ns"]) == (4, 9 * 10**9)
    assert (found["since_reset"]["hits"], found["since_reset"]["hit_ratio"]) == (3, 1.0)
    shown = run("stats", filled).stdout
    assert "100.0% hits (3 of 3), 1 put;" in shown
    assert "saved       9.0s of compiling" in shown


def test_a_histogram_counts_every_shard_once() -> None:
    assert spread([1, 2, 3, 100], 4) == (1, 2, 100, [3, 0, 0, 1])
    assert spread([7, 7], 4) == (7, 7, 7, [2, 0, 0, 0])


def test_drift_is_said_and_left_as_it_is(filled: Path) -> None:
    assert "drift       none" in run("stats", filled).stdout
    [largest] = [file for file in (filled / "entries").glob("*/*") if file.stat().st_size == 1000]
    largest.unlink()
    assert stats(filled)["drift"] == {"bytes": 1000, "entries": 1, "shards": 1, "busy_shards": 0}
    assert "+1000 bytes, +1 entries in 1 shard: run lockcache recount" in run("stats", filled).stdout
    assert stats("--no-measure", filled)["drift"] is None
    assert stats(filled)["drift"]["bytes"] == 1000


def test_a_running_daemon_is_named(filled: Path) -> None:
    with RunningDaemon("--max-size", "1M", filled) as daemon:
        found = stats(filled)["daemon"]
        assert found["pid"] == daemon.process.pid
        assert f"pid {daemon.process.pid} on" in run("stats", filled).stdout


def test_a_directory_that_only_cuda_core_filled_is_measured_and_nothing_made_in_it(tmp_path: Path) -> None:
    (tmp_path / "x" / "entries" / "ab").mkdir(parents=True, mode=0o700)
    (tmp_path / "x" / "entries" / "ab" / ("0" * 62)).write_bytes(b"theirs")
    found = stats(tmp_path / "x")
    assert (found["stored_bytes"], found["entries"], found["accounted"], found["drift"]) == (6, 1, False, None)
    assert found["bytes"] >= 4096
    assert "no accounting yet" in run("stats", tmp_path / "x").stdout
    assert [path.name for path in (tmp_path / "x").iterdir()] == ["entries"]


def test_an_output_without_unicode_gets_bars_that_it_can_show(filled: Path) -> None:
    assert "\nspread " not in run("stats", filled).stdout
    shown = run("stats", "--spread", filled, PYTHONIOENCODING="ascii").stdout
    assert "\nspread " in shown
    assert shown.isascii()


def test_several_directories_have_a_block_each_and_in_json_a_line_each(filled: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    FileStreamProgramCache(other).close()
    blocks = run("stats", filled, other).stdout.split("\n\n")
    assert [block.splitlines()[0].split()[1] for block in blocks] == [str(filled), str(other)]
    lines = run("stats", "--json", filled, other).stdout.splitlines()
    assert [json.loads(line)["path"] for line in lines] == [str(filled), str(other)]
