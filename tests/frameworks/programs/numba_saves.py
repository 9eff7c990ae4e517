# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: one function of numba-cuda's that is compiled for hundreds of types. The types are numbers."""

from __future__ import annotations

import itertools
import sys

from numba import cuda, types
from numba_stub import compiled
from protocol import run

from lockcache.integrations.numba import install

is_installed = "own" not in sys.argv and install()

_NUMBERS = (types.int8, types.int16, types.int32, types.int64, types.uint8, types.uint16, types.uint32, types.float32)
SIGNATURES = [*itertools.product((types.float64[:],), *[(*_NUMBERS, types.uint64, types.float64)] * 3)]


@cuda.jit(cache=True)
def kernel(out, first, second, third):
    out[0] = first + second * third


def compile_kernel(number: int) -> bool:
    found = kernel.compile(SIGNATURES[number])
    return found.signature.args == SIGNATURES[number]


run(compile_kernel, compiled, is_installed)
