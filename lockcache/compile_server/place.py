# SPDX-License-Identifier: Apache-2.0
"""The place of the server: a private folder of the node, in it a socket and the lock that its server holds.

Keeps callers from asking anybody but a server of their own: the folder is the user's, of mode 0700, no symlink, and on
no network file system, and the process that answers is the user's too. The name of the socket says what has to be the
same on both sides: the protocol and version of lockcache, the files that both see (mount namespace, root directory),
and what decides which libraries are loaded.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import secrets
import shutil
import socket
import stat
import struct
from collections.abc import Iterator
from typing import Final

from lockcache import __version__
from lockcache.compile_server.wire import PROTOCOL
from lockcache.filestream.disk import is_network

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS: Final = 0o077
# Tried in this order, where the user has no folder of the session. The second has no disk behind it.
_SHARED: Final = ("/tmp", "/dev/shm")
_WORK: Final = ".work"
#: What a lock says behind the number of its process, as soon as that is there, and then as it serves.
STARTS: Final = b"starts"
SERVES: Final = b"serves"
_PEER: Final = struct.Struct("iii")


class NoPlaceError(OSError):
    """There is no private folder for a server."""


class Place:
    """The folder, open. Names in it are reached by its descriptor, which also makes a long path short enough."""

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self._name = _name()

    @property
    def socket_name(self) -> str:
        """The name of the socket."""
        return f"{self._name}.sock"

    def address(self, name: str) -> str:
        """Returns a path to a name in the folder that fits into the 108 bytes of a socket's address."""
        return f"/proc/self/fd/{self.fd}/{name}"

    def connect(self, timeout_seconds: float) -> socket.socket:
        """Returns a connection to the server. Raises :class:`OSError` where none of this user listens."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_seconds)
            connection.connect(self.address(self.socket_name))
            if peer_uid(connection) != os.geteuid():
                raise PermissionError("the server is another user's")
        except BaseException:
            connection.close()
            raise
        return connection

    def try_lock(self) -> int:
        """Returns a descriptor that holds the server's lock; -1 where another process holds it.

        The lock goes with the descriptor: a server gets it from the process that starts it, so that at no time both or
        neither hold it, and the kernel frees it when the server dies.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(f"{self._name}.lock", flags, 0o600, dir_fd=self.fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return -1
        except BaseException:
            os.close(fd)
            raise
        return fd

    def listen(self) -> socket.socket:
        """Returns a socket that listens. Requires: the server's lock."""
        self.unlink_socket()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listener.bind(self.address(self.socket_name))
            listener.listen(512)
        except BaseException:
            listener.close()
            raise
        return listener

    def unlink_socket(self) -> None:
        """Remove the socket of a server that is gone. Requires: the server's lock."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket_name, dir_fd=self.fd)

    def server(self) -> tuple[int, bool]:
        """Returns the process that holds the lock, 0 until it has said so, and whether it serves. Raises OSError."""
        fd = os.open(f"{self._name}.lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=self.fd)
        try:
            pid, _, word = os.read(fd, 64).partition(b" ")
        finally:
            os.close(fd)
        return int(pid) if pid.isdigit() else 0, word == SERVES

    def close(self) -> None:
        """Close the folder."""
        os.close(self.fd)


@contextlib.contextmanager
def open_place(*, makes: bool = True) -> Iterator[Place]:
    """Open the folder, made if it is not there. Raises :class:`OSError`, a NoPlaceError where none is private."""
    place = _find(makes=makes)
    try:
        yield place
    finally:
        place.close()


def peer_uid(connection: socket.socket) -> int:
    """Returns the user of the process at the other end, as the kernel knows it."""
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    _, uid, _ = _PEER.unpack(found)
    return int(uid)


@contextlib.contextmanager
def work_folder() -> Iterator[str]:
    """Make a folder for files of some hundred megabytes, on a disk if there is one, and remove it at the end.

    ``$XDG_RUNTIME_DIR`` is in memory, and small. Folders of servers that were killed are removed: each server holds the
    lock of its own. Raises :class:`OSError`.
    """
    root, root_fd = _work_root()
    name = f"{os.getpid()}-{secrets.token_hex(4)}{_WORK}"
    lock = -1
    try:
        fcntl.flock(root_fd, fcntl.LOCK_EX)  # nobody takes a folder that is being made for one that was left
        for other in os.listdir(root_fd):
            if other.endswith(_WORK):
                _remove_if_left(root, root_fd, other)
        os.mkdir(name, 0o700, dir_fd=root_fd)
        lock = _locked(root_fd, name)
        fcntl.flock(root_fd, fcntl.LOCK_UN)
        yield f"{root}/{name}"
    finally:
        shutil.rmtree(f"{root}/{name}", ignore_errors=True)
        os.close(root_fd)
        if lock >= 0:
            os.close(lock)


def _remove_if_left(root: str, root_fd: int, name: str) -> None:
    try:
        lock = _locked(root_fd, name)
    except OSError:  # its server runs, or it was never finished
        return
    shutil.rmtree(f"{root}/{name}", ignore_errors=True)
    os.close(lock)


def _locked(root_fd: int, name: str) -> int:
    fd = os.open(f"{name}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600, dir_fd=root_fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _work_root() -> tuple[str, int]:
    for parent in _SHARED:
        with contextlib.suppress(OSError):
            path = f"{parent}/lockcache-{os.geteuid()}"
            return path, _open_private(path)
    raise NoPlaceError("no private folder for files")


def _find(*, makes: bool) -> Place:
    why: list[str] = []
    for path in _candidates():
        try:
            return Place(path, _open_private(path, makes=makes))
        except OSError as error:
            why.append(str(error))
    raise NoPlaceError("; ".join(why))


def _candidates() -> list[str]:
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    mine = [f"{session}/lockcache"] if os.path.isabs(session) else []
    return mine + [f"{parent}/lockcache-{os.geteuid()}" for parent in _SHARED]


def _open_private(path: str, *, makes: bool = True) -> int:
    if makes:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
    fd = os.open(path, _FOLDER)
    try:
        status = os.fstat(fd)
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & _OTHERS:
            raise NoPlaceError(f"{path} is not a folder that only its user may enter")
        if is_network(path):
            raise NoPlaceError(f"{path} is on a network file system")
    except BaseException:
        os.close(fd)
        raise
    return fd


def _name() -> str:
    """Returns the name that two processes have in common if one may compile for the other."""
    root, namespace, pids = os.stat("/"), os.stat("/proc/self/ns/mnt"), os.stat("/proc/self/ns/pid")
    loaded = [os.environ.get(name, "") for name in ("LD_LIBRARY_PATH", "LD_PRELOAD")]
    same = [PROTOCOL, __version__, root.st_dev, root.st_ino, namespace.st_dev, namespace.st_ino, pids.st_ino, *loaded]
    return hashlib.sha256(repr(same).encode(errors="surrogateescape"), usedforsecurity=False).hexdigest()[:16]
