# SPDX-License-Identifier: Apache-2.0
"""Row ``timing``: hit, load and launch against compile, load and launch, in turns, in one process: medians.

Both begin with the source and end with numbers that were copied from the GPU and compared. Without a GPU, a hit is
compared with a compilation alone, and the line of the row says so.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any, Final, NamedTuple

from lockcache_stress.experiments.gpu_kit.member import Member, run_crowd
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit
from lockcache_stress.gpu import compile_uncached, make_slots, program_options
from lockcache_stress.run import Check, some, zero

_KERNELS: Final = 8
_FEWEST: Final = 5
_MOST: Final = 400
_HIT, _COMPILE = "hit", "compile"
# These are left out, because the compiler spends half of the time on filling the table.
_TABLE: Final = "table"


class _Program(NamedTuple):
    source: str
    expected: list[int]


def run_timing(kit: Kit) -> Found:
    """Run the row."""
    crowd = run_crowd(kit, _work, 1, processes=1)
    hits, compiles = crowd.times(_HIT), crowd.times(_COMPILE)
    then = " + load + launch" if kit.gpu_arch else ""
    lines = [zero("wrong results", crowd.wrong), some("repetitions", len(hits))]
    if not hits:
        return crowd.found("timing", "nothing was timed", lines, 0)
    hit, compiled = median(hits), median(compiles)
    ratio = compiled / hit
    lines += [
        Check(f"hit{then}", f"{hit * 1e3:,.2f} ms"),
        Check(f"compile{then}", f"{compiled * 1e3:,.2f} ms"),
        Check("compile over hit", f"{ratio:,.1f}x", "> 1", ratio > 1),
    ]
    numbers = {"hit_seconds": hit, "compile_seconds": compiled, "ratio": ratio, "repetitions": len(hits)}
    did = (
        f"hit{then} {hit * 1e3:,.2f} ms, compile{then} {compiled * 1e3:,.1f} ms: {ratio:,.0f}x, medians of {len(hits)}"
    )
    return crowd.found("timing", did, lines, crowd.count("compiles") + len(compiles), **numbers)


def _work(member: Member, phase: int) -> None:
    task = member.task
    options = program_options(task.arch)
    slots = make_slots(_KERNELS, task.seed, (task.arch,))
    kernels = [slot.kernel for slot in slots if slot.kernel.family != _TABLE]
    # Made before the timing, so that computing the expected results is not timed.
    programs = [_Program(kernel.source(0), kernel.expected(0)) for kernel in kernels]
    for program in programs:  # so that the cache has all programs, and the process has loaded its libraries
        _finish(member, member.compile(program.source, options), program)
    goes_on = member.until_time()
    for number in range(_MOST):
        if number >= _FEWEST and not goes_on():
            return
        program = programs[number % len(programs)]
        with _timed(member, _HIT):
            _finish(member, member.compile(program.source, options), program)
        with _timed(member, _COMPILE):
            _finish(member, compile_uncached(program.source, options), program)


@contextmanager
def _timed(member: Member, name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    member.answer.times.setdefault(name, []).append(time.perf_counter() - began)


def _finish(member: Member, code: Any, program: _Program) -> None:
    member.launch(member.load(code), program.expected, "timing")
