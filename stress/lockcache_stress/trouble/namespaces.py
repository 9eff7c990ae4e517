# SPDX-License-Identifier: Apache-2.0
"""Hosts made of namespaces: each has a network, an address and a name of its own, and shares the disk and the pids.

The addresses belong to a switch that only these hosts have, so that two runs may go on at once. Needs root and
iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from lockcache_stress.trouble.mounts import run_quietly
from lockcache_stress.trouble.workspace import can_mount

__all__ = ["Host", "made_hosts", "why_no_namespaces"]

_NETWORK: Final = "10.213.0"
_BECOME: Final = 'hostname "$0" && exec "$@"'


class Host(NamedTuple):
    """One host: its name, which its network namespace has too, and its address."""

    name: str
    address: str

    def command(self, *words: str) -> list[str]:
        """Returns the command that runs ``words`` on the host, in the process that is started."""
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", _BECOME, self.name, *words]


def why_no_namespaces() -> str | None:
    """Returns why hosts cannot be had here; ``None`` if they can, as far as can be known without a trial."""
    if not can_mount():
        return "needs root, to make network namespaces"
    missing = [program for program in ("ip", "unshare") if shutil.which(program) is None]
    return f"needs {' and '.join(missing)}: apt install iproute2 util-linux" if missing else None


@contextmanager
def made_hosts(count: int) -> Iterator[list[Host]]:
    """Make hosts and a switch between them. Raises :class:`UnusableError` if that is not allowed."""
    prefix = f"lc{os.getpid()}"
    switch, made = f"{prefix}-switch", [Host(f"{prefix}-{n}", f"{_NETWORK}.{n + 1}") for n in range(count)]
    try:
        run_quietly("ip", "netns", "add", switch)
        run_quietly("ip", "-n", switch, "link", "add", "switch", "type", "bridge")
        run_quietly("ip", "-n", switch, "link", "set", "switch", "up")
        for number, host in enumerate(made):
            _connect(host, switch, f"port{number}")
        yield made
    finally:
        for name in (switch, *(host.name for host in made)):
            subprocess.run(["ip", "netns", "delete", name], check=False, capture_output=True)


def _connect(host: Host, switch: str, port: str) -> None:
    run_quietly("ip", "netns", "add", host.name)
    ends = ("link", "add", "eth0", "netns", host.name, "type", "veth", "peer", "name", port, "netns", switch)
    run_quietly("ip", *ends)
    run_quietly("ip", "-n", switch, "link", "set", port, "master", "switch", "up")
    run_quietly("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
    for device in ("lo", "eth0"):
        run_quietly("ip", "-n", host.name, "link", "set", device, "up")
