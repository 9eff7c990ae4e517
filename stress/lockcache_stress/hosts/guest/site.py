# SPDX-License-Identifier: Apache-2.0
"""The server and its two clients, whatever the file system is: a network, a host name and a mount for each client.

A client is a pair of namespaces and a mount that was made in them. Each has an NFS client or FUSE process of its own,
with its own caches, leases and locks. lockcache takes the two clients for two hosts because of their host names. They
share a clock, so that times on both can be compared.
"""

from __future__ import annotations

import os
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lockcache.lowlevel import Layout
from lockcache_stress.processes import wait_until
from lockcache_stress.trouble import run_quietly

#: The server's address, which clients reach through networks of their own.
SERVER: Final = "10.98.0.1"
#: The server's folder of the shared file system, on a disk or by a mount. No file outside of /run is written.
SHARED: Final = "/run/shared"
#: The time for which a server keeps the locks of a silent client. All defaults are longer than a trial could wait.
GRACE_SECONDS: Final = 10
_LEASE_SECONDS: Final = 60.0
_IMAGE_MIB: Final = 1024
# The sizes of a disk's inodes: with 256 bytes they have times in nanoseconds; with 128 only in seconds.
_INODE_BYTES: Final = 256
_INODE_BYTES_OF_SECONDS: Final = 128


@dataclass(frozen=True)
class Client:
    """One of the two hosts, by its number from 1."""

    number: int

    @property
    def name(self) -> str:
        """Returns its host name, which its namespaces are named after."""
        return f"host-{self.number}"

    @property
    def mount(self) -> str:
        """Returns the folder where the client has the shared file system."""
        return f"/run/mnt/{self.name}"

    def at(self, name: str) -> str:
        """Returns the path of a directory on this client."""
        return os.path.join(self.mount, name)

    def cut(self) -> None:
        """Cut its network: its requests to the server are neither answered nor refused."""
        run_quietly("ip", "link", "set", f"up-{self.number}", "down")

    def heal(self) -> None:
        """Restore its network."""
        run_quietly("ip", "link", "set", f"up-{self.number}", "up")

    @contextmanager
    def running(self, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program on the client until the block ends."""
        process = subprocess.Popen([*self.inside(), *words], stdout=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def inside(self) -> tuple[str, ...]:
        """Returns the beginning of a command that runs on the client."""
        return ("nsenter", f"--net=/run/netns/{self.name}", f"--uts=/run/uts/{self.name}")


class Site(ABC):
    """Server and clients, set up once for all trials; a class for each file system."""

    def __init__(self, mount_options: Sequence[str]) -> None:
        self._mount_options = mount_options
        self.clients = (Client(1), Client(2))

    def set_up(self) -> None:
        """Make the server, the two clients and their mounts."""
        run_quietly("hostname", "server")
        run_quietly("ip", "link", "set", "lo", "up")
        run_quietly("ip", "addr", "add", f"{SERVER}/32", "dev", "lo")
        for folder in ("/run/uts", SHARED, *(client.mount for client in self.clients)):
            os.makedirs(folder, exist_ok=True)
        for client in self.clients:
            _make_namespaces(client)
        self._serve()
        for client in self.clients:
            self._mount_on(client)

    def make(self, name: str) -> str:
        """Make an empty directory on the server. Returns its name."""
        os.mkdir(self.at(name), 0o700)
        return name

    def make_on_coarse_disk(self, name: str) -> str | None:
        """Make an empty directory on a disk with times in whole seconds; ``None`` if this server has no such disk."""
        return None

    def at(self, name: str) -> str:
        """Returns the path of a directory on the server, where no cache of a client hides changes."""
        return os.path.join(SHARED, name)

    def wait_for_lease(self, name: str) -> None:
        """Wait until a process computes a key of this directory. Raises :class:`TimeoutError` if none does."""
        folder = Layout(self.at(name)).leases
        if not wait_until(lambda: os.path.isdir(folder) and os.listdir(folder), _LEASE_SECONDS):
            raise TimeoutError(f"nobody took a lease in {_LEASE_SECONDS:.0f} s")

    @abstractmethod
    def stop_server(self) -> None:
        """End the server, or the part of it that answers clients."""

    @abstractmethod
    def start_server(self) -> None:
        """Start the server that :meth:`stop_server` ended."""

    @abstractmethod
    def _serve(self) -> None:
        """Make the file system and start its server."""

    @abstractmethod
    def _mount_on(self, client: Client) -> None:
        """Mount the file system at this client's folder, in the client's namespaces."""


def _make_namespaces(client: Client) -> None:
    name, number = client.name, client.number
    run_quietly("ip", "netns", "add", name)
    run_quietly("ip", "link", "add", f"up-{number}", "type", "veth", "peer", "name", f"in-{number}", "netns", name)
    run_quietly("ip", "addr", "add", f"10.98.{number}.1/24", "dev", f"up-{number}")
    run_quietly("ip", "link", "set", f"up-{number}", "up")
    run_quietly("ip", "-n", name, "addr", "add", f"10.98.{number}.2/24", "dev", f"in-{number}")
    run_quietly("ip", "-n", name, "link", "set", f"in-{number}", "up")
    run_quietly("ip", "-n", name, "link", "set", "lo", "up")
    run_quietly("ip", "-n", name, "route", "add", "default", "via", f"10.98.{number}.1")
    Path("/run/uts", name).touch()
    run_quietly("unshare", f"--uts=/run/uts/{name}", "hostname", name)


def make_disk(path: str = SHARED, *, is_coarse: bool = False) -> None:
    """Mount an ext4 of its own at the folder that the server shares. ``is_coarse``: its times are whole seconds."""
    image = f"/run/{os.path.basename(path)}.img"
    inode_bytes = _INODE_BYTES_OF_SECONDS if is_coarse else _INODE_BYTES
    run_quietly("truncate", "-s", f"{_IMAGE_MIB}M", image)
    run_quietly("mkfs.ext4", "-q", "-b", "4096", "-I", str(inode_bytes), image)
    mount("ext4", image, path, "loop")


def mount(kind: str, device: str, path: str, options: str = "defaults") -> None:
    """Mount a file system."""
    run_quietly("mount", "-t", kind, "-o", options, device, path)
