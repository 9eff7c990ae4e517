# SPDX-License-Identifier: Apache-2.0
"""A boot: processes that start together and all want the kernels of one model.

Five starts of new processes: without a cache; with an empty directory; once more; with the same headers at another
path, as in another checkout or virtual environment; and as on another node, with an empty directory and a bundle of the
first one. Each is measured from the moment when all processes have imported and opened their cache: compilations, the
time until the last has all kernels, and processor time of all. The kernels are small and include ``cuda_fp16.h`` and a
header of the model's own.
"""

from __future__ import annotations

import os
import resource
import time
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from lockcache import FileStreamProgramCache
from lockcache.bundle import make_bundle
from lockcache.lowlevel import Layout
from lockcache_stress.bench.base import Bench, Line
from lockcache_stress.bench.peers import CUDA_CORE
from lockcache_stress.gpu import find_runtime_headers
from lockcache_stress.processes import Group, die_with_parent, take_turn

_SOURCE: Final = """#include <cuda_fp16.h>
#include <model.h>
extern "C" __global__ void kernel_{number}(__half* x, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = __hadd(x[i], __float2half(SCALE * {number}));
}}
"""
_HEADER: Final = "#pragma once\n#define SCALE 0.5f\n"
_NO_HEADERS: Final = "the headers are not installed: pip install nvidia-cuda-runtime nvidia-cuda-crt"
_LIMIT_SECONDS: Final = 600.0


class _Start(NamedTuple):
    """One start of all processes."""

    kernels: int
    #: The folder with the model's header.
    include: str
    #: The cache; none without one.
    directory: str = ""
    seed: str | None = None


class _Found(NamedTuple):
    compilations: int
    seconds: float
    cpu_seconds: float


def measure(bench: Bench) -> list[Line]:
    """Returns a line for each start: without a cache each process compiles all, with one it compiles each once."""
    if not CUDA_CORE.is_installed():
        return []
    processes, kernels = bench.pick(8, 2), bench.pick(24, 3)
    name = f"boot of {processes} processes x {kernels} kernels"
    if not find_runtime_headers():
        return [Line(name, skipped=_NO_HEADERS)]
    one, other = (_write_header(bench.directory(folder)) for folder in ("checkout", "elsewhere"))
    directory, node, seed = bench.lockcache_directory("boot"), bench.lockcache_directory("node"), f"{one}/model.lcb"
    starts = {
        "no cache": (_Start(kernels, one), processes * kernels),
        "cold": (_Start(kernels, one, directory), kernels),
        "warm": (_Start(kernels, one, directory), 0),
        "another path": (_Start(kernels, other, directory), 0),
        "another node": (_Start(kernels, other, node, seed), 0),
    }
    lines = []
    for number, (state, (start, expected)) in enumerate(starts.items()):
        if start.seed:
            with open(seed, "xb") as file:
                make_bundle(Layout(directory), file)
        lines.append(_line(f"{name}, {state}", _run(start, processes), expected))
        bench.show((number + 1) / len(starts), state)
    return lines


def _write_header(folder: str) -> str:
    with open(os.path.join(folder, "model.h"), "x") as file:
        file.write(_HEADER)
    return folder


def _line(name: str, found: _Found, expected: int) -> Line:
    return Line(
        name,
        f"{found.seconds:.2f} s",
        ratio=f"{found.compilations} compiled",
        bar=f"{expected}",
        ok=found.compilations == expected,
        numbers=found._asdict(),
    )


def _run(start: _Start, processes: int) -> _Found:
    with Group(_boot, (start,), processes, 1, _LIMIT_SECONDS, needs_all=True) as group:
        found: list[_Found] = group.run_phase(0)
    compilations, seconds, cpu_seconds = zip(*found, strict=True)
    return _Found(sum(compilations), max(seconds), sum(cpu_seconds))


def _boot(start: _Start, index: int, parent: Connection, gates: list[Connection]) -> None:
    from cuda.core import ProgramOptions

    from lockcache.cuda import Program

    del index  # all want the same kernels in the same order
    die_with_parent()
    compiled = 0

    class CountedProgram(Program):
        def _compile_now(self, *given: Any) -> Any:
            nonlocal compiled
            compiled += 1
            return super()._compile_now(*given)

    options = ProgramOptions(arch="sm_90", std="c++17", include_path=[start.include, *find_runtime_headers()])
    cache = FileStreamProgramCache(start.directory, seed=start.seed) if start.directory else None
    take_turn(parent, gates[0])
    began, cpu_began = time.monotonic(), _cpu_seconds()
    for number in range(start.kernels):
        CountedProgram(_SOURCE.format(number=number), "c++", options).compile("cubin", cache=cache)
    parent.send(_Found(compiled, time.monotonic() - began, _cpu_seconds() - cpu_began))


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
