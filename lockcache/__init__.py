# SPDX-License-Identifier: Apache-2.0
"""lockcache: a compile cache for GPU programs that many processes share.

Importing this imports nothing of CUDA and nothing of the command line tools.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lockcache.arguments import obey_log_variable
from lockcache.doors import door
from lockcache.fork import unforked

if TYPE_CHECKING:
    from lockcache.bundle import BundleProgramCache
    from lockcache.errors import (
        FormatError,
        LockcacheError,
        LockTimeoutError,
        NoDefaultDirError,
        ReentrantComputeError,
        SealedError,
        SigningKeyError,
        UncacheableError,
        UnsafeCacheDirError,
    )
    from lockcache.composition import FileStreamProgramCache
    from lockcache.keys import make_program_cache_key
    from lockcache.memory import InMemoryProgramCache
    from lockcache.remote import RemoteProgramCache
    from lockcache.resource import CacheStats, Entry, ProgramCacheResource
    from lockcache.serving import seal, unseal, unsealed
    from lockcache.single_flight import Turn
    from lockcache.sqlite import SQLiteProgramCache
    from lockcache.tiered import TieredProgramCache

__all__ = [
    "BundleProgramCache",
    "CacheStats",
    "Entry",
    "FileStreamProgramCache",
    "FormatError",
    "InMemoryProgramCache",
    "LockTimeoutError",
    "LockcacheError",
    "NoDefaultDirError",
    "ProgramCacheResource",
    "ReentrantComputeError",
    "RemoteProgramCache",
    "SQLiteProgramCache",
    "SealedError",
    "SigningKeyError",
    "TieredProgramCache",
    "Turn",
    "UncacheableError",
    "UnsafeCacheDirError",
    "make_program_cache_key",
    "seal",
    "unseal",
    "unsealed",
]

__version__ = "0.3.0"

obey_log_variable()


if sys.platform != "linux":
    from lockcache.resource.unsupported import BundleProgramCache, FileStreamProgramCache, RemoteProgramCache

# Each name is imported when it is asked for: who needs only some is spared the others.
if not TYPE_CHECKING:
    _find, _ = door(__name__)

    def __getattr__(name: str) -> Any:
        # Its own modules ask for each other as they are imported: with the lock, two would wait for each other.
        if name not in __all__:
            return _find(name)
        with unforked:
            return _find(name)


def __dir__() -> list[str]:
    return sorted(__all__)
