# SPDX-License-Identifier: Apache-2.0
"""The default directory: ``$LOCKCACHE_DIR``, else a folder in the user cache directory.

Decides, once for the back ends, programs and the daemon, where that is, and what is said where it is nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from lockcache.errors import NoDefaultDirError

__all__ = ["NOWHERE", "default_path", "expand_home", "user_cache_dir", "why_homeless"]

#: The path of a cache that keeps nothing: below a file, so that nothing is there and nothing can be made.
NOWHERE: Final = f"{os.devnull}/lockcache"


def default_path() -> str:
    """Returns ``$LOCKCACHE_DIR`` if that is set and not empty, else ``lockcache`` in the user cache directory.

    Raises :class:`NoDefaultDirError` as :func:`user_cache_dir` does, and where the variable begins with ``~`` and there
    is no such home: one configuration serves containers that have a home and others that have none.
    """
    stated = os.environ.get("LOCKCACHE_DIR")
    if not stated:
        return user_cache_dir("lockcache", "set LOCKCACHE_DIR or name a directory")
    path = expand_home(stated)
    if not path:
        raise NoDefaultDirError(f"LOCKCACHE_DIR is {stated!r}, and {why_homeless(stated)}: set it to an absolute path")
    return path


def expand_home(path: str) -> str:
    """Returns an absolute path for one that may begin with ``~`` or ``~user``; empty if there is no such home."""
    if not path.startswith("~"):
        return os.path.abspath(path)
    expanded = os.path.expanduser(path)
    return os.path.abspath(expanded) if os.path.isabs(expanded) else ""


def why_homeless(path: str = "~", variables: Sequence[str] = ("HOME",)) -> str:
    """Returns why the ``~`` or ``~user`` with which ``path`` begins leads to no absolute path."""
    user = path[1:].partition("/")[0]
    if user:
        return f"there is no user {user!r} with a home directory"
    wrong = [name for name in variables if os.environ.get(name, "").strip() and not os.path.isabs(os.environ[name])]
    return f"{wrong[0]} is {os.environ[wrong[0]]!r}, not an absolute path" if wrong else "no home directory"


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
        raise NoDefaultDirError(f"{why_homeless(variables=('XDG_CACHE_HOME', 'HOME'))}: {remedy}")
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
