# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles with CuPy's compiler and NVRTC. The device is stubbed; LTO-IR needs none."""

from __future__ import annotations

import sys

from cupy.cuda import compiler
from protocol import run

compiler._get_arch = lambda: "90"
compiler._get_arch_for_options_for_nvrtc = lambda arch=None: ("-arch=sm_90", "cubin")
compiled = []
_compile = compiler._compile_using_nvrtc_no_warning


def _counted(*args, **options):
    found = _compile(*args, **options)
    compiled.append(1)
    return found


compiler._compile_using_nvrtc_no_warning = _counted
if "old-door" in sys.argv:
    del compiler._set_kernel_cache_backend

from lockcache.integrations.cupy import install  # noqa: E402

is_installed = "own" not in sys.argv and install()


def compile_kernel(number: int) -> bool:
    body = "this is not CUDA" if number < 0 else f"p[0] = {number};"
    source = f'extern "C" __global__ void kernel_{abs(number)}(float *p) {{ {body} }}'
    return len(compiler._compile_module_with_cache(source, (), arch="90", to_ltoir=True)) > 500


compile_kernel(99)  # before its first kernel, CuPy has NVRTC compile an empty source
run(compile_kernel, compiled, is_installed)
