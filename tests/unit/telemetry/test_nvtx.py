# SPDX-License-Identifier: Apache-2.0
"""Ranges for profilers, as a profiler sees them that NVTX loads: each begins and ends once, however its turn ends."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, Turn
from tests.daemon.daemon_process import until

pytest.importorskip("nvtx", reason="needs the package nvtx")

_PROGRAM = """
import gc, sys
from lockcache import FileStreamProgramCache, InMemoryProgramCache, Turn, seal

def fail():
    raise ArithmeticError

cache = FileStreamProgramCache(sys.argv[1])
"""


@pytest.fixture(scope="module")
def profiler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    library = tmp_path_factory.mktemp("profiler") / "profiler.so"
    source = Path(__file__).with_name("profiler.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


@pytest.fixture
def start(profiler: Path, tmp_path: Path) -> Callable[[str], subprocess.Popen[str]]:
    def start(program: str) -> subprocess.Popen[str]:
        variables = {
            "LOCKCACHE_TELEMETRY": "nvtx",
            "NVTX_INJECTION64_PATH": str(profiler),
            "RANGES_FILE": str(tmp_path / "ranges"),
        }
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM + program, tmp_path / "kernels"],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def _ranges(folder: Path) -> list[str]:
    """Returns what the profiler has seen, without numbers: an end has the name of its range."""
    seen, names = [], dict[str, str]()
    for line in (folder / "ranges").read_text().splitlines():
        what, number, text = line.split(" ", 2)
        if what != "domain":
            name = names.setdefault(number, text)
            seen.append(f"{what} {name}")
        else:
            assert text == "lockcache"
    return seen


@pytest.mark.slow
@pytest.mark.parametrize(
    "program, kernels",
    [
        ("for _ in range(2): cache.get_or_compute('key', lambda: b'code', label='gemm')", ["gemm"]),
        pytest.param(
            "InMemoryProgramCache().get_or_compute('key', lambda: b'code', label='gemm')",
            ["gemm"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            "try: cache.get_or_compute('key', fail, label='gemm')\nexcept ArithmeticError: pass",
            ["gemm"],
            marks=pytest.mark.long,
        ),
        pytest.param(
            "turn = cache.begin('key', label='gemm'); del turn; gc.collect()", ["gemm"], marks=pytest.mark.long
        ),
        pytest.param(
            "turn = cache.begin('key', label='gemm'); turn.give_up(); turn.give_up()", ["gemm"], marks=pytest.mark.long
        ),
        pytest.param(
            "seal('log'); cache.get_or_compute('key', lambda: b'code', label='gemm')", ["gemm"], marks=pytest.mark.long
        ),
        pytest.param("cache['key'] = b'code'; cache['key']; cache.get('none')", [], marks=pytest.mark.long),
        pytest.param(
            "cache.get_or_compute('key', lambda: b'code', label='a\\x1bb')", ["a\\x1bb"], marks=pytest.mark.long
        ),
    ],
)
def test_a_compilation_is_one_range(
    program: str, kernels: list[str], start: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    ran = start(program)
    assert (ran.communicate(), ran.returncode) == (("", ""), 0)
    assert _ranges(tmp_path) == [f"{what} compile {name}" for name in kernels for what in ("begin", "end")]


@pytest.mark.slow
def test_a_wait_for_another_process_is_one_range(start: Callable[[str], subprocess.Popen[str]], tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "kernels") as cache:
        turn = cache.begin("key", label="gemm")
        assert isinstance(turn, Turn)
        waiter = start("assert cache.get_or_compute('key', fail, label='gemm') == b'code'")
        until(lambda: (tmp_path / "ranges").exists() and "begin wait for gemm" in _ranges(tmp_path))
        turn.store(b"code")
        assert (waiter.communicate(), waiter.returncode) == (("", ""), 0)
    assert _ranges(tmp_path) == ["begin wait for gemm", "end wait for gemm"]
