"""Bundles of programs: a cache that reads one, and making, merging, packing and unpacking them.

A bundle is one file, for a parallel file system, an image, or a pipe to another host. Promises invariant 1 (a hit is
whole) in :class:`BundleProgramCache` and :func:`unpack_bundle`, and invariant 5 (death is free) in :func:`make_bundle`
and :func:`merge_bundles`: they write to a file that its caller puts in place when it is whole.

May use: the parts of the store in :mod:`lockcache.lowlevel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.bundle.cache import *
    from lockcache.bundle.compression import *
    from lockcache.bundle.gathering import *
    from lockcache.bundle.making import *
    from lockcache.bundle.merging import *
    from lockcache.bundle.promoting import *
    from lockcache.bundle.reading import *
    from lockcache.bundle.unpacking import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "cache": "BundleProgramCache",
            "compression": "DEFAULT_LEVEL LEVELS UNCOMPRESSED compressing is_compressed why_no_zstd",
            "gathering": "Choice Gathered describe_seeded",
            "making": "make_bundle",
            "merging": "Merged merge_bundles",
            "promoting": "Promoted promote",
            "reading": "Onlooker",
            "unpacking": "LARGEST_ENTRY_BYTES Acceptance Packed Unpacked unpack_bundle",
        },
    )
