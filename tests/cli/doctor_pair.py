"""Runs the doctor on two hosts, or what stands for them, and reads what both found."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.cli.command import LOCKCACHE
from tests.processes.crowd import HANG_SECONDS

#: Something is late after a twelfth of it.
TIMEOUT = "24s"


def start_half(path: Path, *options: str, before: Sequence[str] = (), **environment: str) -> subprocess.Popen[str]:
    """Start the doctor on one of the two; ``before`` is a command that runs commands."""
    return subprocess.Popen(
        [*before, LOCKCACHE, "doctor", "--pair", "--timeout", TIMEOUT, *options, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def certified(*halves: subprocess.Popen[str]) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit code and what each check found, which is the same for both. They print JSON."""
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
