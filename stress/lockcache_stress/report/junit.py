# SPDX-License-Identifier: Apache-2.0
"""``--junit FILE.xml``: a test suite for each scenario, a test case for each check, for CI to read.

The files have the dialect that Jenkins, GitLab and the actions for GitHub read (the schema of Jenkins's xUnit plugin).
Values that are only reported, without a condition, are in the suite's properties.
"""

from __future__ import annotations

import shlex
from typing import Final, cast

from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

from lockcache_stress.report.content import Ran, Written, printable, words_of
from lockcache_stress.run import Check

_MOST_FINDINGS: Final = 20
_PACKAGE: Final = "lockcache-stress"


def render_junit(written: Written) -> str:
    """Returns the whole file."""
    document = JUnitXml(_PACKAGE)
    for ran in written.runs:
        document.add_testsuite(_suite(ran, written))
    for name, reason in written.skipped:
        document.add_testsuite(_single(name, Skipped(printable(reason))))
    if written.cut_short:
        document.add_testsuite(_single("all of it", Failure(printable(written.cut_short))))
    document.update_statistics()  # type: ignore[no-untyped-call]
    document._elem.attrib.pop("skipped", None)  # the schema allows it for suites alone
    return cast(bytes, document.tostring()).decode()  # type: ignore[no-untyped-call]


def _suite(ran: Ran, written: Written) -> TestSuite:
    checks = ran.outcome.checks()
    suite = TestSuite(printable(ran.name))
    facts = [(check.name, check.value) for check in checks if not check.must]
    for name, value in [("title", ran.title), ("replay", shlex.join(ran.replay)), *written.machine.items(), *facts]:
        suite.add_property(printable(name), printable(value))  # before the cases, as the schema demands
    details = _details(ran)
    suite.add_testcases([_case(ran.name, check, details) for check in checks if check.must])
    return suite


def _case(name: str, check: Check, details: str) -> TestCase:
    case = TestCase(printable(check.name), f"{_PACKAGE}.{printable(name)}")
    if not check.ok:
        failure = Failure(printable(f"{check.name} is {check.value}, must be {check.must}"), "check")
        failure.text = details
        case.result = [failure]
    return case


def _details(ran: Ran) -> str:
    outcome = ran.outcome
    lines = [*outcome.deaths, *map(words_of, outcome.findings[:_MOST_FINDINGS])]
    return printable("\n".join([*lines, f"replay: {shlex.join(ran.replay)}"]))


def _single(name: str, result: Skipped | Failure) -> TestSuite:
    suite, case = TestSuite(printable(name)), TestCase(printable(name), _PACKAGE)
    case.result = [result]
    suite.add_testcase(case)
    return suite
