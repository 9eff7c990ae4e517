# SPDX-License-Identifier: Apache-2.0
"""Signs: of real processes that run, wait, sleep, are stopped and have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lockcache.compile_server import signs
from lockcache.compile_server.signs import HungError, Signs

SLEEPS = "print('ready', flush=True); import signal; signal.pause()"
RUNS = "print('ready', flush=True)\nwhile True: pass"


def look_for_ever(signs: Signs, process: int) -> None:
    while True:
        signs.look(process, most_seconds=0.05)


@pytest.fixture
def process(request: pytest.FixtureRequest) -> Iterator[int]:
    with subprocess.Popen([sys.executable, "-S", "-c", request.param], stdout=subprocess.PIPE, text=True) as started:
        try:
            assert started.stdout is not None
            assert started.stdout.readline() == "ready\n"
            yield started.pid
        finally:
            started.kill()


@pytest.mark.parametrize("process", [SLEEPS], indirect=True)
def test_one_that_sleeps_is_noticed_at_the_second_look_without_a_sign(process: int) -> None:
    signs = Signs()
    while not signs.is_doubtful:  # until it has gone to sleep; the first look has nothing to compare with
        signs.look(process)
    with pytest.raises(HungError, match="does nothing"):
        signs.look(process)


@pytest.mark.parametrize("process", [RUNS], indirect=True)
def test_one_that_runs_works_however_often_one_looks(process: int) -> None:
    signs = Signs()
    for _ in range(1000):
        signs.look(process)
    with pytest.raises(HungError, match="says nothing"):
        look_for_ever(signs, process)


@pytest.mark.parametrize("process", [RUNS, SLEEPS], indirect=True)
def test_one_that_is_stopped_is_noticed_at_once(process: int) -> None:
    os.kill(process, signal.SIGSTOP)
    os.waitpid(process, os.WUNTRACED)
    with pytest.raises(HungError, match="is stopped"):
        Signs().look(process)


def test_one_that_is_gone_gives_no_sign() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as ended:
        pass
    signs = Signs()
    signs.look(ended.pid)
    with pytest.raises(HungError, match="is not there"):
        signs.look(ended.pid)


@pytest.mark.parametrize("process", [SLEEPS], indirect=True)
@pytest.mark.parametrize("what", ["_scheduled", "_has_own_numbers"])
def test_one_of_which_the_kernel_says_too_little_does_not_count_as_hung(
    process: int, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signs, what, lambda *_: b"")
    looks = Signs()
    for _ in range(1000):
        looks.look(process)
    assert not looks.is_doubtful
