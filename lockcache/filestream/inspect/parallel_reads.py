# SPDX-License-Identifier: Apache-2.0
"""Parallel reads: reads many files in order, by several threads once reads wait for a disk.

For programs that inspect every entry: ``lockcache why``, ``ls``, ``stats``, ``evict``. One thread is fastest for what
is in memory: four took nearly twice as long for 100,000 attributes, because each read takes the interpreter's lock.
What is not in memory costs a disk access or a round trip for each entry, and a disk or a server handles several at
once (100,000 entries on a cold ext4: 38 s instead of 67 s, on a busy machine). The kernel distinguishes the two
cases, however busy the machine is: a thread that waits for a disk or a server gives up its core voluntarily, which is
counted (``ru_nvcsw``).

Not promised: that only items are read that the caller consumes.
"""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

__all__ = ["read_ahead"]

_Item = TypeVar("_Item")
_Read = TypeVar("_Read")

# Items that are read at once, and whose results are in memory at the same time.
_AT_ONCE: Final = 8

# Waits within one item that make threads worth starting. Listing a folder or loading a library causes a few.
_MANY_WAITS: Final = 16


def read_ahead(read: Callable[[_Item], _Read], items: Iterable[_Item]) -> Generator[_Read, None, None]:
    """Returns what ``read`` gives for each item, in their order. ``read`` must be safe to call from several threads.

    An item should need many reads: a shard, or some hundred entries. Raises what ``read`` raises, in the item's place.
    """
    rest = iter(items)
    for item in rest:
        waits = _waits()
        value = read(item)
        waits = _waits() - waits
        yield value
        if waits >= _MANY_WAITS:
            yield from _by_threads(read, rest)


def _waits() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _by_threads(read: Callable[[_Item], _Read], items: Iterator[_Item]) -> Iterator[_Read]:
    from concurrent.futures import ThreadPoolExecutor  # 10 ms

    pool = ThreadPoolExecutor(_AT_ONCE, "lockcache-read")
    ahead: deque[Future[_Read]] = deque()
    try:
        for item in items:
            ahead.append(pool.submit(read, item))
            if len(ahead) == _AT_ONCE:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
