# SPDX-License-Identifier: Apache-2.0
"""A server as a process: its host and its ports, and waiting until it listens."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lockcache_stress.errors import UnusableError

__all__ = ["HERE", "Place", "Server", "await_port", "free_pair", "free_port"]

_START_SECONDS: Final = 60.0
# Runs on the server's host, because this process may be in another network.
_KNOCK: Final = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()"


@dataclass(frozen=True)
class Place:
    """A host that runs servers: the address on which they listen, and the words that begin a command there."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


#: This machine, on an address that only this machine reaches.
HERE: Final = Place()


class Server:
    """A server, which listens from its creation until :meth:`kill`.

    Raises :class:`UnusableError` where it cannot be had.
    """

    #: Whether its transport has leases.
    has_leases = True
    url: str
    port: int

    def __init__(self, words: Sequence[str], folder: Path, place: Place) -> None:
        """``words`` are the command, which runs in ``folder``."""
        self._words, self._folder = words, folder
        self.place = place
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        if self._process is None:
            raise ValueError("it does not run")
        return self._process.pid

    def url_at(self, port: int) -> str:
        """Returns the server's URL with another port, such as a proxy's, or one on which no process listens."""
        return self.url.replace(str(self.port), str(port))

    def start(self) -> None:
        """Start the server on the port that it had before, and wait until it listens."""
        self._process = subprocess.Popen(
            [*self.place.prefix, *self._words], cwd=self._folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            await_port(self.port, self._process, self.place)
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        """End the server by SIGKILL. May be called twice."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()


def await_port(port: int, process: subprocess.Popen[bytes], place: Place = HERE) -> None:
    """Wait until ``process`` listens on the port. Raises :class:`UnusableError` if it ends before."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise UnusableError(f"{process.args!r} ended with exit code {process.returncode}")
        if _listens(port, place):
            return
        time.sleep(0.01)  # there is no event for a port on which a process begins to listen
    raise UnusableError(f"nothing listens on port {port}")


def _listens(port: int, place: Place) -> bool:
    if place.prefix:
        knock = [*place.prefix, sys.executable, "-S", "-c", _KNOCK, place.address, str(port)]
        return subprocess.run(knock, check=False, capture_output=True).returncode == 0
    with contextlib.suppress(OSError), socket.create_connection((place.address, port), 1):
        return True
    return False


def free_port() -> int:
    """Returns a port on which no process listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def free_pair() -> int:
    """Returns a free port with a free one 10,000 above it: SeaweedFS and clusters of Valkey take both."""
    # Without a seed, because two test runs on one machine must not draw the same port.
    draw = random.Random(os.urandom(8))
    while True:
        port = draw.randrange(20_000, 50_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port
