# SPDX-License-Identifier: Apache-2.0
"""Hits and misses, each next to cuda.core's, and to the time of the file system alone.

Measured are a hit of 16 KiB, which lockcache verifies and marks as a use, with open, read and close as the floor; a hit
in a bundle, and one in a directory that has the bundle below it; and a plain miss, of a key that is missing from a
cache with other entries, with a check whether a file exists as the floor.

Measured are also hits through ``lockcache.cuda.Program``, and through ``cuda.core.Program`` with cuda.core's own cache:
the call of ``compile`` alone. lockcache fingerprints headers, verifies what it reads and restores the symbol mapping.
Programs with templates or headers have no row of cuda.core, which refuses to cache them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import cycle
from typing import Any, Final

from lockcache import BundleProgramCache, FileStreamProgramCache
from lockcache.bundle import make_bundle
from lockcache.filestream import open_output
from lockcache.lowlevel import Layout
from lockcache_stress.bench.base import VALUE_BYTES, Bar, Bench, Line, interleaved, open_lockcache, ratio_line
from lockcache_stress.bench.peers import CUDA_CORE, Store, compare, opened

# As many keys as a start-up loads; their 256 KiB stay in the processor's cache for all three.
_KEYS: Final = 16
_HITS: Final = [b"hit-%d" % number for number in range(_KEYS)]
_BAR: Final = Bar("<=", 1.5, "x")
_ARCH = "sm_80"
_PLAIN = 'extern "C" __global__ void run(unsigned* out) { out[threadIdx.x] = threadIdx.x; }'
_TEMPLATE = "template<unsigned N> __global__ void run(unsigned* out) { out[threadIdx.x] = N; }"
_NAMES = ("run<3>", "run<5>")
_HEADERS = 16
_SETTLED_SECONDS = 3


def measure_hit(bench: Bench) -> list[Line]:
    """Measure hits: at least 2.5x faster than cuda.core's."""
    pace = bench.pick(201, 3), bench.pick(200, 20)
    others_pace = bench.pick(51, 2), bench.pick(100, 10)
    floor = _plain_files(bench.directory("plain"))
    return [
        compare(bench, "hit, 16 KiB, verified", _hit_getter, floor, 2.5, pace, others_pace),
        *_hits_in_a_bundle(bench, floor, pace),
    ]


def _hits_in_a_bundle(bench: Bench, floor: Callable[[], object], pace: tuple[int, int]) -> list[Line]:
    """Measure hits in a bundle, and in a directory seeded by it, next to hits in the bundle's source directory."""
    root = bench.directory("hit in a bundle")
    with FileStreamProgramCache(root) as directory:
        for key in _HITS:
            directory[key] = os.urandom(VALUE_BYTES)
        path = f"{bench.directory('bundles')}/kernels.lcb"
        with open_output(path) as out:
            make_bundle(Layout(root), out)
        seeded = FileStreamProgramCache(bench.directory("seeded"), seed=path)
        with BundleProgramCache(path) as bundle, seeded:
            return [
                _next_to(bench, "hit in a bundle", bundle, directory, floor, pace, 2.5),
                _next_to(bench, "hit through a seed", seeded, directory, floor, pace, 1.6),
            ]


def _next_to(
    bench: Bench,
    name: str,
    ours: BundleProgramCache | FileStreamProgramCache,
    directory: FileStreamProgramCache,
    floor: Callable[[], object],
    pace: tuple[int, int],
    bar: float,
) -> Line:
    actions = {
        "ours": map(ours.get, cycle(_HITS)).__next__,
        "theirs": map(directory.get, cycle(_HITS)).__next__,
        "floor": floor,
    }
    return ratio_line(f"{name}, 16 KiB, next to one in a directory", interleaved(actions, *pace, bench.show), bar)


def _hit_getter(store: Store, calls: int) -> Callable[[], object]:
    for key in _HITS:
        store.put(key, os.urandom(VALUE_BYTES))
    # By map, here and elsewhere, because a lambda around each call would take a hundredth of the measured time.
    return map(store.get, cycle(_HITS)).__next__


def _plain_files(directory: str) -> Callable[[], object]:
    paths = [os.path.join(directory, str(number)) for number in range(_KEYS)]
    for path in paths:
        with open(path, "wb") as file:
            file.write(os.urandom(VALUE_BYTES))

    def read(path: str) -> None:
        fd = os.open(path, os.O_RDONLY)
        os.read(fd, VALUE_BYTES)
        os.close(fd)

    return map(read, cycle(paths)).__next__


def measure_miss(bench: Bench) -> list[Line]:
    """Measure misses: at least 3x faster than cuda.core's."""
    rounds, calls = bench.pick(201, 3), bench.pick(200, 20)
    others_pace = bench.pick(51, 2), bench.pick(100, 10)
    empty = bench.directory("empty")
    floor = map(os.path.exists, [f"{empty}/{number}" for number in range(rounds * calls)]).__next__
    return [compare(bench, "miss", _miss_getter, floor, 3.0, (rounds, calls), others_pace)]


def _miss_getter(store: Store, calls: int) -> Callable[[], object]:
    """Returns a function that looks up another key at each call.

    Making a key takes a tenth of a miss, so it is done here.
    """
    for number in range(64):
        store.put(b"other-%d" % number, b"x")
    return map(store.get, [b"%d" % number for number in range(calls)]).__next__


def measure_program_hit(bench: Bench) -> list[Line]:
    """Measure hits through ``Program``: lockcache's take at most one and a half times as long as cuda.core's."""
    if not CUDA_CORE.is_installed():
        return []
    from cuda.core import Program as TheirProgram

    from lockcache.cuda import Program

    include = _write_headers(bench.directory("headers"))
    cache = open_lockcache(bench.lockcache_directory("program-hit"))
    nested = f'#include "header-0.h"\n{_TEMPLATE}'
    with opened(CUDA_CORE, bench.directory("program-hit")) as store:
        theirs: Any = store
        actions = {
            "ours": _compiler(Program, _PLAIN, cache),
            "theirs": _compiler(TheirProgram, _PLAIN, theirs.cache),
            "template": _compiler(Program, _TEMPLATE, cache, names=_NAMES),
            "headers": _compiler(Program, nested, cache, names=_NAMES, include=include),
        }
        # Headers that were changed a moment ago are read again at every fingerprint, which does not happen in a job.
        time.sleep(bench.pick(_SETTLED_SECONDS, 0))
        times_us = interleaved(actions, bench.pick(101, 3), bench.pick(50, 10), bench.show)
    slower = times_us["ours"] / times_us["theirs"]
    return [
        Line(
            "program hit, compile() alone",
            f"{times_us['ours']:,.1f} us",
            theirs=f"{times_us['theirs']:,.1f} us",
            **_BAR.in_ratio(slower, " as long"),
            is_time=True,
            numbers={"ours_us": times_us["ours"], "theirs_us": times_us["theirs"], "ratio": slower},
        ),
        _reported("program hit, template", times_us["template"]),
        _reported(f"program hit, template and {_HEADERS} headers", times_us["headers"]),
    ]


def _reported(name: str, microseconds: float) -> Line:
    return Line(name, f"{microseconds:,.1f} us", theirs="refuses", numbers={"ours_us": microseconds})


def _compiler(
    program_type: Any, source: str, cache: Any, *, names: tuple[str, ...] = (), include: str | None = None
) -> Callable[[], object]:
    """Returns a function that calls ``compile`` of one program again. The first call, here, fills the cache."""
    from cuda.core import ProgramOptions

    program = program_type(source, "c++", ProgramOptions(arch=_ARCH, include_path=include))
    program.compile("cubin", name_expressions=names, cache=cache)
    return lambda: program.compile("cubin", name_expressions=names, cache=cache)


def _write_headers(path: str) -> str:
    """Write a chain of headers, each including the next. Returns their folder."""
    for number in range(_HEADERS):
        following = f'#include "header-{number + 1}.h"\n' if number + 1 < _HEADERS else ""
        with open(os.path.join(path, f"header-{number}.h"), "w") as file:
            file.write(f"#pragma once\n{following}#define HEADER_{number} {number}\n")
    return path
