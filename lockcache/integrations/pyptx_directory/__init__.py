# SPDX-License-Identifier: Apache-2.0
"""A pyptx directory as many processes use it: reading, writing, replacing, listing and evicting its entries.

Promises invariants 1 (a hit is whole) and 5 (death is free) for entries of three files in :class:`PyptxFiles`, for
the adapter (:mod:`lockcache.integrations.pyptx`) and for who keeps such a directory: the daemon and its layouts.

May use: staged.
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.integrations.pyptx_directory.files import PyptxFiles, guest_layout
    from lockcache.integrations.pyptx_directory.listing import SUFFIXES, changed_ns, look, parse_name, scan
    from lockcache.integrations.pyptx_directory.read import LARGEST_FILE_BYTES, READ, Loaded
    from lockcache.integrations.pyptx_directory.sidecar import has_digest, is_whole, unpack
else:
    __getattr__, __dir__ = door(__name__)
