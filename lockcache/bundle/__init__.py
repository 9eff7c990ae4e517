"""Bundles of programs: a cache that reads one, and making, listing, verifying and merging them.

A bundle is one file, for a parallel file system or an image. Promises invariant 1 (a hit is whole) in
:class:`BundleProgramCache`, and invariant 5 (death is free) in :func:`make_bundle` and :func:`merge_bundles`: they
write to a file that its caller puts in place when it is whole.

May use: archive, and the parts of the store in :mod:`lockcache.lowlevel`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.bundle.cache import *
    from lockcache.bundle.making import *
    from lockcache.bundle.merging import *
    from lockcache.bundle.promoting import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "cache": "BundleProgramCache",
            "making": "make_bundle",
            "merging": "Merged merge_bundles",
            "promoting": "Promoted promote",
        },
    )
