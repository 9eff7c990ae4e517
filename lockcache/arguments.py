# SPDX-License-Identifier: Apache-2.0
"""Arguments of back ends, programs and the daemon: the default path, and which values are accepted.

Decides which values are refused: each by an error that names the value.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeVar

from lockcache.default_directory import NOWHERE, default_path, expand_home, why_homeless
from lockcache.errors import NoDefaultDirError

_T = TypeVar("_T")

# From its making on, until a program or an operator states another.
_DEFAULT_CAP_BYTES = 10 * 10**9

#: The variables that programs obey, with their meanings.
VARIABLES = {
    "LOCKCACHE_DIR": "the directory for programs that specify none; default: lockcache in the user cache directory",
    "LOCKCACHE_MAX_SIZE": "the size limit of a directory, such as 10G, unless the program or an operator sets one",
    "LOCKCACHE_POLICY": "lru: evict the least recently used first, if the directory has the default, value",
    "LOCKCACHE_SEED": "the bundle that a directory starts from, unless the program or an operator names one",
    "LOCKCACHE_GROUP": "the group that shares the directory: a name or number, or 1 for the directory's own",
    "LOCKCACHE_SIGNING_KEY_FILE": "the file with the keys that sign and verify entries",
    "LOCKCACHE_JAX": "1: JAX stores its programs on lockcache",
    "LOCKCACHE_INSTALL": "frameworks whose adapters are installed when they are imported; lockcache run sets it",
    "LOCKCACHE_RUN": "the file in which processes count their hits and compilations; lockcache run sets it",
    "LOCKCACHE_TRACE": "the file of the timeline of a run; lockcache run --trace sets it",
    "LOCKCACHE_READONLY": "1: directories are only read, unless the program sets read_only=False",
    "LOCKCACHE_COMPILE_ONCE": "1: of the processes that miss a key, one compiles, unless the program sets compile_once",
    "LOCKCACHE_LEASE_TIMEOUT": "how long others wait for a compiling process, such as 5m, unless the program sets it",
    "LOCKCACHE_COMPILE_SERVER": "auto, on or off: a server that compiles headers once; lockcache run sets auto",
    "LOCKCACHE_DISABLE": "1: every cache is empty and stores nothing",
    "LOCKCACHE_RECACHE": "1: each process compiles each kernel again, once, and replaces the stored entry",
    "LOCKCACHE_REMOTE": "the server behind every directory that is written to, such as redis://host",
    "LOCKCACHE_MANIFEST": "the file that lists the keys of a job, to be fetched from that server at the next start",
    "LOCKCACHE_SEALED": "log, warn or error: report or refuse each compilation after warm-up",
    "LOCKCACHE_SEAL_AFTER": "how long warm-up is, such as 10m, or manifest: until LOCKCACHE_MANIFEST was fetched",
    "LOCKCACHE_SEAL_MANIFEST": "the file that lists the keys that a sealed process missed",
    "LOCKCACHE_TELEMETRY": "opentelemetry, nvtx, or both with a comma: counters, and ranges for profilers",
    "LOCKCACHE_LOG": "log level on stderr of programs without their own logging: off, info, debug; default: warnings",
    "LOCKCACHE_SUMMARY": "1: print hits, compilations and saved time on stderr when a program ends",
}
#: Of them, those that state a directory's policy; and all that an operator's command does not obey.
POLICY_VARIABLES = ("LOCKCACHE_MAX_SIZE", "LOCKCACHE_POLICY")
SWITCHES = ("LOCKCACHE_READONLY", "LOCKCACHE_DISABLE", "LOCKCACHE_RECACHE")
PROGRAM_VARIABLES = (
    *POLICY_VARIABLES,
    *SWITCHES,
    "LOCKCACHE_COMPILE_ONCE",
    "LOCKCACHE_LEASE_TIMEOUT",
    "LOCKCACHE_REMOTE",
    "LOCKCACHE_MANIFEST",
    "LOCKCACHE_SEALED",
    "LOCKCACHE_SEAL_AFTER",
    "LOCKCACHE_SEAL_MANIFEST",
    "LOCKCACHE_SEED",
    "LOCKCACHE_TELEMETRY",
)
# Of the daemon in addition, which has a variable for each of its settings.
_OTHERS = tuple(
    f"LOCKCACHE_{name}"
    for name in ("ALIVE_FILE", "CONFIG", "FLOOR", "INTERVAL", "JSON", "LAYOUT", "LOW_WATERMARK", "MAX_AGE",
                 "MAX_ENTRIES", "METRICS", "METRICS_FILE", "MIN_FREE", "NAMESPACES", "SCRUB_RATE", "SETTLE", "STANDBY",
                 "TOTAL")
)  # fmt: skip

_SWITCH_WORDS = {"": False, "0": False, "no": False, "off": False, "false": False,
                 "1": True, "yes": True, "on": True, "true": True}  # fmt: skip

_LEFT_ALONE: ContextVar[frozenset[str]] = ContextVar("left_alone", default=frozenset())

_log = logging.getLogger("lockcache")


class _OnStderr(logging.StreamHandler):  # type: ignore[type-arg] # not subscriptable in Python 3.10
    """Shows what is logged on stderr, unless another handler takes it."""

    def __init__(self, level: int, form: str) -> None:
        super().__init__()
        self.setLevel(level)
        self.setFormatter(logging.Formatter(form))
        self.addFilter(lambda record: not logging.getLogger().handlers and _log.handlers == [self])

    def emit(self, record: logging.LogRecord) -> None:
        """Write to what stderr is now, as logging itself would without a handler."""
        if sys.stderr is not None:
            self.stream = sys.stderr
            super().emit(record)


def obey_log_variable() -> None:
    """Send what is logged to where ``$LOCKCACHE_LOG`` says. Called once, when lockcache is imported.

    A program that configures logging, before or after that, gets it through its own handlers alone. A mistake in the
    variable is a warning: an import that fails for it would be out of proportion.
    """
    wrong, level = "", None
    try:
        level = coerce_choice("LOCKCACHE_LOG", ("off", "info", "debug"))
    except ValueError as error:
        wrong = str(error)
    if level == "off":
        _log.addHandler(logging.NullHandler())  # which keeps what nobody asked for from stderr, and nothing else
    elif level is None:
        _log.addHandler(_OnStderr(logging.WARNING, "lockcache: %(message)s"))
    else:
        _log.addHandler(_OnStderr(logging.NOTSET, "lockcache: %(asctime)s %(levelname)s: %(message)s"))
        _log.setLevel(level.upper())
    if wrong:
        _log.warning("%s", wrong)


@contextlib.contextmanager
def variables_left_alone(names: Iterable[str]) -> Iterator[None]:
    """Open caches in this block as if these variables were not set."""
    token = _LEFT_ALONE.set(frozenset(names))
    try:
        yield
    finally:
        _LEFT_ALONE.reset(token)


#: Returns the key of a variable among those of :func:`variables_set`.
variable_key: Final = functools.cache(os.fsencode)


def variables_set() -> Container[bytes]:
    """Returns the variables that are set now, by their keys.

    From the dict behind ``os.environ``, where it has one: the mapping itself says by two exceptions that a variable is
    not set (1 us), and an opening asks for fourteen. A program may have put another mapping there.
    """
    behind: dict[bytes, bytes] | None = getattr(os.environ, "_data", None)
    return {os.fsencode(variable) for variable in os.environ} if behind is None else behind


def configured_text(variable: str) -> str:
    """Returns what ``$variable`` says, or empty."""
    is_read = variable_key(variable) in variables_set() and variable not in _LEFT_ALONE.get()
    return os.environ.get(variable, "") if is_read else ""


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


def unknown_in_words(name: str, meant: str) -> str:
    """Returns the warning about a variable of :func:`unknown_variables`."""
    return f"{name} is not a variable of lockcache's" + (f"; did you mean {meant}?" if meant else "")


def default_cap(path: object) -> int | None:
    """Returns the default directory's cap in bytes; ``None`` where ``path`` or ``$LOCKCACHE_DIR`` names another."""
    return None if path is not None or os.environ.get("LOCKCACHE_DIR") else _DEFAULT_CAP_BYTES


def is_default_path(path: str) -> bool:
    """Returns whether ``path`` is the directory of programs that specify none."""
    try:
        return path == resolve_path(None)
    except NoDefaultDirError:
        return False


def configured_cap() -> int | None:
    """Returns the cap in ``$LOCKCACHE_MAX_SIZE``, or ``None``. Raises :class:`ValueError` naming the variable."""
    found: int | None = _parsed("LOCKCACHE_MAX_SIZE", "parse_size")
    return found


def _parsed(variable: str, parse: str) -> Any:
    """Returns what a function of :mod:`.sizes` makes of ``$variable``; ``None`` where it is not set or empty."""
    text = configured_text(variable)
    if not text:
        return None
    from lockcache import sizes  # 3 ms, needless for a program that states the value itself

    try:
        return getattr(sizes, parse)(text)
    except ValueError as error:
        raise ValueError(f"{variable}: {error}") from None


def coerce_choice(variable: str, accepted: Sequence[_T]) -> _T | None:
    """Returns which of the ``accepted`` words ``$variable`` has, or ``None`` where it is not set or empty.

    Raises :class:`ValueError` naming the variable.
    """
    text = configured_text(variable)
    if not text:
        return None
    for word in accepted:
        if text == word:
            return word
    raise ValueError(f"{variable}: {text!r} is not {' or '.join(map(str, accepted))}")


def configured_switch(variable: str) -> bool:
    """Returns whether ``$variable`` is ``1``, ``yes``, ``on`` or ``true``. Raises :class:`ValueError` naming it."""
    text = configured_text(variable)
    found = _SWITCH_WORDS.get(text.lower())
    if found is None:
        raise ValueError(f"{variable}: {text!r} is not 1, yes, on or true, nor 0, no, off or false")
    return found


def is_asked_for(variable: str) -> bool:
    """Returns whether ``$variable`` is set to anything that does not say no. For extras, which raise nothing."""
    return _SWITCH_WORDS.get(os.environ.get(variable, "").lower(), True)


def coerce_compile_once(compile_once: object) -> bool:
    """Returns whether a look-up that misses takes the turn: as given, ``None`` as ``$LOCKCACHE_COMPILE_ONCE`` says."""
    if compile_once is None:
        return configured_switch("LOCKCACHE_COMPILE_ONCE")
    return coerce_switch("compile_once", compile_once)


def coerce_lease_timeout(seconds: object) -> float | None:
    """Returns for how long a computation is waited for: as given, ``None`` as ``$LOCKCACHE_LEASE_TIMEOUT`` says.

    ``None`` where neither says. Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    if seconds is not None:
        return coerce_seconds("lease_timeout_seconds", seconds)
    found: float | None = _parsed("LOCKCACHE_LEASE_TIMEOUT", "parse_duration")
    return found


def configured_file(variable: str) -> str:
    """Returns the path in ``$variable``, or empty. Raises :class:`ValueError` naming the variable."""
    text = configured_text(variable)
    return _expand(text, variable) if text else ""


def is_disabled() -> bool:
    """Returns whether ``$LOCKCACHE_DISABLE`` has caches that are made now empty and without effect."""
    return configured_switch("LOCKCACHE_DISABLE")


def coerce_read_only(read_only: object) -> bool | Literal["auto"]:
    """Returns whether a cache only reads: as given, else by ``$LOCKCACHE_READONLY``; ``"auto"`` where neither says.

    Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    if isinstance(read_only, bool):
        return read_only
    if read_only != "auto":
        raise TypeError(f"read_only must be True, False or 'auto', got {read_only!r}")
    return configured_switch("LOCKCACHE_READONLY") or "auto"


def resolve_path(path: str | os.PathLike[str] | None, file_name: str = "") -> str:
    """Returns an absolute path for a caller's; for ``None`` the default, and in it ``file_name`` if there is one.

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


def resolve_path_or_nowhere(path: str | os.PathLike[str] | None, file_name: str = "") -> str:
    """Returns :func:`resolve_path`; :data:`NOWHERE`, with one warning, where there is no default directory.

    Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    try:
        return resolve_path(path, file_name)
    except NoDefaultDirError as error:
        if not is_disabled():
            warn_once(f"{error}; this program stores nothing")
        return NOWHERE


@functools.lru_cache(maxsize=1024)
def warn_once(words: str) -> None:
    """Log a warning, once in a process: a program may open its cache for each compilation."""
    _log.warning("%s", words)


def _expand(path: str, what: str = "path") -> str:
    expanded = expand_home(path)
    if not expanded:
        is_name = path[1:2] not in ("", "/")
        advice = f"for a name that begins with ~ write ./{path}" if is_name else "name an absolute path"
        raise ValueError(f"{what} {path!r}: {why_homeless(path)}; {advice}")
    return expanded


def coerce_seconds(name: str, seconds: object) -> float:
    """Returns a time to wait, 0 or more. Raises TypeError or ValueError naming ``name`` and the value."""
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"{name} must be a number of seconds, got {seconds!r}")
    if not 0 <= seconds <= threading.TIMEOUT_MAX:
        raise ValueError(f"{name} must be between 0 and {threading.TIMEOUT_MAX:.0f}, got {seconds!r}")
    return float(seconds)


def coerce_recheck_seconds(seconds: object) -> float | None:
    """Returns the seconds for which a copy is served unchecked; ``None``: for ever. Raises TypeError and ValueError."""
    if seconds is None:
        return None
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise TypeError(f"recheck_seconds must be a number of seconds or None, got {seconds!r}")
    if not seconds >= 0:
        raise ValueError(f"recheck_seconds must not be negative, got {seconds!r}")
    return float(seconds)


def coerce_switch(name: str, value: object) -> bool:
    """Returns a bool as it is. Raises :class:`TypeError` for all else: ``bool("no")`` is True."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def coerce_seed(seed: object) -> str:
    """Returns the path of the bundle below a directory, or empty for none. ``None``: as ``$LOCKCACHE_SEED`` says.

    Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    if seed is None:
        return configured_file("LOCKCACHE_SEED")
    return coerce_file("seed", seed, "a str, an os.PathLike of str, or None")


def coerce_key_file(key_file: object) -> str:
    """Returns the path of a file of keys, or empty for none. ``None``: $LOCKCACHE_SIGNING_KEY_FILE; False: none.

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
    return coerce_file("signing_key_file", key_file, "a str, an os.PathLike of str, False or None")


def coerce_file(name: str, path: object, accepted: str = "a str") -> str:
    """Returns the absolute path of a file. Raises TypeError or ValueError naming ``name`` and the value."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(text, str):
        raise TypeError(f"{name} must be {accepted}, got {path!r}")
    if not text or "\0" in text:
        raise ValueError(f"{name} must not be empty or contain NUL, got {text!r}")
    return _expand(text, name)


def coerce_group(group: object) -> bool | str:
    """Returns the group to share a directory with: none, its own, or a name or number. ``None``: $LOCKCACHE_GROUP.

    In the variable, and for options of programs, ``1`` or ``yes`` is the directory's own and ``0`` or ``no`` none. Of a
    caller ``"0"`` is the group with that number, root's, as under OpenShift; its name is ``root`` in the variable too.
    Raises :class:`TypeError` or :class:`ValueError` naming the value.
    """
    if group is None:
        group = os.environ.get("LOCKCACHE_GROUP", "")
        return _SWITCH_WORDS.get(group.lower(), group)
    if not isinstance(group, (bool, str)):
        raise TypeError(f"group must be True, False, a group's name or number as a str, or None, got {group!r}")
    if isinstance(group, str) and (not group or "\0" in group):
        raise ValueError(f"group must not be empty or contain NUL, got {group!r}")
    return group if isinstance(group, bool) or group == "0" else _SWITCH_WORDS.get(group.lower(), group)
