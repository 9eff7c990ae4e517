"""Where a cache lives when the caller does not say, and what may be said.

Decides the default path, once, for the library, the daemon and the commands: ``$LOCKCACHE_DIR``, else the user cache
directory.
"""

from __future__ import annotations

import os

__all__ = ["default_path", "resolve_path"]


def default_path() -> str:
    """``$LOCKCACHE_DIR`` if that is set and not empty, else ``lockcache`` in the user cache directory."""
    configured = os.environ.get("LOCKCACHE_DIR")
    if configured:
        return configured
    import platformdirs  # not needed by anybody who names a directory

    return platformdirs.user_cache_dir("lockcache", appauthor=False)


def resolve_path(path: str | os.PathLike[str] | None) -> str:
    """An absolute path for what a caller gave; ``None`` is :func:`default_path`. ``~`` is not expanded, as in ``open``.

    Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    given = default_path() if path is None else path
    if not isinstance(given, (str, os.PathLike)):
        raise TypeError(f"path must be a str, an os.PathLike of str, or None, got {type(given).__name__}")
    text = os.fspath(given)
    if not isinstance(text, str):
        raise TypeError(f"path must be a str, an os.PathLike of str, or None, got one of {type(text).__name__}")
    if not text or "\0" in text:
        raise ValueError(f"path must not be empty or contain NUL, got {text!r}")
    return os.path.abspath(text)
