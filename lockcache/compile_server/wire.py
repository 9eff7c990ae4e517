# SPDX-License-Identifier: Apache-2.0
"""The protocol: a length, a head in JSON, and blobs whose lengths the head has.

Keeps what either side reads bounded: a head has a megabyte at most, a blob 256. Nothing is unpickled. A message that is
cut, too long or no JSON is an :class:`OSError`, as a connection that breaks: callers have one case.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any, Final

from lockcache.filestream.disk import parse_json

#: Changed with what is said; servers of another number are not asked.
PROTOCOL: Final = 2
MOST_HEAD_BYTES: Final = 1 << 20
_MOST_BLOB_BYTES: Final = 1 << 28
_MOST_BLOBS: Final = 4
_LENGTH: Final = struct.Struct("!I")


class BrokenMessageError(OSError):
    """What came is not a message of this protocol."""


def pack_head(head: dict[str, Any], blobs: tuple[bytes, ...] = ()) -> bytes:
    """Returns the beginning of a message, behind which its blobs follow. Raises BrokenMessageError if it is too long.

    Paths keep bytes that are not UTF-8, as surrogates, which JSON can spell.
    """
    text = json.dumps({**head, "blobs": [len(blob) for blob in blobs]}).encode()
    if len(text) > MOST_HEAD_BYTES or any(len(blob) > _MOST_BLOB_BYTES for blob in blobs):
        raise BrokenMessageError("the message is too long")
    return _LENGTH.pack(len(text)) + text


def send(connection: socket.socket, head: dict[str, Any], *blobs: bytes) -> None:
    """Send a message. Raises :class:`OSError`."""
    connection.sendall(b"".join((pack_head(head, blobs), *blobs)))


class HeadReader:
    """Reads the head of one message as its bytes come, and nothing of what follows it."""

    def __init__(self) -> None:
        self._buffer = b""
        self._wanted = _LENGTH.size
        self._has_length = False

    def read(self, connection: socket.socket) -> dict[str, Any] | None:
        """Read what is there. Returns the head once it is whole, else ``None``. Raises OSError for anything else."""
        while True:
            part = connection.recv(self._wanted - len(self._buffer))
            if not part:
                raise BrokenMessageError("the connection ended within a message")
            self._buffer += part
            if len(self._buffer) < self._wanted:
                continue
            if self._has_length:
                return _parse(self._buffer)
            (length,) = _LENGTH.unpack(self._buffer)
            if not 0 < length <= MOST_HEAD_BYTES:
                raise BrokenMessageError("the message is too long")
            self._buffer, self._wanted, self._has_length = b"", length, True


def receive_head(connection: socket.socket, until: float) -> dict[str, Any]:
    """Returns the next head. ``until``: in monotonic seconds. Raises :class:`OSError`, a TimeoutError among them."""
    reader = HeadReader()
    while True:
        _limit(connection, until)
        head = reader.read(connection)
        if head is not None:
            return head


def receive_blobs(connection: socket.socket, head: dict[str, Any], until: float) -> list[bytes]:
    """Returns the blobs of a head. Raises as :func:`receive_head`."""
    lengths = head.get("blobs")
    if not isinstance(lengths, list) or len(lengths) > _MOST_BLOBS:
        raise BrokenMessageError("a message without lengths")
    if not all(type(each) is int and 0 <= each <= _MOST_BLOB_BYTES for each in lengths):
        raise BrokenMessageError("a message without lengths")
    return [_receive(connection, length, until) for length in lengths]


def _receive(connection: socket.socket, length: int, until: float) -> bytes:
    parts = []
    while length:
        _limit(connection, until)
        part = connection.recv(min(length, 1 << 20))
        if not part:
            raise BrokenMessageError("the connection ended within a message")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _limit(connection: socket.socket, until: float) -> None:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no answer in time")
    connection.settimeout(left)


def _parse(text: bytes) -> dict[str, Any]:
    try:
        return parse_json(text)
    except ValueError as error:
        raise BrokenMessageError(str(error)) from None
