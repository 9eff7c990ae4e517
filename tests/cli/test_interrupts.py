# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C at the worst moment, between a change and its accounting, leaves nothing half done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.cli.program import run
from lockcache.filestream.accounting.state import Slot, StatePage
from tests.unit.material import entry_path


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """``interrupt(n)``: Ctrl-C comes in place of the n-th change of the accounting from now on."""

    def arm(number: int) -> None:
        changes, change = iter(range(1, number + 1)), StatePage.add_locked

        def add_locked(self: StatePage, *arguments: Any) -> Slot:
            if next(changes, None) == number:
                raise KeyboardInterrupt
            return change(self, *arguments)

        monkeypatch.setattr(StatePage, "add_locked", add_locked)

    return arm


@pytest.fixture
def filled(cache_path: Path) -> Path:
    with FileStreamProgramCache(cache_path, max_size_bytes=100_000) as cache:
        for number in range(5):
            cache[f"{number}"] = b"x" * 1000
    return cache_path


def assert_accounting_is_true(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    capfd.readouterr()
    assert run(["stats", "--json", str(path)]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["drift"]["bytes"], found["drift"]["entries"], found["staged"]["entries"]) == (0, 0, 0)


def test_an_interrupted_clear(
    filled: Path, interrupt: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    interrupt(3)
    assert run(["clear", "--yes", str(filled)]) == 130
    assert "lockcache: interrupted: removed 3 entries, and 2 stay\n" in capfd.readouterr().err
    assert_accounting_is_true(filled, capfd)


def test_an_interrupted_repair(
    filled: Path, interrupt: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    with open(entry_path(filled, b"3"), "r+b") as file:
        file.write(b"y")
    interrupt(1)
    assert run(["verify", "--repair", str(filled)]) == 130
    assert_accounting_is_true(filled, capfd)


@pytest.mark.parametrize("number", range(2, 9))
def test_an_interrupted_unpack(
    number: int, filled: Path, tmp_path: Path, interrupt: Callable[[int], None], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["pack", str(tmp_path / "warm"), str(filled)]) == 0
    interrupt(number)
    capfd.readouterr()
    assert run(["unpack", str(tmp_path / "warm"), str(tmp_path / "other")]) == 130
    assert "lockcache: interrupted: what was stored stays" in capfd.readouterr().err
    assert_accounting_is_true(tmp_path / "other", capfd)
