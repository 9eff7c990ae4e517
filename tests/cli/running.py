"""Runs the operator's command from its console script."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["LOCKCACHE", "run"]

LOCKCACHE = str(Path(sys.executable).with_name("lockcache"))


def run(*arguments: object, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[Any]:
    """Run to the end; keyword arguments are environment variables."""
    return subprocess.run(
        [LOCKCACHE, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        input=stdin,
        env={**os.environ, **environment},
    )
