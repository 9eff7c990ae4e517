"""Selection of the entries that an operator means, and removing exactly those.

Decides what a filter means, once for all who show and who remove: all that are given must hold, and an entry of which
something is not known matches no filter on it but ``unknown``. Removing keeps invariants 3 (hard cap) and 4 (readers
never wait) by :func:`.remove.remove_victims`: under the shard's lock, after a second look, so that an entry which was
used or rewritten since it was chosen stays, and the accounting is exact afterwards.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from lockcache.filestream.accounting import Found, scan_shard
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import SHARDS, Layout, last_use_ns
from lockcache.filestream.entry import Described, describe_entry
from lockcache.filestream.eviction.choose import Goal, choose_victims
from lockcache.filestream.eviction.remove import Evicted, remove_victims

__all__ = ["UNKNOWN", "Selection", "choose_selected", "evict_selected", "select_entries"]

#: What a filter calls that which is not known.
UNKNOWN: Final = "unknown"

# Victims between two reports of progress. Of so many in the order of their shards each thread finds a shard of its own:
# with 512, two of eight had work, and removing 100,000 took 103 s on a busy machine.
_CHUNK_ENTRIES: Final = 8192
# As a sweep has it: an unlink is mostly waiting.
_THREADS: Final = 8
# Entries in shards that were busy are tried again: a lock is held for half a millisecond.
_ROUNDS: Final = 3


@dataclass(frozen=True)
class Selection:
    """What is asked for. Patterns are those of a shell (``sm_7*``), in any case; ``None``: any."""

    kind: str | None = None
    arch: str | None = None
    #: A name and version ("nvrtc 13.5.37"), or either; "13.5" stands for all of 13.5.
    compiler: str | None = None
    #: Not used for so long.
    unused_seconds: float | None = None

    @property
    def needs_record(self) -> bool:
        """Whether the entry itself has to be looked at, beyond what the directory says."""
        return (self.kind, self.arch, self.compiler) != (None, None, None)

    def admits(self, found: Found, now_ns: int) -> bool:
        """What is known from size and times alone."""
        return self.unused_seconds is None or now_ns - found.last_use_ns > self.unused_seconds * 1e9

    def matches(self, described: Described) -> bool:
        """What takes the record."""
        return (
            _matches(described.kind, self.kind)
            and _matches(described.arch, self.arch)
            and _matches_compiler(described.compiler, self.compiler)
        )


def select_entries(
    layout: Layout, selection: Selection, now_ns: int, after_shard: Callable[[], object] = lambda: None
) -> Iterator[Found]:
    """The entries that are meant, in no order. ``after_shard`` is called 256 times, and may raise to give up."""
    for shard in range(SHARDS):
        for found in scan_shard(layout, shard):
            if selection.admits(found, now_ns) and (not selection.needs_record or _is_meant(layout, selection, found)):
                yield found
        after_shard()


def choose_selected(
    layout: Layout, selection: Selection, needed_bytes: int | None, now_ns: int, after_shard: Callable[[], object]
) -> list[Found]:
    """Of the entries that are meant, the least recently used that add up to ``needed_bytes``; ``None``: all."""
    meant = select_entries(layout, selection, now_ns, after_shard)
    return list(meant) if needed_bytes is None else choose_victims(meant, needed_bytes, 0)[0]


def evict_selected(
    directory: CacheDirectory,
    victims: list[Found],
    goal: Goal | None,
    progress: Callable[[int], object],
    should_stop: Callable[[], bool] = lambda: False,
) -> Evicted:
    """Remove ``victims`` that nobody used since they were chosen, until ``goal`` is met.

    ``progress`` is called with how many were dealt with since the last time. ``should_stop`` is asked between lock
    holds, some milliseconds; after it said so once it must go on saying so.
    """
    done, left = Evicted(), victims
    for attempt in range(_ROUNDS):
        for start in range(0, len(left), _CHUNK_ENTRIES):
            chunk = left[start : start + _CHUNK_ENTRIES]
            done += remove_victims(directory, chunk, goal, should_stop=should_stop, threads=_THREADS)
            if attempt == 0:
                progress(len(chunk))
        if should_stop() or (goal is not None and goal.is_met(directory.usage().total())):
            break
        left = [victim for victim in left if _is_there(directory.layout, victim)]
        if not left:
            break
    return done


def _is_meant(layout: Layout, selection: Selection, found: Found) -> bool:
    described = describe_entry(layout, found)
    # One that was replaced since has another inode; it is somebody's fresh work.
    return described is not None and described.inode == found.inode and selection.matches(described)


def _is_there(layout: Layout, victim: Found) -> bool:
    """Whether it stands as it was chosen: its shard was busy, then."""
    try:
        status = os.lstat(layout.entry(victim.name))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return status.st_ino == victim.inode and last_use_ns(status) == victim.last_use_ns


def _matches(value: str | None, pattern: str | None) -> bool:
    return pattern is None or fnmatch.fnmatchcase((value or UNKNOWN).lower(), pattern.lower())


def _matches_compiler(value: str | None, pattern: str | None) -> bool:
    if value is None or pattern is None:
        return _matches(value, pattern)
    wanted = pattern.lower()
    tool, _, version = value.lower().partition(" ")
    texts = (value.lower(), version, tool)
    # "13.5" is not "13.50": a version ends at a point.
    return any(fnmatch.fnmatchcase(text, wanted) or text.startswith(f"{wanted}.") for text in texts)
