# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of TieredProgramCache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import lockcache.tiered
from lockcache import FileStreamProgramCache


@pytest.fixture
def shared(cache_path: Path) -> Iterator[FileStreamProgramCache]:
    with FileStreamProgramCache(cache_path) as cache:
        yield cache


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the time of tiers forward, so that no test waits for a minute."""
    now = [1000.0]

    class Clock:
        @staticmethod
        def monotonic() -> float:
            return now[0]

    monkeypatch.setattr(lockcache.tiered, "time", Clock)

    def advance(seconds: float) -> None:
        now[0] += seconds

    return advance
