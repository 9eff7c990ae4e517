# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of the compile server: a place of its own, and programs with headers."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache.compile_server import asking, open_place, place as places, read_state, signs, start, stop
from lockcache.headers import files
from tests.cuda.compile_server.programs import children_of, is_running


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A private folder for a server of this test alone, which ends with it."""
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setenv("LOCKCACHE_COMPILE_SERVER", "on")
    monkeypatch.setattr(asking, "_rests_until", 0.0)
    # A server of this user that runs anyway is in one of these, and would be found where none is in the folder.
    monkeypatch.setattr(places, "_SHARED", (str(tmp_path),))
    yield folder
    state = read_state()
    if state is not None:
        holders = children_of(state["pid"])
        stop()
        for pid in (state["pid"], *holders):
            until = time.monotonic() + 10
            while is_running(pid) and time.monotonic() < until:
                time.sleep(0.01)
            if is_running(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def patient(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has callers wait for a busy machine, in tests of what the server compiles, not of what it costs."""
    monkeypatch.setattr(signs, "_MOST_MISSED", 1000)
    monkeypatch.setattr(asking, "STARTED_SECONDS", 60.0)


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has headers count as old enough at once: callers vouch for them, and no ctime can be set back."""
    monkeypatch.setattr(files, "_RACY_NS", 0)


@pytest.fixture
def started(place: Path) -> Any:
    """Returns a function that starts a server with limits of its own."""

    def begin(**limits: Any) -> dict[str, Any]:
        with open_place() as opened:
            assert start(opened, limits)
        state = None
        until = time.monotonic() + 60
        while state is None and time.monotonic() < until:
            state = read_state()
        assert state is not None
        return state

    return begin
