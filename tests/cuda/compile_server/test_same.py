# SPDX-License-Identifier: Apache-2.0
"""Equality: a server gives what NVRTC gives in this process, code, log and mapping, and the same is stored.

Not with ``restrict``: once NVRTC was asked for it, all that this process compiles comes out as if with it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from cuda.core import ProgramOptions

from lockcache.compile_server import Target, read_state
from lockcache.compile_server.nvrtc import Nvrtc
from lockcache.keys import versions
from tests.cuda.compile_server.programs import HALF, compiled, cudart, kernel

pytestmark = [pytest.mark.cuda, pytest.mark.slow, pytest.mark.usefixtures("patient")]

SOURCES = {
    "warnings": kernel(3),
    "anonymous": HALF + "namespace { __device__ int q[4]; static __device__ int z; }\n"
    'extern "C" __global__ void k(int *o) { o[0] = q[threadIdx.x & 3]; atomicAdd(&z, 1); atomicAdd(&q[0], 1); }',
    "places": HALF + 'extern "C" __global__ void k(int *o) { o[0] = __LINE__; o[1] = *__FILE__; }',
    "defined": f"#define FOO 3\n// the headers\n{HALF}"
    'extern "C" __global__ void k(int *o) { o[0] = FOO; }',
    "shared": HALF + "__shared__ int s[32]; static __constant__ float c[8];\n"
    'extern "C" __global__ void k(float *o) { s[threadIdx.x & 31] = 1; __syncthreads(); o[0] = c[s[0] & 7]; }',
    "more": f"{HALF}#include <cuda_bf16.h>\n#if 1\n#include <vector_types.h>\n#endif\n"
    'extern "C" __global__ void k(int4 *o) { o[0].x = 1; }',
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "line information": {"lineinfo": True, "name": "k.cu"},
    "debug": {"debug": True, "name": "dir/k.cu"},
    "fast": {"use_fast_math": True},
    "parts": {"relocatable_device_code": True},
    "macros": {"define_macro": [("Q", "1"), "R"], "max_register_count": 32},
    "newer": {"std": "c++20"},
    "a warning of options": {"debug": True, "ofast_compile": "min", "name": "k.cu"},
}
CASES = [(source, options, target) for source in SOURCES for options in OPTIONS for target in ("cubin", "ltoir")]


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_matrix_of_sources_options_and_targets_has_the_same_bytes(place: Path, tmp_path: Path) -> None:
    for number, (source, options, target) in enumerate(CASES):
        given = dict(OPTIONS[options])
        if target == "ltoir":
            given["link_time_optimization"] = True
        served = compiled(SOURCES[source], tmp_path / f"on{number}", "on", target, **given)
        plain = compiled(SOURCES[source], tmp_path / f"off{number}", "off", target, **given)
        assert served == plain, (source, options, target)
    state = read_state()
    assert state is not None
    assert state["compiled"] >= 1
    assert state["failed"] == 0


def test_ptx_is_that_of_nvrtc(place: Path, tmp_path: Path) -> None:
    # cuda.core asks the driver after a compilation to PTX, and hosts that build have none: NVRTC itself is asked.
    path = versions.nvrtc_path()
    assert path is not None
    options = ProgramOptions(arch="sm_90", include_path=cudart(), name="k.cu")
    given = [*options.as_bytes("nvrtc", "ptx")]
    plain = Nvrtc(path).compile(kernel(4).encode(), b"k.cu", given, Target.PTX, ())
    served = compiled(kernel(4), tmp_path, "on", "ptx", name="k.cu")
    assert (served.code, served.log) == (plain.code, plain.log.decode())


def test_a_template_has_its_mapping_and_its_log(place: Path, tmp_path: Path) -> None:
    source = HALF + "template <class T> __global__ void k(T *x) { int unused; x[0] = 1; }"
    names = ("k<float>", b"k<int>", "k<__half>")
    served = compiled(source, tmp_path / "on", "on", names=names)
    assert served == compiled(source, tmp_path / "off", "off", names=names)
    assert served.mapping["k<float>"] == b"_Z1kIfEvPT_"
    assert "unused" in served.log
    state = read_state()
    assert state is not None
    assert state["failed"] == 0


def test_a_warning_of_options_is_in_the_log(place: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"debug": True, "ofast_compile": "min", "name": "k.cu"}
    served = compiled(kernel(5), tmp_path / "on", "on", **options)
    assert served == compiled(kernel(5), tmp_path / "off", "off", **options)
    assert "options conflict" in served.log
    state = read_state()
    assert state is not None
    assert state["compiled"] == 1


def test_an_error_is_the_one_of_cuda_core(place: Path, tmp_path: Path) -> None:
    texts = []
    for mode in ("on", "off"):
        with pytest.raises(Exception, match="NVRTC_ERROR_COMPILATION") as caught:
            compiled(HALF + "__global__ void k() { no; }", tmp_path / mode, mode)
        texts.append((type(caught.value), str(caught.value)))
    assert texts[0] == texts[1]


def test_a_working_directory_and_variables_are_the_callers(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("PWD", os.fspath(folder))
        served = compiled(kernel(1), tmp_path / f"{name}-on", "on", lineinfo=True, name="k.cu")
        assert served == compiled(kernel(1), tmp_path / f"{name}-off", "off", lineinfo=True, name="k.cu")
        assert os.fsencode(folder) in served.code
