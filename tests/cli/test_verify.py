# SPDX-License-Identifier: Apache-2.0
"""``lockcache verify``, run as an operator runs it."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from tests.cli.command import run
from tests.crash.damage import fill_to_damage, spoil
from tests.daemon.directories import photograph

KEYS = [b"%d" % number for number in range(40)]


@pytest.fixture
def filled(cache_path: Path) -> Path:
    return fill_to_damage(cache_path, KEYS)


def verify_as_json(*arguments: object, code: int) -> dict[str, Any]:
    ended = run("verify", "--json", *arguments)
    assert ended.returncode == code, ended
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_what_is_corrupt_is_named_and_left_alone_without_repair(filled: Path) -> None:
    name = spoil(filled, b"7")
    run("stats", filled)
    before = photograph(filled / "entries")
    found = verify_as_json(filled, code=1)
    assert (found["whole"], found["corrupt"], found["repaired"]) == (len(KEYS) - 1, 1, 0)
    [entry] = found["found"]
    assert (entry["entry"], entry["state"], entry["why"], entry["repaired"]) == (name, "corrupt", "digest", False)
    assert photograph(filled / "entries") == before
    shown = run("verify", filled)
    assert shown.returncode == 1
    assert name in shown.stdout
    assert "verify --repair" in shown.stderr


def test_what_cannot_be_repaired_is_said_with_the_reason(filled: Path) -> None:
    name = spoil(filled, b"7")
    (filled / "lockcache/quarantine").symlink_to("/tmp")
    shown = run("verify", "--repair", filled)
    assert shown.returncode == 1
    [line] = [line for line in shown.stdout.splitlines() if name in line]
    assert "NOT REPAIRED" in line
    assert "lockcache/quarantine" in line
    assert "1 corrupt entry is in place" in shown.stderr


def test_ten_thousands_of_corrupt_ones_are_summed_up_for_people_and_listed_for_programs(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        for number in range(60):
            cache[b"more %d" % number] = b"x" * 100
            spoil(filled, b"more %d" % number, "truncated to nothing")
    shown = run("verify", filled)
    assert "and 10 more" in shown.stdout
    assert len(verify_as_json(filled, code=1)["found"]) == 60


def test_on_a_terminal_there_is_a_progress_bar_and_stdout_is_clean(filled: Path) -> None:
    with FileStreamProgramCache(filled) as cache:
        cache[b"large"] = bytes(60 << 20)
    main, terminal = pty.openpty()
    # However quick the machine is: otherwise work of half a second shows none.
    at_once = "from lockcache.cli import main, progress; progress._FIRST_SECONDS = 0.0; main()"
    command = [sys.executable, "-c", at_once, "verify", "--json", filled]
    ended = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=terminal)
    os.close(terminal)
    seen = b""
    while True:
        try:
            seen += os.read(main, 4096)
        except OSError:
            break
    os.close(main)
    assert json.loads(ended.communicate(timeout=60)[0])["whole"] == len(KEYS) + 1
    assert b"verifying" in seen
