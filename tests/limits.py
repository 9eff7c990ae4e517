# SPDX-License-Identifier: Apache-2.0
"""Running code in a process of its own with limited processor time, and measuring its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def within(cpu_seconds: int, script: str, *arguments: object) -> list[str]:
    """Returns the words that ``script`` prints. Its processor time is limited and not its wall time, for busy machines.

    Linear code takes a hundredth of the seconds that its test allows, and quadratic code hundreds of times as many.
    """
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_CPU, ({cpu_seconds}, {cpu_seconds}))\n"
    path = os.pathsep.join([str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(
        [sys.executable, "-c", limit + script, *map(str, arguments)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert ended.returncode == 0, f"it ended with {ended.returncode}: {ended.stderr}"
    return ended.stdout.split()


def peak_bytes() -> int:
    """Returns the most memory that this process had. Not ru_maxrss, which a new program inherits from its parent."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
