# SPDX-License-Identifier: Apache-2.0
"""Notifications to the service manager: ready, reloading, alive, stopping (the protocol of ``sd_notify(3)``).

Keeps the promise that a daemon which hangs is restarted: only the thread that does the work sends ``WATCHDOG=1``,
between its steps. Keeps invariant 7 (never take the job down) for the daemon: a service manager that is gone or busy
costs messages, which are counted, and nothing else; a send never waits.

Uses no package: those for this protocol on PyPI are unmaintained, and a notification is one datagram. Without
``NOTIFY_SOCKET`` this module does nothing.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Mapping
from typing import Final

# The manager shows one line; a longer one is cut.
_LONGEST_STATUS: Final = 400
# The shortest time between two statuses: under writers the bytes change at every tick.
_STATUS_SECONDS: Final = 5.0


class Notifier:
    """Sends to the service manager that ``environment`` names, if there is one. Raises nothing. For one thread.

    Use as a context manager, or :meth:`close` it.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        environment = os.environ if environment is None else environment
        self._socket = _connect(environment.get("NOTIFY_SOCKET", ""))
        #: How often progress must be reported, half of what the manager waits for; ``None``: it waits for none.
        self.alive_seconds = _alive_seconds(environment) if self._socket is not None else None
        self._alive_due = 0.0
        self._status = ""
        self._status_due = 0.0
        #: Between :meth:`reloading` and :meth:`ready`.
        self.is_reloading = False
        #: Messages that could not be sent.
        self.lost_messages = 0

    def __enter__(self) -> Notifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_heard(self) -> bool:
        """Whether there is a service manager."""
        return self._socket is not None

    def ready(self, status: str) -> None:
        """Notify that the directories are kept (or, after :meth:`reloading`, are kept by the new settings)."""
        self.is_reloading = False
        self._send("READY=1", self._put_status(status))

    def reloading(self) -> None:
        """Notify that settings are being read. :meth:`ready` has to follow, also if they were refused."""
        self.is_reloading = True
        # Type=notify-reload takes this for the answer to its SIGHUP only if the time is there, and after the signal's.
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    def stopping(self, why: str) -> None:
        """Notify that the daemon is ending."""
        self._send("STOPPING=1", self._put_status(why))

    def status(self, status: str) -> None:
        """Send one line for ``systemctl status``, if it has changed, and not too often."""
        if self._socket is not None and status != self._status and time.monotonic() >= self._status_due:
            self._send(self._put_status(status))

    def alive(self) -> None:
        """Report progress, if that is due. Callers may call it between steps as often as they like (0.1 us)."""
        if self.alive_seconds is not None and time.monotonic() >= self._alive_due:
            self._alive_due = time.monotonic() + self.alive_seconds
            self._send("WATCHDOG=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self.alive_seconds = None

    def _put_status(self, status: str) -> str:
        self._status = status
        self._status_due = time.monotonic() + _STATUS_SECONDS
        # A line feed would begin another assignment: a directory may be called "x\nMAINPID=1".
        line = "".join(each if each.isprintable() else "?" for each in status)
        return f"STATUS={line[:_LONGEST_STATUS]}"

    def _send(self, *assignments: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.send(
                "\n".join(assignments).encode(errors="replace"), socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            )
        except OSError:  # the manager is gone, or its queue is full
            self.lost_messages += 1


def _connect(address: str) -> socket.socket | None:
    """Returns a socket to the manager; ``None`` where nobody listens, or for an address of an unknown kind."""
    if address[:1] not in ("/", "@"):
        return None
    name = b"\0" + os.fsencode(address[1:]) if address.startswith("@") else os.fsencode(address)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    with contextlib.suppress(OSError):  # nobody listens there, or the name is too long for a socket
        opened.connect(name)
        return opened
    opened.close()
    return None


def _alive_seconds(environment: Mapping[str, str]) -> float | None:
    meant_for = environment.get("WATCHDOG_PID", "")
    if meant_for and meant_for != str(os.getpid()):
        return None
    text = environment.get("WATCHDOG_USEC", "")
    if not (text.isascii() and text.isdigit()) or not int(text):
        return None
    return int(text) / 2_000_000
