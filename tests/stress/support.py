# SPDX-License-Identifier: Apache-2.0
"""Tools of the tests of lockcache-stress: running it like a user, and its shared tables without any process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lockcache_stress import commands
from lockcache_stress.cli import main
from lockcache_stress.plan import Plan
from tests.programs import import_all, run_forked

PROGRAM = os.path.join(os.path.dirname(sys.executable), "lockcache-stress")


def stress(*words: str, run_path: Path, timeout: float = 100) -> subprocess.CompletedProcess[str]:
    """Run the program, with its temporary files under ``run_path``."""
    import_all(commands)
    return run_forked(main, PROGRAM, *words, env=environment(run_path), timeout=timeout)


def stress_json(*words: str, run_path: Path, code: int = 0, timeout: float = 100) -> Any:
    """Returns the output of :func:`stress` with ``--json``, after checking its exit code."""
    ran = stress(*words, "--json", run_path=run_path, timeout=timeout)
    assert ran.returncode == code, ran.stdout + ran.stderr
    return json.loads(ran.stdout)


def environment(run_path: Path) -> dict[str, str]:
    return {**os.environ, "TMPDIR": str(run_path), "COLUMNS": "200"}


def failed_checks(report: dict[str, Any]) -> set[str]:
    return {check["name"] for check in report["checks"] if not check["ok"]}


def make_plan(control: Path, **changes: Any) -> Plan:
    """Returns a small plan, for which no process is started."""
    given: dict[str, Any] = {
        "scenario": "test",
        "processes": 3,
        "seconds": 1.0,
        "seed": 1,
        "max_size_bytes": 1_000_000,
        "directory": str(control / "cache"),
        "control": str(control),
        "keys": 4,
    }
    return Plan(**{**given, **changes})
