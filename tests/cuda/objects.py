# SPDX-License-Identifier: Apache-2.0
"""The object codes that tests of lockcache.cuda.Linker link, and the real linker next to it."""

from __future__ import annotations

from functools import cache
from typing import Any

from cuda.bindings import nvrtc
from cuda.core import Linker as CoreLinker, LinkerOptions, ObjectCode, ProgramOptions

KERNEL = """
__device__ int helper(int x);
__device__ int unused;
extern "C" __global__ void k(int *p, float *q) { *p = helper(*p); q[1] = q[0] / q[2] + sqrtf(q[3]) * q[4] + 1e-40f; }
extern "C" __global__ void other(int *p) { for (int i = 0; i < 9; ++i) p[i] += p[i + 9] * helper(i); }
"""
HELPER = "__device__ int helper(int x) { return 2 * x; }"
CHANGED_HELPER = "__device__ int helper(int x) { return 3 * x + 1; }"
APART = 'extern "C" __global__ void apart(int *p) { *p += 5; }'

LTO = {"link_time_optimization": True}
LTO_PTX = {**LTO, "ptx": True}


@cache
def compiled(source: str, kind: str, **more: Any) -> bytes:
    """Returns a unit to be linked. Not by Program, which needs a driver for PTX."""
    given = {"relocatable_device_code": True, **more} if kind != "ltoir" else {**LTO, **more}
    options = ProgramOptions(arch="sm_90", **given).as_bytes("nvrtc", kind)
    _, program = nvrtc.nvrtcCreateProgram(source.encode(), b"unit.cu", 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS
    suffix = {"ltoir": "LTOIR", "ptx": "PTX", "cubin": "CUBIN"}[kind]
    _, size = getattr(nvrtc, f"nvrtcGet{suffix}Size")(program)
    output = bytes(bytearray(size))
    getattr(nvrtc, f"nvrtcGet{suffix}")(program, output)
    nvrtc.nvrtcDestroyProgram(program)
    return output


def unit(source: str, kind: str, name: str = "", **more: Any) -> ObjectCode:
    return getattr(ObjectCode, f"from_{kind}")(compiled(source, kind, **more), name=name)


def units(kind: str, *sources: str) -> list[ObjectCode]:
    return [unit(source, kind) for source in sources or (KERNEL, HELPER)]


def linker_options(**more: Any) -> LinkerOptions:
    return LinkerOptions(**{"arch": "sm_90", **more})


def link_really(objects: list[ObjectCode], target: str, **more: Any) -> tuple[bytes, str, str]:
    """Returns the output and the two logs of cuda.core's linker."""
    linker = CoreLinker(*objects, options=linker_options(**more))
    code = linker.link(target).code
    return code, linker.get_info_log(), linker.get_error_log()
