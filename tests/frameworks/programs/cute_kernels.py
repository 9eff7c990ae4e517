# SPDX-License-Identifier: Apache-2.0
"""Kernels in CuTe DSL, which reads their source. Imported by programs of users."""

from __future__ import annotations

import cutlass
import language_helper
from cutlass import cute

MASK = 3


@cute.kernel
def kernel(n: cutlass.Int32, steps: cutlass.Constexpr) -> None:
    thread, _, _ = cute.arch.thread_idx()
    x = thread + n
    for i in cutlass.range_constexpr(steps):
        x = language_helper.scaled(x, 7) + i if x % (i + MASK) == n else x ^ (n + i + language_helper.STEP)
    cute.printf("{}", x)


@cute.jit
def host(n: cutlass.Int32, steps: cutlass.Constexpr) -> None:
    kernel(n, steps).launch(grid=(1, 1, 1), block=(32, 1, 1))
