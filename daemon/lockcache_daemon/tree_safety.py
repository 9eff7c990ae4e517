"""Which directories are never kept as ``files``, whoever asks: the ones that somebody lives in.

Decides before anything is made or looked at in them, and says why. What lies deeper is refused by :mod:`.tree_scan`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import platformdirs

from lockcache_daemon.tree_scan import PRECIOUS, NotACacheError

__all__ = ["refuse_unless_cache"]

_SYSTEM: Final = (
    "/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/media", "/mnt", "/opt", "/proc",
    "/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/var", "/var/cache", "/var/lib", "/var/log", "/var/tmp",
)  # fmt: skip
# What lies below them is the system's, all of it.
_SYSTEM_TREES: Final = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
# But memory that programs share is where some keep a cache.
_SHARED_MEMORY: Final = "/dev/shm"


def refuse_unless_cache(root: str) -> None:
    """Raises :class:`NotACacheError` for a directory that holds more than a cache could."""
    real = Path(os.path.realpath(root))
    why = _why_not(real)
    if why:
        raise NotACacheError(
            f"{root} {why}: --layout files evicts any file in it. Name the directory that a program keeps for nothing "
            "but its cache"
        )


def _why_not(real: Path) -> str:
    if str(real) in _SYSTEM or _is_in_a_system_tree(real):
        return "is the system's"
    if real.parent == Path("/home"):
        return "is a home directory"
    for place, name in _homes():
        if real == place or real in place.parents:
            return f"is {name}, or holds it"
    for precious in sorted(PRECIOUS):
        if os.path.lexists(real / precious):
            return f"holds {precious}"
    return ""


def _is_in_a_system_tree(real: Path) -> bool:
    if real.is_relative_to(_SHARED_MEMORY):
        return real == Path(_SHARED_MEMORY)
    return any(real.is_relative_to(tree) for tree in _SYSTEM_TREES)


def _homes() -> list[tuple[Path, str]]:
    """Where people, and all of their programs together, keep things."""
    home = Path(os.path.realpath(os.path.expanduser("~")))
    dirs = platformdirs.PlatformDirs()
    shared = (dirs.user_cache_path, dirs.user_config_path, dirs.user_data_path, dirs.user_state_path)
    return [
        (home, "your home directory"),
        *((Path(os.path.realpath(path)), "where all programs of a user keep files") for path in shared),
    ]
