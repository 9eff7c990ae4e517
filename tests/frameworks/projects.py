# SPDX-License-Identifier: Apache-2.0
"""Projects that frameworks compile in the tests of their keys: one for each framework, a few files each."""

from __future__ import annotations

_NUMBA = """
import os
from numba import cuda
import helper
FACTOR = 3001
@cuda.jit(cache=True, fastmath=helper.FAST)
def kernel(out):
    out[0] = FACTOR + 0
    out[1] = helper.scaled(out[2])
    out[3] = helper.OTHER
"""
_NUMBA_HELPER = """
from numba import cuda
FAST = False
OTHER = 7001
@cuda.jit(device=True)
def scaled(x):
    return x ^ 5001
"""
_PYTHON = """
import {module}
import helper
FACTOR = {constant}(3001)
{decorator}
def kernel({p}):
{body}
"""

#: The files of a project: a constant of the kernel's module, 3001; a device function of another module, 5001; and where
#: a framework lets a kernel name it, a constant of another module, 7001.
PROJECTS: dict[str, dict[str, str]] = {
    "cupy": {
        "kernel.cu": """
#include "scale.h"
#define FACTOR 3001
extern "C" __global__ void kernel(long long *p) { p[0] = FACTOR; p[1] = scaled(p[2]); p[3] = OTHER; }
""",
        "inc/scale.h": "#define OTHER 7001\n__device__ long long scaled(long long x) { return x ^ 5001; }\n",
        "options": "-Iinc",
    },
    "numba": {
        "kernel.py": _NUMBA,
        "helper.py": _NUMBA_HELPER,
    },
    "numba_mlir": {
        "kernel.py": _NUMBA.replace("numba", "numba_cuda_mlir"),
        "helper.py": _NUMBA_HELPER.replace("numba", "numba_cuda_mlir"),
    },
    "warp": {
        "kernel.py": """
import warp as wp
import helper
FACTOR = wp.constant(3001)
wp.set_module_options({"fast_math": False})
@wp.struct
class Pair:
    first: wp.int32
    second: wp.int32
@wp.kernel
def kernel(out: wp.array(dtype=wp.int32)):
    pair = Pair()
    out[0] = FACTOR
    out[1] = helper.scaled(0)
    out[2] = helper.OTHER
""",
        "helper.py": "import warp as wp\nOTHER = wp.constant(7001)\n"
        "@wp.func\ndef scaled(x: int):\n    return x + 5001\n",
    },
    "triton": {
        "kernel.py": """
import triton
import triton.language as tl
import helper
OPTIONS = {"num_warps": 4}
FACTOR = tl.constexpr(3001)
@triton.jit
def kernel(p):
    tl.store(p, FACTOR)
    tl.store(p + 1, helper.scaled(tl.load(p + 2)))
    tl.store(p + 3, helper.OTHER)
""",
        "helper.py": """
import triton
import triton.language as tl
OTHER = tl.constexpr(7001)
@triton.jit
def scaled(x):
    return x ^ 5001
""",
    },
    "jax": {
        "kernel.py": """
import jax.numpy as jnp
import helper
OPTIONS = {}
FACTOR = 3001
def kernel(x):
    return x + jnp.array([FACTOR, helper.scaled(0), helper.OTHER, 0], jnp.int32)
""",
        "helper.py": "OTHER = 7001\ndef scaled(x):\n    return x + 5001\n",
    },
}
