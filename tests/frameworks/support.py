# SPDX-License-Identifier: Apache-2.0
"""Runs programs of users with real frameworks, each in a virtual environment that ``make frameworks`` made."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lockcache_stress.run.sampler import Peaks, Sampler

ROOT = Path(__file__).parents[2]
VENVS = ROOT / "build" / "frameworks"
PROGRAMS = Path(__file__).with_name("programs")
HANG_SECONDS = 300

#: The variables with which each framework stores everything.
ENVIRONMENT = {
    "jax": {
        "JAX_PLATFORMS": "cpu",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "0",
    },
    "cupy": {},
    "numba": {},
    "numba_mlir": {},
    "triton": {},
    "warp": {},
    "inductor": {},
    "cute": {"CUTE_DSL_ARCH": "sm_90a"},
    "cutile": {},
    "helion": {},
    "tilelang": {},
    "cpp_extension": {},
    "flashinfer": {},
}

#: The number of processes that begin together, and the kernels that each of them wants.
HERDS = {
    "triton": (8, range(8)),
    "jax": (6, range(6)),
    "cupy": (8, range(6)),
    "numba": (8, range(8)),  # four functions of two types each
    "numba_mlir": (8, range(8)),
    "warp": (6, range(4)),
    "inductor": (4, range(2)),
    "cute": (8, range(6)),
    "cutile": (8, range(6)),
    "cpp_extension": (8, range(6)),
    "flashinfer": (8, range(6)),
}

#: Virtual environments of older versions, which are asked the same as the newest.
OLDER = ("jax-oldest", "warp-oldest", "triton-oldest", "triton-3.3")


def site_of(name: str) -> str:
    """Returns the folder of a framework's packages, for programs that use two. Skips the test without them."""
    found = [*(VENVS / name / "lib").glob("python*/site-packages")]
    if not found:
        pytest.skip(f"needs {name}: make frameworks FRAMEWORKS={name}")
    return str(found[0])


class Programs:
    """Processes that are ready to compile, and begin together."""

    def __init__(self, venv: str, tmp_path: Path) -> None:
        """Find the interpreter. Skips the test without it.

        ``venv``: the framework's name; of an older version with a dash and words behind it.
        """
        self.name = venv.partition("-")[0]
        self.python = VENVS / venv / "bin" / "python"
        if not self.python.exists():
            pytest.skip(f"needs {venv}: make frameworks FRAMEWORKS={venv}")
        self._tmp_path = tmp_path
        self.directory = tmp_path / "cache"
        self.errors = tmp_path / "stderr"

    @contextlib.contextmanager
    def started(
        self, count: int, *words: str, program: str = "", prefix: Sequence[str] = (), **variables: str
    ) -> Iterator[Any]:
        """Start ``count`` programs. The block begins when all are ready, and its end kills them.

        ``program``: the program, by default the one that is named after the framework. ``prefix``: the command that
        runs it.
        """
        command = [*prefix, self.python, PROGRAMS / f"{program or f'{self.name}_program'}.py", *words]
        with self._started(command, [variables] * count) as running:
            yield running

    @contextlib.contextmanager
    def started_each(self, variables: Sequence[dict[str, str]]) -> Iterator[Any]:
        """Start like :meth:`started`, one program with each of these ``variables``."""
        with self._started([self.python, PROGRAMS / f"{self.name}_program.py"], variables) as running:
            yield running

    @contextlib.contextmanager
    def _started(self, command: Sequence[str | Path], variables: Sequence[dict[str, str]]) -> Iterator[Any]:
        with contextlib.ExitStack() as stack:
            errors = stack.enter_context(self.errors.open("ab"))
            running = []
            for environment in map(self.environment, variables):
                process = stack.enter_context(
                    subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, stderr=errors, text=True, cwd="/")
                )
                stack.callback(process.kill)
                running.append(process)
            for process in running:
                assert process.stdout.readline() == "ready\n", self.errors.read_text()[-3000:]
            yield running

    def call(self, *words: str, **variables: str) -> str:
        """Returns the output of the framework's Python."""
        command = [self.python, *words]
        environment = self.environment(variables)
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, cwd="/").stdout

    def environment(self, variables: dict[str, str]) -> dict[str, str]:
        """Returns the variables of a program; the given ones replace others."""
        return {
            # With the framework's own programs, such as ninja.
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(self._tmp_path),
            "PYTHONPATH": str(ROOT),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CUPY_CACHE_DIR": str(self._tmp_path / "own"),
            "NUMBA_CACHE_DIR": str(self._tmp_path / "own"),
            "WARP_CACHE_PATH": str(self._tmp_path / "own"),
            "TRITON_CACHE_DIR": str(self._tmp_path / "own"),
            "CUTE_DSL_CACHE_DIR": str(self._tmp_path / "own"),
            "CUDA_TILE_CACHE_DIR": str(self._tmp_path / "own"),
            "TILELANG_CACHE_DIR": str(self._tmp_path / "own"),
            "TORCH_EXTENSIONS_DIR": str(self._tmp_path / "own"),
            "FLASHINFER_WORKSPACE_BASE": str(self._tmp_path / "own"),
            "TMPDIR": str(self._tmp_path),
            "LOCKCACHE_DIR": str(self.directory),
            **ENVIRONMENT[self.name],
            **variables,
        }

    def run(self, count: int, kernels: Sequence[int], *words: str, **options: Any) -> list[dict[str, Any]]:
        """Have processes compile the kernels. Returns the answer of each."""
        with self.started(count, *words, **options) as running:
            for process in running:
                tell(process, kernels)
            return [answer(process) for process in running]


def tell(process: Any, kernels: Sequence[int]) -> None:
    process.stdin.write(f"{json.dumps(list(kernels))}\n")
    process.stdin.flush()


def answer(process: Any) -> dict[str, Any]:
    line = process.stdout.readline()
    assert line, "a program died"
    found: dict[str, Any] = json.loads(line)
    return found


@contextlib.contextmanager
def building(programs: Programs, tmp_path: Path, *words: str) -> Iterator[Any]:
    """A program whose C++ compiler is under way, and waits for whatever is written to a pipe."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with programs.started(1, *words, COMPILER_WAITS_FOR=str(gate)) as [process]:
        tell(process, [0])
        # Opens when the compiler reads it; the killed one's ends then, and goes nowhere.
        fd = os.open(gate, os.O_WRONLY)
        try:
            yield process
        finally:
            os.close(fd)


def total(answers: Sequence[dict[str, Any]], what: str) -> int:
    return sum(found[what] for found in answers)


class _OfEntries(Sampler):
    """Does not count a policy, page or table of costs that is being replaced, which a cap this small does not cover."""

    def _weigh(self) -> tuple[int, int, int]:
        accounted, _, unaccounted = super()._weigh()
        return accounted, accounted + unaccounted, unaccounted


def sampled_answers(directory: Path, running: Sequence[Any]) -> tuple[list[dict[str, Any]], Peaks]:
    """Returns the answers of programs that were asked to compile, and the peaks on disk in all samples meanwhile."""
    sampler = _OfEntries(str(directory), is_own_mount=False)
    left = [process.stdout for process in running]
    while left:
        sampler.sample([process.pid for process in running])
        left = [each for each in left if not select.select([each], [], [], 0)[0]]
    answers = [answer(process) for process in running]
    sampler.sample_final()
    return answers, sampler.peaks
