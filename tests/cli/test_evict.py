# SPDX-License-Identifier: Apache-2.0
"""``lockcache evict``, run as an operator runs it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from tests.cli.command import run
from tests.cli.terminal import OnTerminal


@pytest.fixture
def filled(cache_path: Path) -> Path:
    """Twenty entries of 1,000 bytes, older ones first; every other one for sm_70."""
    with FileStreamProgramCache(cache_path) as cache:
        for number in range(20):
            known = {"kind": "cubin", "arch": "sm_70" if number % 2 else "sm_90", "compiler": f"nvrtc 12.{number}"}
            cache.put_entry(f"k{number}", Entry(b"x" * 1000, known))
            name = entry_name(b"k%d" % number)
            os.utime(cache_path / "entries" / name[:2] / name[2:], ns=(number * 10**9, number * 10**9))
    return cache_path


def evict(*arguments: object) -> dict[str, Any]:
    ended = run("evict", "--json", "--yes", *arguments)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def left(root: Path) -> list[int]:
    with FileStreamProgramCache(root) as cache:
        return [number for number in range(20) if cache.get(f"k{number}") is not None]


def drift(root: Path) -> int:
    return int(json.loads(run("recount", "--json", root).stdout)["drift_bytes"])


def test_down_to_a_size_the_least_recently_used_go_first(filled: Path) -> None:
    found = evict("--to", "5K", filled)
    assert (found["evicted_entries"], found["evicted_bytes"], found["bytes"], found["entries"]) == (15, 15000, 5000, 5)
    assert drift(filled) == 0
    assert left(filled) == [15, 16, 17, 18, 19]


def test_filters_and_size_together_take_only_what_all_of_them_allow(filled: Path) -> None:
    assert evict("--arch", "sm_70", "--to", "17K", filled)["evicted_entries"] == 3
    assert left(filled) == [0, 2, 4, *range(6, 20)]


def test_a_dry_run_says_what_would_go_and_changes_nothing(filled: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in filled.rglob("*")}
    found = evict("--to", "5K", "--dry-run", filled)
    assert (found["would_evict_entries"], found["bytes"]) == (15, 5000)
    assert [len(found["first"]), found["first"][0]["name"]] == [15, entry_name(b"k0")]
    lines = run("evict", "--to", "5K", "--dry-run", filled).stdout.splitlines()
    assert sum(line.startswith(entry_name(b"k0")[:12]) for line in lines) == 1
    assert before == {path: path.stat().st_mtime_ns for path in filled.rglob("*")}


@pytest.mark.parametrize("answer, code, remaining", [(b"n\n", 1, 20), (b"y\n", 0, 5), (b"\x03", -signal.SIGINT, 20)])
def test_on_a_terminal_it_asks_first(answer: bytes, code: int, remaining: int, filled: Path) -> None:
    with OnTerminal("evict", "--to", "5K", filled) as terminal:
        terminal.read_until(b"[y/N]")
        assert b"Remove 15 entries, 15.0 kB" in terminal.said
        terminal.type(answer)
        assert terminal.end() == code
        assert b"Traceback" not in terminal.said
    assert len(left(filled)) == remaining
