# SPDX-License-Identifier: Apache-2.0
"""A stub of the device for numba-cuda-mlir, with which kernels compile, and a count of compilations."""

from __future__ import annotations

from types import SimpleNamespace

from numba_cuda_mlir import mlir_compiler, tools
from numba_cuda_mlir.numba_cuda.cudadrv import devices

compiled: list[int] = []
#: Those of kernels alone, without their device functions.
kernels: list[int] = []
tools._cached_cc = (9, 0)
_device = SimpleNamespace(compute_capability=(9, 0), id=0, uuid="GPU-0")
devices._runtime.get_or_create_context = lambda *_: SimpleNamespace(device=_device, id=0)
_compile = mlir_compiler.compile_mlir


def _counted(*args, targetoptions, **options):
    compiled.append(1)
    if not targetoptions.get("device"):
        kernels.append(1)
    return _compile(*args, targetoptions=targetoptions, **options)


mlir_compiler.compile_mlir = _counted
