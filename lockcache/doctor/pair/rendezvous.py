# SPDX-License-Identifier: Apache-2.0
"""Rendezvous of two hosts that share only the directory: each finds the other, and they agree which one is first.

Each has a folder with a random token in its name, writes in that only, and reads those of others. What a killed run
left looks like one that waits, so nobody is believed to be there before a *beat* of it was seen to change. Then the
larger token offers (``to-TOKEN``) and the smaller accepts (``yes-TOKEN``): a host that has an offer out accepts none,
so of any number of hosts each is in one pair at most. Nothing here rests on locks or on exclusive creation, which are
about to be tried.

Keeps the promise that a killed run leaves nothing for long: a later run removes a folder whose owner is known to be
dead, or that was not written to for ten minutes.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from typing import Any, Final, NamedTuple

from lockcache.doctor.findings import Subject
from lockcache.doctor.pair.hosts import Card, owner_of
from lockcache.doctor.pair.messages import put_file
from lockcache.doctor.probe_dir import PREFIX, remove_probe
from lockcache.filestream.disk import (
    Descriptor,
    Layout,
    is_alive,
    open_folder,
    read_json,
)

#: Before the random part of a token.
TOKEN_PREFIX: Final = "pair-"
_FOLDER: Final = re.compile(re.escape(PREFIX + TOKEN_PREFIX) + r"([0-9a-f]{16})", re.ASCII)
_CARD: Final = "card.json"
_LARGEST_CARD_BYTES: Final = 4096

# A host that waits shows a new beat with each look, and a look at a slow server takes less.
_ALIVE_SECONDS: Final = 10.0
# The age, by the clock of the file system, from which a folder is removed. A host that waits writes more often.
_OLD_SECONDS: Final = 600.0


class Met(NamedTuple):
    """The other host."""

    #: Its folder.
    folder: str
    #: Its statements about itself, which are not trusted.
    card: dict[str, Any]
    #: Whether this host is the first of the two.
    is_first: bool


class _Seen(NamedTuple):
    beats: frozenset[str]
    #: When the beats were last seen to change; ``None`` if they never were.
    changed_at: float | None

    @property
    def is_alive(self) -> bool:
        return self.changed_at is not None and time.monotonic() - self.changed_at < _ALIVE_SECONDS


class Meeting:
    """One host's part in the meeting."""

    def __init__(self, layout: Layout, folder: str, card: Card) -> None:
        """``folder``: this host's own. Raises :class:`OSError`."""
        self._layout = layout
        self._folder = folder
        self._token = _token(folder)
        self._seen: dict[str, _Seen] = {}
        self._offered_to = ""
        self._beat = 0
        put_file(layout, f"{folder}/{_CARD}", card.encode())

    def look(self) -> Met | None:
        """Show that this host waits, and look for another. Raises :class:`OSError`."""
        self._show_beat()
        marks = _folders(self._layout, self._folder)
        for token, names in marks.items():
            if f"yes-{self._token}" in names:
                return self._meet(token)
        self._note(marks)
        is_free = {token: not any(name.startswith(("to-", "yes-")) for name in names) for token, names in marks.items()}
        if self._offered_to:
            if not is_free.get(self._offered_to) or not self._seen[self._offered_to].is_alive:
                self._unmark(f"to-{self._offered_to}")
                self._offered_to = ""
            return None
        waiting = [token for token in marks if token < self._token and is_free[token] and self._seen[token].is_alive]
        if waiting:
            self._offered_to = min(waiting)
            self._mark(f"to-{self._offered_to}")
            return None
        offering = [token for token, names in marks.items() if token > self._token and f"to-{self._token}" in names]
        if not offering:
            return None
        self._mark(f"yes-{min(offering)}")
        return self._meet(min(offering))

    def _meet(self, token: str) -> Met:
        folder = os.path.join(os.path.dirname(self._folder), PREFIX + TOKEN_PREFIX + token)
        return Met(folder, read_json(self._layout, f"{folder}/{_CARD}", _LARGEST_CARD_BYTES), self._token < token)

    def _note(self, marks: dict[str, frozenset[str]]) -> None:
        for token, names in marks.items():
            beats = frozenset(name for name in names if name.startswith("beat-"))
            before = self._seen.get(token)
            if before is None:
                self._seen[token] = _Seen(beats, None)
            elif beats and beats != before.beats:
                self._seen[token] = _Seen(beats, time.monotonic())

    def _show_beat(self) -> None:
        self._mark(f"beat-{self._beat + 1}")
        if self._beat:
            self._unmark(f"beat-{self._beat}")
        self._beat += 1

    def _mark(self, name: str) -> None:
        made = Descriptor()
        self._layout.reach.create(f"{self._folder}/{name}", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, made)
        made.close()

    def _unmark(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._layout.reach.unlink(f"{self._folder}/{name}")


def remove_leftovers(subject: Subject, layout: Layout) -> int:
    """Remove what killed runs left next to the probe of ``subject``. Returns how many there were."""
    removed = 0
    parent = os.path.dirname(subject.probe)
    now = os.stat(subject.probe).st_mtime  # it was just made: by the clock of the file system
    for token in _folders(layout, subject.probe):
        left = os.path.join(parent, PREFIX + TOKEN_PREFIX + token)
        with contextlib.suppress(OSError):  # it is being removed, or cannot be: the next run tries again
            if _is_dead(layout, left) or now - os.stat(left).st_mtime > _OLD_SECONDS:
                remove_probe(subject._replace(probe=left))
                removed += 1
    return removed


def _is_dead(layout: Layout, folder: str) -> bool:
    """Returns whether a folder's owner is known to be dead, which is known on the owner's host only."""
    try:
        owner = owner_of(read_json(layout, f"{folder}/{_CARD}", _LARGEST_CARD_BYTES))
    except (OSError, ValueError):
        return False
    return is_alive(owner) is False


def _folders(layout: Layout, mine: str) -> dict[str, frozenset[str]]:
    """Returns, for the token of each other folder that belongs to our user, the names in it."""
    found = {}
    parent, own_name = os.path.split(mine)
    with open_folder(*_way(layout, parent)) as parent_fd:
        uid = os.stat(own_name, dir_fd=parent_fd, follow_symlinks=False).st_uid  # a server may not know root
        for name in os.listdir(parent_fd):
            matched = _FOLDER.fullmatch(name)
            if matched is None or name == own_name:
                continue
            with contextlib.suppress(OSError), open_folder(*_way(layout, parent), name) as fd:
                if os.fstat(fd).st_uid == uid:
                    found[matched[1]] = frozenset(os.listdir(fd))
    return found


def _way(layout: Layout, folder: str) -> tuple[str, ...]:
    inner = os.path.relpath(folder, layout.root)
    return (layout.root,) if inner == "." else (layout.root, *inner.split("/"))


def _token(folder: str) -> str:
    return os.path.basename(folder).removeprefix(PREFIX + TOKEN_PREFIX)
