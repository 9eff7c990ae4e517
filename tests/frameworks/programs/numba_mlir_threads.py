# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: threads that compile the same kernels at once, each with objects of its own.

``launch``: as the first launch of a kernel does, instead of with ``compile``.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import numba_cuda_mlir.cuda.experimental  # noqa: F401 - it imports this at a first decoration, where threads race
import numpy as np
from numba_cuda_mlir import cuda, types
from numba_mlir_stub import compiled
from protocol import run

from lockcache.integrations.numba_mlir import install

is_installed = install()


def _kernel(constant):
    @cuda.jit(cache=True)
    def compute(out):
        out[cuda.grid(1)] = constant

    return compute


def _compiles(constant: int) -> bool:
    kernel = _kernel(constant)
    if "launch" in sys.argv:
        return kernel._compile([np.zeros(4, np.int64)])[0].startswith(b"\x7fELF")
    return str(constant) in kernel.compile((types.int64[:],)).metadata["ptx"]


def compile_kernel(number: int) -> bool:
    constants = [1009 + number, 7919 + number]
    with ThreadPoolExecutor(6) as threads:
        return all(threads.map(_compiles, constants * 3))


run(compile_kernel, compiled, is_installed)
