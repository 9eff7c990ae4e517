# SPDX-License-Identifier: Apache-2.0
"""Leases of compile-once, held by a test."""

from __future__ import annotations

from weakref import WeakValueDictionary

from lockcache.filestream.compile_once import LeaseTurn
from lockcache.filestream.disk import Layout


def take_lease(layout: Layout, name: str, generation: int = 0, label: str = "") -> LeaseTurn | None:
    """Returns a turn that holds the lease, or ``None`` if somebody else does. Raises as :meth:`LeaseTurn.take`."""
    turn = LeaseTurn(layout, name, WeakValueDictionary())
    turn.generation = generation
    return turn if turn.take(label) else None
