"""The time of ``import lockcache`` on top of its two largest dependencies, each time in a new interpreter."""

from __future__ import annotations

import subprocess
import sys
from statistics import median
from typing import Final

from lockcache_stress.bench.bars import Bar
from lockcache_stress.bench.base import Bench, Line, shown
from lockcache_stress.bench.peers import THEIRS

__all__ = ["measure"]

_BAR: Final = Bar("<", 50, " ms")
_OURS = "lockcache"
_THEIRS = "cuda.core.utils"
_TIMED = "import filelock, psutil, time; t = time.perf_counter(); import {}; print((time.perf_counter() - t) * 1e3)"


def measure(bench: Bench) -> list[Line]:
    """Under 50 ms."""
    rounds = bench.pick(15, 2)
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        ours.append(_import_ms(_OURS))
        if THEIRS.is_installed():
            theirs.append(_import_ms(_THEIRS))
        bench.show((number + 1) / rounds, "")
    ours_ms, theirs_ms = median(ours), median(theirs) if theirs else None
    return [
        Line(
            "import, over filelock and psutil",
            _BAR.show(ours_ms, 1),
            theirs=shown(theirs_ms, "{:.1f} ms"),
            **_BAR.judged(ours_ms),
            is_time=True,
            numbers={"ours_ms": ours_ms, "theirs_ms": theirs_ms},
        )
    ]


def _import_ms(module: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(module)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
