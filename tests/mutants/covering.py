# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest that writes down which lines of the store each test passes, and its processor time.

``-p tests.mutants.covering``, with the folder to write to in the variable ``LOCKCACHE_COVERING``. Only this process
and its threads are seen, not processes that tests start.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

STORE = Path("lockcache/filestream")
VARIABLE = "LOCKCACHE_COVERING"


def pytest_configure(config: pytest.Config) -> None:
    """Measure in the processes that run tests, not in the one that hands them out."""
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        config.pluginmanager.register(Covering(Path(os.environ[VARIABLE])), "covering")


class Covering:
    """Measures one process."""

    def __init__(self, folder: Path) -> None:
        self._seconds: dict[str, float] = {}
        self._seconds_file = folder / f"seconds.{os.getpid()}.json"
        self._coverage = coverage.Coverage(
            data_file=str(folder / f"lines.{os.getpid()}"), include=[f"{STORE.absolute()}/*"], config_file=False
        )
        self._coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Measure one test, with its fixtures."""
        self._coverage.switch_context(item.nodeid)
        before = sum(os.times()[:4])
        try:
            return (yield)
        finally:
            self._seconds.setdefault(item.nodeid, sum(os.times()[:4]) - before)
            self._coverage.switch_context("between tests")

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take no test that did not pass."""
        if report.outcome != "passed":
            self._seconds[report.nodeid] = -1.0

    def pytest_sessionfinish(self) -> None:
        self._coverage.stop()
        self._coverage.save()
        self._seconds_file.write_text(json.dumps(self._seconds))


def read_passes(folder: Path) -> tuple[dict[str, dict[int, set[str]]], dict[str, float]]:
    """Returns by module and line the tests that passed them, and the processor time of each test that passed."""
    seconds: dict[str, float] = {}
    for file in folder.glob("seconds.*.json"):
        seconds.update(json.loads(file.read_text()))
    seconds = {test: took for test, took in seconds.items() if took >= 0}
    lines: dict[str, dict[int, set[str]]] = {}
    for file in folder.glob("lines.*"):
        data = coverage.CoverageData(str(file))
        data.read()
        for path in data.measured_files():
            module = lines.setdefault(path.partition(f"{STORE}/")[2], {})
            for line, tests in data.contexts_by_lineno(path).items():
                module.setdefault(line, set()).update(seconds.keys() & set(tests))
    return lines, seconds
