# SPDX-License-Identifier: Apache-2.0
"""One process of the herd, the process that compiles the references without any cache, and their plan.

The plan is the same for the parent and every member, and small enough to be sent to a spawned process. A process
imports modules and loads NVRTC before the start, so that all begin at the same moment.

Sources are templated CUDA C++ with headers that include each other, which cuda.core refuses to cache. A source reaches
four headers: by ``include_path``, by quotes next to the including header, upwards out of a folder, and by a macro. A
digit in ``config.h`` decides what every kernel computes, so changing this digit changes all code.
"""

from __future__ import annotations

import hashlib
import os
import random
import signal
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple

from lockcache import FileStreamProgramCache
from lockcache_stress.processes import die_with_parent, take_turn
from lockcache_stress.trouble import HERD_FAULTS, plant_bug

#: The directory is empty at first; in the second phase one header has changed.
PHASES: Final = ("cold", "changed")
#: The phase in which each process compiles all kernels by itself, for comparison with the phases that use the cache.
UNCACHED: Final = "uncached"
_ARCH: Final = "sm_80"

_HEADERS: Final = {
    "herd/kernel.h": '#pragma once\n#include "detail/chain.h"\n',
    "herd/detail/chain.h": """#pragma once
#include "../config.h"
#include "mix.h"
namespace herd {
template<typename T, unsigned N> struct Chain {
  static __device__ __forceinline__ T run(T x) { return Chain<T, N - 1>::run(mix<T>(x) * HERD_FACTOR + N); }
};
template<typename T> struct Chain<T, 0> { static __device__ __forceinline__ T run(T x) { return x; } };
}
""",
    "herd/detail/mix.h": """#pragma once
namespace herd {
template<typename T> __device__ __forceinline__ T mix(T x) { return (x ^ (x >> 7)) * T(2654435761u); }
}
""",
    "herd/config.h": "#pragma once\n#define HERD_FACTOR {factor}u\n",
}

_SOURCE: Final = """// {token}
#include <herd/kernel.h>
template<typename T, unsigned N> __global__ void run(T* out, unsigned n) {{
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = herd::Chain<T, N>::run(T(i) + {salt}u);
}}
"""

# One digit each, so that the change keeps the size of the header and has to be found all the same.
_FACTORS: Final = (3, 5)


@dataclass(frozen=True)
class HerdOptions:
    """The options of a herd."""

    processes: int
    kernels: int
    seed: int
    directory: str | None = None
    plant: str | None = None
    #: Whether a last phase compiles without the cache.
    uncached: bool = False


@dataclass(frozen=True)
class HerdPlan:
    """One run. Kernels and the order in which each process wants them are drawn from the seed."""

    options: HerdOptions
    #: The cache under test.
    directory: str
    #: The folder of the headers, and of the files with a line for every compilation.
    control: str

    @property
    def include(self) -> str:
        """The directory that the sources search for headers."""
        return os.path.join(self.control, "include")

    @property
    def token(self) -> str:
        """The text that distinguishes this run's keys from those of another run in the same directory."""
        return os.path.basename(self.control)

    @property
    def phases(self) -> tuple[str, ...]:
        """The names of all phases."""
        return (*PHASES, UNCACHED) if self.options.uncached else PHASES

    def compiled(self, phase: int) -> str:
        """Returns the file to which every compilation of a phase adds one line."""
        return os.path.join(self.control, f"compiled-{phase}")

    def is_spread(self, phase: int) -> bool:
        """Returns whether each process begins with another kernel, as in one phase; in the other all begin with one."""
        first = random.Random(f"{self.options.seed}/starts").random() < 0.5
        return first if phase == 0 else not first

    def order(self, phase: int, index: int) -> list[int]:
        """Returns the order in which process ``index`` wants the kernels."""
        start = 0
        if self.is_spread(phase):
            start = random.Random(f"{self.options.seed}/{phase}/{index}").randrange(self.options.kernels)
        numbers = list(range(self.options.kernels))
        return numbers[start:] + numbers[:start]


class HerdKernel(NamedTuple):
    """One program: a source and the templates to instantiate."""

    source: str
    name_expressions: tuple[str, ...]


def write_headers(plan: HerdPlan, phase: int) -> None:
    """Write the headers of ``phase`` in place, as an editor may. They change once, after the first phase."""
    for name, text in _HEADERS.items():
        path = os.path.join(plan.include, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        wanted = text.replace("{factor}", str(_FACTORS[min(phase, 1)]))
        if not _holds(path, wanted):
            with open(path, "w") as file:
                file.write(wanted)


def make_kernels(plan: HerdPlan) -> list[HerdKernel]:
    """Returns the kernels, drawn from the seed; each takes some 100 to 300 ms to compile."""
    rng = random.Random(f"{plan.options.seed}/herd")
    kernels = []
    for _ in range(plan.options.kernels):
        source, size = _SOURCE.format(token=plan.token, salt=rng.randrange(2**31)), rng.randrange(60, 160)
        kernels.append(HerdKernel(source, (f"run<unsigned, {size}>", f"run<unsigned long long, {size // 2}>")))
    return kernels


def program_options(plan: HerdPlan) -> Any:
    """Returns the options of the kernels."""
    from cuda.core import ProgramOptions

    return ProgramOptions(arch=_ARCH, std="c++17", include_path=[plan.include], name="herd.cu")


def _holds(path: str, text: str) -> bool:
    try:
        with open(path) as file:
            return file.read() == text
    except FileNotFoundError:
        return False


class Compiled(NamedTuple):
    """The code that a process got for one kernel."""

    digest: str
    size_bytes: int
    symbol_mapping: dict[str, bytes]


class Answer(NamedTuple):
    """The answer of a process at the end of a phase."""

    #: The code by the number of the kernel; empty after an error.
    compiled: dict[int, Compiled]
    seconds: float = 0.0
    dropped_writes: int = 0
    error: str = ""


def run_member(plan: HerdPlan, index: int, parent: Connection, gates: list[Connection]) -> None:
    """Run a member from start to end: in each phase, say ready, wait for the gate, compile everything, answer."""
    die_with_parent()
    try:
        plant_bug(HERD_FAULTS.get(plan.options.plant or ""))
        kernels, options = make_kernels(plan), program_options(plan)
        cache = FileStreamProgramCache(plan.directory)
        _load_nvrtc(kernels[0], options)
        for phase, gate in enumerate(gates):
            take_turn(parent, gate)
            program_type = _counted(plan, phase)
            used = None if plan.phases[phase] == UNCACHED else cache
            began, compiled = time.monotonic(), {}
            for number in plan.order(phase, index):
                compiled[number] = _compile(program_type, kernels[number], options, used)
            parent.send(Answer(compiled, time.monotonic() - began, cache.stats().dropped_writes))
    except Exception:
        parent.send(Answer({}, error=traceback.format_exc(limit=-6)))
        raise


def run_reference(plan: HerdPlan, index: int, parent: Connection, gates: list[Connection]) -> None:
    """Compile all kernels alone, once for every phase, each time after the parent has written its headers."""
    from cuda.core import Program

    die_with_parent()
    kernels, options = make_kernels(plan), program_options(plan)
    _load_nvrtc(kernels[0], options)
    for gate in gates:
        take_turn(parent, gate)
        began = time.monotonic()
        compiled = {number: _compile(Program, kernel, options, None) for number, kernel in enumerate(kernels)}
        parent.send(Answer(compiled, time.monotonic() - began))


def _compile(program_type: Any, kernel: HerdKernel, options: Any, cache: Any) -> Compiled:
    program = program_type(kernel.source, "c++", options)
    try:
        found = program.compile("cubin", name_expressions=kernel.name_expressions, cache=cache)
        code = bytes(found.code)
        return Compiled(hashlib.blake2b(code).hexdigest(), len(code), dict(found.symbol_mapping))
    finally:
        program.close()


def _counted(plan: HerdPlan, phase: int) -> Any:
    """Returns ``lockcache.cuda.Program`` that adds a line to a file for every compilation by NVRTC."""
    from lockcache.cuda import Program

    class CountedProgram(Program):
        def _compile_now(self, *given: Any) -> Any:
            _note_compile(plan, phase)
            if plan.options.plant == "crash":
                _die_once(plan)
            return super()._compile_now(*given)

    return CountedProgram


def _note_compile(plan: HerdPlan, phase: int) -> None:
    # One short write with O_APPEND is whole, whatever others write and however this process ends.
    fd = os.open(plan.compiled(phase), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, b"%d\n" % os.getpid())
    os.close(fd)


def _die_once(plan: HerdPlan) -> None:
    """Kill the first process of the run that compiles by a SIGKILL, which leaves its lease file behind."""
    try:
        os.close(os.open(os.path.join(plan.control, "crashed"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _load_nvrtc(kernel: HerdKernel, options: Any) -> None:
    from cuda.core import Program

    Program(kernel.source, "c++", options).close()
