# SPDX-License-Identifier: Apache-2.0
"""Many entries of a server at once: read in the background, while programs ask it for what they need now, or removed.

Keeps invariant 7 (never take the job down): it has connections of its own, so that no other call depends on one that
hangs or is closed here, and no one waits for it: a failure here is charged to no process and opens no breaker. Keeps
invariant 1 (a hit is whole) as :class:`.store.RemoteStore` does.

Decides how much is asked for at once: few entries at first, whose sizes are not known, then as many as make a round
trip worthwhile and fit into memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final

from lockcache.fork import unforked
from lockcache.remote.servers import RemoteError, RemoteUrl, call_within, open_transport, read_in_parallel
from lockcache.remote.store import RemoteStore

__all__ = ["clear_server", "read_bulk"]

_FIRST: Final = 16
_MOST: Final = 256
_GROWTH: Final = 4
# The bytes of one answer, which is held in memory. Other calls' answers come in between two of them.
_AT_ONCE_BYTES: Final = 16 * 1024 * 1024
# Of a read of a socket, and of one answer.
_SOCKET_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 30.0
# Removed between two reports of progress, by so many threads.
_REMOVED_AT_ONCE: Final = 256
_REMOVERS: Final = 16


def read_bulk(
    store: RemoteStore, names: Sequence[str], seconds: float, is_ended: Callable[[], bool]
) -> Iterator[tuple[Sequence[str], dict[str, tuple[bytes, bytes]]]]:
    """Yields some of the names with the verified entries that exist of them, until all names were asked for.

    Ends sooner where ``is_ended`` says so. Raises :class:`RemoteError` for an answer that does not come
    or takes ``seconds`` in all, after it was counted.
    """
    until, most, first = time.monotonic() + seconds, _FIRST, 0
    if not names:
        return
    try:
        with unforked:
            transport = open_transport(store.url, _SOCKET_SECONDS)
    except RemoteError:
        store.counts.errors += 1
        raise
    try:
        while first < len(names) and not is_ended():
            part = names[first : first + most]
            left = min(_ANSWER_SECONDS, until - time.monotonic())
            values, _ = call_within(max(0.0, left), partial(transport.get_many, part))
            size_bytes = sum(map(len, values.values()))
            store.counts.bytes_read += size_bytes
            found = store.believed(values, part)
            store.counts.prefetched += len(found)
            yield part, found
            first += len(part)
            mean_bytes = max(1, size_bytes // max(1, len(values)))
            most = min(_MOST, len(part) * _GROWTH, max(1, _AT_ONCE_BYTES // mean_bytes))
    except RemoteError:
        store.counts.errors += 1
        raise
    finally:
        transport.abort()


def clear_server(url: RemoteUrl, progress: Callable[[int], object] = lambda removed: None) -> int:
    """Remove all entries of a server below the prefix of ``url``, unread, for an operator. Returns how many there were.

    ``progress`` is given how many were removed so far. Entries that others store meanwhile may stay.
    Raises :class:`RemoteError`; then some are gone; and :class:`ValueError` for a server that is only read.
    """
    if not url.may_send:
        raise ValueError(f"{url.shown}: read_only=1 keeps what is there")
    transport, removed = open_transport(url, _SOCKET_SECONDS), 0
    try:
        names = transport.names()
        while part := list(islice(names, _REMOVED_AT_ONCE)):
            read_in_parallel(part, transport.remove, _REMOVERS)
            removed += len(part)
            progress(removed)
    finally:
        transport.abort()
    return removed
