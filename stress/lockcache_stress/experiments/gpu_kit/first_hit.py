# SPDX-License-Identifier: Apache-2.0
"""Row ``first-hit``: the first program of a process: hit, load and launch against compile, load and launch.

Each is timed in processes of its own, in turns, one process at a time: from the source to numbers that were copied from
the GPU and compared. A compilation loads NVRTC first, as in every process that compiles; a hit does not need it.
``cuda.core`` is imported and the cache is open before. Without a GPU nothing is loaded or launched, and the line of the
row says so. The program is timed with ``cuda_fp16.h`` too, where the headers of the CUDA runtime are installed.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any, Final

from lockcache_stress.experiments.gpu_kit.member import Crowd, Member, run_crowd
from lockcache_stress.experiments.gpu_kit.plan import Found, Kit
from lockcache_stress.gpu import LAUNCHED, compile_uncached, find_runtime_headers, program_options
from lockcache_stress.run import Check, equal, zero

_HIT, _COMPILE = "hit", "compile"
_PLAIN, _HEADER = "no header", "cuda_fp16.h"
_SALT: Final = 4711

_KERNEL: Final = """
extern "C" __global__ void run(unsigned* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = {value} + {salt}u;
}}
"""
_SOURCES: Final = {
    _PLAIN: _KERNEL.format(value="(i ^ (i >> 3))", salt=_SALT),
    _HEADER: "#include <cuda_fp16.h>"
    + _KERNEL.format(value="(unsigned) __half2int_rn(__hadd(__int2half_rn(i), __int2half_rn(1)))", salt=_SALT),
}
_EXPECTED: Final = {
    _PLAIN: [(i ^ (i >> 3)) + _SALT for i in range(LAUNCHED)],
    _HEADER: [i + 1 + _SALT for i in range(LAUNCHED)],
}
_ROUNDS: Final = 3
#: What each process does, in this order; one before them stores both programs.
_TURNS: Final = tuple((kind, what) for _ in range(_ROUNDS) for kind in _SOURCES for what in (_HIT, _COMPILE))


def run_first_hit(kit: Kit) -> Found:
    """Run the row."""
    everyone = 1 + len(_TURNS)
    crowd = run_crowd(kit, _work, everyone, processes=everyone, seconds=0.0)
    kinds = [kind for kind in _SOURCES if crowd.times(_name(kind, _HIT)) and crowd.times(_name(kind, _COMPILE))]
    lines = [
        zero("wrong results", crowd.wrong),
        equal("first hits", crowd.count("hits"), _ROUNDS * len(kinds)),
    ]
    numbers: dict[str, float] = {}
    said = []
    for kind in kinds:
        hit, compiled = (median(crowd.times(_name(kind, what))) for what in (_HIT, _COMPILE))
        ratio = compiled / hit
        lines.append(Check(f"compile over first hit, {kind}", f"{ratio:,.1f}x", "> 1", ratio > 1))
        numbers |= {_name(kind, _HIT): hit, _name(kind, _COMPILE): compiled, _name(kind, "ratio"): ratio}
        said.append(f"{kind} {hit * 1e3:,.1f} against {compiled * 1e3:,.1f} ms ({ratio:,.0f}x)")
    missing = [f"{kind}: its headers are not installed" for kind in _SOURCES if kind not in kinds]
    did = f"first hit of a process against compiling: {', '.join(said) or 'nothing was timed'}"
    found = crowd.found("first-hit", did, lines, _count_compiled(crowd), **numbers)
    found.notes = [*found.notes, *missing]
    return found


def _name(kind: str, what: str) -> str:
    return f"{kind}: {what}"


def _count_compiled(crowd: Crowd) -> int:
    return crowd.count("compiles") + sum(len(crowd.times(_name(kind, _COMPILE))) for kind in _SOURCES)


def _work(member: Member, phase: int) -> None:
    """Let one process work in each phase: the first stores the programs, and each other times its first program."""
    if member.index != phase:
        return
    if phase == 0:
        for kind in _SOURCES:
            _run(member, kind, _HIT)
        return
    kind, what = _TURNS[phase - 1]
    began = time.perf_counter()
    if _run(member, kind, what):
        member.answer.times[_name(kind, what)] = [time.perf_counter() - began]


def _run(member: Member, kind: str, what: str) -> bool:
    """Compile or hit the program, load, launch and check. Returns whether its headers are there."""
    options: Any = program_options(member.task.arch)
    if kind == _HEADER:
        options.include_path = find_runtime_headers()
        if not options.include_path:
            return False
    source = _SOURCES[kind]
    code = member.compile(source, options) if what == _HIT else compile_uncached(source, options)
    member.launch(member.load(code), _EXPECTED[kind], kind)
    return True
