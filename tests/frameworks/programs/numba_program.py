# SPDX-License-Identifier: Apache-2.0
"""A program of a user's: compiles with numba-cuda and NVVM. The device is stubbed, so that nothing is launched."""

from __future__ import annotations

import functools
import sys

from numba import cuda, types
from numba.cuda.core import caching
from numba_stub import compiled
from protocol import run

_door = caching.IndexDataCacheFile
if "old-door" in sys.argv:
    del caching.IndexDataCacheFile

from lockcache.integrations.numba import install  # noqa: E402

is_installed = "own" not in sys.argv and install()
caching.IndexDataCacheFile = _door


@functools.cache
def _kernel(constant):
    def compute(out):
        out[cuda.grid(1)] = constant

    def fail(out):
        out.no_such_attribute = constant

    return cuda.jit(cache=True)(compute if constant > 0 else fail)


def compile_kernel(number: int) -> bool:
    constant = number // 2 * 7919 + 1009
    kernel = _kernel(constant)
    signature = ((types.int64 if number % 2 else types.int32)[:],)
    found = kernel.compile(signature)
    is_plain = "plain" in sys.argv  # what is found is taken, and not looked into, which takes longer than to find it
    return found.signature.args == signature and (is_plain or str(constant) in kernel.inspect_asm(signature))


run(compile_kernel, compiled, is_installed)
