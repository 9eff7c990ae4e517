# SPDX-License-Identifier: Apache-2.0
"""The process of the server: what :mod:`.starting` starts, with the listening socket and the lock in its hands."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys

from lockcache.compile_server.limits import Limits
from lockcache.compile_server.place import SERVES, open_place, work_folder
from lockcache.compile_server.server import Server


def main(arguments: list[str]) -> None:
    """Become a process of its own and serve. ``arguments``: the socket's and the lock's descriptor, and limits."""
    listening, lock, stated = int(arguments[0]), int(arguments[1]), json.loads(arguments[2])
    os.chdir("/")
    os.umask(0o077)
    _use_all_cores()
    os.set_inheritable(lock, False)
    listener = socket.socket(fileno=listening)
    listener.set_inheritable(False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # its files go with it
    with open_place() as place:
        try:
            with work_folder() as folder:
                os.pwrite(lock, b"%d %s" % (os.getpid(), SERVES), 0)
                Server(listener, folder, Limits(**stated)).serve()
        finally:
            place.unlink_socket()


def _use_all_cores() -> None:
    """Run where this user's processes may: a rank that is bound to one core may have started this."""
    with contextlib.suppress(OSError):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))
