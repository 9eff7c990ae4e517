"""The protocol of another program's directory: its entries, each as one unit whatever files it has, and a locked
removal of one. See :mod:`.pyptx`, :mod:`.triton` and :mod:`.tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple, Protocol

from lockcache.errors import LockTimeoutError
from lockcache.lowlevel import Described, Evicted, Found, Layout, Slot

# Longer ones belong to no program that anybody wants to see in a table.
_LONGEST_TEXT: Final = 80


class Files(Protocol):
    """The operations of a layout. ``inode`` is 0 in a :class:`Found` that is not a whole entry."""

    #: Files that changed so recently may not be evicted.
    settle_seconds: float

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


class Eviction(NamedTuple):
    """The outcome of an eviction."""

    evicted: Evicted
    #: Under which first letters of names a lock was held: their writers are at work, or hang.
    busy_locks: set[str]
    #: The error that kept one of the entries, but not the others, from being removed.
    failure: OSError | None


def evict_each(
    files: Files,
    victims: Iterable[Found],
    should_stop: Callable[[], bool],
    advance: Callable[[], object] = lambda: None,
) -> Eviction:
    """Evict the entries that are unchanged since they were chosen, also after a failure. Ends early if asked to."""
    evicted, failure, busy_locks = Evicted(), None, set()
    for victim in victims:
        if should_stop():
            break
        advance()
        if victim.name[0] in busy_locks:
            continue
        try:
            if files.evict(victim):
                evicted += Evicted(1, victim.size_bytes)
        except LockTimeoutError:
            busy_locks.add(victim.name[0])
        except OSError as error:
            failure = error
    return Eviction(evicted, busy_locks, failure)


def described(found: Found, kind: object = None, arch: object = None, label: object = None) -> Described:
    """Returns the description of an entry with what its files state; leaves out what is not a short text."""
    entry = Described(found.name, found.size_bytes, found.last_use_ns, found.inode, "none")
    return entry._replace(kind=_short(kind), arch=_short(arch), label=_short(label))


def _short(text: Any) -> str | None:
    return text[:_LONGEST_TEXT] if isinstance(text, str) and text else None
