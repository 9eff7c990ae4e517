"""Running code in a process of its own, that may take only so much processor time, and telling what memory it took."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def within(cpu_seconds: int, script: str, *arguments: object) -> list[str]:
    """Returns what ``script`` prints, word by word. Its processor time is limited, not the wall's: others may be busy.

    What is linear takes a hundredth of the seconds that its test gives it, and what is quadratic hundreds of times as
    many.
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
    """The most memory that this process had at once. Not ru_maxrss, which a new program inherits from its parent."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
