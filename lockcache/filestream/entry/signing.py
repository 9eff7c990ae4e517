# SPDX-License-Identifier: Apache-2.0
"""Signatures: a user who may write to a directory but lacks the key cannot make a program that is served.

Decides the signature and where keys come from. A signed record is a record whose digest is a key's id and a MAC instead
of a checksum; all else of it, and of the directory, is unchanged. The MAC binds what the checksum binds (invariant 1, a
hit is whole): name, record and payload, so a signed file under another name, or next to another record, is not valid.

``signature = id(2) + HMAC-SHA256(key, head[0:28] + id + name + tail + sha256(payload))[:14]``

HMAC-SHA256 rather than keyed BLAKE2b: 9.6 us of 16 KiB against 12.5 on processors that compute SHA-256 themselves, and
FIPS systems allow it. The MAC has 112 bits, the strength that NIST asks for. The id selects one of several keys, and
distinguishes an entry of a retired key from one that was altered.

Not promised: that an entry is the latest one. A user who may write to the directory can put back what was once signed
under the same key. Nor that it is secret: payloads are stored as they are.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import secrets
import shlex
import stat
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from lockcache.arguments import coerce_key_file
from lockcache.errors import SigningKeyError
from lockcache.filestream.disk import opened
from lockcache.filestream.entry.codec import (
    SIGNED,
    Record,
    is_signed,
    pack_with,
    split_signature,
)

#: As long as the MAC's own strength; shorter ones are guessed words.
LEAST_KEY_BYTES: Final = 32
_ID_BYTES: Final = 2
_MAC_BYTES: Final = 14
# A line for each key.
_LARGEST_FILE_BYTES: Final = 65536
_HEX: Final = re.compile(r"(?:[0-9a-fA-F]{2})+", re.ASCII)

_digest = hmac.digest


class KeyRing:
    """The keys of one cache: the first signs, all verify. Shows none of them."""

    __slots__ = ("_by_id", "_id", "_key")

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys:
            raise ValueError("a key ring needs at least one key")
        self._by_id: dict[bytes, list[bytes]] = {}
        for key in keys:
            self._by_id.setdefault(_id_of(key), []).append(key)
        self._key = keys[0]
        self._id = _id_of(keys[0])

    def pack(self, name: str, payload: bytes, record: Record, *, beside: bool = False) -> bytes:
        """Pack a record like :func:`.codec.pack`, with a signature."""
        prefix, tail = pack_with(SIGNED[3], payload, record, beside=beside)
        return prefix + self._id + _mac(self._key, prefix + self._id, name, tail, sha256(payload).digest()) + tail

    def is_whole(self, blob: bytes, name: str, payload: bytes | memoryview) -> bool:
        """Returns whether one of these keys signed exactly this record and payload under exactly this name."""
        return self.binds(blob, name, sha256(payload).digest())

    def binds(self, blob: bytes, name: str, payload_digest: bytes) -> bool:
        """Returns :meth:`is_whole`, given the payload's sha256."""
        if not is_signed(blob):
            return False
        prefix, key_id, mac, tail = split_signature(blob)
        return any(
            hmac.compare_digest(mac, _mac(key, prefix + key_id, name, tail, payload_digest))
            for key in self._by_id.get(key_id, ())
        )

    def knows(self, blob: bytes) -> bool:
        """Returns whether a record states one of these keys; if its signature fails then, somebody altered it."""
        return is_signed(blob) and split_signature(blob)[1] in self._by_id

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<{sum(map(len, self._by_id.values()))} keys>)"


def load_keys(key_file: str | os.PathLike[str] | bool | None) -> KeyRing | None:
    """Returns the keys in ``key_file``; for ``None``, in $LOCKCACHE_SIGNING_KEY_FILE, if set; for False, no keys.

    Raises :class:`SigningKeyError`, or the :class:`OSError` of a file that cannot be read.
    """
    path = coerce_key_file(key_file)
    return KeyRing(read_key_file(path)) if path else None


def read_key_file(path: str) -> list[bytes]:
    """Returns the keys of a file that no one else can read or change. Raises like :func:`load_keys`."""
    # A symlink may lead to it, as Kubernetes has its secrets. O_NONBLOCK: a FIFO is refused, not waited for.
    with opened(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK) as fd:
        status = os.fstat(fd)
        wrong = _wrong(path, status)
        if wrong:
            raise SigningKeyError(f"{path} {wrong}", path)
        text = os.read(fd, _LARGEST_FILE_BYTES + 1)
    return parse_keys(path, text)


def parse_keys(path: str, text: bytes) -> list[bytes]:
    """Returns the keys in a file's text: one a line, in hex or base64; empty lines and ``#`` lines say nothing."""
    if len(text) > _LARGEST_FILE_BYTES:
        raise SigningKeyError(f"{path} is longer than {_LARGEST_FILE_BYTES} bytes: this is not a file of keys", path)
    keys = []
    for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
        words = line.strip()
        if words and not words.startswith("#"):
            keys.append(_parse_key(f"{path}, line {number}", path, words))
    if not keys:
        raise SigningKeyError(f"{path} holds no key; make one: lockcache key new FILE", path)
    return keys


def new_key() -> bytes:
    """Returns a key that nobody can guess."""
    return secrets.token_bytes(LEAST_KEY_BYTES)


def encode_key(key: bytes) -> str:
    """Returns the key as text, for a file."""
    return key.hex()


def _parse_key(where: str, path: str, words: str) -> bytes:
    # The message quotes nothing of the line: it may be a key with a typing error.
    accepted = f"accepted: {LEAST_KEY_BYTES} bytes or more, in hex or base64, as `lockcache key new` writes them"
    try:
        key = bytes.fromhex(words) if _HEX.fullmatch(words) else base64.b64decode(words, validate=True)
    except (ValueError, binascii.Error):
        raise SigningKeyError(f"{where} is not a key; {accepted}", path) from None
    if len(key) < LEAST_KEY_BYTES:
        raise SigningKeyError(f"{where} is a key of {len(key)} bytes; {accepted}", path)
    return key


def _wrong(path: str, status: os.stat_result) -> str:
    mode, quoted = stat.S_IMODE(status.st_mode), shlex.quote(path)
    if not stat.S_ISREG(status.st_mode):
        return "is not a plain file, so it holds no keys"
    if status.st_uid not in (os.geteuid(), 0):
        return f"belongs to uid {status.st_uid}, not to you or root, who could know or change the keys in it"
    # A group may read it: the members of one that shares a directory share its keys.
    if mode & 0o027:
        return f"(mode {mode:04o}) could be read or changed by others. Run: chmod g-wx,o-rwx {quoted}"
    return ""


def _id_of(key: bytes) -> bytes:
    return _digest(key, b"lockcache signing key id", "sha256")[:_ID_BYTES]


def _mac(key: bytes, start: bytes, name: str, tail: bytes, payload_digest: bytes) -> bytes:
    # The head states the tail's length, and all else has one length, so no two splits of the same bytes give one MAC.
    return _digest(key, start + name.encode() + tail + payload_digest, "sha256")[:_MAC_BYTES]
