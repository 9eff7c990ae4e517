# SPDX-License-Identifier: Apache-2.0
"""Calls that end in time, whatever the client library does: each in a thread for which nobody has to wait.

Keeps invariant 7 (never take the job down) for time. Time-outs of sockets do not bound a call: a server that sends a
byte now and then resets them, and name servers are asked without a time-out. So the caller waits for a thread, for a
time that it chooses; a thread that is left behind is free when its transport is aborted, and never keeps the
interpreter alive.

A thread makes one call after the other, and one stays for the next call until the process ends: an interpreter that is
ending may refuse to start threads (Python 3.12), when there is still something to send.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, TypeAlias, TypeVar

from lockcache.fork import after_fork_in_child
from lockcache.remote.servers.answers import Answer, RemoteError, in_one_line

__all__ = ["call_within", "read_in_parallel"]

_T = TypeVar("_T")

# Threads left behind by calls that hang in spite of an abort: with so many, no further call is made.
_MOST_LEFT_BEHIND: Final = 16

# What a process receives at most from calls that are made in parallel, beyond what is on its way by then.
_MOST_BYTES: Final = 256 << 20

# A wait is extended by the delays of its thread, up to this factor.
_MOST_STRETCHED: Final = 8
_SCHEDSTAT_BYTES: Final = 128
# The caller looks up from its wait so often: what a look takes longer, the caller could not run. An answer may take
# five times as long and counts as prompt.
_SLICE_SECONDS: Final = 0.02

# A thread that has nothing to do for so long ends, if another one stays.
_IDLE_SECONDS: Final = 10.0

# For how long a thread has run, and has waited for a processor, in ns.
_Times: TypeAlias = tuple[int, int]
# A call's result or what it raised, and the times of its thread.
_Answer: TypeAlias = "tuple[_T | None, BaseException | None, _Times]"


class _Worker:
    """A thread that makes calls, one after the other."""

    __slots__ = ("_calls", "_idle", "is_busy", "thread")

    def __init__(self, idle: list[_Worker]) -> None:
        """Start the thread, which is put into ``idle`` whenever it is free. Raises :class:`RemoteError`."""
        self._idle = idle
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], queue.SimpleQueue[Any]]] = queue.SimpleQueue()
        self.is_busy = True
        self.thread = threading.Thread(target=self._run, name="lockcache remote", daemon=True)
        _start(self.thread)

    def make(self, ask: Callable[[], _T]) -> queue.SimpleQueue[_Answer[_T]]:
        """Make a call. Returns where its answer will be."""
        answers: queue.SimpleQueue[_Answer[_T]] = queue.SimpleQueue()
        self.is_busy = True
        self._calls.put((ask, answers))
        return answers

    def _run(self) -> None:
        while True:
            try:
                ask, answers = self._calls.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                if self._leaves():
                    return
                continue
            answer, failure = None, None
            try:
                answer = ask()
            # Of a client library. What Rust raises for a panic is not an Exception. The caller gets it, and counts it.
            except BaseException as error:  # noqa: BLE001
                failure = error
            times = _times_of("thread-self")
            self.is_busy = False
            self._idle.append(self)  # before the answer is there: the caller's next call finds this thread
            answers.put((answer, failure, times))
            del ask, answers, answer, failure  # which may hold the caller's objects

    def _leaves(self) -> bool:
        """Returns whether the thread ends: another one stays, and no caller has taken this one meanwhile."""
        try:
            if len(self._idle) > 1:
                self._idle.remove(self)
                return True
        except ValueError:
            pass
        return False


class _Workers:
    """The threads of this process. A forked child has none of its parent's."""

    def __init__(self) -> None:
        self._after_fork_in_child()
        after_fork_in_child(self)

    def _after_fork_in_child(self) -> None:
        self._idle: list[_Worker] = []
        self._left_behind: list[_Worker] = []

    def take(self) -> _Worker:
        """Returns a thread for one call. Raises :class:`RemoteError` if none can be started, or too many calls hang."""
        self._left_behind[:] = [worker for worker in self._left_behind if worker.is_busy]
        if len(self._left_behind) >= _MOST_LEFT_BEHIND:
            raise RemoteError(f"{len(self._left_behind)} calls still hang")
        try:
            return self._idle.pop()
        except IndexError:
            return _Worker(self._idle)

    def leave(self, worker: _Worker) -> None:
        """Leave a thread behind in its call."""
        self._left_behind.append(worker)


_workers: Final = _Workers()


class _Wait:
    """A wait for a thread's answer, less the time in which this process could not run.

    That is the time for which the thread waited for a processor (0 if the kernel does not tell), and for which the
    caller waited for a processor or for the interpreter's lock: a compiler may hold that for seconds. But at least for
    as long as the thread itself ran, which keeps that lock while it parses an answer: else a server that floods it with
    one would be waited for eight times as long.
    """

    __slots__ = ("_began", "_began_times", "_blocked_seconds", "_thread")

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = f"self/task/{thread.native_id}"
        self._began_times = _times_of(self._thread)
        self._blocked_seconds = 0.0
        self._began = time.monotonic()

    def take(self, answers: queue.SimpleQueue[_Answer[_T]], seconds: float) -> _Answer[_T]:
        """Returns the answer. Raises :class:`queue.Empty` if there is none within ``seconds``."""
        began = time.monotonic()
        try:
            return answers.get(timeout=seconds)
        finally:
            self._blocked_seconds += max(0.0, time.monotonic() - began - seconds)

    def whole_seconds(self) -> float:
        """Returns for how long this has lasted, also while this process could not run."""
        return time.monotonic() - self._began

    def seconds(self, times: _Times | None = None) -> float:
        """Returns the seconds of waiting. ``times``: those of the thread, or ``None`` while it runs."""
        return max(self._ran_and_waited(times))

    def left(self, seconds: float, more_seconds: float) -> float:
        """Returns what is left of ``seconds``, and of ``more_seconds`` in which the thread may wait and not run."""
        ran_seconds, waited_seconds = self._ran_and_waited(None)
        return seconds - max(ran_seconds, waited_seconds - more_seconds)

    def _ran_and_waited(self, times: _Times | None) -> tuple[float, float]:
        began = time.monotonic()
        times = _times_of(self._thread) if times is None else times
        self._blocked_seconds += time.monotonic() - began  # each read of a file may wait for the interpreter's lock
        ran_seconds, delay_seconds = (
            max(0, now - then) / 1e9 for now, then in zip(times, self._began_times, strict=True)
        )
        return ran_seconds, self.whole_seconds() - self._blocked_seconds - delay_seconds


def _times_of(thread: str) -> _Times:
    try:
        with open(f"/proc/{thread}/schedstat", "rb") as file:
            ran_ns, delay_ns = file.read(_SCHEDSTAT_BYTES).split()[:2]
        return int(ran_ns), int(delay_ns)
    except (OSError, ValueError):
        return 0, 0


def call_within(seconds: float, ask: Callable[[], _T], more_seconds: Callable[[], float] = float) -> tuple[_T, float]:
    """Returns the result of ``ask()``, and the seconds of waiting. Raises :class:`RemoteError`, which states them.

    Raises it also where the call takes longer than ``seconds``. The time in which this process could not run is not
    counted: it is not the server's fault, and a compiler would wait as long.

    ``more_seconds``: asked again and again for how much longer an answer may take of which a part has come. Not to be
    parsed: that takes ``seconds`` at most.
    """
    worker = _workers.take()
    answers = worker.make(ask)
    wait, left, more, is_last = _Wait(worker.thread), seconds, 0.0, False
    while not is_last:
        # Once more at the end: the answer may have come while the caller could not run.
        is_last = left <= 0 or wait.whole_seconds() >= (seconds + more) * _MOST_STRETCHED
        try:
            answer, failure, times = wait.take(answers, 0.0 if is_last else min(left, _SLICE_SECONDS))
        except queue.Empty:
            more = more_seconds()
            left = wait.left(seconds, more)
            continue
        if failure is not None:
            raise _in_words(failure, wait.seconds(times))
        return answer, wait.seconds(times)  # type: ignore[return-value] # None only where ask() returns that
    _workers.leave(worker)
    seconds += more
    raise RemoteError(f"no answer within {seconds:.2f} s", Answer.SILENT, seconds=max(seconds, wait.seconds()))


def _in_words(failure: BaseException, seconds: float) -> RemoteError:
    if isinstance(failure, RemoteError):
        return RemoteError(str(failure), failure.answer, seconds=seconds)
    return RemoteError(in_one_line(type(failure).__name__, str(failure)), seconds=seconds)


def _start(thread: threading.Thread) -> None:
    try:
        thread.start()
    except RuntimeError as error:  # no more threads, or the interpreter is ending
        raise RemoteError(str(error), Answer.MISUSED) from None


class _Bounded:
    """Calls ``get``. Sets ``is_over`` and raises :class:`RemoteError` once the values are more than 256 MiB in all.

    In the threads that receive them, because their caller may not run while they receive much more.
    """

    __slots__ = ("_bytes", "_get", "_guard", "_is_over")

    def __init__(self, get: Callable[[str], bytes | None], is_over: threading.Event) -> None:
        self._get = get
        self._is_over = is_over
        self._guard = threading.Lock()
        self._bytes = 0

    def __call__(self, name: str) -> bytes | None:
        value = self._get(name)
        if value is not None:
            with self._guard:
                self._bytes += len(value)
                if self._bytes > _MOST_BYTES:
                    self._is_over.set()
                    raise RemoteError(f"its answers are longer than {_MOST_BYTES} bytes together")
        return value


def read_in_parallel(names: Iterable[str], get: Callable[[str], bytes | None], most: int) -> dict[str, bytes]:
    """Returns the values that ``get`` finds, by up to ``most`` threads.

    Raises the first error of ``get``, and :class:`RemoteError` for more than 256 MiB in all. Then no thread begins
    another call.
    """
    left: queue.SimpleQueue[str] = queue.SimpleQueue()
    for name in names:
        left.put(name)
    wanted = left.qsize()
    results: queue.SimpleQueue[tuple[str, bytes | None, BaseException | None]] = queue.SimpleQueue()
    is_over = threading.Event()
    receive = _Bounded(get, is_over)

    def run() -> None:
        with contextlib.suppress(queue.Empty):
            while not is_over.is_set():
                name = left.get_nowait()
                try:
                    results.put((name, receive(name), None))
                except BaseException as error:  # noqa: BLE001 - as above
                    results.put((name, None, error))
                    return

    threads = [threading.Thread(target=run, name="lockcache remote", daemon=True) for _ in range(min(most, wanted))]
    found = {}
    try:
        for thread in threads:
            _start(thread)
        for _ in range(wanted):
            name, value, failure = results.get()
            if failure is not None:
                raise failure
            if value is not None:
                found[name] = value
    finally:
        is_over.set()
    return found
