# SPDX-License-Identifier: Apache-2.0
"""Runs the doctor, and reads its findings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.command import run
from tests.daemon.daemon_process import until

__all__ = ["DEGRADED", "GOOD", "NOTE", "UNTESTED", "UNUSABLE", "everything_in", "examined", "until", "verdicts"]


GOOD, NOTE, UNTESTED, DEGRADED, UNUSABLE = "good", "note", "not tested", "degraded", "unusable"


def examined(path: Path, *options: str, **environment: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Returns the exit code, and the finding of each check."""
    ended = run("doctor", "--json", *options, path, **environment)
    report = json.loads(ended.stdout)
    assert report["exit_code"] == ended.returncode
    assert ended.stderr == ""
    checks = {check["check"]: check for check in report["checks"]}
    assert len(checks) == len(report["checks"]), "each check is reported once"
    for check in checks.values():
        assert check["verdict"] not in (DEGRADED, UNUSABLE) or check["means"], "what is lost is said"
    return ended.returncode, checks


def verdicts(checks: dict[str, dict[str, Any]], *worse: str) -> dict[str, str]:
    """Returns the checks that are neither good nor a note."""
    return {name: check["verdict"] for name, check in checks.items() if check["verdict"] not in (GOOD, NOTE)}


def everything_in(path: Path) -> dict[str, bytes | None]:
    return {str(each): each.read_bytes() if each.is_file() else None for each in path.rglob("*")}
