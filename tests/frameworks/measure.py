# SPDX-License-Identifier: Apache-2.0
"""Figures of the guides: each framework's own cache next to lockcache, in one run. ``make frameworks-figures``.

Counts are exact. Times depend on this machine: read them as ratios. Exits with 1 if a figure breaks a promise.
"""

from __future__ import annotations

import contextlib
import json
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from lockcache import FileStreamProgramCache
from tests.frameworks.support import HERDS, PROGRAMS, VENVS, Programs, answer, sampled_answers, tell, total

#: The most seconds from the first process's error to the second one's.
MOST_ERROR_SECONDS = 0.5
MOST_TRITON_WARM = 2.0
MOST_NODE_START = 1.15
LEAST_JAX_PUT = 300.0


def _started(word: str) -> tuple[tuple[str, ...], tuple[str, ...], str, float, int]:
    return ("own", word), (word,), "", MOST_NODE_START, 6


class Warm(NamedTuple):
    """What a new process does that finds everything compiled: in the framework's own way, and on lockcache."""

    title: str
    kernels: range
    own: tuple[str, ...] = ("own",)
    ours: tuple[str, ...] = ()
    program: str = ""
    #: The most that lockcache may take of the framework's own time.
    bar: float = 1.1
    #: Processes of each kind, by turns, of which the least disturbed counts.
    processes: int = 15


_BUILT = {"own": ("own", "plain"), "ours": ("one-folder", "plain"), "processes": 25}
WARM = {
    "cpp_extension": [Warm("a warm extension of torch's", range(1), **_BUILT)],
    "flashinfer": [Warm("six warm libraries of FlashInfer's", range(6), **_BUILT)],
    "numba": [Warm("eight warm kernels of numba-cuda's", range(8), ("own", "plain"), ("plain",))],
    "numba_mlir": [Warm("eight warm kernels of numba-cuda-mlir's", range(8))],
    "cute": [Warm("six warm calls in CuTe DSL", range(6), program="cute_warm")],
    "cutile": [Warm("six warm kernels of cuTile's", range(6))],
    # With its own directory, and on lockcache on a node that is new each time.
    "inductor": [
        Warm("two warm graphs of Inductor's, and their gradients", range(2), *_started("with-gradient")),
        Warm("a warm C++ kernel of Inductor's", range(1), *_started("with-kernel")),
    ],
}

LAUNCHERS = (6, range(1000, 1004))


def main() -> int:
    """Measure the frameworks that are installed, and print two tables."""
    wanted = [name for name in sys.argv[1:] or HERDS if name in HERDS and (VENVS / name).exists()]
    missed: list[str] = []
    print(
        f"{platform.processor() or platform.machine()}, Linux {platform.release()}, Python {platform.python_version()}"
    )
    print(
        "\n| framework | processes x kernels | own cache | lockcache | warm | most under a cap | second error after |"
    )
    print("|---|---|---|---|---|---|---|")
    herds = {name: HERDS[name] for name in wanted}
    for name, (processes, kernels) in herds.items():
        _row(name, name, processes, kernels, missed)
        if name == "triton":
            _row("triton launchers", name, *LAUNCHERS, missed)
    print("\n| | own cache | lockcache | ratio |\n|---|---|---|---|")
    if "triton" in wanted:
        _triton_warm(missed)
    for name in filter(WARM.__contains__, wanted):
        for warm in WARM[name]:
            _warm(name, warm, missed)
    if "jax" in wanted:
        _jax_put(missed)
    for line in missed:
        print(f"missed: {line}", file=sys.stderr)
    return int(bool(missed))


@contextlib.contextmanager
def _programs(name: str) -> Iterator[Programs]:
    with tempfile.TemporaryDirectory() as folder:
        yield Programs(name, Path(folder))


def _row(title: str, name: str, processes: int, kernels: range, missed: list[str]) -> None:
    with _programs(name) as programs:
        own = total(programs.run(processes, kernels, "own"), "compiled")
        cold = total(programs.run(processes, kernels), "compiled")
        warm = total(programs.run(2, kernels), "compiled")
        with FileStreamProgramCache(programs.directory) as cache:
            cap = cache.stats().bytes // 2
        if title == name:
            first, second = _failures(programs)
            error = f"{second - first:.2f} s"
            if second - first > MOST_ERROR_SECONDS:
                missed.append(f"{title}: the second error came {error} after the first")
        else:
            error = ""
    peak = _peak(name, processes, kernels, cap) / cap
    if peak > 1:
        missed.append(f"{title}: {peak:.3f} of a cap")
    if (cold, warm) != (len(kernels), 0):
        missed.append(f"{title}: {cold} compiled cold, {warm} warm")
    print(f"| {title} | {processes} x {len(kernels)} | {own} | {cold} | {warm} | {peak:.1%} | {error} |", flush=True)


def _peak(name: str, processes: int, kernels: range, cap: int) -> int:
    """Returns the most bytes on disk, in all samples, of a directory whose cap is half of what the kernels take."""
    with _programs(name) as programs, programs.started(processes) as running:
        FileStreamProgramCache(programs.directory, max_size_bytes=cap).close()
        for process in running:
            tell(process, [*kernels] * 2)
        _, peaks = sampled_answers(programs.directory, running)
    return peaks.disk_bytes


def _failures(programs: Programs) -> tuple[float, float]:
    """Returns the times in which two processes that begin together fail to compile the same kernel, after a warm-up."""
    with programs.started(2, "keep-errors") as running:
        for process in running:
            tell(process, [0, -1])
        seconds = sorted(answer(process)["seconds"] for process in running)
    return seconds[0], seconds[1]


def _said(name: str, program: str, *words: str, folder: str) -> Any:
    programs = Programs(name, Path(folder))
    command = [programs.python, PROGRAMS / program, *words]
    environment = programs.environment({})
    ended = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(ended.stdout.splitlines()[-1])


def _triton_warm(missed: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = _said("triton", "triton_warm.py", folder=folder)
    for what, title in (("compile", "`triton.compile` of a warm kernel"), ("read", "the cache's part of it")):
        own, ours = found[what]["own"], found[what]["ours"]
        print(f"| {title} | {own * 1e6:.0f} us | {ours * 1e6:.0f} us | {ours / own:.2f} |")
    if found["compile"]["ours"] > MOST_TRITON_WARM * found["compile"]["own"]:
        missed.append("a warm kernel of Triton's takes more than twice as long as in its own cache")


def _warm(name: str, warm: Warm, missed: list[str]) -> None:
    with _programs(name) as programs:
        taken: dict[tuple[str, ...], list[tuple[float, float]]] = {warm.own: [], warm.ours: []}
        for _ in range(warm.processes + 1):
            for words, found in taken.items():
                [said] = programs.run(1, warm.kernels, *words, program=warm.program)
                if found and said["compiled"]:
                    missed.append(f"{warm.title}: compiled again {words}")
                found.append((said["seconds"], said["processor_seconds"]))
    (own, own_work), (ours, work) = (map(min, zip(*found[1:], strict=True)) for found in taken.values())
    ratios = f"{ours / own:.2f}, of processor time {work / own_work:.2f}"
    print(f"| {warm.title} | {own * 1e3:.1f} ms | {ours * 1e3:.1f} ms | {ratios} |", flush=True)
    if ours > warm.bar * own:
        missed.append(f"{warm.title}: {ours / own:.2f} of the time without lockcache")


def _jax_put(missed: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        found = _said("jax", "jax_put.py", folder, folder=folder)
    own, ours = statistics.median(found["own"]), statistics.median(found["ours"])
    print(
        f"| JAX, a put at a cap of 10,000 entries | {own * 1e3:.0f} ms | {ours * 1e3:.2f} ms | 1 / {own / ours:.0f} |"
    )
    if own < LEAST_JAX_PUT * ours:
        missed.append(f"a put of JAX's is {own / ours:.0f} times as fast, and not {LEAST_JAX_PUT:.0f}")


if __name__ == "__main__":
    sys.exit(main())
