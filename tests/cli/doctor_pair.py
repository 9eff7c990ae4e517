# SPDX-License-Identifier: Apache-2.0
"""Runs the doctor on two hosts, or on two mounts in place of them, and reads their findings."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cli.command import LOCKCACHE
from tests.processes.crowd import HANG_SECONDS

#: A twelfth of this time is the limit after which a change counts as late.
TIMEOUT = "24s"


def start_half(path: Path, *options: str, before: Sequence[str] = (), **environment: str) -> subprocess.Popen[str]:
    """Start the doctor on one of the two hosts. ``before`` is a command that runs commands there."""
    return subprocess.Popen(
        [*before, LOCKCACHE, "doctor", "--pair", "--timeout", TIMEOUT, *options, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def certified(*halves: subprocess.Popen[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """Returns the exit code and the finding of each check, which are the same for both, as they print JSON."""
    reports = []
    for half in halves:
        out, err = half.communicate(timeout=2 * HANG_SECONDS)
        reports.append(json.loads(out))
        assert reports[-1]["exit_code"] == half.returncode
        assert "Traceback" not in err
    first, second = ({check["check"]: check for check in report["checks"]} for report in reports)
    del first["path"], second["path"]
    assert first == second
    assert reports[0]["certified"] == reports[1]["certified"] == (reports[0]["verdict"] != "not tested")
    return reports[0]["exit_code"], first
