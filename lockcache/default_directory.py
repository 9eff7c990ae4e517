"""The default directory: ``$LOCKCACHE_DIR``, else a folder in the user cache directory.

Decides, once for the back ends, programs and the daemon, where that is, and what is said where it is nowhere.
"""

from __future__ import annotations

import os
from typing import Final

from lockcache.errors import NoDefaultDirError

__all__ = ["NOWHERE", "default_path", "user_cache_dir"]

#: The path of a cache that keeps nothing: below a file, so that nothing is there and nothing can be made.
NOWHERE: Final = f"{os.devnull}/lockcache"


def default_path() -> str:
    """Returns ``$LOCKCACHE_DIR`` if that is set and not empty, else ``lockcache`` in the user cache directory.

    Raises :class:`NoDefaultDirError` as :func:`user_cache_dir` does.
    """
    return os.environ.get("LOCKCACHE_DIR") or user_cache_dir("lockcache", "set LOCKCACHE_DIR or name a directory")


def user_cache_dir(program: str, remedy: str) -> str:
    """Returns the folder of a program in the user cache directory.

    Raises :class:`NoDefaultDirError`, which says ``remedy``, where there is no home directory, or the folder cannot be
    made there: containers run as any uid, with ``HOME=/`` or none.
    """
    import platformdirs  # not needed by anybody who names a directory

    try:
        path = platformdirs.user_cache_dir(program, appauthor=False)
    except RuntimeError:
        path = ""
    if not os.path.isabs(path):  # "~/.cache" of older versions of platformdirs
        raise NoDefaultDirError(f"no home directory: {remedy}")
    if not _may_be_made(path):
        raise NoDefaultDirError(f"{path} cannot be made: {remedy}")
    return path


def _may_be_made(path: str) -> bool:
    """Returns whether a folder is there, or the folder in which it would be made may be written."""
    if os.path.lexists(path):
        return True
    path = os.path.dirname(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return os.access(path, os.W_OK | os.X_OK)
