# SPDX-License-Identifier: Apache-2.0
"""JuiceFS: names in a Redis or Valkey, data in a folder of the server; each client has a FUSE process in its network.

The server has a mount of its own too, without caches, because the folder has the contents of files in pieces only.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from lockcache_stress.hosts.guest.site import GRACE_SECONDS, SERVER, SHARED, Client, Site
from lockcache_stress.processes import wait_until
from lockcache_stress.trouble import run_quietly

_PORT: Final = 6379
_NAMES: Final = f"redis://{SERVER}:{_PORT}/1"
# JuiceFS frees the locks of a client after five missed heartbeats.
_HEARTBEAT: Final = f"{GRACE_SECONDS // 5}s"
_REMEMBERS_NOTHING: Final = ("--attr-cache=0", "--entry-cache=0", "--dir-entry-cache=0")
_START_SECONDS: Final = 60.0
# JuiceFS would restart a mount that died, by a child that uses names in /tmp; but a trial has to notice such a death.
_ALONE: Final = {"JFS_SUPERVISOR": "none"}


class JuiceSite(Site):
    """A volume with default mount options, except for the time for which a silent client keeps its locks."""

    def __init__(self, mount_options: Sequence[str]) -> None:
        super().__init__(mount_options)
        self._server: subprocess.Popen[bytes] | None = None

    def stop_server(self) -> None:
        """End the server of the names, which keeps the names and the locks on its disk."""
        if self._server is not None:
            self._server.terminate()
            self._server.wait()

    def start_server(self) -> None:
        """Start the server of the names with the names and locks on its disk."""
        program = shutil.which("valkey-server") or "redis-server"
        words = [program, "--bind", "0.0.0.0", "--protected-mode", "no", "--dir", "/run/names", "--appendonly", "yes"]
        self._server = _start(words, "names", _answers)

    def _serve(self) -> None:
        for folder in ("/run/names", "/run/data"):
            os.mkdir(folder)
        self.start_server()
        run_quietly("juicefs", "format", "--storage", "file", "--bucket", "/run/data/", _NAMES, "shared")
        _mount((), "server", SHARED, _REMEMBERS_NOTHING)

    def _mount_on(self, client: Client) -> None:
        _mount(client.inside(), client.name, client.mount, [f"--{option}" for option in self._mount_options])


def _mount(inside: Sequence[str], name: str, path: str, options: Sequence[str]) -> None:
    words = ["juicefs", "mount", "--no-usage-report", "--heartbeat", _HEARTBEAT, "--cache-dir", f"/run/cache/{name}"]
    _start([*inside, *words, *options, _NAMES, path], name, lambda: os.path.ismount(path))


def _start(words: Sequence[str], name: str, is_up: Callable[[], bool]) -> subprocess.Popen[bytes]:
    """Start a server. Raises :class:`RuntimeError` with its last output if it ends or does not come up."""
    path = Path(f"/run/{name}.log")
    with path.open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **_ALONE})
    wait_until(lambda: is_up() or process.poll() is not None, _START_SECONDS)
    if not is_up():
        raise RuntimeError(f"{' '.join(words)}: {' | '.join(path.read_text().splitlines()[-5:])}")
    return process


def _answers() -> bool:
    """Returns whether the server of the names accepts connections."""
    try:
        with socket.create_connection((SERVER, _PORT), timeout=1.0):
            return True
    except OSError:
        return False
