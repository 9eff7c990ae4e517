# SPDX-License-Identifier: Apache-2.0
"""Sending in the background: what is stored goes to the server while the program goes on.

Decides how much may wait (64 MiB of all caches on a server, and beyond them a cache's even share of as much, so that
one which has much to send takes nothing from the others; more is dropped, and counted), and how long the end of a
process is delayed: for five seconds at most, and only while the server answers or its host receives something. Where
the latter is not known, a value is waited for as long as a link of 40 Mbit/s takes for it. The jobs of one cache run
one after the other in the order in which they came, so a lease that is given back after a value is stored is given back
after it is there. Only removals, for which somebody waits, come before writes of other entries.

An interpreter that is ending refuses much: threads (Python 3.12), and what a client library registers when it is first
imported. So the thread starts with the first call of a server, and stays for as long as one of its caches is open; the
client is imported by then; and the exit handler is registered before a program can store anything. What is stored after
it has run is sent at once, within what is left of the five seconds. Not promised, and counted as lost: what a program
sends on Python 3.12 that first calls a server after its main thread has returned.

All caches of a process on one server share one sender. They take turns, so that a cache which has little to send does
not wait for one which has much; a cache that is flushed or closed waits for its own jobs, and drops its own alone. The
thread ends when the last cache is closed or collected, after what they stored: a sender that has jobs is referred to,
one that has none only by its links.

Kept across fork: a child begins with nothing to send; its parent sends what it has.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - what clients import, and an interpreter that is ending refuses
import logging
import queue
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from lockcache.fork import after_fork_in_child, unforked
from lockcache.remote.wait_limits import Patience

__all__ = ["Sender", "sender_with"]

_log = logging.getLogger("lockcache")

_MOST_BYTES: Final = 64 * 1024 * 1024
# The number of short jobs that may wait, such as leases that are given back.
_MOST_JOBS: Final = 65_536
_FLUSH_SECONDS: Final = 5.0
# How often the end of a process looks how much the server's host has received.
_LOOK_SECONDS: Final = 0.1
# If nothing tells how much of a value has arrived, a large one is taken to be on its way for so long.
_SLOWEST_BYTES_PER_SECOND: Final = 5e6
# Of a value: more than a host receives for a server that has stopped, in a few short requests.
_PART_BYTES: Final = 65_536


class _Link(Protocol):
    """The calls of one cache to the server."""

    def received_bytes(self) -> int:
        """Returns how much the server's host has received; 0 while that is not known."""

    def report_unanswered(self) -> None:
        """Called when the process ends, and all is sent or dropped."""


class _Job(NamedTuple):
    #: Of the cache that gave it.
    link: _Link
    #: Does the job; returns whether the server took it.
    run: Callable[[], bool]
    #: Called if the job is not done, or was given up before it was. Otherwise ``done`` is: one of the two, once.
    drop: Callable[[], None]
    done: Callable[[], None]
    size_bytes: int
    #: Of the entry that it stores or removes.
    name: str


class Sender:
    """The jobs of one process for one server, and the thread that does them."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._links: weakref.WeakSet[_Link] = weakref.WeakSet()
        self._after_fork_in_child()
        after_fork_in_child(self)

    def join(self, link: _Link) -> None:
        """Send for a further cache."""
        with self._changed:
            self._links.add(link)

    def start(self) -> None:
        """Start the thread, so that it is there when no thread can be started any more."""
        with self._changed:
            self._start()

    def _after_fork_in_child(self) -> None:
        _arm_children()  # here, as multiprocessing may have been loaded since this module was
        self._changed = threading.Condition(threading.RLock())  # a signal handler may store in the midst of a store
        # One for each job, also for one that is given up; the last one for the end. The thread waits for it without a
        # reference to this object. The queue of the standard library that an object which is collected may put into.
        self._wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        # Of each link that has some: the link whose turn is next comes first.
        self._jobs: dict[_Link, deque[_Job]] = {}
        self._bytes = 0
        self._is_running = False
        self._current: _Job | None = None
        self._answered_at = self._taken_at = 0.0
        _busy.discard(self)

    def send(
        self,
        link: _Link,
        run: Callable[[], bool],
        drop: Callable[[], None],
        size_bytes: int = 0,
        *,
        done: Callable[[], None] = lambda: None,
        name: str = "",
        is_urgent: bool = False,
    ) -> None:
        """Call ``run`` later, behind the other jobs of ``link``, and then ``done``.

        One that ``is_urgent`` comes before them, unless one of them has the same ``name``.
        Call ``drop`` in place of ``done`` if ``run`` returns False or there is no time for it. None of them may raise.
        """
        job = _Job(link, run, drop, done, size_bytes, name)
        with self._changed:
            is_taken = self._has_room(link, size_bytes) and self._start()
            if is_taken:
                jobs = self._jobs.setdefault(link, deque())
                if is_urgent and all(each.name != name for each in jobs):
                    jobs.appendleft(job)
                else:
                    jobs.append(job)
                self._bytes += size_bytes
                _busy.add(self)
                self._wakes.put(None)
            else:
                drop()  # all of them under the lock: counts are added to by one thread at a time
        if _end.until is not None and is_taken:
            self.end(_end.until)

    def _has_room(self, link: _Link, size_bytes: int) -> bool:
        if sum(map(len, list(self._jobs.values()))) >= _MOST_JOBS:  # in one step: a signal handler may send meanwhile
            return False
        if self._bytes + size_bytes <= _MOST_BYTES:
            return True
        own_bytes = sum(job.size_bytes for job in self._jobs.get(link, ()))
        return own_bytes + size_bytes <= _MOST_BYTES // max(1, len(self._links))

    def end(self, until: float) -> None:
        """Send what waits, while the process ends; drop what is left then, or was not taken."""
        if not self.flush(seconds=max(0.0, until - time.monotonic())):
            self.give_up()
        for link in self._living():
            link.report_unanswered()

    def _living(self) -> list[_Link]:
        with self._changed:
            return list(self._links)

    def _received_bytes(self) -> int:
        return sum(link.received_bytes() for link in self._living())

    def progress(self) -> tuple[float, int]:
        """Returns what is another pair once the server has taken a job, or its host a part of a large value."""
        return self._taken_at, self._received_bytes() // _PART_BYTES

    def flush(self, link: _Link | None = None, *, seconds: float = _FLUSH_SECONDS) -> bool:
        """Wait until all is sent, at most for so long and while the server answers. Returns whether all was sent.

        All of ``link``, or of all links without one.

        The wait for an answer, or until more is received, lasts as long as this process's patience; time that is waited
        in vain is charged.
        """
        until, received = time.monotonic() + seconds, self._received_bytes()
        with self._changed:
            self._answered_at = time.monotonic()
            while self._is_running and self.has_work(link):
                now, before, received = time.monotonic(), received, self._received_bytes()
                if received > before:
                    self._answered_at = now
                longest = self._patience.left_seconds + (0.0 if received else self._longest_on_its_way())
                left = min(until, self._answered_at + longest) - now
                if left <= 0:
                    self._patience.charge(now - self._answered_at, is_answered=False)
                    break
                self._changed.wait(min(left, _LOOK_SECONDS))
            return not self.has_work(link)

    def _longest_on_its_way(self) -> float:
        current = self._current
        return 0.0 if current is None else current.size_bytes / _SLOWEST_BYTES_PER_SECOND

    def give_up(self, link: _Link | None = None) -> None:
        """Drop what has not been sent: of ``link``, or of all links without one."""
        with self._changed:
            jobs = [job for each in self._links_of(link) for job in self._jobs.pop(each, ())]
            self._bytes -= sum(job.size_bytes for job in jobs)
            if self._current is not None and link in (None, self._current.link):
                jobs.append(self._current)
                self._current = None
            for job in jobs:
                job.drop()
            self._rest_if_idle()

    def _links_of(self, link: _Link | None) -> list[_Link]:
        return list(self._jobs) if link is None else [link]

    def _rest_if_idle(self) -> None:
        if not self._jobs:
            _busy.discard(self)
        self._changed.notify_all()

    def has_work(self, link: _Link | None = None) -> bool:
        """Returns whether something is to be sent, or on its way: of ``link``, or of any link without one."""
        current = self._current
        if link is None:
            return bool(self._jobs) or current is not None
        return link in self._jobs or (current is not None and current.link is link)

    def _start(self) -> bool:
        if not self._is_running:
            wakes = self._wakes
            words = weakref.ref(self, lambda _: wakes.put(None)), wakes
            try:
                threading.Thread(target=_run, args=words, name="lockcache sender", daemon=True).start()
            except RuntimeError:  # no more threads, or the interpreter is ending
                return False
            self._is_running = True
        return True

    def _do_next(self) -> None:
        changed = self._changed
        with changed:
            if not self._jobs:
                return  # it was given up
            job = self._current = self._next()
        try:
            was_taken = job.run()
        except Exception as error:  # noqa: BLE001 - of one job: the others are still to be sent
            _log.debug("an entry cannot be sent: %s: %s", type(error).__name__, error)
            was_taken = False
        with changed:
            self._bytes -= job.size_bytes
            is_given_up, self._current = self._current is None, None
            if not is_given_up:  # then it was counted as lost
                (job.done if was_taken else job.drop)()  # before a flush returns, so that it is counted by then
            if was_taken:
                self._answered_at = self._taken_at = time.monotonic()
            self._rest_if_idle()

    def _next(self) -> _Job:
        link = next(iter(self._jobs))
        jobs = self._jobs.pop(link)
        job = jobs.popleft()
        if jobs:
            self._jobs[link] = jobs  # behind the other links
        return job


def _run(found: weakref.ref[Sender], wakes: queue.SimpleQueue[None]) -> None:
    """Do the jobs of a sender, until it is collected."""
    while True:
        wakes.get()
        sender = found()
        if sender is None:
            return
        sender._do_next()
        del sender


#: The senders of this process by the URL of their server, and those that have something to do.
_senders: Final[weakref.WeakValueDictionary[str, Sender]] = weakref.WeakValueDictionary()
_busy: Final[set[Sender]] = set()


def sender_with(url: str, patience: Patience) -> Sender:
    """Returns this process's sender for one server, which lives as long as somebody uses it, and has jobs."""
    with unforked:  # in one step: of two that come first, both use one
        return _senders.get(url) or _senders.setdefault(url, Sender(patience))


class _End:
    """The end of this process."""

    def __init__(self) -> None:
        #: Until when something is sent; ``None`` before the end.
        self.until: float | None = None
        self.is_armed_for_children = False
        after_fork_in_child(self)

    def _after_fork_in_child(self) -> None:
        self.until = None  # a child of a process that is ending has an end of its own


_end: Final = _End()


def _arm_children() -> None:
    """Register for the end of processes that multiprocessing forks, which run no other handlers."""
    util = sys.modules.get("multiprocessing.util")
    if util is not None and not _end.is_armed_for_children:
        _end.is_armed_for_children = True
        util.register_after_fork(_senders, _arm_child)
        _arm_child()


def _arm_child(*_: object) -> None:
    # Before the report of counters, which is last: what is lost here is to be counted.
    sys.modules["multiprocessing.util"].Finalize(None, flush_all, exitpriority=-999)


def flush_all() -> None:
    """Send what waits in this process, for five seconds at most in all; drop the rest."""
    until = _end.until = time.monotonic() + _FLUSH_SECONDS
    for sender in list(_senders.values()):
        sender.end(until)


def do_nothing() -> None:
    """Do nothing: for a job that is dropped without harm."""


# At the import, which the opening of a cache with a server brings: a handler that a program registers afterwards runs
# before this, and may store.
atexit.register(flush_all)
