# SPDX-License-Identifier: Apache-2.0
"""Selection of the entries that an operator means, and removing exactly those.

Decides what a filter means, for all commands that show, pack or remove entries: an entry matches if it passes all
filters, by any of the values of each. A property that is not known matches only ``unknown``. Removing keeps invariants
3 (hard cap) and 4 (readers never wait) by :func:`.remove_victims`: under the shard's lock, after a second look,
so that an entry which was used or rewritten since it was chosen stays, and the accounting is exact afterwards.
"""

from __future__ import annotations

import fnmatch
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from lockcache.filestream.accounting import Found, scan_shard
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk import SHARDS, Layout, last_use_ns
from lockcache.filestream.eviction import Evicted, Goal, choose_victims, remove_victims
from lockcache.filestream.inspect.describe import UNKNOWN, Described, describe_entry
from lockcache.filestream.inspect.parallel_reads import read_ahead

# Victims between two reports of progress. So many, in the order of their shards, give each thread a shard of its own:
# with 512, only two of eight threads had work, and removing 100,000 entries took 103 s on a busy machine.
_CHUNK_ENTRIES: Final = 8192
# Values that an error names: more are a screen full.
_MOST_VALUES: Final = 20
# As many as in a sweep: an unlink mostly waits.
_THREADS: Final = 8
# Entries in shards that were busy are tried again: a lock is held for half a millisecond.
_ROUNDS: Final = 3


@dataclass(frozen=True)
class Selection:
    """The filters of an operator. Patterns are those of a shell (``sm_7*``), in any case. Any of several patterns
    suffices; without patterns, all entries match."""

    kind: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    #: A name and version ("nvrtc 13.5.37"), or either; "13.5" stands for all of 13.5.
    compiler: tuple[str, ...] = ()
    label: tuple[str, ...] = ()
    namespace: tuple[str, ...] = ()
    #: Not used for so long.
    unused_seconds: float | None = None
    #: Used within so long.
    used_seconds: float | None = None

    def __post_init__(self) -> None:
        # A str is a sequence of letters, each of them a pattern.
        for name in _FIELDS:
            if isinstance(getattr(self, name), str):
                raise TypeError(f"{name} must be a tuple of patterns, got {getattr(self, name)!r}")

    @property
    def needs_record(self) -> bool:
        """Whether the record of each entry has to be read: size and times do not suffice."""
        return any(getattr(self, name) for name in _FIELDS)

    def admits(self, found: Found, now_ns: int) -> bool:
        """Returns whether the times of an entry match."""
        unused_ns = now_ns - found.last_use_ns
        return (self.unused_seconds is None or unused_ns > self.unused_seconds * 1e9) and (
            self.used_seconds is None or unused_ns <= self.used_seconds * 1e9
        )

    def matches(self, described: Described) -> bool:
        """Returns whether the description of an entry, which takes its record, matches."""
        return all(
            not patterns or any(matches(getattr(described, name), pattern) for pattern in patterns)
            for name, matches in _FIELDS.items()
            for patterns in [getattr(self, name)]
        )


class Census:
    """Values of the entries that were looked at: so that a filter which none of them matches can be refused by name."""

    def __init__(self, selection: Selection) -> None:
        #: Filters that no entry has matched so far.
        self.unmatched = {(name, pattern) for name in _FIELDS for pattern in getattr(selection, name)}
        self._values: dict[str, set[str]] = {name: set() for name, _ in self.unmatched}

    def add(self, described: Described) -> None:
        """Count one entry."""
        for name, values in self._values.items():
            if len(values) <= _MOST_VALUES:
                values.add(getattr(described, name) or UNKNOWN)
        if self.unmatched:
            self.unmatched = {
                (name, pattern)
                for name, pattern in self.unmatched
                if not _FIELDS[name](getattr(described, name), pattern)
            }

    def refuse_unmatched(self) -> None:
        """Raises :class:`ValueError` naming a value that nothing has, and which there are."""
        for name, pattern in sorted(self.unmatched):
            values = sorted(self._values[name])
            if values:
                # As a shell takes them: names have spaces and commas.
                known = ", ".join(map(shlex.quote, values[:_MOST_VALUES]))
                more = ", ..." if len(values) > _MOST_VALUES else ""
                raise ValueError(f"no {name} {pattern!r} here; there are: {known}{more}")


def select_entries(
    layout: Layout, selection: Selection, now_ns: int, after_shard: Callable[[], object] = lambda: None
) -> Iterator[Found]:
    """Yields the selected entries, in no order. ``after_shard`` is called 256 times, and may raise to give up."""
    return select_counted(layout, selection, now_ns, after_shard, Census(selection))


def select_counted(
    layout: Layout, selection: Selection, now_ns: int, after_shard: Callable[[], object], census: Census
) -> Iterator[Found]:
    """Yields the entries of :func:`select_entries`, and counts in ``census`` what was looked at."""

    def read(shard: int) -> dict[Found, Described | None]:
        admitted = (found for found in scan_shard(layout, shard) if selection.admits(found, now_ns))
        return {found: describe_entry(layout, found) if selection.needs_record else None for found in admitted}

    with closing(read_ahead(read, range(SHARDS))) as shards:
        for described in shards:
            yield from select_among(described, selection, described.get, now_ns, census)
            after_shard()


def select_among(
    entries: Iterable[Found],
    selection: Selection,
    describe: Callable[[Found], Described | None],
    now_ns: int,
    census: Census,
) -> Iterator[Found]:
    """Yields the selected ones of the entries, and counts in ``census`` what was looked at."""
    for found in entries:
        if selection.admits(found, now_ns) and (
            not selection.needs_record or _is_meant(selection, describe(found), found, census)
        ):
            yield found


def _is_meant(selection: Selection, described: Described | None, found: Found, census: Census) -> bool:
    if described is None:
        return False
    census.add(described)
    # An entry that was replaced since has another inode: it was just compiled.
    return described.inode == found.inode and selection.matches(described)


def choose_selected(
    layout: Layout, selection: Selection, needed_bytes: int | None, now_ns: int, after_shard: Callable[[], object]
) -> list[Found]:
    """Returns the least recently used of the selected entries that add up to ``needed_bytes``; ``None``: all."""
    return least_recent(select_entries(layout, selection, now_ns, after_shard), needed_bytes)


def least_recent(meant: Iterable[Found], needed_bytes: int | None) -> list[Found]:
    """Returns the least recently used of these entries that add up to ``needed_bytes``; ``None``: all."""
    return list(meant) if needed_bytes is None else choose_victims(meant, needed_bytes)


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


def _is_there(layout: Layout, victim: Found) -> bool:
    """Returns whether the victim is unchanged since it was chosen: its shard was busy, then."""
    try:
        status = os.lstat(layout.entry(victim.name))
    except (FileNotFoundError, NotADirectoryError):
        return False
    return status.st_ino == victim.inode and last_use_ns(status) == victim.last_use_ns


def _matches(value: str | None, pattern: str) -> bool:
    return fnmatch.fnmatchcase((value or UNKNOWN).lower(), pattern.lower())


def _matches_compiler(value: str | None, pattern: str) -> bool:
    if value is None:
        return _matches(value, pattern)
    wanted = pattern.lower()
    tool, _, version = value.lower().partition(" ")
    texts = (value.lower(), version, tool)
    # "13.5" is not "13.50": a version ends at a point.
    return any(fnmatch.fnmatchcase(text, wanted) or text.startswith(f"{wanted}.") for text in texts)


#: The fields that a filter can test, and how each is matched.
_FIELDS: Final[dict[str, Callable[[str | None, str], bool]]] = {
    "kind": _matches,
    "arch": _matches,
    "compiler": _matches_compiler,
    "label": _matches,
    "namespace": _matches,
}
