"""Simulation: what evicting by cost saves, replayed with real compile costs and the library's own ranking.

Programs are compiled once, with NVRTC, one after the other. Their costs are processor time, so that a busy machine
gives the same costs as an idle one, and are kept in a file, so that a run can be replayed without a compiler. There are
two kinds, as in real programs: kernels of their own code (25 to 130 ms, 3 to 500 KB) and kernels that include CUB or
cooperative groups (1 to 2 s, some 100 KB). A trace is a sequence of look-ups, drawn by Zipf, with sources that change
now and then.

A replay does not decide which entries are evicted: :mod:`lockcache.filestream.eviction.choose` does, which writers call
too, with their batch. Each request takes a second; no order by cost depends on the unit of time.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from lockcache.filestream.eviction import BATCH_DIVISOR, Need, first_enough, order_by_priority
from lockcache.lowlevel import Found, Priority
from lockcache_stress.errors import UnusableError
from lockcache_stress.gpu import compile_cubin, compile_uncached, make_slots, need_archs
from lockcache_stress.zipf import Zipf

_Item = TypeVar("_Item")

# One kernel of eight includes headers; those kernels are a tenth of the programs and two thirds of the compile time.
_PLAIN_FOR_EACH_WITH_HEADERS: Final = 8
_REQUEST_NS: Final = 10**9
_LARGEST: Final = 2**31

_COOPERATIVE: Final = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void run(unsigned* out, unsigned n) {
  auto tile = cg::tiled_partition<32>(cg::this_thread_block());
  unsigned sum = cg::reduce(tile, threadIdx.x + SALT, cg::plus<unsigned>());
  if (tile.thread_rank() == 0) out[threadIdx.x / 32] = sum;
}
"""

_BLOCK_REDUCE: Final = """
#include <cub/block/block_reduce.cuh>
extern "C" __global__ void run(unsigned* out, unsigned n) {
  using Reduce = cub::BlockReduce<unsigned, SIZE>;
  __shared__ typename Reduce::TempStorage storage;
  unsigned sum = Reduce(storage).Sum(threadIdx.x + SALT);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}
"""


class Program(NamedTuple):
    """One cache entry."""

    name: str
    cost_ns: int
    size_bytes: int


def measure_programs(kernels: int, seed: int, progress: Callable[[int, int], None]) -> list[Program]:
    """Compile ``kernels`` kernels for each architecture, and an eighth as many with headers for one.

    Raises :class:`UnusableError` where there is no NVRTC.
    """
    archs = need_archs("compile costs are measured with", ", or give those of an earlier run with --costs")
    slots = make_slots(kernels, seed, archs)
    sources = _with_headers(-(-kernels // _PLAIN_FOR_EACH_WITH_HEADERS), seed)
    programs: list[Program] = []
    compile_cubin(slots[0], 0)  # the first compilation loads the compiler
    for number, slot in enumerate(slots):
        name = f"{slot.kernel.family} {slot.kernel.size} for {slot.arch}, {number}"
        programs.append(_measured(name, lambda slot=slot: compile_cubin(slot, 0)))  # type: ignore[misc]
        progress(len(programs), len(slots) + len(sources))
    for name, source in sources.items():
        programs.append(_measured(name, lambda source=source: _compile_with_headers(source, archs[0])))  # type: ignore[misc]
        progress(len(programs), len(slots) + len(sources))
    return programs


def save_programs(path: str, programs: list[Program]) -> None:
    """Write the programs for ``--costs``. Raises :class:`OSError`."""
    _save(path, "programs", [program._asdict() for program in programs], indent=1)


def load_programs(path: str) -> list[Program]:
    """Returns the programs that :func:`save_programs` wrote.

    Raises :class:`UnusableError` naming what is wrong, and :class:`OSError`.
    """
    found = _load(path, "programs", lambda item: Program(**item), "compile costs")
    for program in found:
        if not all(type(number) is int and number > 0 for number in program[1:]):
            raise UnusableError(f"{path}: cost_ns and size_bytes must be positive integers, got {program}")
    if len({program.name for program in found}) < max(2, len(found)):
        raise UnusableError(f"{path}: at least two programs are wanted, each with a name of its own")
    return found


def _save(path: str, name: str, items: Sequence[object], *, indent: int | None = None) -> None:
    """Write a list for a later run."""
    with open(path, "w") as file:
        json.dump({name: items}, file, indent=indent)
        file.write("\n")


def _load(path: str, name: str, make: Callable[[Any], _Item], what: str) -> list[_Item]:
    """Read a list that :func:`_save` wrote. Raises :class:`UnusableError` for a file that holds no such list."""
    try:
        with open(path) as file:
            return [make(item) for item in json.load(file)[name]]
    except (ValueError, TypeError, KeyError) as error:
        option = f"--save-{what.rsplit(maxsplit=1)[-1]}"
        raise UnusableError(f"{path} holds no {what} ({error!r}); {option} writes such a file") from error


def _measured(name: str, compile_it: Callable[[], bytes]) -> Program:
    began = time.process_time_ns()
    size_bytes = len(compile_it())
    return Program(name, time.process_time_ns() - began, size_bytes)


def _with_headers(count: int, seed: int) -> dict[str, str]:
    rng = random.Random(f"{seed}/headers")
    sources = {}
    for number in range(count):
        kind, text = (("cooperative groups", _COOPERATIVE), ("block reduce", _BLOCK_REDUCE))[number % 2]
        defines = f"#define SIZE {32 * rng.randrange(1, 33)}\n#define SALT {rng.randrange(2**31)}u\n"
        sources[f"{kind}, {number}"] = defines + text
    return sources


def _compile_with_headers(source: str, arch: str) -> bytes:
    from cuda.core import ProgramOptions

    options: Any = ProgramOptions(arch=arch, std="c++17", use_bundled_headers=True)
    return bytes(compile_uncached(source, options).code)


class Request(NamedTuple):
    """One look-up: the program, and the version of its source. A newer version is another cache entry."""

    program: int
    version: int


def make_trace(programs: int, requests: int, seed: int, *, exponent: float, changed: float) -> list[Request]:
    """Returns ``requests`` look-ups; before each, with probability ``changed``, the source of some program changes."""
    rng = random.Random(f"{seed}/trace")
    by_popularity = rng.sample(range(programs), programs)  # so that popularity does not follow the order of compiling
    zipf = Zipf(rng, programs, exponent)
    versions = [0] * programs
    trace = []
    for _ in range(requests):
        if rng.random() < changed:
            versions[rng.randrange(programs)] += 1
        program = by_popularity[zipf.draw()]
        trace.append(Request(program, versions[program]))
    return trace


def save_trace(path: str, trace: list[Request]) -> None:
    """Write a trace for ``--trace``. Raises :class:`OSError`."""
    _save(path, "requests", trace)


def load_trace(path: str, programs: int) -> list[Request]:
    """Returns the trace that :func:`save_trace` wrote.

    Raises :class:`UnusableError` naming what is wrong, and :class:`OSError`.
    """
    trace = _load(path, "requests", lambda item: Request(*item), "trace")
    if not trace:
        raise UnusableError(f"{path}: at least one request is wanted")
    for request in trace:
        if not all(type(number) is int and 0 <= number < _LARGEST for number in request):
            raise UnusableError(
                f"{path}: {list(request)} is not a request; wanted: two integers, a program and a version"
            )
        if request.program >= programs:
            raise UnusableError(f"{path} asks for program {request.program}, and there are costs of {programs} only")
    return trace


class Saved(NamedTuple):
    """The savings of a cache."""

    hits: int
    saved_ns: int
    evictions: int = 0


def replay(trace: Sequence[Request], programs: Sequence[Program], limit_bytes: int, priority: Priority) -> Saved:
    """Replay a trace on a cache of ``limit_bytes`` that evicts by ``priority``, empty at first."""
    held: dict[str, Found] = {}
    costs = {_name(request): programs[request.program].cost_ns for request in trace}
    held_bytes = hits = saved_ns = evictions = 0
    for number, request in enumerate(trace, 1):
        name, program, now_ns = _name(request), programs[request.program], number * _REQUEST_NS
        if name in held:
            held[name] = held[name]._replace(last_use_ns=now_ns)
            hits += 1
            saved_ns += program.cost_ns
            continue
        if program.size_bytes > limit_bytes:
            continue  # a cache drops an entry that is larger than its cap
        needed = held_bytes + program.size_bytes - limit_bytes
        if needed > 0:
            ordered = order_by_priority(list(held.values()), priority, lambda found: costs[found.name], now_ns)
            victims, _ = first_enough(ordered, Need(needed, batch_entries=len(held) // BATCH_DIVISOR))
            for victim in victims:
                del held[victim.name]
                held_bytes -= victim.size_bytes
            evictions += len(victims)
        held[name] = Found(now_ns, name, program.size_bytes, 1)
        held_bytes += program.size_bytes
    return Saved(hits, saved_ns, evictions)


def upper_bound(trace: Sequence[Request], programs: Sequence[Program], limit_bytes: int) -> int:
    """Returns the nanoseconds that a cache of this size saves at most, even a cache that knows the future.

    For a hit, an entry has to stay from one use to the next, which takes its bytes for that time. The sum of bytes
    times time over all stays cannot exceed the bytes of the cache times the length of the trace. The stays that save
    most for what they take are admitted first, the last one in part (PFOO-U: Berger, Beckmann, Harchol-Balter,
    Practical Bounds on Optimal Caching with Variable Object Sizes, SIGMETRICS 2018).
    """
    last: dict[Request, int] = {}
    stays: list[tuple[int, int]] = []  # the time that each saves, and the bytes times time that it takes
    for number, request in enumerate(trace):
        program = programs[request.program]
        if request in last and program.size_bytes <= limit_bytes:
            stays.append((program.cost_ns, program.size_bytes * (number - last[request])))
        last[request] = number
    left, saved_ns = limit_bytes * len(trace), 0.0
    for cost_ns, takes in sorted(stays, key=lambda stay: stay[1] / stay[0]):
        if takes > left:
            saved_ns += cost_ns * left / takes
            break
        left -= takes
        saved_ns += cost_ns
    return int(saved_ns)


def _name(request: Request) -> str:
    return f"{request.program:08x}.{request.version:08x}"
