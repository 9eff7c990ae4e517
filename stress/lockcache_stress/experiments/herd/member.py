"""One process of the herd, and the process that compiles the references apart, without any cache.

What a process does once (imports, loading NVRTC) is done before the start, so that all start at the same moment.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
import traceback
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from lockcache import FileStreamProgramCache
from lockcache_stress.experiments.herd.plan import UNCACHED, HerdPlan
from lockcache_stress.experiments.herd.sources import HerdKernel, make_kernels, program_options
from lockcache_stress.processes import die_with_parent
from lockcache_stress.run import take_turn
from lockcache_stress.trouble import HERD_FAULTS, plant_bug

__all__ = ["Answer", "Compiled", "run_member", "run_reference"]


class Compiled(NamedTuple):
    """What a process got for one kernel."""

    digest: str
    size_bytes: int
    symbol_mapping: dict[str, bytes]


class Answer(NamedTuple):
    """What a process says at the end of a phase."""

    #: By number of the kernel; empty after an error.
    compiled: dict[int, Compiled]
    seconds: float = 0.0
    dropped_writes: int = 0
    error: str = ""


def run_member(plan: HerdPlan, index: int, parent: Connection, gates: list[Connection]) -> None:
    """A member from start to end: in each phase, say ready, wait for the gate, compile everything, answer."""
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
    """``lockcache.cuda.Program``, with a line in a file for every compilation that NVRTC is asked for."""
    from lockcache.cuda import Program

    class CountedProgram(Program):
        def compile(self, *given: Any, cache: Any = None, **named: Any) -> Any:
            if cache is None:
                _note_compile(plan, phase)
            return super().compile(*given, cache=cache, **named)

        def _compile_now(self, *given: Any) -> Any:
            _note_compile(plan, phase)
            if plan.options.plant == "crash":
                _die_once(plan)
            return super()._compile_now(*given)

    return CountedProgram


def _note_compile(plan: HerdPlan, phase: int) -> None:
    # One short write with O_APPEND: whole, whatever others write and however this process ends.
    fd = os.open(plan.compiled(phase), os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.write(fd, b"%d\n" % os.getpid())
    os.close(fd)


def _die_once(plan: HerdPlan) -> None:
    """The first process of the run that compiles dies by a SIGKILL, which leaves its lease file behind."""
    try:
        os.close(os.open(os.path.join(plan.control, "crashed"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _load_nvrtc(kernel: HerdKernel, options: Any) -> None:
    from cuda.core import Program

    Program(kernel.source, "c++", options).close()
