# SPDX-License-Identifier: Apache-2.0
"""Start-up: ``from lockcache import FileStreamProgramCache``, and opening a capped directory.

The import is timed after the import of its two largest dependencies, each time in a new interpreter. Directories with
10 and with 50,000 entries are opened, because an opening must not walk the entries.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from statistics import median
from typing import Final

from lockcache_stress.bench.base import Bar, Bench, Line, interleaved, median_us, open_lockcache, shown
from lockcache_stress.bench.peers import CUDA_CORE, LOCKCACHE, Peer, compared, fill

_FEW: Final = 10
_GROWTH: Final = Bar("<=", 1.5, "x")
_IMPORT: Final = Bar("<", 50, " ms")
# Importing lockcache imports nothing that is not asked for.
_LOCKCACHE_MODULE = "lockcache.composition.cache"
_CUDA_CORE_MODULE = "cuda.core.utils"
_TIMED = "import filelock, psutil, time; t = time.perf_counter(); import {}; print((time.perf_counter() - t) * 1e3)"


def measure_opening(bench: Bench) -> list[Line]:
    """Measure opening: the same time at both sizes, within 1.5x for noise."""
    many = bench.pick(50_000, 300)
    actions = {
        name: partial(open_lockcache, *fill(bench, LOCKCACHE, size)) for name, size in (("few", _FEW), ("many", many))
    }
    times_us = interleaved(actions, bench.pick(101, 5), 1, bench.show)
    few_us, many_us = times_us["few"], times_us["many"]
    others_us = {peer.name: _other(bench, peer, many) for peer in compared()}
    theirs_us = others_us.pop(CUDA_CORE.name, None)
    growth = many_us / few_us
    return [
        Line(f"open, capped, {_FEW} entries", f"{few_us:,.0f} us"),
        Line(
            f"open, capped, {many:,} entries",
            f"{many_us:,.0f} us",
            theirs=shown(theirs_us, "{:,.0f} us"),
            **_GROWTH.in_ratio(growth, f" that at {_FEW}"),
            is_time=True,
            others={name: f"{taken:,.0f} us" for name, taken in others_us.items()},
            numbers={
                "few_us": few_us,
                "many_us": many_us,
                "theirs_us": theirs_us,
                "growth": growth,
                "others_us": others_us,
            },
        ),
    ]


def _other(bench: Bench, peer: Peer, entries: int) -> float:
    path, cap = fill(bench, peer, entries)
    return median_us(bench.pick(5, 2), lambda: peer.open(path, cap), lambda store: store.close())


def measure_import(bench: Bench) -> list[Line]:
    """Measure the import: under 50 ms."""
    rounds = bench.pick(15, 2)
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rounds):
        ours.append(_import_ms(_LOCKCACHE_MODULE))
        if CUDA_CORE.is_installed():
            theirs.append(_import_ms(_CUDA_CORE_MODULE))
        bench.show((number + 1) / rounds, "")
    ours_ms, theirs_ms = median(ours), median(theirs) if theirs else None
    return [
        Line(
            "import, over filelock and psutil",
            _IMPORT.show(ours_ms, 1),
            theirs=shown(theirs_ms, "{:.1f} ms"),
            **_IMPORT.judged(ours_ms),
            is_time=True,
            numbers={"ours_ms": ours_ms, "theirs_ms": theirs_ms},
        )
    ]


def _import_ms(module: str) -> float:
    command = [sys.executable, "-c", _TIMED.format(module)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
