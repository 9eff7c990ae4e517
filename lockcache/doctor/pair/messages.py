# SPDX-License-Identifier: Apache-2.0
"""Messages between the two hosts: small files in the writer's folder, each under a new name.

Keeps the promise that the two never get out of step: a message says which check it belongs to and its number in it, a
check that fails on one host fails on both, and every wait ends at a deadline or when the other's folder is gone.

A message is never replaced, and the folder is opened again for each look. Else a client of NFS may remember for a
minute that the name was missing.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from lockcache.filestream.disk import (
    Descriptor,
    Layout,
    read_json,
    write_all,
)

#: A message from one host to the other: only numbers.
Numbers = dict[str, int]

_LARGEST_MESSAGE_BYTES: Final = 4096
_MOST_NUMBER: Final = 2**63

_FIRST_PAUSE_SECONDS: Final = 0.001
# Four calls of a server for each look, so forty in a second from each host.
_LONGEST_PAUSE_SECONDS: Final = 0.1

_FAILED: Final = "failed"


class LostError(Exception):
    """The other host ended, or does not answer in time."""


class PeerFailedError(Exception):
    """The check failed on the other host, with this error number."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Link:
    """One end of the connection between the two."""

    def __init__(
        self,
        layout: Layout,
        mine: str,
        theirs: str,
        timeout_seconds: float,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        """``mine`` and ``theirs``: the folders that each of the two writes to, below the root of ``layout``."""
        self._layout = layout
        self._mine = mine
        self._theirs = theirs
        #: The time that one check may take.
        self.timeout_seconds = timeout_seconds
        self._pause = pause
        self._check = 0
        self._number = 0
        self._deadline = 0.0

    def begin(self, check: int) -> None:
        """Begin the check with this number: what follows has to be done within the timeout."""
        self._check, self._number = check, 0
        self._deadline = time.monotonic() + self.timeout_seconds

    def exchange(self, numbers: Mapping[str, int] | None = None) -> Numbers:
        """Send numbers, and wait for those of the other host, which comes to the same line of the same check.

        Raises :class:`LostError`, and :class:`PeerFailedError` where the other host sends no numbers but a failure.
        """
        self._send(numbers or {})
        received = self._receive()
        self._number += 1
        if _FAILED in received:
            raise PeerFailedError(received[_FAILED])
        return received

    def sync(self) -> None:
        """Wait until the other host has come to the same line. Raises as :meth:`exchange`."""
        self.exchange()

    def fail(self, number: int) -> None:
        """Report to the other host, which waits or will wait for our next message, that the check failed here."""
        self._send({_FAILED: number})

    def part(self) -> None:
        """Wait until the other host has everything from us. It may be gone by then."""
        with contextlib.suppress(LostError):
            self.exchange()

    def watch(self, looks: Mapping[str, Callable[[], bool]], limit_seconds: float) -> Numbers:
        """Look again and again until each look has come true once, for at most ``limit_seconds``.

        Returns for each ``NAME_us``, how long it took, or -1, and ``NAME_stale``, how many looks were in vain.
        """
        start, pause_seconds = time.monotonic(), _FIRST_PAUSE_SECONDS
        took_us, stale = dict.fromkeys(looks, -1), dict.fromkeys(looks, 0)
        while True:
            for name, look in looks.items():
                if took_us[name] < 0:
                    if look():
                        took_us[name] = int((time.monotonic() - start) * 1e6)
                    else:
                        stale[name] += 1
            if min(took_us.values()) >= 0 or time.monotonic() - start > limit_seconds:
                break
            self._pause(pause_seconds)
            pause_seconds = min(pause_seconds * 2, _LONGEST_PAUSE_SECONDS)
        return {f"{name}_us": us for name, us in took_us.items()} | {f"{name}_stale": n for name, n in stale.items()}

    def _send(self, numbers: Mapping[str, int]) -> None:
        try:
            put_file(self._layout, f"{self._mine}/{self._name()}", _encoded(numbers))
        except OSError as error:
            raise LostError(f"this host cannot write to {self._mine}: {error.strerror}") from None

    def _receive(self) -> Numbers:
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            received = self._look()
            if received is not None:
                return received
            if time.monotonic() > self._deadline:
                raise LostError(f"the other host did not answer for {self.timeout_seconds:g} s")
            self._pause(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, _LONGEST_PAUSE_SECONDS)

    def _look(self) -> Numbers | None:
        path = f"{self._theirs}/{self._name()}"
        try:
            # Through its folder, which is opened again: this layout counts as untrusted, so each look does that.
            return _decoded(read_json(self._layout, path, _LARGEST_MESSAGE_BYTES))
        except FileNotFoundError as error:
            if error.filename != path:
                raise LostError("the other host ended, or was interrupted") from None
            return None
        except (OSError, ValueError):
            return None  # ESTALE, EIO: until the deadline

    def _name(self) -> str:
        return f"{self._check}.{self._number}"


def put_file(layout: Layout, path: str, content: bytes) -> None:
    """Write a new file that is there in whole or not at all. Raises :class:`OSError`."""
    staged = f"{path}.new"
    made = Descriptor()
    layout.reach.create(staged, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, made)
    with made as fd:
        write_all(fd, content)
    layout.reach.rename(staged, path)


def _encoded(numbers: Mapping[str, int]) -> bytes:
    return ("{" + ", ".join(f'"{name}": {int(number)}' for name, number in numbers.items()) + "}").encode()


def _decoded(body: dict[str, Any]) -> Numbers:
    return {
        name: int(number) for name, number in body.items() if isinstance(number, int) and abs(number) < _MOST_NUMBER
    }
