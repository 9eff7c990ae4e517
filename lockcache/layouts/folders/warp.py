# SPDX-License-Identifier: Apache-2.0
"""A Warp cache (``$WARP_CACHE_PATH``, ``~/.cache/warp``): a module's directory ``wp_*`` is one entry.

It is in the root or, since Warp 1.13, in the folder of a Warp's version. Warp adds files of other devices to a finished
module. It asks for nothing but what it opens, but raises if a module is removed between the two.
"""

from __future__ import annotations

import os
import re
from typing import Final

from lockcache.layouts.folders.scan import EntryFolder, Program, has_one, scan

_HASH: Final = re.compile(r"_[0-9a-f]{7}$", re.ASCII)
_ARCH: Final = re.compile(r"\.(sm_?\d+\w*)\.", re.ASCII)
_VERSION: Final = r"\d+\.\d+[\w.+-]*"


def _describe(_: int, module: EntryFolder) -> tuple[str | None, str | None]:
    arch = next((match[1] for name in module.files if (match := _ARCH.search(name))), None)
    return arch, _HASH.sub("", os.path.basename(module.found.name).removeprefix("wp_"))


#: Warp's modules.
WARP: Final = Program(
    name="warp",
    homes=((), (_VERSION,)),
    folder=r"wp_[\w.-]+",
    # A module is compiled in a folder with such a name, which is renamed into place.
    unfinished=r"(?:.*/)?wp_[\w.-]+_p\d+_t\d+",
    binaries=(".o", ".ptx", ".cubin"),
    metadata=(".meta",),
    describe=_describe,
)


def is_warp(root_fd: int) -> bool:
    """Returns whether modules that Warp compiled are here."""
    return any(has_one(module.files, WARP.metadata) for module in scan(root_fd, WARP))
