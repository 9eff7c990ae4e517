"""Clearing a server: removes all entries below its prefix, for an operator who waits for it.

No program does this: ``clear()`` of a cache leaves a server alone. Decides nothing about what is believed, so entries
are removed unread.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from lockcache.filestream.remote.calls import read_in_parallel
from lockcache.filestream.remote.transport import RemoteUrl, open_transport

__all__ = ["clear_server"]

# Removed between two reports of progress, by so many threads.
_AT_ONCE: Final = 256
_THREADS: Final = 16
# Of a read of a socket.
_SOCKET_SECONDS: Final = 10.0


def clear_server(url: RemoteUrl, progress: Callable[[int], object] = lambda removed: None) -> int:
    """Remove all entries of a server below the prefix of ``url``. Returns how many there were.

    ``progress`` is given how many were removed so far. Entries that others store meanwhile may stay.
    Raises :class:`RemoteError`; then some are gone.
    """
    transport, removed = open_transport(url, _SOCKET_SECONDS), 0
    try:
        names = transport.names()
        while part := list(islice(names, _AT_ONCE)):
            read_in_parallel(part, transport.remove, _THREADS)
            removed += len(part)
            progress(removed)
    finally:
        transport.abort()
    return removed
