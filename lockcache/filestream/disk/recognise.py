"""Recognition of caches: decides for all who only inspect whether some program began one at a path.

A folder that is called ``lockcache``, as a checkout of this project has one, makes no cache, nor do the directories of
other programs that a daemon keeps, where lockcache has other files.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Final

from lockcache.filestream.disk.layout import Layout

_SHARD: Final = re.compile(r"[0-9a-f]{2}", re.ASCII)


def is_cache(layout: Layout) -> bool:
    """Whether some program began a cache there. Raises :class:`OSError` for what may not be looked into."""
    return _is_there(layout.format) or _is_there(layout.usage) or _has_shards(layout.entries)


def _has_shards(entries: str) -> bool:
    """Whether there are shards in ``entries/``, or nothing yet."""
    try:
        if not stat.S_ISDIR(os.lstat(entries).st_mode):
            return True  # something was put in its place; who opens the cache says what
        names = os.listdir(entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not names or any(map(_SHARD.fullmatch, names))


def _is_there(path: str) -> bool:
    # Not os.path.exists, which takes a directory that may not be searched for one where nothing is.
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
