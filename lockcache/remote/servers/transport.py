# SPDX-License-Identifier: Apache-2.0
"""The calls of a server of entries, and the client that makes them.

The clients are extras, loaded when a server of their kind is first used: ``import lockcache`` loads none.

Not promised by a transport: that a value it returns was ever stored. :mod:`.sealing` decides that.
"""

from __future__ import annotations

import codecs
import contextlib
import enum
import importlib
import importlib.util
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from lockcache.errors import how_to_install
from lockcache.remote.servers.answers import Answer, RemoteError, in_one_line
from lockcache.remote.servers.urls import SCHEMES, RemoteUrl

__all__ = [
    "LARGEST_VALUE_BYTES",
    "LONGEST_SECONDS",
    "VALUE_BEGINNING",
    "LeaseAnswer",
    "Transport",
    "ValueProgress",
    "more_seconds",
    "name_in",
    "open_transport",
    "reason_of",
    "received_from",
    "refuse_settings",
    "require_client",
]

#: How each value begins: an answer of anything else is not waited for as a large value is.
VALUE_BEGINNING: Final = b"LC\x01"
#: Longer values are neither sent nor received. The largest known programs have some 40 MB.
LARGEST_VALUE_BYTES: Final = 64 * 1024 * 1024
# Of a link over which a value of any length is waited for.
_SLOWEST_BYTES_PER_SECOND: Final = 10e6
#: The time that such a link takes for the longest value.
LONGEST_SECONDS: Final = LARGEST_VALUE_BYTES / _SLOWEST_BYTES_PER_SECOND

# Of C's struct tcp_info, tcpi_bytes_acked.
_ACKNOWLEDGED: Final = struct.Struct("120xQ")

_MOST_CAUSES: Final = 16

_NAME: Final = re.compile(rb"[0-9a-f]{64}")


def reason_of(error: BaseException) -> str:
    """Returns why a call failed: in the system's words if it was the system, else in those of the client library."""
    cause: BaseException | None = error
    for _ in range(_MOST_CAUSES):  # two exceptions may be each other's cause
        if cause is None:
            break
        if isinstance(cause, OSError) and (words := cause.strerror or str(cause)):
            return words
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    return f"{type(error).__name__}: {error}"


def name_in(key: bytes, prefix: str) -> str | None:
    """Returns the name of the entry that a server keeps under ``key``; ``None`` for a key of something else."""
    name = key.removeprefix(prefix.encode())
    return name.decode() if len(name) < len(key) + (not prefix) and _NAME.fullmatch(name) else None


class LeaseAnswer(enum.Enum):
    """A server's answer to who wants a lease."""

    TAKEN = enum.auto()
    HELD = enum.auto()
    #: Its last holder's computation failed a moment ago, and nobody holds it: those who want it need not wait.
    FAILED = enum.auto()
    #: The server keeps none.
    NONE = enum.auto()


class Transport(Protocol):
    """The calls of one server. Names are 64 hex digits. Any thread may make any call; all raise :class:`RemoteError`.

    A call may hang: its waiter decides for how long it waits, and then calls :meth:`abort`.
    """

    @property
    def has_leases(self) -> bool:
        """Whether :meth:`try_lease` excludes others. May ask the server."""

    @property
    def denies_missing(self) -> bool:
        """Whether a read was denied, which may mean that the value is missing, and was taken for that."""

    def get(self, name: str) -> bytes | None:
        """Returns the value under ``name``, of at most :data:`LARGEST_VALUE_BYTES`; ``None`` if there is none."""

    def get_many(self, names: Iterable[str]) -> dict[str, bytes]:
        """Returns the values that the server has, in as few round trips as it allows."""

    def put(self, name: str, value: bytes) -> None:
        """Store a value, in place of what is there."""

    def remove(self, name: str) -> None:
        """Remove a value, if there is one."""

    def names(self) -> Iterator[str]:
        """Yields the names of all values below the prefix. Those that come or go meanwhile may be among them or not."""

    def try_lease(self, name: str, token: str, seconds: float, *, has_waited: bool = False) -> LeaseAnswer:
        """Take the lease of ``name`` for so long, unless another token holds it or its holder failed.

        Without ``has_waited`` a failure may be answered as held: who waited does not need more requests for it.
        """

    def renew(self, name: str, token: str, seconds: float) -> bool:
        """Renew the lease taken with ``token``, for so long from now. Returns whether it was still that token's."""

    def release(self, name: str, token: str, failed_seconds: float = 0) -> None:
        """Give the lease back, if it is still that token's; or leave it as that of a failure for so long."""

    def probe(self) -> None:
        """Make the shortest call that only a working server answers."""

    def abort(self) -> None:
        """Close what is open, so that calls that hang end. The transport may be used again."""

    def received_bytes(self) -> int:
        """Returns how much the server's host has received on connections that are open; 0 where that is not known."""

    def arrived_bytes(self) -> int:
        """Returns how much of values has come from the server so far: a larger number is progress of a call.

        Only of those that begin with :data:`VALUE_BEGINNING`.
        """


class ValueProgress:
    """The bytes of one answer that are progress: all since it has the beginning of a value, which may come in parts."""

    def __init__(self, note: Callable[[int], object], *, begins_anywhere: bool = False) -> None:
        """``note`` is called with how many. ``begins_anywhere``: the protocol puts lengths before the value."""
        self._note = note
        self._begins_anywhere = begins_anywhere
        self._has_value = False
        # What may be the first part of a beginning.
        self._seen = b""

    def add(self, received: bytes | memoryview) -> None:
        """Count what has come."""
        size = len(VALUE_BEGINNING)
        if not self._has_value and self._begins_anywhere:
            seen = self._seen + received
            self._has_value, self._seen = VALUE_BEGINNING in seen, seen[1 - size :]
        elif not self._has_value and len(self._seen) < size:
            self._seen += received[: size - len(self._seen)]
            self._has_value = self._seen == VALUE_BEGINNING
        if self._has_value:
            self._note(len(received))


def more_seconds(arrived_bytes: int) -> float:
    """Returns for how much longer a call is waited for of whose answer so much has come."""
    return min(arrived_bytes / _SLOWEST_BYTES_PER_SECOND, LONGEST_SECONDS)


def received_from(sockets: Iterable[socket.socket]) -> int:
    """Returns the bytes that other hosts have acknowledged, as the kernel counts them for TCP."""
    count = 0
    for each in sockets:
        # Closed meanwhile, not of TCP, or of a library that wraps sockets.
        with contextlib.suppress(OSError, struct.error, AttributeError):
            count += _ACKNOWLEDGED.unpack(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _ACKNOWLEDGED.size))[0]
    return count


def require_client(url: RemoteUrl) -> None:
    """Raise :class:`ModuleNotFoundError`, which says what to install, where the client of this URL is missing."""
    _, client, extra = SCHEMES[url.scheme]
    if importlib.util.find_spec(client) is None:
        raise ModuleNotFoundError(f"{url.scheme}:// needs the package {client}: {how_to_install(extra)}", name=client)


def open_transport(url: RemoteUrl, timeout_seconds: float) -> Transport:
    """Returns the transport of this URL, which connects at its first use. ``timeout_seconds`` is for each read.

    Raises :class:`RemoteError` where its client cannot be loaded, or refuses the URL. Requires: no fork meanwhile
    (:data:`lockcache.fork.unforked`).
    """
    # The standard library imports it for a host's name, in the thread that connects: a child that is forked meanwhile
    # would wait for that thread's lock.
    codecs.lookup("idna")
    module, _, _ = SCHEMES[url.scheme]
    try:
        connect: Callable[[RemoteUrl, float], Transport] = importlib.import_module(f"{__package__}.{module}").connect
        return connect(url, timeout_seconds)
    except (RemoteError, KeyboardInterrupt, SystemExit):
        raise
    # Of a client library, its import, or an interpreter that is ending. A panic in Rust is not an Exception.
    except BaseException as error:  # noqa: BLE001
        raise RemoteError(in_one_line("its client cannot be used", str(error)), Answer.MISUSED) from None


def refuse_settings(url: RemoteUrl) -> None:
    """Raise :class:`ValueError` where the client of an object store, which is loaded for that, refuses its settings.

    Those of other servers were checked with the URL.
    """
    if SCHEMES[url.scheme][0] != "object_store":
        return
    try:
        open_transport(url, 1.0).abort()
    except RemoteError as error:
        raise ValueError(f"{url.shown}: {error}") from None
