"""Hosts made of namespaces: each has a network, an address and a name of its own, and shares the disk and the pids.

Needs root and iproute2. Not promised: that two runs do not meet in one network; each has networks of its own, so the
same addresses are no conflict.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from typing import Final, NamedTuple

from lockcache_stress.run import why_no_mpi
from lockcache_stress.trouble import can_mount, run_quietly

__all__ = ["Host", "hosts", "why_no_hosts", "write_launcher"]

_NETWORK: Final = "10.213.0"

# What mpiexec starts its proxies by, in place of ssh: LAUNCHER [options of ssh] ADDRESS COMMAND...
_LAUNCHER: Final = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
address=$1; shift
case $address in
%s
*) echo "$0: no host has the address $address" >&2; exit 1;;
esac
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec sh -c "$*"' "$host" "$@"
"""


class Host(NamedTuple):
    """One host: the name of its network namespace and of itself, and its address."""

    name: str
    address: str

    def command(self, *words: str) -> list[str]:
        """What runs a command on it."""
        return ["ip", "netns", "exec", self.name, "unshare", "--uts", "sh", "-c", _BECOME, self.name, *words]


_BECOME: Final = 'hostname "$0" && exec "$@"'


def why_no_hosts() -> str | None:
    """Why no hosts and ranks can be had here; ``None`` if they can, as far as is seen without trying."""
    if not can_mount():
        return "needs root, to make network namespaces"
    missing = [program for program in ("ip", "unshare") if shutil.which(program) is None]
    if missing:
        return f"needs {' and '.join(missing)}: apt install iproute2 util-linux"
    return why_no_mpi()


@contextlib.contextmanager
def hosts(count: int) -> Iterator[list[Host]]:
    """So many hosts, one switch between them. Raises :class:`UnusableError` where that is not allowed."""
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


def write_launcher(path: str, made: list[Host]) -> None:
    """Write the program by which mpiexec starts something on one of these hosts."""
    cases = "\n".join(f"{host.address}) host={host.name};;" for host in made)
    with open(path, "w") as file:
        file.write(_LAUNCHER % cases)
    os.chmod(path, 0o700)
