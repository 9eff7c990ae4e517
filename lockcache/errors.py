# SPDX-License-Identifier: Apache-2.0
"""The errors of lockcache, one root.

::

    LockcacheError
    ├── UnsafeCacheDirError (PermissionError)   opening: someone else owns the directory, or may write to it
    ├── FormatError (OSError)                   opening: the directory was made by a newer lockcache
    ├── NoDefaultDirError (OSError)             a directory is not named, and there is no home for the default one
    ├── SigningKeyError (ValueError)            opening: not a file of keys, or one that others could know
    ├── LockTimeoutError (TimeoutError)         a shard lock was not free in time (internal: becomes a dropped write)
    ├── ArchiveError (ValueError)               a file is not a bundle of lockcache, or is damaged
    ├── ReentrantComputeError (RuntimeError)    compute() asked for the very key that it was called to compute
    ├── SealedError (RuntimeError)              something was to be compiled after lockcache.seal("error")
    └── UncacheableError (ValueError)           a key was asked for a compilation that must not be cached

Each keeps the built-in base that callers of plain Python code already catch. At run time a cache raises
none of these for what its caller cannot help (invariant 7, never take the job down): a hung lock or a full disk is a
counted, logged miss or dropped write. What is misconfigured raises when the cache is opened.
"""

from __future__ import annotations

import errno
import io
import os

__all__ = [
    "ArchiveError",
    "FormatError",
    "LockTimeoutError",
    "LockcacheError",
    "NoDefaultDirError",
    "ReentrantComputeError",
    "SealedError",
    "SigningKeyError",
    "UncacheableError",
    "UnsafeCacheDirError",
    "how_to_install",
    "in_words",
]


def how_to_install(extra: str) -> str:
    """Returns the command that adds an extra to this very installation, wherever it came from (PEP 610).

    The name alone is for those who installed it from an index: for others it could be another program's there.
    """
    import importlib.metadata
    import json
    import shlex
    from pathlib import Path
    from urllib.request import url2pathname

    try:
        origin = json.loads(importlib.metadata.distribution("lockcache").read_text("direct_url.json") or "{}")
    except importlib.metadata.PackageNotFoundError:  # a checkout on PYTHONPATH
        origin = {"url": Path(__file__).parents[1].as_uri(), "dir_info": {}}
    wanted = f"lockcache[{extra}]"
    if "dir_info" in origin:
        wanted = f"{url2pathname(origin['url'].removeprefix('file://'))}[{extra}]"
    elif "vcs_info" in origin:
        wanted += f" @ {origin['vcs_info']['vcs']}+{origin['url']}"
    elif "url" in origin:
        wanted += f" @ {origin['url']}"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f"pip install {editable}{shlex.quote(wanted)}"


class LockcacheError(Exception):
    """Root of all errors that lockcache defines."""


def in_words(error: Exception) -> str:
    """Returns an error for people, its path first."""
    if isinstance(error, LockcacheError) or not isinstance(error, OSError):
        return str(error)
    if isinstance(error, io.UnsupportedOperation):
        return "standard output is closed"  # what stands in its place refuses, see lockcache.cli
    words = f"{error.strerror or error}{more_to_do(error)}"
    return words if error.filename is None else f"{os.fsdecode(error.filename)}: {words}"


def more_to_do(error: OSError) -> str:
    """Returns what to do about an error whose own words do not say it; empty for most."""
    if error.errno == errno.EMFILE:
        return "; this process may open no more: raise the limit by ulimit -n"
    return ""


class _PathError(LockcacheError):
    """An error about one file or directory, kept in :attr:`path`."""

    def __init__(self, message: str, path: str) -> None:
        super().__init__(message)
        self.path = path

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        # Workers send exceptions to their parent by pickle; the default would call us without the path.
        return type(self), (str(self), self.path)


class UnsafeCacheDirError(_PathError, PermissionError):
    """The cache directory could be written by someone else; the message holds the command that fixes it."""


class FormatError(_PathError, OSError):
    """The cache directory was made by a newer version of lockcache, or its format file cannot be understood."""


class NoDefaultDirError(LockcacheError, OSError):
    """No directory is named, and the default one has no place: this user has no home, or may not write to it."""


class SigningKeyError(_PathError, ValueError):
    """A file of signing keys cannot be used; the message says which line, or which command fixes it."""


class LockTimeoutError(_PathError, TimeoutError):
    """A lock was held by someone else for longer than the lock timeout."""


class ArchiveError(LockcacheError, ValueError):
    """A file is not a bundle of ``lockcache bundle`` or ``pack``, or is damaged, cut off, or of a newer format."""


class ReentrantComputeError(LockcacheError, RuntimeError):
    """The ``compute`` of a key asked ``get_or_compute`` for that key in the same thread: it would wait for itself."""


class SealedError(LockcacheError, RuntimeError):
    """A compilation was refused after ``lockcache.seal("error")``; the message says which, and why its key missed."""

    def __init__(self, message: str = "", name: str = "") -> None:
        super().__init__(message)
        #: The name of its entry, as ``lockcache ls --full`` prints it; empty for what cannot be cached.
        self.name = name


class UncacheableError(LockcacheError, ValueError):
    """This compilation has inputs or side effects that a cache key cannot cover; the message says which."""

    def __init__(self, message: str = "", reasons: str = "") -> None:
        super().__init__(message)
        #: The message without its remedies, which are for callers of ``make_program_cache_key``; may be empty.
        self.reasons = reasons
