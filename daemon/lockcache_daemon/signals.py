# SPDX-License-Identifier: Apache-2.0
"""Signals that end the daemon: noted at once, acted on at the next safe point.

Complements invariant 5 (death is free) with an orderly end: SIGTERM, SIGINT and SIGHUP end the daemon within a second
and leave nothing half done. A handler only notes the signal; a step that works asks between shards and between lock
holds, and a step that waits is woken through a socket, so that an idle daemon sleeps in the kernel and wakes for its
ticks alone.

For the main thread. Not promised: an end within a second while the kernel itself hangs in a dead mount.
"""

from __future__ import annotations

import contextlib
import copy
import select
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

# The longest time between two reports of progress while waiting.
_SILENCE_SECONDS: Final = 10.0

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Stopped(Exception):  # noqa: N818 (not an error: somebody sent the signal)
    """Raised by :meth:`StopSignals.raise_if_set`, to end work from within."""


class _Came:
    """The signals that came so far, shared by all copies of :class:`StopSignals`."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.is_reload_wanted = False


class StopSignals:
    """Catches the signals to stop for a ``with`` block. With ``hangup_reloads`` SIGHUP reloads instead.

    ``on_progress`` is called whenever work asks whether it is to stop, from any thread, and now and then while waiting:
    as long as these calls come, nothing hangs. It must be cheap, and raise nothing.
    """

    def __init__(self, *, hangup_reloads: bool = False, on_progress: Callable[[], object] = lambda: None) -> None:
        self._on_progress = on_progress
        #: The longest time between two reports of progress while waiting.
        self.silence_seconds = _SILENCE_SECONDS
        self._came = _Came()
        self._hangup_reloads = hangup_reloads
        self._before: dict[int, Any] = {}
        self._wakes, self._waker = socket.socketpair()

    def with_progress(self, on_progress: Callable[[], object]) -> StopSignals:
        """Returns the same signals for a part of the work, which calls ``on_progress`` as well."""
        whole, part = self._on_progress, copy.copy(self)

        def both() -> None:
            whole()
            on_progress()

        part._on_progress = both
        return part

    @property
    def number(self) -> int | None:
        """The first signal to stop that came, or ``None``."""
        return self._came.number

    @number.setter
    def number(self, number: int) -> None:
        self._came.number = number

    def __enter__(self) -> StopSignals:
        self._wakes.setblocking(False)
        self._waker.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in _SIGNALS:
            # A SIGHUP that nohup ignores stays ignored where it would end the daemon: a terminal that is closed sends
            # it. Where it reloads, it is meant. SIGINT is caught all the same: shells ignore it for a command that ends
            # in `&`, and `kill -INT` has to end a daemon that a script started so.
            is_ignored = signal.getsignal(number) is signal.SIG_IGN
            if number != signal.SIGHUP or self._hangup_reloads or not is_ignored:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(-1)
        self._wakes.close()
        self._waker.close()

    def is_set(self) -> bool:
        self._on_progress()
        return self.number is not None

    def raise_if_set(self) -> None:
        self._on_progress()
        if self.number is not None:
            raise Stopped(signal.Signals(self.number).name)

    def has_reload(self) -> bool:
        """Returns whether a signal to reload came and has not been taken."""
        return self._came.is_reload_wanted

    def take_reload(self) -> bool:
        """Returns whether a signal to reload came since the last call."""
        if not self._came.is_reload_wanted:
            return False
        # In this order: the reload that follows answers a signal that comes in between.
        with contextlib.suppress(BlockingIOError):
            self._wakes.recv(4096)
        self._came.is_reload_wanted = False
        return True

    def wait(self, seconds: float) -> None:
        """Sleep for so long, or until a signal to stop or to reload."""
        if self.number is None and not self._came.is_reload_wanted:
            # poll, not select: with many directories there are more than 1,024 descriptors.
            poll = select.poll()
            poll.register(self._wakes, select.POLLIN)
            deadline = time.monotonic() + seconds
            while not poll.poll(min(seconds, self.silence_seconds) * 1000):
                self._on_progress()
                seconds = deadline - time.monotonic()
                if seconds <= 0:
                    break

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP and self._hangup_reloads:
            self._came.is_reload_wanted = True
        elif self.number is None:
            self.number = number
