# SPDX-License-Identifier: Apache-2.0
"""The protocol of another program's directory: its entries, each as one unit whatever files it has, and a locked
removal of one. See :mod:`.pyptx`, :mod:`.triton` and :mod:`.tree`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from lockcache.errors import LockTimeoutError
from lockcache.lowlevel import Described, Evicted, Found, Layout, Slot

#: A rename or an unlink mostly waits: for the journal, a file server, or a core. So threads share the work of a layout
#: whose evictions have no lock in common.
THREADS: Final = 8
# Between two looks at signals, and at what else is due.
_AT_ONCE: Final = 64

# Longer ones belong to no program that anybody wants to see in a table.
_LONGEST_TEXT: Final = 80


class Files(Protocol):
    """The operations of a layout. ``inode`` is 0 in a :class:`Found` that is not a whole entry."""

    #: Files that changed so recently may not be evicted.
    settle_seconds: float
    #: How many threads may call :meth:`evict` at a time. All else is for one thread.
    evicting_threads: int

    @property
    def layout(self) -> Layout:
        """The layout of the daemon's own files."""

    @property
    def is_pending(self) -> bool:
        """Whether entries that were evicted are still on the disk, and :meth:`finish` has work to do."""

    def prepare(self) -> None:
        """Make what is missing of the directories."""

    def glance(self) -> object:
        """Returns a value that differs after a change, as far as that shows without a walk. Cheap."""

    def scan(self, between: Callable[[], object] = ...) -> Iterator[Found]:
        """Yields every entry, and the remains of entries. ``between`` is called often, and may raise to give up."""

    def restate(self, found: Found) -> None:
        """Date the files of an entry to now whose use is dated to come."""

    def staged_bytes(self) -> int:
        """Returns the bytes that are being written."""

    def evict(self, found: Found) -> bool:
        """Remove all of an entry if it is as it was found. Raises :class:`LockTimeoutError` where it is locked."""

    def finish(self) -> bool:
        """Go on with what :meth:`evict` began. Returns whether anything was removed. Raises :class:`OSError`."""

    def reap(self, names: Iterable[str]) -> None:
        """Remove what dead writers left staged, and of these names, if they are not entries."""

    def close(self) -> None:
        """Close what is open."""


class Held(NamedTuple):
    """The result of one walk."""

    #: Bytes of everything, and the number of whole entries.
    slot: Slot
    #: Names that are not whole entries.
    halves: list[str]


def measure(found: Iterable[Found], staged_bytes: int) -> Held:
    """Returns the sums of a walk."""
    total_bytes, entries = staged_bytes, 0
    halves = []
    for each in found:
        total_bytes += each.size_bytes
        if each.inode:
            entries += 1
        else:
            halves.append(each.name)
    return Held(Slot(total_bytes, entries), halves)


def is_same(now: Found, found: Found) -> bool:
    """Returns whether an entry is as it was found: the same, and not used or written since.

    Its size does not tell: file systems take back blocks some time after a write, and of a file with several links
    only the first counts in a walk.
    """
    return now._replace(size_bytes=found.size_bytes) == found


class Eviction(NamedTuple):
    """The outcome of an eviction."""

    evicted: Evicted
    #: In which folders, or under which first letters of names in the root, a lock was held: their writers are at work,
    #: or hang.
    busy_locks: set[str]
    #: The error that kept one of the entries, but not the others, from being removed.
    failure: OSError | None


def evict_each(
    files: Files,
    victims: Iterable[Found],
    should_stop: Callable[[], bool],
    advance: Callable[[], object] = lambda: None,
) -> Eviction:
    """Evict the entries that are unchanged since they were chosen, also after a failure. Ends early if asked to.

    ``advance`` is called for each victim, by no other thread.
    """
    evicted, failure, busy_locks = Evicted(), None, set[str]()
    evict_one = partial(_evict_one, files, busy_locks)
    left = iter(victims)
    with mapping(files.evicting_threads) as (mapped, at_once):
        while not should_stop() and (batch := list(islice(left, at_once))):
            for _ in batch:
                advance()
            for gone, error in mapped(evict_one, batch):
                evicted, failure = evicted + gone, error or failure
    return Eviction(evicted, busy_locks, failure)


def _evict_one(files: Files, busy_locks: set[str], victim: Found) -> tuple[Evicted, OSError | None]:
    shared = os.path.dirname(victim.name) or victim.name[0]
    if shared not in busy_locks:
        try:
            if files.evict(victim):
                return Evicted(1, victim.size_bytes), None
        except LockTimeoutError:
            busy_locks.add(shared)
        except OSError as error:
            return Evicted(), error
    return Evicted(), None


@contextlib.contextmanager
def mapping(threads: int) -> Iterator[tuple[Any, int]]:
    """Gives a function like :func:`map`, and how many items one call of it is for."""
    if threads == 1:
        yield map, 1
        return
    from concurrent.futures import ThreadPoolExecutor  # 10 ms that only evictions pay

    with ThreadPoolExecutor(threads) as pool:
        yield pool.map, _AT_ONCE


def described(found: Found, kind: object = None, arch: object = None, label: object = None) -> Described:
    """Returns the description of an entry with what its files state; leaves out what is not a short text."""
    entry = Described(found.name, found.size_bytes, found.last_use_ns, found.inode, "none")
    return entry._replace(kind=_short(kind), arch=_short(arch), label=_short(label))


def _short(text: Any) -> str | None:
    return text[:_LONGEST_TEXT] if isinstance(text, str) and text else None
