# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for the back ends that need Linux, where there is none."""

from __future__ import annotations

import errno
import sys
from typing import Any, NoReturn

from lockcache.resource.interface import ProgramCacheResource


class UnsupportedProgramCache(ProgramCacheResource):
    """Stands for the back ends that work on Linux alone. Making one raises :class:`OSError`."""

    # What the store rests on is Linux's: flock that falls with its holder, extended attributes, /proc, calls by
    # descriptor. Importing lockcache works everywhere, and so do the back ends that share nothing.
    def __new__(cls, *_arguments: Any, **_named: Any) -> NoReturn:
        raise OSError(
            errno.ENOSYS,
            "FileStreamProgramCache, BundleProgramCache and RemoteProgramCache need Linux (flock, extended attributes "
            f"and /proc), and this is {sys.platform}: use SQLiteProgramCache for the programs of one process, or "
            "InMemoryProgramCache",
        )


BundleProgramCache = FileStreamProgramCache = RemoteProgramCache = UnsupportedProgramCache
