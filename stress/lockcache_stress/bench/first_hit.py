# SPDX-License-Identifier: Apache-2.0
"""The first hit of a process through ``lockcache.cuda.Program``, next to compiling the same program.

Each is measured in processes of its own, in turns: the processor time of the one call, the program's constructor
included, after ``cuda.core`` and lockcache were imported and the cache was opened. Compiling loads NVRTC, as it does in
every process that compiles; a hit need not. Measured are a kernel without headers, one with ``cuda_fp16.h`` and one
with CUB, as far as the wheels with these headers are installed. And the import of ``lockcache.cuda`` next to that of
``cuda.core``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from statistics import median
from typing import Final, NamedTuple

from lockcache_stress.bench.base import Bar, Bench, Line
from lockcache_stress.bench.peers import CUDA_CORE


class _Kernel(NamedTuple):
    source: str
    #: How many times as long compiling has to take.
    at_least: int


_KERNELS: Final = {
    "no headers": _Kernel('extern "C" __global__ void k(float* p) { p[threadIdx.x] += 1; }', 15),
    "cuda_fp16.h": _Kernel("#include <cuda_fp16.h>\n__global__ void k(__half* p) { *p = __hadd(p[0], p[1]); }", 10),
    "CUB": _Kernel(
        "#include <cub/block/block_reduce.cuh>\n"
        "__global__ void k(int* p) { __shared__ cub::BlockReduce<int, 128>::TempStorage room; "
        "*p = cub::BlockReduce<int, 128>(room).Sum(p[threadIdx.x]); }",
        60,
    ),
}
_IMPORT: Final = Bar("<=", 0.15, "x")
_NO_HEADERS: Final = "the headers are not installed: pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"

# Prints the milliseconds of processor time of a first and a second call, and the hits, as JSON.
_CALLS: Final = """
import json, sys, time
import cuda.core
from lockcache import FileStreamProgramCache
from lockcache.cuda import Program
from cuda.pathfinder import find_nvidia_header_directory as find
what, path, source = sys.argv[1:]
has_headers = "#include" in source
include = [folder for folder in map(find, ("cccl", "cudart")) if folder] if has_headers else None
if has_headers and len(include) < 2:
    sys.exit("no headers")
options = cuda.core.ProgramOptions(arch="sm_90", std="c++17", include_path=include)
cache = FileStreamProgramCache(path)
def hit():
    Program(source, "c++", options).compile("cubin", cache=cache)
def compile():
    cuda.core.Program(source, "c++", options).compile("cubin")
def timed(call):
    begun = time.process_time_ns()
    call()
    return (time.process_time_ns() - begun) / 1e6
call = {"hit": hit, "compile": compile}[what]
print(json.dumps([timed(call), timed(call), cache.stats().hits]))
"""
_IMPORTS: Final = """
import time
begun = time.process_time_ns()
import cuda.core
between = time.process_time_ns()
import lockcache.cuda
print((between - begun) / 1e6, (time.process_time_ns() - between) / 1e6)
"""


def measure(bench: Bench) -> list[Line]:
    """Measure first hits: at most a 15th, a 10th and a 60th of compiling; and the import."""
    if not CUDA_CORE.is_installed():
        return []
    rounds = bench.pick(10, 1)
    lines = [_line(bench, name, kernel, rounds) for name, kernel in _KERNELS.items()]
    return [*lines, _measure_import(rounds)]


def _line(bench: Bench, name: str, kernel: _Kernel, rounds: int) -> Line:
    title = f"first hit of a process, {name}"
    path = bench.lockcache_directory(f"first-hit-{len(name)}")
    # Twice: headers that were just installed are read again by each process for two seconds.
    if any(_call("hit", path, kernel) is None for _ in range(2)):
        return Line(title, skipped=_NO_HEADERS)
    first, second, compiled = [], [], []
    for number in range(rounds):
        hit, compiling = _call("hit", path, kernel), _call("compile", path, kernel)
        if hit is None or compiling is None or hit[2] != 2:
            raise RuntimeError(f"{title}: not two hits but {hit}")
        first.append(hit[0])
        second.append(hit[1])
        compiled.append(compiling[0])
        bench.show((number + 1) / rounds, name)
    ours_ms, theirs_ms = median(first), median(compiled)
    bar = Bar(">=", kernel.at_least, "x")
    return Line(
        title,
        f"{ours_ms:,.1f} ms; the second {median(second):,.2f} ms",
        theirs=f"{theirs_ms:,.0f} ms",
        **bar.in_ratio(theirs_ms / ours_ms, " cheaper than compiling"),
        is_time=True,
        numbers={
            "ours_ms": ours_ms,
            "second_ms": median(second),
            "theirs_ms": theirs_ms,
            "ratio": theirs_ms / ours_ms,
        },
    )


def _call(what: str, path: str, kernel: _Kernel) -> tuple[float, float, int] | None:
    """Returns the milliseconds of two calls in a new process, and its hits; ``None`` without the headers."""
    ran = _run(_CALLS, what, path, kernel.source)
    if ran.returncode and ran.stderr.strip().endswith("no headers"):
        return None
    ran.check_returncode()
    first, second, hits = json.loads(ran.stdout)
    return first, second, hits


def _measure_import(rounds: int) -> Line:
    times = [tuple(map(float, _run(_IMPORTS).stdout.split())) for _ in range(rounds)]
    theirs_ms, ours_ms = (median(each) for each in zip(*times, strict=True))
    return Line(
        "import lockcache.cuda, after cuda.core",
        f"{ours_ms:,.0f} ms",
        theirs=f"{theirs_ms:,.0f} ms",
        **_IMPORT.in_ratio(ours_ms / theirs_ms, " of import cuda.core"),
        is_time=True,
        numbers={"ours_ms": ours_ms, "theirs_ms": theirs_ms, "ratio": ours_ms / theirs_ms},
    )


def _run(program: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=False)
