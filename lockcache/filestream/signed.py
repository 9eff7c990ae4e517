"""Reading entries that must be signed: :class:`.read.EntryReader` with a signature in place of the checksum.

Keeps invariant 1 against whoever may write to the directory and lacks the key. A class of its own, so that a hit of a
cache without keys asks nothing about them.
"""

from __future__ import annotations

import errno
import os
import struct
from typing import Final

from lockcache.filestream.layout import Layout
from lockcache.filestream.read import EntryReader
from lockcache.filestream.recency import Recency
from lockcache.filestream.record import SIGNED, XATTR
from lockcache.filestream.signing import KeyRing

__all__ = ["SignedReader", "make_reader"]

_XATTR: Final = XATTR.encode()
_payload_bytes = struct.Struct("<I").unpack_from

# Looked up once, as in .read.
_open, _close, _read_fd, _getxattr = os.open, os.close, os.read, os.getxattr


class SignedReader(EntryReader):
    """Serves what one of ``keys`` signed; anything else is a miss, counted in ``refused_entries``."""

    __slots__ = ("_keys",)

    def __init__(
        self,
        layout: Layout,
        recency: Recency,
        keys: KeyRing,
        *,
        is_shared: bool = False,
        asks_first: bool = False,
    ) -> None:
        super().__init__(layout, recency, is_shared=is_shared, asks_first=asks_first)
        self._keys = keys

    def load(self, name: str) -> tuple[bytes, bytes] | None:
        """As :meth:`EntryReader.load`."""
        path = self._shards[name[:2]] + name[2:]
        try:
            fd = _open(path, self._flags)
        except FileNotFoundError:
            self.expects_miss = self._asks_first
            self.misses += 1
            return None
        except OSError:
            return self._load_carefully(name, path)
        self.expects_miss = False
        try:
            blob = _getxattr(fd, _XATTR)
            if blob[:4] == SIGNED:
                payload = _read_fd(fd, _payload_bytes(blob, 8)[0])
                if self._keys.is_whole(blob, name, payload):
                    self._recency.touch(fd)
                    self.hits += 1
                    return payload, blob
        except (OSError, MemoryError, struct.error):
            # As there: nothing is decided here, the careful path looks anew.
            pass
        finally:
            _close(fd)
        return self._load_carefully(name, path)

    def _vouches(self, blob: bytes, name: str, payload: bytes) -> bool:
        return self._keys.is_whole(blob, name, payload)

    def _refuse(self, records: list[bytes]) -> None:
        if any(map(self._keys.knows, records)):
            return
        self._count_refused()
        raise OSError(errno.EKEYREJECTED, "not signed with a key of ours")


def make_reader(
    layout: Layout,
    recency: Recency,
    keys: KeyRing | None,
    *,
    verified_only: bool = False,
    is_shared: bool = False,
    asks_first: bool = False,
) -> EntryReader:
    """The reader of a cache with these keys, or with none."""
    if keys is None:
        return EntryReader(layout, recency, verified_only=verified_only, is_shared=is_shared, asks_first=asks_first)
    return SignedReader(layout, recency, keys, is_shared=is_shared, asks_first=asks_first)
