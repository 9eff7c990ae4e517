# SPDX-License-Identifier: Apache-2.0
"""The kernel that CuTe DSL traces. Imported only where CuTe DSL is, which reads it with its decorators."""

from __future__ import annotations

import cutlass
from cutlass import cute


@cute.kernel  # type: ignore[untyped-decorator]
def compute(out: cute.Tensor, factor: cutlass.Constexpr, salt: cutlass.Constexpr) -> None:
    """Store ``i * factor + salt`` at each ``i``; constants are part of the program."""
    i, _, _ = cute.arch.thread_idx()
    out[i] = i * factor + salt


@cute.jit  # type: ignore[untyped-decorator]
def launch(out: cute.Tensor, factor: cutlass.Constexpr, salt: cutlass.Constexpr, size: cutlass.Constexpr) -> None:
    """Launch it with one thread for each of ``size`` elements."""
    compute(out, factor, salt).launch(grid=(1, 1, 1), block=(size, 1, 1))
