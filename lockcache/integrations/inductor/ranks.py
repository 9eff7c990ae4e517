# SPDX-License-Identifier: Apache-2.0
"""Ranks of a distributed program, which talk to each other while they compile."""

from __future__ import annotations

__all__ = ["has_ranks", "would_hang"]


def has_ranks() -> bool:
    """Returns whether this is a rank of a distributed program.

    A rank that waited for another one's graph would keep that waiting, until the lease timeout.
    """
    from torch import distributed

    return bool(distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1)


def would_hang() -> bool:
    """Returns whether a rank hangs whose graph is not found where another rank's is.

    It does where ranks agree on a decision that only those take which compile, unless they agree on hits and misses
    too; torch has had that since 2.15.
    """
    from torch._functorch import config

    agrees = getattr(config, "_sync_decision_cross_ranks", False)
    return bool(agrees and not getattr(config, "_sync_cache_decision_cross_ranks", False) and has_ranks())
