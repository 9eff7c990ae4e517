# SPDX-License-Identifier: Apache-2.0
"""Starting a server: a fresh interpreter, with nothing of the process that starts it but a socket and a lock."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from typing import Any, Final

from lockcache.compile_server.place import STARTS, Place

# First of all it becomes a process that belongs to nobody, so that its starter has no child for long, and says which it
# is, so that callers see whether it gets on. Without site: its .pth files may load anything. The caller's own path
# comes along, since lockcache was found there.
_PROGRAM: Final = (
    "import posix, sys; posix.fork() and posix._exit(0)\n"
    f"posix.pwrite(int(sys.argv[3]), b'%d {STARTS.decode()}' % posix.getpid(), 0)\n"
    "import json; sys.path[:] = json.loads(sys.argv[1])\n"
    "from lockcache.compile_server.process import main; main(sys.argv[2:])"
)

#: All that a server has of its starter's environment: what loads and finds libraries, and where it is. Not the tokens
#: of whatever program is the first; and what NVRTC reads comes with each request.
_KEPT: Final = frozenset({"HOME", "LANG", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "TMPDIR", "TZ", "XDG_RUNTIME_DIR"})

#: Descriptors on their way to a server. A process that another thread forks meanwhile must not keep them: the lock
#: would be held, and the socket listen, for as long as it lives.
_handed_on: set[int] = set()


def _close_in_child() -> None:
    for fd in _handed_on:
        with contextlib.suppress(OSError):
            os.close(fd)
    _handed_on.clear()


os.register_at_fork(after_in_child=_close_in_child)


def start(place: Place, limits: dict[str, Any] | None = None) -> bool:
    """Start a server unless one runs or is starting. Returns whether one was started. Raises :class:`OSError`.

    From here on callers can connect: what they say waits in the socket until the server reads it, and if the server
    does not get that far, the kernel tells them.
    """
    lock = place.try_lock()
    if lock < 0:
        return False
    _handed_on.add(lock)
    try:
        os.ftruncate(lock, 0)  # of the server before this one
        listener = place.listen()
        _handed_on.add(listener.fileno())
        try:
            _spawn(listener, lock, limits or {})
        finally:
            _handed_on.discard(listener.fileno())
            listener.close()
    finally:
        _handed_on.discard(lock)
        os.close(lock)
    return True


def _spawn(listener: socket.socket, lock: int, limits: dict[str, Any]) -> None:
    if not sys.executable:
        raise FileNotFoundError("no interpreter to start a server with")
    path = [entry for entry in sys.path if os.path.isabs(entry)]
    numbers = [str(listener.fileno()), str(lock)]
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, json.dumps(path), *numbers, json.dumps(limits)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(listener.fileno(), lock),
        start_new_session=True,
        cwd="/",
        env={name: value for name, value in os.environ.items() if name in _KEPT or name.startswith("LC_")},
    )
    # It ends in 10 ms, on a busy machine later, and maybe nobody asks again. A process that may have no more threads
    # has a zombie.
    with contextlib.suppress(RuntimeError):
        threading.Thread(target=process.wait, name="lockcache start", daemon=True).start()
