# SPDX-License-Identifier: Apache-2.0
"""Progress of a run by folder, with ``--by-folder``: a line for each folder that is done, in place of a dot a test.

A terminal also shows a line of what runs, which is drawn again ten times a second at most. Failures are named when they
happen, and shown in full at the end as always. With xdist it runs in the process that the workers report to.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import pytest

_PAUSE_SECONDS: Final = 0.1
_COLUMNS: Final = 79


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--by-folder", action="store_true", help="show progress by folder, in place of dots")


@pytest.hookimpl(trylast=True)  # after pytest's own reporter is there
def pytest_configure(config: pytest.Config) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if config.getoption("--by-folder") and reporter is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Progress(reporter), "progress-by-folder")


def folder_of(nodeid: str) -> str:
    """Returns the folder of ``tests/`` that a test is in."""
    folder, slash, _ = nodeid.removeprefix("tests/").partition("/")
    return folder if slash else "tests"


class Progress:
    """Counts the tests of each folder, and writes through pytest's own reporter."""

    def __init__(self, reporter: Any) -> None:
        self._reporter = reporter
        reporter.showfspath = False
        self._began = time.monotonic()
        self._drawn = 0.0
        self._is_over = False
        self._is_live = reporter.isatty
        self._expected: Counter[str] = Counter()
        self._done: Counter[str] = Counter()
        self._outcomes: dict[str, Counter[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._expect([item.nodeid for item in session.items])

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: Sequence[str]) -> None:
        """All workers collect the same tests."""
        del node
        self._expect(ids)

    def _expect(self, ids: Sequence[str]) -> None:
        if not self._expected and ids:
            self._expected.update(map(folder_of, ids))
            folders = f"{len(self._expected)} folder{'s' * (len(self._expected) != 1)}"
            self._write(f"{len(ids):,} tests in {folders}, collected in {self._seconds():.0f} s")

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self, report: Any) -> Any:
        """Leave the letters out while tests run; pytest counts by the category, and its summary has the words."""
        category, letter, word = yield
        return (category, letter, word) if self._is_over else (category, "", "")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        outcomes = self._outcomes.setdefault(folder := folder_of(report.nodeid), Counter())
        if report.failed:
            outcomes["failed"] += 1
            self._write(f"FAILED {report.nodeid}" + ("" if report.when == "call" else f" ({report.when})"))
        elif report.skipped or report.when == "call":
            outcomes["skipped" if report.skipped else "passed"] += 1
        if report.when != "teardown":
            return
        self._done[folder] += 1
        if self._done[folder] == self._expected[folder]:
            self._write(self._describe(folder))
        elif self._is_live and time.monotonic() - self._drawn > _PAUSE_SECONDS:
            self._draw()

    def pytest_sessionfinish(self) -> None:
        self._clear()
        self._is_over = True

    def _describe(self, folder: str) -> str:
        words = ", ".join(f"{count:,} {name}" for name, count in sorted(self._outcomes[folder].items()))
        return f"  {folder:<12} {words}, done after {self._seconds():.0f} s"

    def _draw(self) -> None:
        done, all_ = self._done.total(), self._expected.total()
        counts = {each: (self._done[each], count) for each, count in self._expected.items()}
        running = [f"{each} {begun}/{count}" for each, (begun, count) in counts.items() if 0 < begun < count]
        line = f"  {done / max(all_, 1):4.0%} after {self._seconds():3.0f} s: {', '.join(running)}"
        self._clear()
        self._reporter.write(line[: min(_COLUMNS, self._reporter._screen_width - 1)], flush=True)
        self._drawn = time.monotonic()

    def _write(self, line: str) -> None:
        self._clear()
        self._reporter.write_line(line)

    def _clear(self) -> None:
        if self._is_live:
            self._reporter.write("\r\x1b[K", flush=True)

    def _seconds(self) -> float:
        return time.monotonic() - self._began
