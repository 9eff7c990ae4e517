# SPDX-License-Identifier: Apache-2.0
"""Layouts: recognizes a directory's program by its files, and lists and removes other programs' entries.

Promises that looking changes nothing, and one protocol (:class:`Files`) for pyptx's, Triton's and any tree of files:
list the entries, and remove one as its program's readers can bear it. lockcache's own layout and cuda.core's are the
store's (:mod:`lockcache.lowlevel`).
"""

# mypy: implicit-reexport

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.layouts.first_room import with_room
    from lockcache.layouts.jax_import import import_jax, jax_entries
    from lockcache.layouts.protocol import Files, Held, described, evict_each, measure
    from lockcache.layouts.pyptx import PyptxEntries
    from lockcache.layouts.recognition import WITH_ALL_IN_THEM, WrongLayoutError, describe_danger, guests_in
    from lockcache.layouts.recognition import has_entries, kept_as, recognise, refuse_parts, refuse_unless_cache
    from lockcache.layouts.registry import GUESTS, SETTLE_SECONDS, Guest
    from lockcache.layouts.tree_scan import NotACacheError
    from lockcache.layouts.triton_import import import_triton
else:
    __getattr__, __dir__ = door(__name__)
