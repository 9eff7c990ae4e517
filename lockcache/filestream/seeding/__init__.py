# SPDX-License-Identifier: Apache-2.0
"""Seeding: copies a bundle below a directory, once for all of its processes, and takes it away.

Promises invariant 3 (hard cap) across seeds that come, are replaced and go, if processes die meanwhile.
:mod:`lockcache.filestream.bundle` reads a seed, and :mod:`lockcache.filestream.seed_marks` marks the entries that were
deleted.

May use: accounting, admission, eviction, bundle, directory, policy, seed_marks, disk.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.filestream.seeding.attaching import attach_seed, detach_before_cap, detach_if_too_large, detach_seed
    from lockcache.filestream.seeding.attaching import replace_policy, seed_if_possible
    from lockcache.filestream.seeding.copying import largest_bundle_bytes

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
