# SPDX-License-Identifier: Apache-2.0
"""Durations of the tests of each folder, next to their budgets. Printed with ``--durations``; fails nothing.

A folder over its budget has a test that needs a marker (``slow``, ``long``, see ``pytest.ini``) or a smaller plan.
Budgets are seconds of all workers together, set-up included, on two cores; a busy machine takes twice as long.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

#: By folder: the budgets for ``make test`` and for ``make test-rest``.
BUDGETS: Final[dict[str, tuple[int, int]]] = {
    "access": (80, 600),
    "cli": (170, 250),
    "contract": (80, 60),
    "crash": (110, 200),
    "cuda": (50, 400),
    "daemon": (150, 450),
    "docs": (30, 180),
    "frameworks": (0, 120),
    "layers": (5, 0),
    "processes": (90, 350),
    "properties": (40, 0),
    "races": (30, 0),
    "remote": (120, 100),
    "stress": (100, 350),
    "unit": (210, 60),
}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table."""
    if config.getoption("durations") is None:
        return
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = report.nodeid.removeprefix("tests/").partition("/")[0]
                seconds[folder] += report.duration
                tests[folder] += report.when == "call"
    is_rest = str(config.getoption("markexpr")).startswith("long or")
    terminalreporter.section("seconds by folder")
    for folder, took in seconds.most_common():
        budget = BUDGETS.get(folder, (0, 0))[is_rest]  # a new folder has no budget yet
        over = "  over its budget" if took > budget else ""
        terminalreporter.write_line(f"{folder:<12} {tests[folder]:5} tests {took:7.0f} s of {budget:4}{over}")
