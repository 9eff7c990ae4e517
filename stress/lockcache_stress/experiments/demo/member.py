# SPDX-License-Identifier: Apache-2.0
"""One process of the demonstration: imports, waits for the others, then wants every kernel, or kernels at random."""

from __future__ import annotations

import hashlib
import random
import resource
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from lockcache import FileStreamProgramCache
from lockcache_stress.processes import die_with_parent, take_turn

_SOURCE: Final = """
template<typename T, unsigned N> struct Chain {{
  static __device__ __forceinline__ T run(T x) {{ return Chain<T, N - 1>::run((x ^ (x >> 7)) * T({factor}u) + N); }}
}};
template<typename T> struct Chain<T, 0> {{ static __device__ __forceinline__ T run(T x) {{ return x; }} }};
template<typename T, unsigned N> __global__ void chain(T* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = Chain<T, N>::run(T(i));
}}
"""
_ARCH: Final = "sm_90"


@dataclass(frozen=True)
class DemoPlan:
    """One run of the demonstration, the same for the parent and every member."""

    processes: int
    kernels: int
    seed: int
    #: How long members ask for kernels at random, under a cap that a daemon keeps.
    seconds: float
    #: The cache of the runs that have one.
    directory: str = ""


class Answer(NamedTuple):
    """The answer of one process."""

    process: int
    #: The number of each kernel that it got, and the digest of its bytes.
    got: list[tuple[int, str]]
    compiles: int
    seconds: float
    #: Processor time of the process, NVRTC's threads included.
    cpu_seconds: float
    #: Entries that this process evicted to make room for its own.
    evictions: int = 0


def run_start(plan: DemoPlan, is_cached: bool, index: int, parent: Connection, gates: list[Connection]) -> None:
    """Want every kernel once, as a program does when it starts; time counts from the gate, after the imports."""
    die_with_parent()
    compiler = _Compiler(plan)
    numbers = list(range(plan.kernels))
    with FileStreamProgramCache(plan.directory) as cache:
        take_turn(parent, gates[0])
        parent.send(
            _measured(index, compiler, lambda: [compiler.compile(n, cache if is_cached else None) for n in numbers])
        )


def run_requests(plan: DemoPlan, index: int, parent: Connection, gates: list[Connection]) -> None:
    """Want kernels at random, the first ones more often, for the plan's time."""
    die_with_parent()
    compiler = _Compiler(plan)
    rng = random.Random(f"{plan.seed}/{index}")
    weights = [1 / (1 + number) for number in range(plan.kernels)]
    with FileStreamProgramCache(plan.directory) as cache:
        take_turn(parent, gates[0])
        end = time.monotonic() + plan.seconds

        def work() -> list[tuple[int, str]]:
            got = []
            while time.monotonic() < end:
                [number] = rng.choices(range(plan.kernels), weights)
                got.append(compiler.compile(number, cache))
            return got

        parent.send(_measured(index, compiler, work)._replace(evictions=cache.stats().evictions))


def _measured(index: int, compiler: _Compiler, work: Any) -> Answer:
    began, cpu_began = time.monotonic(), _cpu_seconds()
    got = work()
    return Answer(index, got, compiler.compiles, time.monotonic() - began, _cpu_seconds() - cpu_began)


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class _Compiler:
    """The kernels of a plan, and ``lockcache.cuda.Program`` with its compilations by NVRTC counted."""

    def __init__(self, plan: DemoPlan) -> None:
        from cuda.core import ProgramOptions

        from lockcache.cuda import Program

        rng = random.Random(f"{plan.seed}/demo")
        self._kernels = [(rng.randrange(2**20) * 2 + 1, rng.randrange(20, 60)) for _ in range(plan.kernels)]
        self._options = ProgramOptions(arch=_ARCH, std="c++17")
        self.compiles = 0
        counter = self

        class CountedProgram(Program):
            def _compile_now(self, *given: Any) -> Any:
                counter.compiles += 1
                return super()._compile_now(*given)

        self._program_type = CountedProgram

    def compile(self, number: int, cache: FileStreamProgramCache | None) -> tuple[int, str]:
        """Returns the kernel's number, and the digest of its bytes."""
        factor, length = self._kernels[number]
        names = [f"chain<unsigned, {length}>", f"chain<unsigned long long, {length // 2}>"]
        program = self._program_type(_SOURCE.format(factor=factor), "c++", self._options)
        try:
            code = program.compile("cubin", name_expressions=names, cache=cache)
            return number, hashlib.blake2b(bytes(code.code)).hexdigest()
        finally:
            program.close()
