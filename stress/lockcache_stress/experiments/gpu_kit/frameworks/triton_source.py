# SPDX-License-Identifier: Apache-2.0
"""The source that Triton compiles. Imported only where Triton is, whose types the annotations name."""

from __future__ import annotations

import triton.language as tl


def compute(out, n, FACTOR: tl.constexpr, SALT: tl.constexpr, SIZE: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: N803
    """Store ``i * FACTOR + SALT`` at each ``i`` below ``n``; constants are part of the key."""
    i = tl.arange(0, SIZE)
    tl.store(out + i, i * FACTOR + SALT, mask=i < n)
