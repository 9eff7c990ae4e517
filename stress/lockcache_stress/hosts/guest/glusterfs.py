# SPDX-License-Identifier: Apache-2.0
"""GlusterFS: a volume of one brick on an ext4; each client has a FUSE process in its network."""

from __future__ import annotations

import os
import time
from typing import Final

import psutil

from lockcache_stress.hosts.guest.site import GRACE_SECONDS, SERVER, SHARED, Client, Site, make_disk, mount
from lockcache_stress.trouble import run_quietly

_BRICK: Final = os.path.join(SHARED, "brick")
_BRICK_PROGRAM: Final = "glusterfsd"
_CONNECT_SECONDS: Final = 60.0
# The folders into which Debian's glusterd and its clients write.
_STATE: Final = ("/var/lib/glusterd", "/var/log/glusterfs")


class GlusterSite(Site):
    """A volume with default options, except for the time for which a silent server or client is waited for."""

    def make(self, name: str) -> str:
        """Make an empty directory through a mount, because only the server may write to its brick. Returns its name."""
        for client in self.clients:
            _wait_for(client)
        os.mkdir(self.clients[0].at(name), 0o700)
        return name

    def at(self, name: str) -> str:
        """Returns the path of a directory on the brick."""
        return os.path.join(_BRICK, name)

    def stop_server(self) -> None:
        """Kill the brick's process, with which all locks of clients are lost."""
        bricks = [each for each in psutil.process_iter(["name"]) if each.info["name"] == _BRICK_PROGRAM]
        for each in bricks:
            each.kill()
        psutil.wait_procs(bricks)

    def start_server(self) -> None:
        """Start the brick's process."""
        _gluster("start", "shared", "force")

    def _serve(self) -> None:
        for folder in _STATE:
            mount("tmpfs", "state", folder)
        make_disk()
        os.mkdir(_BRICK)
        run_quietly("glusterd")
        _gluster("create", "shared", f"{SERVER}:{_BRICK}", "force")
        _gluster("set", "shared", "network.ping-timeout", str(GRACE_SECONDS))
        for option in self._mount_options:
            if "." in option:
                _gluster("set", "shared", *option.split("="))
        _gluster("start", "shared")

    def _mount_on(self, client: Client) -> None:
        options = ",".join(["defaults", *(option for option in self._mount_options if "." not in option)])
        run_quietly(*client.inside(), "mount", "-t", "glusterfs", "-o", options, f"{SERVER}:/shared", client.mount)


def _wait_for(client: Client) -> None:
    """Wait until a client that an earlier trial cut off has connected again. Raises the client's last error."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while True:
        try:
            os.listdir(client.mount)
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _gluster(*words: str) -> None:
    run_quietly("gluster", "--mode=script", "volume", *words)
