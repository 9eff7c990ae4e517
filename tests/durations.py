"""How long the tests of each folder took, beside what they may take. Printed with ``--durations``; fails nothing.

A folder over its budget has a test that wants a marker (``slow``, ``long``, see ``pyproject.toml``) or a smaller plan.
Seconds of all workers together, set-up included, on two cores; a busy machine takes twice as long.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import pytest

__all__ = ["pytest_terminal_summary"]

#: By folder: what ``make test`` may take, and what ``make test-rest`` may.
BUDGETS: Final[dict[str, tuple[int, int]]] = {}


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the table."""
    if config.getoption("durations") is None:
        return
    seconds: Counter[str] = Counter()
    tests: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                folder = report.nodeid.split("/")[1]
                seconds[folder] += report.duration
                tests[folder] += report.when == "call"
    is_rest = "long or" in str(config.getoption("markexpr"))
    terminalreporter.section("seconds by folder")
    for folder, took in seconds.most_common():
        budget = BUDGETS.get(folder, (0, 0))[is_rest]
        over = "  over its budget" if took > budget else ""
        terminalreporter.write_line(f"{folder:<12} {tests[folder]:5} tests {took:7.0f} s of {budget:4}{over}")
