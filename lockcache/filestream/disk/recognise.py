"""Recognition of caches: decides, for programs that only inspect, whether there is a cache at a path.

A folder called ``lockcache``, such as in a checkout of this project, makes no cache. Nor are the directories of other
programs that a daemon keeps, in which lockcache has other files.
"""

from __future__ import annotations

import os
import re
import stat
from typing import Final

from lockcache.filestream.disk.layout import Layout

_SHARD: Final = re.compile(r"[0-9a-f]{2}", re.ASCII)


def is_cache(layout: Layout) -> bool:
    """Returns whether a program began a cache there. Raises :class:`OSError` for a directory that may not be listed."""
    return _is_there(layout.state) or _has_shards(layout.entries)


def _has_shards(entries: str) -> bool:
    """Returns whether ``entries/`` has shards, or nothing yet."""
    try:
        if not stat.S_ISDIR(os.lstat(entries).st_mode):
            return True  # something else is in its place, which opening the cache reports
        names = os.listdir(entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return not names or any(map(_SHARD.fullmatch, names))


def _is_there(path: str) -> bool:
    # Not os.path.exists, which takes a directory that may not be searched for an empty one.
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
