"""Arguments of back ends, programs and the daemon: the default path, and which values are accepted.

Decides the default path, once, for all of them (``$LOCKCACHE_DIR``, else the user cache directory), and which values
are refused: each by an error that names the value.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from typing import TypeVar

_T = TypeVar("_T")

__all__ = [
    "VARIABLES",
    "coerce_choice",
    "coerce_group",
    "coerce_key_file",
    "coerce_seconds",
    "coerce_switch",
    "configured_cap",
    "default_cap",
    "default_path",
    "resolve_path",
    "unknown_variables",
]

# From its making on, until a program or an operator states another.
_DEFAULT_CAP_BYTES = 10 * 10**9

#: The variables that programs obey, and what each states.
VARIABLES = {
    "LOCKCACHE_DIR": "the directory of a program that names none; default: lockcache in the user cache directory",
    "LOCKCACHE_MAX_SIZE": "the cap of a directory where the program states none, such as 10G; below an operator's",
    "LOCKCACHE_POLICY": "what is evicted first: cost, in a directory that has the usual lru",
    "LOCKCACHE_GROUP": "the group that shares the directory: a name or number, or 1 for the directory's own",
    "LOCKCACHE_SIGNING_KEY_FILE": "the file of keys to sign and verify with",
    "LOCKCACHE_SUMMARY": "1: a line on stderr at a program's end: hits, compilations, seconds saved",
}
# Of the daemon in addition, which has a variable for each of its settings.
_OTHERS = tuple(
    f"LOCKCACHE_{name}"
    for name in ("ALIVE_FILE", "FLOOR", "INTERVAL", "JSON", "LAYOUT", "LOW_WATERMARK", "MAX_AGE", "MAX_ENTRIES",
                 "METRICS", "METRICS_FILE", "MIN_FREE", "SCRUB_RATE", "SETTLE", "STANDBY", "TOTAL")
)  # fmt: skip

_GROUP_WORDS = {"": False, "0": False, "no": False, "off": False, "false": False,
                "1": True, "yes": True, "on": True, "true": True}  # fmt: skip


def default_path() -> str:
    """``$LOCKCACHE_DIR`` if that is set and not empty, else ``lockcache`` in the user cache directory."""
    configured = os.environ.get("LOCKCACHE_DIR")
    if configured:
        return configured
    import platformdirs  # not needed by anybody who names a directory

    return platformdirs.user_cache_dir("lockcache", appauthor=False)


def unknown_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables named ``LOCKCACHE_...`` that nothing obeys, each with the likeliest one meant."""
    import difflib  # for operators' commands only

    prefix = "LOCKCACHE_"
    known = [name.removeprefix(prefix) for name in (*VARIABLES, *_OTHERS)]
    found = {}
    for name in sorted(environment):
        own = name.removeprefix(prefix)
        if own != name and own not in known:
            close = difflib.get_close_matches(own, known, 1)  # without what all of them have in common
            found[name] = prefix + close[0] if close else ""
    return found


def default_cap(path: object) -> int | None:
    """Returns the default directory's cap in bytes; ``None`` where ``path`` or ``$LOCKCACHE_DIR`` names another."""
    return None if path is not None or os.environ.get("LOCKCACHE_DIR") else _DEFAULT_CAP_BYTES


def configured_cap() -> int | None:
    """Returns the cap in ``$LOCKCACHE_MAX_SIZE``, or ``None``. Raises :class:`ValueError` naming the variable."""
    text = os.environ.get("LOCKCACHE_MAX_SIZE")
    if not text:
        return None
    from lockcache.sizes import parse_size  # 3 ms, which a program that states its cap must not wait for

    try:
        return parse_size(text)
    except ValueError as error:
        raise ValueError(f"LOCKCACHE_MAX_SIZE: {error}") from None


def coerce_choice(variable: str, accepted: Sequence[_T]) -> _T | None:
    """Returns which of the ``accepted`` words ``$variable`` has, or ``None`` where it is not set or empty.

    Raises :class:`ValueError` naming the variable.
    """
    text = os.environ.get(variable)
    if not text:
        return None
    for word in accepted:
        if text == word:
            return word
    raise ValueError(f"{variable}: {text!r} is not {' or '.join(map(str, accepted))}")


def resolve_path(path: str | os.PathLike[str] | None, file_name: str = "") -> str:
    """An absolute path for what a caller gave; for ``None`` the default, and in it ``file_name`` if there is one.

    A leading ``~`` or ``~user`` is that user's home: nothing else expands it in a unit file, a Kubernetes ``env:`` or
    Python. Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    given: object = os.path.join(default_path(), file_name) if path is None else path
    text = os.fspath(given) if isinstance(given, (str, os.PathLike)) else given
    if not isinstance(text, str):
        what = type(given).__name__ if text is given else f"one of {type(text).__name__}"
        raise TypeError(f"path must be a str, an os.PathLike of str, or None, got {what}")
    if not text or "\0" in text:
        raise ValueError(f"path must not be empty or contain NUL, got {text!r}")
    return _expand(text)


def _expand(path: str, what: str = "path") -> str:
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise ValueError(f"{what} {path!r} begins with ~ and names no user's home; for such a name write ./{path}")
    return os.path.abspath(expanded)


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
        return _expand(configured, "LOCKCACHE_SIGNING_KEY_FILE") if configured else ""
    if key_file is False:
        return ""
    text = os.fspath(key_file) if isinstance(key_file, (str, os.PathLike)) else key_file
    if not isinstance(text, str):
        raise TypeError(f"signing_key_file must be a str, an os.PathLike of str, False or None, got {key_file!r}")
    if not text or "\0" in text:
        raise ValueError(f"signing_key_file must not be empty or contain NUL, got {text!r}")
    return _expand(text, "signing_key_file")


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
