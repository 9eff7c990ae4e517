# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles with cuTile and its compiler for sm_90."""

from __future__ import annotations

import hashlib
import io
import os
import sys

if "old-door" in sys.argv:
    os.environ["CUDA_TILE_CACHE_DIR"] = "off"  # so that nothing else asks for what is missing below

import cuda.tile as ct
from cuda.tile import _compile, compilation
from protocol import run

compiled = []
_compile_cubin = _compile.compile_cubin


def _counted(*args, **options):
    compiled.append(1)
    return _compile_cubin(*args, **options)


_compile.compile_cubin = _counted
if "old-door" in sys.argv:
    del _compile.evict_lru

from lockcache.integrations.cutile import install  # noqa: E402

is_installed = "own" not in sys.argv and install()

from cutile_kernels import kernel  # noqa: E402

digests = []


def _array() -> compilation.ArrayConstraint:
    return compilation.ArrayConstraint(
        dtype=ct.float32,
        ndim=1,
        index_dtype=ct.int32,
        stride_lower_bound_incl=0,
        alias_groups=(),
        may_alias_internally=False,
        stride_constant=(1,),
        stride_divisible_by=(1,),
        shape_divisible_by=(16,),
        base_addr_divisible_by=16,
    )


def compile_kernel(number: int) -> bool:
    written = io.BytesIO()
    convention = compilation.CallingConvention.cutile_python_v1()
    signature = compilation.KernelSignature([_array(), _array(), 128, abs(number) + 2], convention)
    arch = "sm_90" if number >= 0 else "sm_1"
    compilation.export_kernel(kernel, [signature], written, gpu_code=arch, output_format="cubin")
    digests.append(hashlib.sha256(written.getvalue()).hexdigest())
    return len(written.getvalue()) > 500


run(compile_kernel, compiled, is_installed)
