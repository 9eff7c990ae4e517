# SPDX-License-Identifier: Apache-2.0
"""Calls to the operating system, and which of them commute: the relation by which orders are taken for the same.

Two calls commute unless they touch the same object and one of them changes it. Objects are finer than paths where that
is safe (the bytes of the state page by range, the times of a file apart from its bytes) and wider where it has to be: a
name is also a part of its folder's list, so making or removing a name does not commute with listing the folder; and a
call below a folder does not commute with making or removing that folder.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final, NamedTuple

_ALL: Final = 1 << 62
PAGE: Final = "lockcache/state"
#: The calls that change what others can see, before each of which a process may be killed.
# fmt: off
CHANGES: Final = frozenset((
    "chmod", "ftruncate", "lock_descriptor", "mkdir", "open", "pwrite", "rename", "rmdir", "setxattr", "unlink",
    "unlock_descriptor", "utime", "write",
))
# fmt: on
#: Those of them that change what is there, and not only times, modes and locks.
FILLS: Final = frozenset(("ftruncate", "open", "pwrite", "rename", "unlink", "write"))
# The calls by which a lock may fall.
_MAY_FREE: Final = frozenset(["unlock_descriptor", "close", "unlink", "rename"])
_LOCKED: Final = ("lockcache/locks/", "lockcache/leases/", "tmp/")
_STAGED: Final = re.compile(r"tmp/([0-9a-f]{2}\.[0-9]+)\.[0-9a-f]{16}\.([0-9]+)\.[0-9]+\.([0-9a-f]+)")
_NAMED: Final = re.compile(r"\b([0-9a-f]{2})/?[0-9a-f]{62}\b")


class Access(NamedTuple):
    """The use of one object by a call."""

    kind: str
    path: str
    writes: bool
    low: int = 0
    high: int = _ALL

    def conflicts(self, other: Access) -> bool:
        """Returns whether the order of the two can matter."""
        # Two changes in one folder commute, and so do two lists of it. What takes room meets what frees some: of two
        # calls that take some, the most is on disk behind both, in either order.
        is_met = self.writes != other.writes if self.kind in ("list", "names", "room") else self.writes or other.writes
        return (
            is_met
            and self.kind == other.kind
            and self.path == other.path
            and self.low < other.high
            and other.low < self.high
        )


class Call(NamedTuple):
    """One call, in front of which a process stands."""

    name: str
    #: Below the root of the cache, staged files named by their process: ``tmp/0a.4096.p1.0``.
    paths: tuple[str, ...]
    low: int = 0
    high: int = _ALL
    #: Whether an open makes the file.
    makes: bool = False

    def __str__(self) -> str:
        files = ", ".join(_NAMED.sub(r"\1/NAME", path) or "." for path in self.paths)
        return f"{self.name}({files})"

    @property
    def changes(self) -> bool:
        """Whether others can see that the call was made, so that a death behind it is another one than before it."""
        return self.name in CHANGES and (self.name != "open" or self.makes)

    @property
    def fills(self) -> bool:
        """Whether it changes which files there are, or their bytes."""
        return self.name in FILLS and (self.name != "open" or self.makes)

    def frees(self, path: str) -> bool:
        """Returns whether the lock of this file may be free after the call."""
        return self.name in _MAY_FREE and path in self.paths


def read_call(said: tuple[Any, ...], root: str, pids: dict[int, int]) -> Call:
    """Returns the call that a process states. ``pids``: the numbers of processes by their pid."""
    _, name, low, high, makes, files = said
    return Call(name, tuple(_relative(path, root, pids) for path in files), low, high, makes)


def _relative(path: str, root: str, pids: dict[int, int]) -> str:
    path = "" if path == root else path.removeprefix(f"{root}/")
    match = _STAGED.fullmatch(path)
    if match is None:
        return path
    return f"tmp/{match[1]}.p{pids.get(int(match[2]), 'dead')}.{match[3]}"


def accesses(call: Call, *, counts_room: bool) -> tuple[Access, ...]:
    """Returns what a call uses. ``counts_room``: whether the bytes on disk are an object of their own, for a cap."""
    found = [each for path in call.paths for each in _of_path(call, path)]
    if counts_room and call.name in _CHANGES_ROOM and call.paths[0].startswith(_COUNTED):
        found.append(Access("room", "", writes=call.name == "write"))
    return tuple(found)


def _of_path(call: Call, path: str) -> list[Access]:
    name, parent = call.name, os.path.dirname(path)
    if name == "lstat" and path == PAGE:
        name = "access"  # whether it is the same page; its length and times say nothing
    if name == "open" and call.makes:
        name = "rename"  # a new name, as by that
    if name == "close" or name.endswith("lock_descriptor"):
        return [Access("lock", path, writes=True)] if path.startswith(_LOCKED) else []
    found = [Access("name", parent, writes=False)] if name in _BY_NAME else []
    found += [Access(kind, path, writes, call.low, call.high) for kind, writes in _USES.get(name, ())]
    if name in _NAMED_IN_LISTS:
        found.append(Access("names", parent, writes=True))
    if name in _NAMED_IN_LISTS or name in _SHOWN_IN_LISTS:
        found.append(Access("list", parent, writes=True))
    return found


# The calls that take or free room under a cap, and whose files count.
_CHANGES_ROOM: Final = ("write", "unlink", "ftruncate", "rename")
_COUNTED: Final = ("entries/", "tmp/", "lockcache/records/")
_LOOKED_AT: Final = (("name", False), ("bytes", False), ("times", False))
# What each call uses of its path, and whether it changes that.
_USES: Final = {
    "rename": (("name", True),),
    "unlink": (("name", True),),
    "mkdir": (("name", True),),
    "rmdir": (("name", True), ("names", False)),
    "open": (("name", False),),
    "access": (("name", False),),
    "lstat": _LOOKED_AT,
    "stat": _LOOKED_AT,
    "fstat": _LOOKED_AT,
    "scandir": (("list", False),),
    "listdir": (("names", False),),
    "read": (("bytes", False),),
    "pread": (("bytes", False),),
    "getxattr": (("bytes", False),),
    "write": (("bytes", True),),
    "pwrite": (("bytes", True),),
    "setxattr": (("bytes", True),),
    "ftruncate": (("bytes", True),),
    "chmod": (("bytes", True),),
    "utime": (("times", True),),
}
# By a path that leads through its folder.
_BY_NAME: Final = ("rename", "unlink", "mkdir", "rmdir", "open", "access", "lstat", "stat")
# What a process sees that lists a folder by names alone, and that also looks at each file in it, which is one step.
_NAMED_IN_LISTS: Final = ("rename", "unlink", "mkdir", "rmdir")
_SHOWN_IN_LISTS: Final = ("write", "pwrite", "setxattr", "ftruncate", "chmod", "utime")


class Seen:
    """The accesses of each process in all runs so far: by them a call is known to meet a call of another process."""

    def __init__(self) -> None:
        self._by_object: dict[tuple[str, str], set[tuple[int, Access]]] = {}
        self._known: set[tuple[int, tuple[Access, ...]]] = set()
        #: Counts up with each access that was not known: then what met nobody may meet somebody now.
        self.version = 0

    def add(self, process: int, used: tuple[Access, ...]) -> None:
        """Note what a process used."""
        if (process, used) in self._known:
            return
        self._known.add((process, used))
        for each in used:
            self._by_object.setdefault((each.kind, each.path), set()).add((process, each))
        self.version += 1

    def meets_other(self, process: int, used: tuple[Access, ...]) -> bool:
        """Returns whether any other process makes a call with which these accesses do not commute."""
        return any(
            other != process and each.conflicts(known)
            for each in used
            for other, known in self._by_object.get((each.kind, each.path), ())
        )


def conflict(one: tuple[Access, ...], other: tuple[Access, ...]) -> bool:
    """Returns whether two calls do not commute."""
    return any(mine.conflicts(its) for mine in one for its in other)
