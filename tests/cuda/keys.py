# SPDX-License-Identifier: Apache-2.0
"""Material for tests of keys: sources, every option of cuda.core, the compilers themselves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

core = pytest.importorskip("cuda.core")
nvrtc = pytest.importorskip("cuda.bindings.nvrtc")

from lockcache.keys import make_program_cache_key  # noqa: E402

SOURCE = """
namespace { __device__ __noinline__ float helper(float x, float y) { return x * y + sqrtf(x) / y; } }
static __device__ int counter;
template <class T> __global__ void scale(T *a, T f) { a[threadIdx.x] *= f; }
#ifdef FACTOR
#define SCALE FACTOR
#else
#define SCALE 2
#endif
extern "C" __global__ void k(float *a, const float *b, int n) {
    float s = SCALE; long long unused = __cplusplus;
    for (int i = 0; i < n; ++i) { s += helper(a[i], b[i + 1]) * 1e-40f; a[i] = s; atomicAdd(&counter, (int)unused); }
}
"""

NVVM = """target triple = "nvptx64-unknown-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64:64-\
v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
define void @simple(float %x, float %y, float* %p) {
  %d = fdiv float %x, %y
  %m = fmul float %d, %x
  %s = fadd float %m, %y
  store float %s, float* %p
  ret void
}
!nvvm.annotations = !{!0}
!0 = !{void (float, float, float*)* @simple, !"kernel", i32 1}
!nvvmir.version = !{!1}
!1 = !{i32 2, i32 0, i32 3, i32 1}
"""

REFUSED = "refused, whatever else is given"
EXTERNAL = "refused without extra_digest"
CHANGES = "another output"
SEEN = "the compiler sees it; the output of SOURCE happens to be the same, or none"
UNUSED = "does not reach this compiler"

#: Every field of ProgramOptions: its effect for C++, and a value that differs from the default.
CXX: dict[str, tuple[str, Any]] = {
    "name": (CHANGES, "other.cu"),
    "arch": (CHANGES, "sm_80"),
    "relocatable_device_code": (CHANGES, True),
    "extensible_whole_program": (SEEN, True),
    "debug": (CHANGES, True),
    "lineinfo": (CHANGES, True),
    "device_code_optimize": (SEEN, True),
    "ptxas_options": (CHANGES, "-O0"),
    "max_register_count": (CHANGES, 16),
    "ftz": (CHANGES, True),
    "prec_sqrt": (CHANGES, False),
    "prec_div": (CHANGES, False),
    "fma": (CHANGES, False),
    "use_fast_math": (CHANGES, True),
    "extra_device_vectorization": (SEEN, True),
    "link_time_optimization": (SEEN, True),
    "gen_opt_lto": (SEEN, True),
    "define_macro": (CHANGES, ("FACTOR", "3")),
    "undefine_macro": (SEEN, "FACTOR"),
    "include_path": (EXTERNAL, "."),
    "use_bundled_headers": (SEEN, True),
    "pre_include": (EXTERNAL, "x.h"),
    "no_source_include": (SEEN, True),
    "std": (CHANGES, "c++20"),
    "builtin_move_forward": (SEEN, False),
    "builtin_initializer_list": (SEEN, False),
    "disable_warnings": (SEEN, True),
    "restrict": (CHANGES, True),
    "device_as_default_execution_space": (SEEN, True),
    "device_int128": (SEEN, True),
    "optimization_info": (SEEN, "inline"),
    "no_display_error_number": (SEEN, True),
    "diag_error": (SEEN, 1),
    "diag_suppress": (SEEN, [1, 2]),
    "diag_warn": (SEEN, (1,)),
    "brief_diagnostics": (SEEN, True),
    "time": (REFUSED, "time.csv"),
    "split_compile": (SEEN, 2),
    "fdevice_syntax_only": (CHANGES, True),
    "minimal": (SEEN, True),
    "no_cache": (SEEN, True),
    "fdevice_time_trace": (REFUSED, "trace.json"),
    "device_float128": (SEEN, True),
    "frandom_seed": (SEEN, "7"),
    "ofast_compile": (CHANGES, "max"),
    "pch": (EXTERNAL, True),
    "create_pch": (REFUSED, "x.pch"),
    "use_pch": (EXTERNAL, "x.pch"),
    "pch_dir": (EXTERNAL, "."),
    "pch_verbose": (SEEN, True),
    "pch_messages": (SEEN, True),
    "instantiate_templates_in_pch": (SEEN, True),
    "extra_sources": (REFUSED, [("a", "b")]),
    "use_libdevice": (UNUSED, True),
    "numba_debug": (SEEN, True),
}

#: Options whose keys are checked without compiling: the first writes to the user's cache directory, the next two fail
#: with these options alone, and after one compilation with the last, NVRTC 13.5 applies it to all others in this
#: process.
NOT_COMPILED = {"use_bundled_headers", "numba_debug", "device_float128", "restrict"}


def make_options(**fields: Any) -> Any:
    return core.ProgramOptions(**{"arch": "sm_90", "name": "k.cu", **fields})


def key(**changes: Any) -> bytes:
    arguments = {"code": SOURCE, "code_type": "c++", "options": make_options(), "target_type": "cubin", **changes}
    return make_program_cache_key(**arguments)


def compile_cxx(target_type: str, code: str = SOURCE, **fields: Any) -> bytes:
    """Returns NVRTC's output. Not by Program, which needs a driver for PTX, and renames a debugged default program."""
    chosen = make_options(**fields)
    rendered = chosen.as_bytes("nvrtc", target_type)
    _, program = nvrtc.nvrtcCreateProgram(code.encode(), chosen.name.encode(), 0, [], [])
    (status,) = nvrtc.nvrtcCompileProgram(program, len(rendered), rendered)
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, rendered
    suffix = target_type.upper()
    _, size = getattr(nvrtc, f"nvrtcGet{suffix}Size")(program)
    output = bytes(bytearray(b" " * size))
    getattr(nvrtc, f"nvrtcGet{suffix}")(program, output)
    nvrtc.nvrtcDestroyProgram(program)
    return output


COMPILE_SCRIPT = """
import sys, hashlib
from tests.cuda.keys import compile_cxx, key, make_options
target, fields = sys.argv[1], eval(sys.argv[2])
print(hashlib.sha256(compile_cxx(target, **fields)).hexdigest())
print(key(options=make_options(**fields), target_type=target).hex())
"""

KEY_SCRIPT = """
from tests.cuda.keys import key, make_options
print(key(name_expressions=["b", "a", b"a"], options=make_options(define_macro=["A", "B"])).hex())
"""


def run_script(script: str, *arguments: str, **environment: str) -> list[str]:
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": root, **environment}
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.split()
