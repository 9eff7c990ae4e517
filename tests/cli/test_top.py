# SPDX-License-Identifier: Apache-2.0
"""``lockcache top``, on a real terminal and without one."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.cli.top.sample import Watch
from lockcache.filestream.disk.layout import Layout, entry_name
from tests.cli.command import LOCKCACHE, run
from tests.cli.terminal import OnTerminal
from tests.state_pages import make_newer


def test_without_a_terminal_it_is_one_look(filled: Path) -> None:
    ended = run("top", filled)
    assert ended.returncode == 0
    assert "\x1b" not in ended.stdout
    assert "15.0%" in ended.stdout
    assert entry_name(b"a")[:12] in ended.stdout


def test_json_is_one_object_for_each_directory(filled: Path, tmp_path: Path) -> None:
    FileStreamProgramCache(tmp_path / "other")["k"] = b"x"
    first, second = map(json.loads, run("top", "--json", "--once", filled, tmp_path / "other").stdout.splitlines())
    assert (first["bytes"], first["max_size_bytes"], first["newest"][0]["name"]) == (1500, 10_000, entry_name(b"b"))
    assert (second["path"], second["entries"]) == (str(tmp_path / "other"), 1)


@pytest.mark.parametrize("key", [b"q", b"\x03"])
def test_on_a_terminal_it_goes_on_until_it_is_told_to_end_and_leaves_the_terminal_clean(
    key: bytes, filled: Path
) -> None:
    with OnTerminal("top", "--interval", "100ms", filled) as terminal:
        terminal.read_until(b"1.5 kB")
        FileStreamProgramCache(filled)["c"] = b"z" * 700
        terminal.read_until(b"2.2 kB")
        terminal.type(key)
        assert terminal.end() == 0
        assert b"\x1b[?1049l" in terminal.said  # the screen that was there before
        assert b"Traceback" not in terminal.said


def _delete(terminal: OnTerminal, filled: Path) -> None:
    terminal.type(b"x")  # which means nothing
    shutil.rmtree(filled)


def _spoil_the_policy(terminal: OnTerminal, filled: Path) -> None:
    make_newer(filled)


def _ask_for_help(terminal: OnTerminal, filled: Path) -> None:
    terminal.type(b"?")


@pytest.mark.parametrize(
    "act, shown", [(_delete, b"0 B"), (_spoil_the_policy, b"gone: "), (_ask_for_help, b"staged: writes")]
)
def test_what_changes_is_shown_and_a_directory_that_was_deleted_stays_so(
    act: Callable[[OnTerminal, Path], None], shown: bytes, filled: Path
) -> None:
    with OnTerminal("top", "--interval", "100ms", filled) as terminal:
        terminal.read_until(b"1.5 kB")
        act(terminal, filled)
        terminal.read_until(shown)
        terminal.type(b"Q")
        assert terminal.end() == 0
    assert filled.exists() == (act is not _delete)


def test_without_a_keyboard_it_goes_on_until_it_is_ended(filled: Path) -> None:
    ours, theirs = pty.openpty()
    arguments = ["setsid", LOCKCACHE, "top", "--interval", "100ms", filled]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs, env=environment) as top:
        os.close(theirs)
        said = b""
        while b"1.5 kB" not in said:
            said += os.read(ours, 4096)
        FileStreamProgramCache(filled)["c"] = b"z" * 700
        while b"2.2 kB" not in said:
            said += os.read(ours, 4096)
        top.terminate()
        with contextlib.suppress(OSError):
            while part := os.read(ours, 4096):
                said += part
        assert top.wait(60) == 128 + signal.SIGTERM
    os.close(ours)
    assert b"\x1b[?1049l" in said
    assert b"Traceback" not in said


def test_rates_are_what_was_reported_since_the_look_before(filled: Path) -> None:
    watch = Watch(Layout(str(filled)))
    assert watch.look().rates == {}
    with FileStreamProgramCache(filled) as cache:
        assert cache.get("a")
    rates = watch.look().rates
    assert rates["hits"] > 0
    assert rates["puts"] == 0


def test_json_streams_a_line_at_each_look_with_rates(filled: Path) -> None:
    command = [LOCKCACHE, "top", "--json", "--interval", "100ms", filled]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        first, second, third = (json.loads(top.stdout.readline()) for _ in range(3))
        top.terminate()
    assert first["rates"] == {}
    assert set(second["rates"]) == {"hits", "waits", "misses", "puts", "evictions"}
    assert first["time"] < second["time"] < third["time"]
