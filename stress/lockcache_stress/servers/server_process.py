"""A server as a process: where it runs, on which ports, and when it listens; whatever it serves."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lockcache_stress.errors import UnusableError

__all__ = ["HERE", "Place", "Server", "await_port", "free_pair", "free_port"]

_START_SECONDS: Final = 60.0
# Run on the host of the server, whose network this process may not have.
_KNOCK: Final = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1).close()"


@dataclass(frozen=True)
class Place:
    """A host that runs servers: the address on which they listen, and the words that begin a command there."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


#: This machine, and nobody outside of it.
HERE: Final = Place()


class Server(ABC):
    """A server, which listens from its creation until :meth:`kill`.

    Raises :class:`UnusableError` where it cannot be had.
    """

    #: What its transport promises.
    has_leases = True
    url: str
    port: int

    def __init__(self, place: Place) -> None:
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
        """Returns the server's URL with another port: that of a proxy, or one on which nothing listens."""
        return self.url.replace(str(self.port), str(port))

    def start(self) -> None:
        """Start the server, on the port that it had before; returns when it listens."""
        words, folder = self._command()
        self._process = subprocess.Popen(
            [*self.place.prefix, *words], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
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

    @abstractmethod
    def _command(self) -> tuple[Sequence[str], str]:
        """Returns the command, and the folder to run it in."""


def await_port(port: int, process: subprocess.Popen[bytes], place: Place = HERE) -> None:
    """Wait until something listens on the port. Raises :class:`UnusableError` where ``process`` ends before."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        if process.poll() is not None:
            raise UnusableError(f"{process.args!r} ended with exit code {process.returncode}")
        if _listens(port, place):
            return
        time.sleep(0.01)  # nothing tells when a server listens
    raise UnusableError(f"nothing listens on port {port}")


def _listens(port: int, place: Place) -> bool:
    if place.prefix:
        knock = [*place.prefix, sys.executable, "-S", "-c", _KNOCK, place.address, str(port)]
        return subprocess.run(knock, check=False, capture_output=True).returncode == 0
    with contextlib.suppress(OSError), socket.create_connection((place.address, port), 1):
        return True
    return False


def free_port() -> int:
    """Returns a port on which nothing listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def free_pair() -> int:
    """Returns a free port of which that 10,000 above is free too: SeaweedFS and clusters of Valkey take both."""
    # Not of a seed: two test runs on one machine must not draw the same.
    draw = random.Random(os.urandom(8))
    while True:
        port = draw.randrange(20_000, 50_000)
        with contextlib.suppress(OSError), socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", port))
            other.bind(("127.0.0.1", port + 10_000))
            return port
