# SPDX-License-Identifier: Apache-2.0
"""The compile server, next to processes that compile themselves, one for all: processor time and seconds.

Sixteen processes begin at the same moment with an empty directory, each with another kernel first. Measured is from
that moment on: interpreters have started and modules are loaded. The processor time is that of all processes, and of
the server with all that it forked, whose own start counts. The server is a child of the meter, which takes in what
loses its parent, so that the kernel adds up what its processes took.

The same kernels are compiled in turns with the server and without, twice, or once on a machine that is so busy that it
would take longer than people wait. A process waits for a compilation by the clock, so on such a machine it compiles
itself what the server could have compiled: how many the server compiled stands next to the figures. What programs
without headers lose is measured in one process.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
from statistics import median
from typing import Any, Final, NamedTuple

from lockcache.compile_server import read_state, stop
from lockcache_stress.bench.base import Bar, Bench, Line
from lockcache_stress.bench.peers import CUDA_CORE
from lockcache_stress.processes import die_with_parent

_PROCESSES: Final = 16
_KERNELS: Final = 8
_DIFFERENT: Final = 64
_ROUNDS: Final = 2
#: No further round is begun after so long: all takes less than ten minutes where each first round takes two.
_LONG_SECONDS: Final = 120.0
_BECOME_PARENT: Final = 36  # PR_SET_CHILD_SUBREAPER
_NO_HEADERS: Final = "the headers are not installed: pip install nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
_SMALL_KERNELS: Final = 40
_LOST_MS: Final = Bar("<=", 3.0, " ms")

# Of one of the processes: waits for a line on stdin when all is loaded, and prints its processor time in seconds.
_MEMBER: Final = """
import json, sys, time
import cuda.core
from lockcache import FileStreamProgramCache
from lockcache.cuda import Program
from cuda.pathfinder import find_nvidia_header_directory as find
path, kernels = sys.argv[1], json.loads(sys.argv[2])
include = [folder for folder in map(find, ("cccl", "cudart")) if folder]
if len(include) < 2:
    sys.exit("no headers")
SOURCE = '''#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_load.cuh>
#include <cub/warp/warp_reduce.cuh>
extern "C" __global__ void k%d(float *x, float *o) {
  typedef cub::BlockReduce<float, 128> Reduce;
  __shared__ typename Reduce::TempStorage room;
  float sum = Reduce(room).Sum(x[threadIdx.x] * %d.f);
  if (!threadIdx.x) *o = sum;
}
'''
cache = FileStreamProgramCache(path)
options = cuda.core.ProgramOptions(arch="sm_90", std="c++17", include_path=include)
print("ready", flush=True)
sys.stdin.readline()
begun = time.process_time()
for number in kernels:
    code = Program(SOURCE % (number, number + 1), "c++", options).compile("cubin", cache=cache)
    assert bytes(code.code)[1:4] == b"ELF"
print(json.dumps([time.process_time() - begun, cache.stats().misses]), flush=True)
"""

_SMALL: Final = """
import json, os, sys, time
import cuda.core
from lockcache import FileStreamProgramCache
from lockcache.cuda import Program
cache = FileStreamProgramCache(sys.argv[1])
options = cuda.core.ProgramOptions(arch="sm_90")
times = {"off": [], "on": []}
for number in range(int(sys.argv[2])):
    for mode in times:
        os.environ["LOCKCACHE_COMPILE_SERVER"] = mode
        source = 'extern "C" __global__ void k(float *x) { *x = %d.f; } // %s' % (number, mode)
        begun = time.perf_counter()
        Program(source, "c++", options).compile("cubin", cache=cache)
        times[mode].append((time.perf_counter() - begun) * 1e3)
print(json.dumps(times))
"""


class _Cost(NamedTuple):
    cpu_seconds: float
    seconds: float
    #: Of the server and all that it forked, in the processor time.
    server_seconds: float
    #: How many programs the server compiled.
    served: int


def measure(bench: Bench) -> list[Line]:
    """Measure what a cold start takes with the server: at most what the issue of it says."""
    if not CUDA_CORE.is_installed():
        return []
    lines = _compare(bench, f"{_PROCESSES} processes, the same {_KERNELS} kernels with CUB", _same(), (0.55, 0.75))
    if lines[0].skipped:
        return lines
    lines += _compare(bench, f"{_DIFFERENT} different kernels with CUB", _different(bench), (0.35, 0.5))
    return [*lines, _measure_small(bench)]


def _same() -> list[list[int]]:
    kernels = list(range(_KERNELS))
    return [kernels[each % _KERNELS :] + kernels[: each % _KERNELS] for each in range(_PROCESSES)]


def _different(bench: Bench) -> list[list[int]]:
    each = bench.pick(_DIFFERENT, _PROCESSES) // _PROCESSES
    return [list(range(first * each, (first + 1) * each)) for first in range(_PROCESSES)]


def _compare(bench: Bench, title: str, kernels: list[list[int]], limits: tuple[float, float]) -> list[Line]:
    rounds = bench.pick(_ROUNDS, 1)
    costs: dict[str, list[_Cost]] = {"off": [], "on": []}
    begun = time.monotonic()
    for number in range(rounds):
        if number and time.monotonic() - begun > _LONG_SECONDS:
            break
        for mode, found in costs.items():
            bench.show((number * 2 + (mode == "on")) / rounds / 2, f"{title}, {mode}")
            cost = _measured(bench.lockcache_directory("compile-server"), bench.directory("run"), kernels, mode)
            if cost is None:
                return [Line(title, skipped=_NO_HEADERS)]
            found.append(cost)
    return [
        _line(f"{title}: {what}", costs, field, Bar("<=", limit, "x"))
        for (what, field), limit in zip((("processor time", 0), ("seconds", 1)), limits, strict=True)
    ]


def _line(title: str, costs: dict[str, list[_Cost]], field: int, bar: Bar) -> Line:
    without, with_server = (median(cost[field] for cost in costs[mode]) for mode in ("off", "on"))
    ratio, served = with_server / without, min(cost.served for cost in costs["on"])
    return Line(
        title,
        f"{with_server:,.2f} s, {served} by the server",
        theirs=f"{without:,.2f} s without",
        **bar.in_ratio(ratio, " of compiling in the processes"),
        is_time=True,
        numbers={
            "ours_s": with_server,
            "theirs_s": without,
            "ratio": ratio,
            "server_s": median(cost.server_seconds for cost in costs["on"]),
            "served": served,
            "rounds": len(costs["on"]),
        },
    )


def _measured(path: str, runtime: str, kernels: list[list[int]], mode: str) -> _Cost | None:
    """Returns what a start of all processes took, in a process of its own; ``None`` without the headers."""
    words = [sys.executable, "-m", __name__, path, runtime, mode, json.dumps(kernels)]
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode and "no headers" in ran.stderr:
        return None
    if ran.returncode:
        raise RuntimeError(f"{mode}: {ran.stderr[-2000:]}")
    return _Cost(*json.loads(ran.stdout))


def _meter(path: str, runtime: str, mode: str, kernels: list[list[int]]) -> _Cost:
    """Run all processes, and wait for whatever they leave."""
    die_with_parent()
    if ctypes.CDLL(None).prctl(_BECOME_PARENT, 1, 0, 0, 0):
        raise OSError("no process can take in those of others here")
    os.environ.update(XDG_RUNTIME_DIR=runtime, LOCKCACHE_COMPILE_SERVER=mode)
    # Headers that were just installed are read again by each process for two seconds; nobody compiles here.
    members = [_start(path, own) for own in kernels]
    if any(_line_of(member) != "ready\n" for member in members):
        raise SystemExit("no headers")
    begun = time.perf_counter()
    for member in members:
        if member.stdin is not None:
            member.stdin.write("go\n")
            member.stdin.flush()
    found = [json.loads(_line_of(member)) for member in members]
    seconds = time.perf_counter() - begun
    for member in members:
        member.communicate()
    state = read_state()
    stop()
    server = _wait_for_the_rest()
    return _Cost(sum(cpu for cpu, _ in found) + server, seconds, server, state["compiled"] if state else 0)


def _start(path: str, kernels: list[int]) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", _MEMBER, path, json.dumps(kernels)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _line_of(member: subprocess.Popen[str]) -> str:
    return "" if member.stdout is None else member.stdout.readline()


def _wait_for_the_rest() -> float:
    """Returns the processor time of the server, and of all that it waited for, and of what came to this process."""
    seconds = 0.0
    while True:
        try:
            _, _, used = os.wait4(-1, 0)
        except ChildProcessError:
            return seconds
        seconds += used.ru_utime + used.ru_stime


def _measure_small(bench: Bench) -> Line:
    words = [sys.executable, "-c", _SMALL, bench.lockcache_directory("small"), str(bench.pick(_SMALL_KERNELS, 4))]
    environment = {**os.environ, "XDG_RUNTIME_DIR": bench.directory("run")}
    ran = subprocess.run(words, capture_output=True, text=True, check=True, env=environment)
    times: dict[str, Any] = json.loads(ran.stdout)
    without, with_server = median(times["off"]), median(times["on"])
    return Line(
        "a small kernel without headers, with the server on",
        f"{with_server:,.1f} ms",
        theirs=f"{without:,.1f} ms without",
        **_LOST_MS.judged(with_server - without),
        is_time=True,
        numbers={"ours_ms": with_server, "theirs_ms": without, "lost_ms": with_server - without},
    )


if __name__ == "__main__":
    _path, _runtime, _mode, _kernels = sys.argv[1:]
    print(json.dumps(_meter(_path, _runtime, _mode, json.loads(_kernels))))
