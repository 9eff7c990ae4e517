"""Layouts: recognizes a directory's program by its files, and lists and removes other programs' entries.

Promises that looking changes nothing, and one protocol (:class:`Files`) for pyptx's, Triton's and any tree of files:
list the entries, and remove one as its program's readers can bear it. lockcache's own layout and cuda.core's are the
store's (:mod:`lockcache.lowlevel`).
"""

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache.layouts.jax_import import *
    from lockcache.layouts.protocol import *
    from lockcache.layouts.pyptx import *
    from lockcache.layouts.recognition import *
    from lockcache.layouts.registry import *
    from lockcache.layouts.tree_scan import *
    from lockcache.layouts.triton_import import *
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "registry": "GUESTS SETTLE_SECONDS",
            "jax_import": "import_jax jax_entries",
            "protocol": "Files Held described evict_each measure",
            "pyptx": "PyptxEntries",
            "recognition": (
                "WrongLayoutError describe_danger guests_in has_entries kept_as recognise refuse_unless_cache"
            ),
            "tree_scan": "NotACacheError",
            "triton_import": "import_triton",
        },
    )
