"""lockcache: a compile cache for GPU programs that many processes share.

Importing this imports nothing of CUDA and nothing of the command line tools.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from lockcache.arguments import obey_log_variable
from lockcache.doors import door
from lockcache.errors import (
    FormatError,
    LockcacheError,
    LockTimeoutError,
    NoDefaultDirError,
    PolicyError,
    ReentrantComputeError,
    SigningKeyError,
    UncacheableError,
    UnsafeCacheDirError,
)
from lockcache.memory import InMemoryProgramCache
from lockcache.resource import CacheStats, Entry, ProgramCacheResource
from lockcache.single_flight import Turn
from lockcache.sqlite import SQLiteProgramCache
from lockcache.tiered import TieredProgramCache

if sys.platform == "linux":
    from lockcache.filestream import FileStreamProgramCache
else:
    from lockcache.resource import (
        UnsupportedProgramCache as BundleProgramCache,
        UnsupportedProgramCache as FileStreamProgramCache,
        UnsupportedProgramCache as RemoteProgramCache,
    )

if TYPE_CHECKING:
    from lockcache.bundle import BundleProgramCache
    from lockcache.keys import make_program_cache_key
    from lockcache.remote import RemoteProgramCache

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
    "PolicyError",
    "ProgramCacheResource",
    "ReentrantComputeError",
    "RemoteProgramCache",
    "SQLiteProgramCache",
    "SigningKeyError",
    "TieredProgramCache",
    "Turn",
    "UncacheableError",
    "UnsafeCacheDirError",
    "make_program_cache_key",
]

__version__ = "0.2.0"

obey_log_variable()


# Keys are only needed by those who compile themselves, bundles and servers by few; everybody else is spared the import.
if not TYPE_CHECKING:
    __getattr__, _ = door(
        __name__,
        {
            "lockcache.keys": "make_program_cache_key",
            "lockcache.bundle": "BundleProgramCache",
            "lockcache.remote": "RemoteProgramCache",
        },
    )


def __dir__() -> list[str]:
    return sorted(__all__)
