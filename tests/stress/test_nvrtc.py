"""The NVRTC scenario with the real compiler, as a user runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from lockcache_stress.gpu.kernels import ARCHS, LAUNCHED, Kernel, make_slots
from tests.stress.support import stress_json

_SMALL = ("nvrtc", "--processes", "3", "--kernels", "3", "--seconds", "3", "--seed", "2", "--gpu", "off")


@pytest.mark.cuda
def test_real_programs_come_back_as_they_were_compiled_under_a_cap_that_a_real_daemon_holds(run_path: Path) -> None:
    report = stress_json(*_SMALL, "--with-daemon", "--max-size", "500k", run_path=run_path)
    assert report["compiles"] > 0
    assert report["hits"] > 0
    assert report["working_set_bytes"] > report["cap_bytes"] >= report["peak_bytes"]
    assert report["daemon"]["ended_when_asked"]
    # What the daemon evicted is in the histories, or misses would have no cause.
    assert (report["histories"]["illegal"], report["histories"]["unknown"]) == ([], [])
    assert os.listdir(run_path) == []


def test_the_same_seed_gives_the_same_kernels() -> None:
    assert make_slots(8, 1, ARCHS) == make_slots(8, 1, ARCHS) != make_slots(8, 2, ARCHS)


_ON_A_CPU = """
#include <cstdio>
struct Index { unsigned x; } blockIdx{0}, blockDim{64}, threadIdx{0};
#define __device__
#define __global__
#define __forceinline__ inline
%s
int main() {
  unsigned out[64];
  for (threadIdx.x = 0; threadIdx.x < 64; ++threadIdx.x) run(out, 64);
  for (unsigned x : out) std::printf("%%u\\n", x);
}
"""


@pytest.mark.long
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, to run kernels without a GPU")
@pytest.mark.parametrize("family, size", [("chain", 57), ("unrolled", 33), ("table", 3001)])
def test_what_a_kernel_must_compute_is_what_its_source_says(family: str, size: int, run_path: Path) -> None:
    variant = 2
    kernel = Kernel(family, size, salt=123_456_789)
    source = run_path / "kernel.cpp"
    source.write_text(_ON_A_CPU % kernel.source(variant))
    subprocess.run(["g++", "-std=c++17", "-O1", "-w", "-o", run_path / "kernel", source], check=True)
    printed = subprocess.run([run_path / "kernel"], check=True, capture_output=True, text=True).stdout
    assert [int(line) for line in printed.split()] == kernel.expected(variant)
    assert len(set(kernel.expected(variant))) > LAUNCHED // 4
