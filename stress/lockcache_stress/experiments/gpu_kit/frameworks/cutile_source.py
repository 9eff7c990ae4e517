# SPDX-License-Identifier: Apache-2.0
"""The kernel that cuTile compiles. Imported only where cuTile is, which reads the source of its functions."""

from __future__ import annotations

import cuda.tile as ct


def compute(out, factor: ct.Constant[int], salt: ct.Constant[int], size: ct.Constant[int]):  # type: ignore[no-untyped-def]
    """Store ``i * factor + salt`` at each ``i``; constants are part of the key."""
    ct.store(out, index=(0,), tile=ct.arange(size, dtype=ct.int32) * factor + salt)
