# SPDX-License-Identifier: Apache-2.0
"""Open pages, which accounting rests on: what one host writes into a file that both keep open, read by the other."""

from __future__ import annotations

import contextlib
import mmap
import os
from functools import partial
from typing import Final

from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, Finding
from lockcache.doctor.pair.messages import Numbers
from lockcache.doctor.pair.trial import Side, Trial, each_when, is_late, worst
from lockcache.errors import LockTimeoutError
from lockcache.filestream.accounting import ReopenedPage
from lockcache.filestream.disk import BY_PATH, Descriptor, KeptDescriptor, ProcessLock

_BYTES: Final = mmap.PAGESIZE
_OPEN: Final = os.O_RDWR | os.O_CLOEXEC
#: The ways of access: by pread and pwrite; the same while a lock on another file is held, as accounting does; past the
#: client's cache; and as accounting does on FUSE.
_WAYS: Final = {
    "plain": "without a lock:",
    "locked": "under a lock:",
    "direct": "with O_DIRECT:",
    "reopened": "opened for each use:",
}
_PAST_THE_CACHE: Final = {
    "direct": "accounting goes past the client's cache (O_DIRECT)",
    "reopened": "accounting opens its page for each use",
}
#: The bytes that are compared: as many as accounting writes at once.
_SLOT_BYTES: Final = 16


class _Page:
    """One host's page, open."""

    def __init__(self, side: Side) -> None:
        self._lock = ProcessLock(side.at("lock"), side.limit_seconds, layout=side.layout)
        self._file = KeptDescriptor()
        BY_PATH.open(side.at("page"), _OPEN, self._file)
        self._direct = Descriptor()
        self._buffer = mmap.mmap(-1, _BYTES)  # aligned, as O_DIRECT wants it
        #: The ways that work here.
        self.ways: Numbers = {"plain": True}
        with contextlib.suppress(LockTimeoutError), self._lock:
            self.ways["locked"] = True
        self._reopened = ReopenedPage(self._file)
        if side.layout.hosts.is_fuse:
            self.ways["reopened"] = True
            return
        with contextlib.suppress(OSError):
            self._direct = BY_PATH.open(side.at("page"), _OPEN | getattr(os, "O_DIRECT", 0))
            self.ways["direct"] = self._read("direct") != b""

    def close(self) -> None:
        self._lock.close()
        self._file.close()
        self._direct.close()
        self._buffer.close()

    def write(self, way: str, content: bytes) -> None:
        with self._lock if way == "locked" else contextlib.nullcontext():
            if way == "direct":
                self._buffer[:] = content
                os.pwritev(self._direct.number, [self._buffer], 0)
            elif way == "reopened":
                self._reopened.write(0, content[:_SLOT_BYTES])
            else:
                os.pwrite(self._file.number, content, 0)

    def holds(self, way: str, content: bytes) -> bool:
        with self._lock if way == "locked" else contextlib.nullcontext():
            return self._read(way)[:_SLOT_BYTES] == content[:_SLOT_BYTES]

    def _read(self, way: str) -> bytes:
        if way == "reopened":
            return self._reopened.image()
        if way != "direct":
            return os.pread(self._file.number, _BYTES, 0)
        return self._buffer[: os.preadv(self._direct.number, [self._buffer], 0)]


def _content(number: int) -> bytes:
    return number.to_bytes(8, "little") * (_BYTES // 8)


def _write(side: Side) -> Numbers:
    side.put("page", _content(0))
    side.put("lock", b"")  # before both come to make it
    side.sync()
    with contextlib.closing(_Page(side)) as page:
        for number, way in enumerate(_ways_of_both(side, page), 1):
            side.sync()  # the other host has read what was there before
            page.write(way, _content(number))
            side.sync()
        side.sync()
    return {}


def _read(side: Side) -> Numbers:
    seen: Numbers = {}
    side.sync()
    with contextlib.closing(_Page(side)) as page:
        page.holds("plain", _content(0))
        for number, way in enumerate(_ways_of_both(side, page), 1):
            side.sync()
            side.sync()
            seen |= side.watch(**{way: partial(page.holds, way, _content(number))})
        side.sync()
    return seen


def _ways_of_both(side: Side, page: _Page) -> list[str]:
    theirs = side.link.exchange(page.ways)
    return [way for way in _WAYS if page.ways.get(way) and theirs.get(way)]


def _judge(seen: list[Numbers]) -> Finding:
    ways = {way: words for way, words in _WAYS.items() if all(f"{way}_us" in numbers for numbers in seen)}
    found = f"what one host writes into an open file the other reads, {each_when(seen, ways)}"
    measured = {f"{way}_us": worst(seen, way) for way in ways}
    if not is_late(seen, "locked" if "locked" in ways else "plain"):
        return Finding("open pages", GOOD, found, measured=measured)
    for way, how in _PAST_THE_CACHE.items():
        if way in ways and not is_late(seen, way):
            return Finding("open pages", NOTE, found, how, "", measured)
    means = "a host does not count what others store: the cap may be exceeded, once more for each host that writes"
    advice = "let programs of one host write and all others read, or give each host a directory of its own"
    return Finding("open pages", DEGRADED, found, means, advice, measured)


PAGES: Final = Trial(_write, _read, _judge)
