# SPDX-License-Identifier: Apache-2.0
"""One file to copy into an engine: lockcache where it is installed, else a plain directory with the same keys.

Copy it as it is; it imports nothing but the standard library, and lockcache if it is there. ``open_cache()`` gives
an object whose ``get_or_compute(key, compute)`` returns bytes:

    cache = open_cache()
    cubin = cache.get_or_compute(make_key("my-engine 3", source, compiler_version, arch), compile_it)

With lockcache, one process of all compiles a key and the others wait, hits are verified, and the directory has a cap.
Without it, the directory is ``$LOCKCACHE_DIR`` or ``~/.cache/NAME``. A file is renamed when it is whole, so a reader
sees a whole entry or none, and a digest finds what a power cut damaged. Nothing is evicted there, a killed writer
leaves its ``.new-`` file, and processes that miss at once all compile. Either way a fault of the cache costs a
compilation, and not the program. The keys are the same; the entries are compiled once more after lockcache came.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["OnLockcache", "PlainDirectory", "make_key", "open_cache"]

_log = logging.getLogger(__name__)

# What is larger is not an entry of this file's, and is not read into memory.
_MOST_BYTES = 1 << 30
_DIGEST_BYTES = 32


def make_key(*parts: bytes | str) -> bytes:
    """Returns the digest of everything that changes the output: source, options, compiler's version, architecture.

    The length of each part is in it, so ("ab", "c") and ("a", "bc") are two keys.
    """
    digest = hashlib.sha256(usedforsecurity=False)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        kind = b"s" if isinstance(part, str) else b"b"
        digest.update(kind + len(data).to_bytes(8, "big") + data)
    return digest.digest()


class PlainDirectory:
    """A directory with a file for each entry: digest and value. Without lockcache."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)

    def get(self, key: bytes) -> bytes | None:
        """Returns the entry, or ``None``. An error of the disk is a miss."""
        try:
            # O_NONBLOCK: a pipe in the place of an entry is refused, not waited for.
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            with open(os.open(self._name(key), flags), "rb") as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > _MOST_BYTES:
                    return None
                data = file.read(_MOST_BYTES + 1)
        except OSError:
            return None
        digest, value = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        return value if value and digest == self._digest(key, value) else None

    def put(self, key: bytes, value: bytes) -> None:
        """Store an entry that is not empty. An error of the disk is reported to the log."""
        if not value:
            return  # a compiler that fails without an error leaves an empty file
        name = self._name(key)
        try:
            name.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            # mkstemp makes a new file of mode 0600, so what others link or plant is never written to.
            fd, temporary = tempfile.mkstemp(dir=name.parent, prefix=".new-")
            try:
                with open(fd, "wb") as file:
                    file.write(self._digest(key, value) + value)
                os.replace(temporary, name)
            except BaseException:
                os.unlink(temporary)
                raise
        except OSError as error:
            _log.warning("the entry could not be stored in %s: %s", name.parent, error)

    def get_or_compute(self, key: bytes, compute: Callable[[], bytes]) -> bytes:
        """Returns the entry, or what ``compute`` returns, which is stored. Raises what ``compute`` raises."""
        found = self.get(key)
        if found is None:
            found = compute()
            self.put(key, found)
        return found

    def _name(self, key: bytes) -> Path:
        name = key.hex()
        return self._path / "plain" / name[:2] / name[2:]

    @staticmethod
    def _digest(key: bytes, value: bytes) -> bytes:
        return hashlib.sha256(key + value, usedforsecurity=False).digest()


class OnLockcache:
    """The same calls, on lockcache."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def get(self, key: bytes) -> bytes | None:
        found: bytes | None = self._cache.get(key)
        return found

    def put(self, key: bytes, value: bytes) -> None:
        if value:
            self._cache[key] = value

    def get_or_compute(self, key: bytes, compute: Callable[[], bytes]) -> bytes:
        def compute_some() -> bytes:
            if not (value := compute()):
                raise _EmptyError  # so that it is not stored
            return value

        try:
            return bytes(self._cache.get_or_compute(key, compute_some))
        except _EmptyError:
            return b""


class _EmptyError(Exception):
    """The compiler returned nothing."""


def open_cache(name: str = "my-engine", path: str | os.PathLike[str] | None = None) -> PlainDirectory | OnLockcache:
    """Returns lockcache's directory where it can be had, else a plain one.

    ``path`` is the directory; by default ``$LOCKCACHE_DIR``, else ``~/.cache/NAME``.
    """
    folder = Path(path or os.environ.get("LOCKCACHE_DIR") or Path("~/.cache").expanduser() / name)
    try:
        from lockcache import FileStreamProgramCache

        return OnLockcache(FileStreamProgramCache(folder))
    except (ImportError, AttributeError, OSError, RuntimeError, ValueError) as error:
        _log.info("a plain directory, %s: %s", folder, error)
        return PlainDirectory(folder)
