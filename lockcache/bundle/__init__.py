# SPDX-License-Identifier: Apache-2.0
"""Bundles of programs: a cache that reads one, and making, merging, packing and unpacking them.

A bundle is one file, for a parallel file system, an image, or a pipe to another host. Promises invariant 1 (a hit is
whole) in :class:`BundleProgramCache` and :func:`unpack_bundle`, and invariant 5 (death is free) in :func:`make_bundle`
and :func:`merge_bundles`: they write to a file that its caller puts in place when it is whole.

May use: the parts of the store in :mod:`lockcache.lowlevel`.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.bundle.cache import BundleProgramCache
    from lockcache.bundle.compression import DEFAULT_LEVEL, LEVELS, UNCOMPRESSED, compressing, is_packed
    from lockcache.bundle.compression import why_no_zstd
    from lockcache.bundle.gathering import Choice, Gathered, describe_seeded
    from lockcache.bundle.making import make_bundle
    from lockcache.bundle.merging import Merged, merge_bundles
    from lockcache.bundle.promoting import Promoted, promote
    from lockcache.bundle.reading import Onlooker
    from lockcache.bundle.unpacking import LARGEST_ENTRY_BYTES, Acceptance, Packed, Unpacked, unpack_bundle

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
