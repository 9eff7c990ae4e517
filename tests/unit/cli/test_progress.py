# SPDX-License-Identifier: Apache-2.0
"""Progress on a terminal: a bar in one line that fits, and nothing of it afterwards."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import sys
from collections.abc import Callable

import pytest

from lockcache.cli import progress
from lockcache.cli.progress import progress_bar, status_line, step_bar


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], str]:
    """Returns what a function shows on a terminal of 60 columns that is stderr."""
    monkeypatch.setattr(progress, "_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_FIRST_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", "60")

    def show(work: Callable[[], None]) -> str:
        ours, theirs = pty.openpty()
        try:
            with open(theirs, "w", encoding="utf-8") as terminal, monkeypatch.context() as patch:
                patch.setattr(sys, "stderr", terminal)
                work()
            said = b""
            with contextlib.suppress(OSError):  # a terminal raises this when its other end is closed
                while part := os.read(ours, 1 << 16):
                    said += part
            return said.decode()
        finally:
            os.close(ours)

    return show


def test_steps_are_a_bar_with_a_share(shown: Callable[[Callable[[], None]], str]) -> None:
    def work() -> None:
        with step_bar("measuring", 4) as advance:
            for _ in range(4):
                advance(1)

    lines = shown(work).split("\r")
    assert [re.sub(r"%  .*", "%", line) for line in lines[:4]] == [
        f"measuring [{'#' * filled}{'-' * (20 - filled)}] {share:3}%"
        for filled, share in ((5, 25), (10, 50), (15, 75), (20, 100))
    ]
    assert all(" left\x1b[K" in line for line in lines[:4])
    assert lines[-2] == "\x1b[K"  # it is gone


def test_bytes_have_their_sum_and_their_rate(shown: Callable[[Callable[[], None]], str]) -> None:
    def work() -> None:
        with progress_bar("packing") as show:
            show(0, 0)  # nothing to do
            show(500, 1000)

    said = shown(work)
    assert re.search(r"packing \[#{10}-{10}\]  50%  500 B of 1\.0 kB, ", said)
    assert all(len(line.replace("\x1b[K", "")) < 60 for line in said.split("\r"))


def test_a_line_that_is_too_long_is_cut_and_cannot_write_to_the_terminal(
    shown: Callable[[Callable[[], None]], str],
) -> None:
    def work() -> None:
        with status_line() as show:
            show("\x1b[2J" + "x" * 100)

    first, *_ = shown(work).split("\r")
    assert first == "\\x1b[2J" + "x" * 52 + "\x1b[K"


def test_without_a_terminal_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_bar("packing") as show, step_bar("listing", 2) as advance:
        show(1, 2)
        advance(1)
    assert capsys.readouterr().err == ""
