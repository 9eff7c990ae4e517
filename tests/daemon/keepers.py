# SPDX-License-Identifier: Apache-2.0
"""A keeper in this process, whose ticks the test calls, and its log."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lockcache_daemon.keeper.keeper import Keeper
from lockcache_daemon.observe.log import Report
from lockcache_daemon.settings.rules import Rules
from lockcache_daemon.signals import StopSignals

CAP = 1_000_000
LOW = 900_000


class Kept:
    """A keeper, and its log."""

    def __init__(self, root: Path, layout: str = "lockcache") -> None:
        self.out = io.StringIO()
        self.stop = StopSignals()
        report = Report(as_json=True, out=self.out, err=self.out)
        # A long interval, because promises in ticks hold only if a tick has enough time, which a busy machine may take.
        rules = Rules(CAP, settle_seconds=0.001, interval_seconds=60.0, layout=layout)
        self.keeper = Keeper(str(root), rules, report, self.stop)

    def said(self, event: str) -> list[dict[str, Any]]:
        return [said for line in self.out.getvalue().splitlines() if (said := json.loads(line))["event"] == event]


@pytest.fixture
def keep() -> Iterator[Callable[..., Kept]]:
    """Opens keepers, and closes them: ``keep(root)``, or ``keep(root, layout)``."""
    made: list[Kept] = []

    def start(root: Path, layout: str = "lockcache") -> Kept:
        made.append(Kept(root, layout))
        made[-1].keeper.open()
        return made[-1]

    yield start
    for kept in made:
        kept.keeper.close()
        with kept.stop:
            pass  # closes its sockets
