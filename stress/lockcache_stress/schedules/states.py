# SPDX-License-Identifier: Apache-2.0
"""States of a run: two runs that came to the same one go on alike, so that only the first is followed from there.

A state is what each process has seen, what is on disk, and where everybody stands. What a process has seen is each of
its calls with what the call returned, since between two calls it does nothing that depends on anything else: outcomes,
which file a name is, its bytes by what was written into it, the names in a folder, the bytes of the state page, the
order in which files were used (where there is a cap), who is dead, whether a bell rang, and the clock. So two orders
with the same state have made the same calls, with the same results, and what is judged of them differs in nothing but
which operation had ended before another one began, which is a part of the state too.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lockcache_stress.schedules.calls import PAGE, Call

_COUNTED_BYTES: Final = 8192
#: The calls by which a file's bytes become others, and those by which its times do.
_CHANGES_BYTES: Final = frozenset(("write", "pwrite", "setxattr", "ftruncate", "chmod"))
_SETS_TIMES: Final = frozenset(("utime", "write"))
_CHANGES_NAMES: Final = frozenset(("open", "mkdir", "rename", "unlink", "rmdir"))
_READS: Final = frozenset(("read", "pread", "getxattr", "fstat", "stat", "lstat"))
_LISTS: Final = frozenset(("scandir", "listdir"))
_WITH_TIMES: Final = ("entries/", "tmp/")
_ENTRIES: Final = "entries/"
#: Said of a call on a file that has lost its name: which of them it is, a path does not say.
DELETED: Final = "deleted"


class Moment(NamedTuple):
    """Where everybody stands in front of a step."""

    preemptions: int
    current: int
    has_killed: bool
    clock: float
    #: By process: whether it is redundant, asleep, idle and over, until when it sleeps, and for which lock.
    stands: tuple[tuple[bool, bool, bool, bool, float, str], ...]


class Made(NamedTuple):
    """One step that was made, with what is not a part of the call."""

    process: int
    #: ``None`` for a sleep or a death.
    call: Call | None
    is_death: bool
    clock: float
    #: What the call and what followed it said, and a sum of the bytes that it wrote.
    said: tuple[object, ...]
    #: The page behind it, if that was looked at.
    image: bytes | None
    #: By process: how many of its operations had ended before, and whether this step begins one.
    ended: tuple[int, ...]
    begins: bool


@dataclass
class Disk:
    """What is on disk, by what was done to it since the beginning."""

    #: What the state page says of bytes.
    image: bytes
    #: By path: which file it is, ``None`` if there is none; of those that were not touched, nothing is kept.
    names: dict[str, object] = field(default_factory=dict)
    content: dict[str, int] = field(default_factory=dict)
    #: Files with a time, the one used last at the end.
    used: dict[str, None] = field(default_factory=dict)
    tables: dict[int, object] = field(default_factory=dict)
    made: dict[str, int] = field(default_factory=dict)
    #: The folders in which something changed.
    folders: set[str] = field(default_factory=set)

    def apply(self, made: Made, call: Call, *, has_order: bool) -> None:
        """Do what a call did that did not fail."""
        path = call.paths[0]
        if call.name in _CHANGES_NAMES:
            self.folders.update(map(os.path.dirname, call.paths))
        if (call.name == "open" and call.makes) or call.name == "mkdir":
            self.made[path] = count = self.made.get(path, 0) + 1
            self.names[path] = (path, count)
        elif call.name == "rename":
            target = call.paths[1]
            self.names[target], self.names[path] = self.names.get(path, path), None
            self.content[target] = self.content.pop(path, 0)
            if has_order and self.used.pop(path, 0) is None:
                self.used.pop(target, None)
                self.used[target] = None
        elif call.name in ("unlink", "rmdir"):
            self.names[path] = None
            self.content.pop(path, None)
            self.used.pop(path, None)
        elif call.name in _CHANGES_BYTES:
            if path == PAGE and call.low >= _COUNTED_BYTES:
                self.tables[call.low] = made.said
            elif path != PAGE:
                self.content[path] = hash((self.content.get(path, 0), call.name, call.low, call.high, made.said))
        if has_order and call.name in _SETS_TIMES and path.startswith(_WITH_TIMES):
            self.used.pop(path, None)
            self.used[path] = None

    def seen_by(self, call: Call) -> object:
        """Returns what a call sees."""
        path = call.paths[0]
        if call.name in _LISTS:
            return self._listed(path)
        if path == PAGE and call.name in _READS and call.name != "lstat":
            is_whole = call.high > _COUNTED_BYTES
            return self.image[call.low : call.high], tuple(self.tables.items()) if is_whole else ()
        if path in self.folders:
            return self.names.get(path, path), self._listed(path)
        if call.name in _READS:
            return self.names.get(path, path), self.content.get(path, 0), self._order(path)
        return self.names.get(path, path)

    def _order(self, path: str) -> object:
        return tuple(self.used) if path in self.used else ()

    def _listed(self, folder: str) -> object:
        below = f"{folder}/"
        return (
            tuple(sorted((path, its, self.content.get(path, 0)) for path, its in self.names.items()
                         if os.path.dirname(path) == folder and its is not None)),
            tuple(sorted(path for path, its in self.names.items() if its is None and os.path.dirname(path) == folder)),
            tuple(path for path in self.used if path.startswith(below)),
        )  # fmt: skip

    @property
    def key(self) -> int:
        """A sum of all."""
        return hash((
            frozenset(self.names.items()),
            frozenset(self.content.items()),
            frozenset(self.tables.items()),
            self.image,
            tuple(self.used),
        ))  # fmt: skip


def states_of(
    made: Sequence[Made], count: int, image: bytes, begin: int, *, has_order: bool
) -> Iterator[tuple[int, int]]:
    """Yields each step from ``begin`` on, and the state in front of it; at last the one behind all.

    ``image``: the page in the beginning. ``has_order``: whether somebody evicts.
    """
    disk, seen, began, dead = Disk(image), [0] * count, [0] * count, frozenset[int]()
    for at, each in enumerate(made):
        if at >= begin:
            yield at, hash((tuple(seen), tuple(began), disk.key))
        number, call = each.process, each.call
        if each.is_death:
            dead |= {number}
        if each.begins:
            began[number] = hash((began[number], each.ended, dead))
        saw: object = ()
        if call is not None:
            saw = tuple(seen) if DELETED in each.said else disk.seen_by(call)
            if call.name == "stat" and call.paths[0].startswith(_ENTRIES):  # a second look, which is judged
                saw = saw, each.ended
            if "failed" not in each.said:
                disk.apply(each, call, has_order=has_order)
        if each.image is not None:
            disk.image = each.image
        seen[number] = hash((seen[number], call, each.said, each.clock, each.is_death, dead, saw))
    yield len(made), hash((tuple(seen), tuple(began), disk.key))


class Known:
    """The states that all runs so far came to, each with the fewest preemptions."""

    def __init__(self) -> None:
        self._fewest: dict[int, int] = {}

    def add(self, state: int, moment: Moment) -> bool:
        """Note a state. Returns whether it was known, with as many preemptions at most."""
        key = hash((state, moment[1:]))
        known = self._fewest.get(key)
        if known is not None and known <= moment.preemptions:
            return True
        self._fewest[key] = moment.preemptions
        return False

    def __len__(self) -> int:
        return len(self._fewest)
