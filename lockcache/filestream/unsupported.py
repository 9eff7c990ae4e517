"""Stand-in for FileStreamProgramCache on other systems than Linux: says what is missing, and what works there.

Keeps ``import lockcache`` working everywhere, and the back ends that share nothing with other processes. What the store
rests on is Linux's: ``flock`` that falls with its holder, extended attributes of users, ``/proc``, calls by descriptor.
"""

from __future__ import annotations

import errno
import sys
from typing import Any, NoReturn

from lockcache.resource import ProgramCacheResource

__all__ = ["UnsupportedProgramCache"]


class UnsupportedProgramCache(ProgramCacheResource):
    """Stands for ``FileStreamProgramCache``, which works on Linux alone. Making one raises :class:`OSError`."""

    def __new__(cls, *_arguments: Any, **_named: Any) -> NoReturn:
        raise OSError(
            errno.ENOSYS,
            f"FileStreamProgramCache needs Linux (flock, extended attributes and /proc), and this is {sys.platform}: "
            "use SQLiteProgramCache for the programs of one process, or InMemoryProgramCache",
        )
