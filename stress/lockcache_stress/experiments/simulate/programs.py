# SPDX-License-Identifier: Apache-2.0
"""Programs: what compiling real kernels costs, measured once and kept in a file, so that a run can be replayed.

Programs are compiled with NVRTC, one after the other. Their costs are processor time, so that a busy machine gives the
same costs as an idle one. There are two kinds, as in real programs: kernels of their own code (25 to 130 ms, 3 to
500 KB) and kernels that include CUB or cooperative groups (1 to 2 s, some 100 KB).
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from lockcache_stress.errors import UnusableError
from lockcache_stress.gpu import compile_cubin, compile_uncached, make_slots, need_archs

_Item = TypeVar("_Item")

# One kernel of eight includes headers; those kernels are a tenth of the programs and two thirds of the compile time.
_PLAIN_FOR_EACH_WITH_HEADERS: Final = 8

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
    save_list(path, "programs", [program._asdict() for program in programs], indent=1)


def load_programs(path: str) -> list[Program]:
    """Returns the programs that :func:`save_programs` wrote.

    Raises :class:`UnusableError` naming what is wrong, and :class:`OSError`.
    """
    return check_programs(path, load_list(path, "programs", lambda item: Program(**item), "compile costs"))


def check_programs(path: str, found: list[Program]) -> list[Program]:
    """Returns the programs of a file. Raises :class:`UnusableError` naming what is wrong with them."""
    for program in found:
        if not all(type(number) is int and number > 0 for number in program[1:]):
            raise UnusableError(f"{path}: cost_ns and size_bytes must be positive integers, got {program}")
    if len({program.name for program in found}) < max(2, len(found)):
        raise UnusableError(f"{path}: at least two programs are wanted, each with a name of its own")
    return found


def save_list(path: str, name: str, items: Sequence[object], *, indent: int | None = None) -> None:
    """Write a list for a later run."""
    with open(path, "w") as file:
        json.dump({name: items}, file, indent=indent)
        file.write("\n")


def load_list(path: str, name: str, make: Callable[[Any], _Item], what: str) -> list[_Item]:
    """Read a list that :func:`save_list` wrote. Raises :class:`UnusableError` for a file that holds no such list."""
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
