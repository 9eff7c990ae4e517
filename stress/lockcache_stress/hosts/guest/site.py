"""The server and its two clients: one kernel, an ext4 exported by knfsd, and a network and a name for each client.

A client is a pair of namespaces: its kernel's NFS client is another one than the server's and the other's, with its own
caches, leases and locks. They share the clock, which is what times on both can be compared by.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["GRACE_SECONDS", "Client", "Site"]

EXPORT: Final = "/srv/x"
#: Lease and grace of the server; Linux has 90 s, which no trial could wait for.
GRACE_SECONDS: Final = 10
_IMAGE_MIB: Final = 1024
_LOCK_PORT: Final = 32803
# What nfsd, mountd and statd keep, which the host's root must not lend.
_STATE: Final = Path("/var/lib/nfs")
_LOCK_MANAGER: Final = "mount -t tmpfs run /run && rpcbind && rpc.statd --no-notify"


@dataclass(frozen=True)
class Client:
    """One of the two hosts, by its number from 1."""

    number: int

    @property
    def name(self) -> str:
        """Returns its host name, and that of its namespaces."""
        return f"host-{self.number}"

    @property
    def mount(self) -> str:
        """Returns where it has the export."""
        return f"/mnt/{self.name}"

    def at(self, name: str) -> str:
        """Returns the path of a directory as this client's processes have it."""
        return os.path.join(self.mount, name)

    def cut(self) -> None:
        """Take its network away: what it asks of the server is neither answered nor refused."""
        _run("ip", "link", "set", f"up-{self.number}", "down")

    def heal(self) -> None:
        """Give its network back."""
        _run("ip", "link", "set", f"up-{self.number}", "up")

    @contextmanager
    def running(self, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
        """Run a program on it for as long as the block lasts."""
        process = subprocess.Popen([*self.inside(), *words], stdout=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.terminate()
            process.wait()

    def inside(self) -> tuple[str, ...]:
        """Returns the beginning of a command that runs on it."""
        return ("nsenter", f"--net=/run/netns/{self.name}", f"--uts=/run/uts/{self.name}")


class Site:
    """Server and clients, set up once for all trials."""

    def __init__(self, nfs_version: str, *, lock_manager: bool) -> None:
        self._is_3 = nfs_version == "3"
        self._version = nfs_version
        self._lock_manager = self._is_3 and lock_manager
        self.clients = (Client(1), Client(2))

    def set_up(self) -> None:
        """Make the export, the two clients and their mounts."""
        _run("hostname", "server")
        _run("ip", "link", "set", "lo", "up")
        for folder in ("/run/uts", EXPORT, *(client.mount for client in self.clients)):
            os.makedirs(folder, exist_ok=True)
        _mount("tmpfs", "state", str(_STATE))
        for name in ("v4recovery", "nfsdcltrack", "rpc_pipefs", "sm", "sm.bak"):
            (_STATE / name).mkdir()
        for name in ("etab", "rmtab", "state"):
            (_STATE / name).touch()
        _run("truncate", "-s", f"{_IMAGE_MIB}M", "/run/export.img")
        _run("mkfs.ext4", "-q", "-b", "4096", "-I", "256", "/run/export.img")
        _mount("ext4", "/run/export.img", EXPORT, "loop")
        for client in self.clients:
            _make_namespaces(client)
        self._export()
        for client in self.clients:
            self._mount_on(client)

    def make(self, name: str) -> str:
        """Make an empty directory on the server; returns its name."""
        os.mkdir(self.at(name), 0o700)
        return name

    def at(self, name: str) -> str:
        """Returns the path of a directory on the server's own disk."""
        return os.path.join(EXPORT, name)

    def stop_server(self) -> None:
        """End nfsd: it forgets whom it gave which lock."""
        _run("rpc.nfsd", "0")

    def start_server(self) -> None:
        """Start nfsd, whose clients may claim back what they held for some seconds."""
        _run("rpc.nfsd", *(["-V", "3", "4"] if self._is_3 else ["-N", "3", "-V", "4.2", "4"]))

    def _export(self) -> None:
        _mount("nfsd", "nfsd", "/proc/fs/nfsd")
        for name in ("nfsv4gracetime", "nfsv4leasetime"):
            Path("/proc/fs/nfsd", name).write_text(str(GRACE_SECONDS))
        if self._is_3:
            # The kernel registers its lock managers with the rpcbind whose socket it finds, which is the server's in
            # all three networks. The last one's port stands there, so all have the same.
            for name in ("nlm_tcpport", "nlm_udpport"):
                Path("/proc/sys/fs/nfs", name).write_text(str(_LOCK_PORT))
            _run("rpcbind")
            if self._lock_manager:
                _run("rpc.statd", "--no-notify")
        _run("exportfs", "-o", "rw,no_root_squash,sync,no_subtree_check,fsid=0", f"*:{EXPORT}")
        _run("rpc.mountd", *([] if self._is_3 else ["-N", "3", "-N", "2"]))
        self.start_server()

    def _mount_on(self, client: Client) -> None:
        inside = client.inside()
        server = f"10.98.{client.number}.1"
        if not self._is_3:
            _run(*inside, "mount", "-t", "nfs4", "-o", f"vers={self._version}", f"{server}:/", client.mount)
            return
        options = "vers=3" if self._lock_manager else "vers=3,nolock"
        if self._lock_manager:
            # Sockets and pid files of its own: the server's are in the same place.
            _run(*inside, "unshare", "--mount", "sh", "-c", _LOCK_MANAGER)
        _run(*inside, "mount", "-t", "nfs", "-o", options, f"{server}:{EXPORT}", client.mount)


def _make_namespaces(client: Client) -> None:
    name, number = client.name, client.number
    _run("ip", "netns", "add", name)
    _run("ip", "link", "add", f"up-{number}", "type", "veth", "peer", "name", f"in-{number}", "netns", name)
    _run("ip", "addr", "add", f"10.98.{number}.1/24", "dev", f"up-{number}")
    _run("ip", "link", "set", f"up-{number}", "up")
    _run("ip", "-n", name, "addr", "add", f"10.98.{number}.2/24", "dev", f"in-{number}")
    _run("ip", "-n", name, "link", "set", f"in-{number}", "up")
    _run("ip", "-n", name, "link", "set", "lo", "up")
    Path("/run/uts", name).touch()
    _run("unshare", f"--uts=/run/uts/{name}", "hostname", name)


def _mount(kind: str, device: str, path: str, options: str = "defaults") -> None:
    _run("mount", "-t", kind, "-o", options, device, path)


def _run(*words: str) -> None:
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"{' '.join(words)}: {ran.stderr.strip() or ran.stdout.strip() or ran.returncode}")
