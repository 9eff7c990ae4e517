# SPDX-License-Identifier: Apache-2.0
"""Names: how soon the other host sees that a file is new, was replaced, or was removed.

A client of a network file system may remember what it once saw of a name, and that there was none. A process that opens
the folder first asks the server; so each of these is tried without that, and where it is late, with it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, Finding
from lockcache.doctor.pair.messages import Numbers
from lockcache.doctor.pair.trial import Side, Trial, each_when, is_late, worst
from lockcache.filestream.disk import BY_PATH

_OPEN: Final = os.O_RDONLY | os.O_CLOEXEC
_OLD, _NEW = b"0" * 4096, b"1" * 4096
# A kernel is compiled in no less.
_SOON_US: Final = 2_000_000

# The loss if a name is late, but not once its folder was opened.
_AFRESH: Final = "each read opens the folder first: a call to the server more"

# ---- new names: one in a folder that is there, and one in a folder that is new as well -------------------------------

_NEW_NAMES: Final = {"name": "folder/name", "folder": "new folder/name"}
_NEW_WORDS: Final = {"name": "in a folder that was there:", "folder": "in a folder that was missing too:"}


def _create(side: Side) -> Numbers:
    BY_PATH.make_folder(side.at("folder"))
    side.sync()
    side.sync()  # the other host saw both missing
    BY_PATH.make_folder(side.at("new folder"))
    for path in _NEW_NAMES.values():
        side.put(path, _NEW)
    side.sync()
    return {}


def _see_created(side: Side) -> Numbers:
    side.sync()
    for path in _NEW_NAMES.values():
        side.is_there(path)
    side.sync()
    side.sync()
    return _watch(side, {name: (path, partial(side.is_there, path)) for name, path in _NEW_NAMES.items()})


def _judge_new(seen: list[Numbers]) -> Finding:
    found = f"a name that was seen missing is seen, {each_when(seen, _NEW_WORDS)}"
    times = [worst(seen, name) for name in _NEW_NAMES]
    is_good = min(times) >= 0 and max(times) <= _SOON_US
    means = "a key that a host missed stays missing there for so long after another stored it, and is compiled again"
    advice = "look a key up by get_or_compute, which opens the folder; mount with lookupcache=positive (NFS)"
    return _finding("new names", seen, _NEW_NAMES, found, is_good=is_good, means=means, advice=advice)


# ---- replaced files: that nobody has open, that somebody who looks has, that somebody where it is replaced has -------

_REPLACED: Final = {
    "idle": "open nowhere:",
    "reading": "open where it is read:",
    "writing": "open where it is replaced:",
}


def _replace(side: Side) -> Numbers:
    for name in _REPLACED:
        side.put(name, _OLD)
    with BY_PATH.open(side.at("writing"), _OPEN):
        side.sync()
        side.sync()  # the other host read them all, and has one open
        for name in _REPLACED:
            side.put(name, _NEW)
        side.sync()
        side.sync()  # the other host has looked
    return {}


def _see_replaced(side: Side) -> Numbers:
    side.sync()
    with BY_PATH.open(side.at("reading"), _OPEN):
        for name in _REPLACED:
            side.holds(name, _OLD)
        side.sync()
        side.sync()
        seen = _watch(side, {name: (name, partial(side.holds, name, _NEW)) for name in _REPLACED})
        side.sync()
    return seen


def _judge_replaced(seen: list[Numbers]) -> Finding:
    found = f"the new one is read, the old one being {each_when(seen, _REPLACED)}"
    is_good = not any(is_late(seen, name) for name in _REPLACED)
    means = "a hit may give a value that another host has replaced; keys that are digests are never replaced"
    advice = "use keys that say all that the value depends on, as make_key does; a node-local directory otherwise"
    return _finding("replaced files", seen, _REPLACED, found, is_good=is_good, means=means, advice=advice)


# ---- removed files ---------------------------------------------------------------------------------------------------

_REMOVED: Final = {"idle": "open nowhere:", "writing": "open where it is removed:"}


def _remove(side: Side) -> Numbers:
    for name in _REMOVED:
        side.put(name, _OLD)
    with BY_PATH.open(side.at("writing"), _OPEN):
        side.sync()
        side.sync()
        for name in _REMOVED:
            side.layout.reach.unlink(side.at(name))
        side.sync()
        side.sync()
    return {}


def _see_removed(side: Side) -> Numbers:
    side.sync()
    for name in _REMOVED:
        side.holds(name, _OLD)
    side.sync()
    side.sync()
    seen = _watch(side, {name: (name, partial(side.is_gone, name)) for name in _REMOVED})
    side.sync()
    return seen


def _judge_removed(seen: list[Numbers]) -> Finding:
    found = f"seen to be gone, being {each_when(seen, _REMOVED)}"
    is_good = all(0 <= worst(seen, name) <= _SOON_US for name in _REMOVED)
    means = (
        "an entry that was deleted or cleared is served on other hosts for so long; one that was evicted does no harm"
    )
    advice = "wait so long after `lockcache clear` before you rely on it elsewhere"
    return _finding("removed files", seen, _REMOVED, found, is_good=is_good, means=means, advice=advice)


NEW: Final = Trial(_create, _see_created, _judge_new)
REPLACED: Final = Trial(_replace, _see_replaced, _judge_replaced)
REMOVED: Final = Trial(_remove, _see_removed, _judge_removed)


def _watch(side: Side, looks: dict[str, tuple[str, Callable[[], bool]]]) -> Numbers:
    """Watch like :meth:`Side.watch`, and state what becomes visible only after the folders were opened again."""
    seen = side.watch(**{name: look for name, (_, look) in looks.items()})
    for name, (path, look) in looks.items():
        if seen[f"{name}_us"] < 0:
            seen[f"{name}_fresh"] = side.freshly(path, look)
    return seen


def _is_seen_afresh(seen: list[Numbers], names: Iterable[str]) -> bool:
    """Returns whether both hosts see each of these soon, or at least after they opened its folder."""
    return all(
        0 <= numbers.get(f"{name}_us", -1) <= _SOON_US or numbers.get(f"{name}_fresh")
        for numbers in seen
        for name in names
    )


def _finding(
    what: str, seen: list[Numbers], names: Iterable[str], found: str, *, is_good: bool, means: str, advice: str
) -> Finding:
    measured = {f"{name}_us": worst(seen, name) for name in names}
    if is_good:
        return Finding(what, GOOD, found, measured=measured)
    if _is_seen_afresh(seen, names):
        return Finding(what, NOTE, found, _AFRESH, "", measured)
    return Finding(what, DEGRADED, found, means, advice, measured)
