"""Arguments of back ends, programs and the daemon: the default path, and which values are accepted.

Decides the default path, once, for all of them (``$LOCKCACHE_DIR``, else the user cache directory), and which values
are refused: each by an error that names the value.
"""

from __future__ import annotations

import os
import threading

__all__ = ["coerce_group", "coerce_key_file", "coerce_seconds", "coerce_switch", "default_path", "resolve_path"]

_GROUP_WORDS = {"": False, "0": False, "no": False, "off": False, "false": False,
                "1": True, "yes": True, "on": True, "true": True}  # fmt: skip


def default_path() -> str:
    """``$LOCKCACHE_DIR`` if that is set and not empty, else ``lockcache`` in the user cache directory."""
    configured = os.environ.get("LOCKCACHE_DIR")
    if configured:
        return configured
    import platformdirs  # not needed by anybody who names a directory

    return platformdirs.user_cache_dir("lockcache", appauthor=False)


def resolve_path(path: str | os.PathLike[str] | None, file_name: str = "") -> str:
    """An absolute path for what a caller gave; for ``None`` the default, and in it ``file_name`` if there is one.

    ``~`` is not expanded, as in ``open``. Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    given: object = os.path.join(default_path(), file_name) if path is None else path
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(text, str):
        what = type(given).__name__ if text is given else f"one of {type(text).__name__}"
        raise TypeError(f"path must be a str, an os.PathLike of str, or None, got {what}")
    if not text or "\0" in text:
        raise ValueError(f"path must not be empty or contain NUL, got {text!r}")
    return os.path.abspath(text)


def coerce_seconds(name: str, seconds: object) -> float:
    """A time to wait, 0 or more. Raises :class:`TypeError` or :class:`ValueError` naming ``name`` and the value."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, got {seconds!r}")
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise ValueError(f"{name} must be between 0 and {threading.TIMEOUT_MAX:.0f}, got {seconds!r}")
    return float(seconds)


def coerce_switch(name: str, value: object) -> bool:
    """A yes or no. ``bool("no")`` is True and would go unnoticed: :class:`TypeError`."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def coerce_key_file(key_file: object) -> str:
    """The path of a file of keys, or empty for none. ``None``: $LOCKCACHE_SIGNING_KEY_FILE; False: none.

    Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    if key_file is None:
        configured = os.environ.get("LOCKCACHE_SIGNING_KEY_FILE")
        if configured == "":
            # Not as if it were not set: in a job script the variable that should have filled it is missing, and the
            # job would be served what nobody signed.
            raise ValueError("LOCKCACHE_SIGNING_KEY_FILE must not be empty: name a file of keys, or unset it for none")
        return configured or ""
    if key_file is False:
        return ""
    text = os.fspath(key_file) if isinstance(key_file, (str, os.PathLike)) else key_file
    if not isinstance(text, str):
        raise TypeError(f"signing_key_file must be a str, an os.PathLike of str, False or None, got {key_file!r}")
    if not text or "\0" in text:
        raise ValueError(f"signing_key_file must not be empty or contain NUL, got {text!r}")
    return os.path.abspath(text)


def coerce_group(group: object) -> bool | str:
    """With which group a directory is shared: none, its own, or one by name or number. ``None``: $LOCKCACHE_GROUP.

    In the variable, and for options of programs, ``1`` or ``yes`` is the directory's own and ``0`` or ``no`` none.
    Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    if group is None:
        group = os.environ.get("LOCKCACHE_GROUP", "")
        return _GROUP_WORDS.get(group.lower(), group)
    if not isinstance(group, (bool, str)):
        raise TypeError(f"group must be True, False, a group's name or number as a str, or None, got {group!r}")
    if isinstance(group, str) and (not group or "\0" in group):
        raise ValueError(f"group must not be empty or contain NUL, got {group!r}")
    return group if isinstance(group, bool) else _GROUP_WORDS.get(group.lower(), group)
