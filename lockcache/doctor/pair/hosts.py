# SPDX-License-Identifier: Apache-2.0
"""The two hosts: what each says of itself, whether they are two, and which of their processes prints."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from lockcache import __version__
from lockcache.doctor.findings import DEGRADED, GOOD, NOTE, UNTESTED, Finding
from lockcache.filestream.disk import Mount, Owner, is_kind, mount_of, myself, read_small

#: The variables of MPICH and similar launchers, Open MPI, and Slurm.
RANK_VARIABLES: Final = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID")

_BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
_MOST_TEXT: Final = 64


class Card(NamedTuple):
    """The statements of a host about itself."""

    version: str
    host: str
    #: The id of the machine's boot: equal only on one machine. Empty if there is none.
    boot: str
    #: Number of the mount, which means something on one machine.
    device: int
    #: Kind of the file system.
    kind: str
    owner: Owner

    @classmethod
    def of(cls, place: str) -> Card:
        """Returns this host's card for a directory. Raises :class:`OSError`."""
        boot = b""
        with contextlib.suppress(OSError):
            boot = read_small(None, _BOOT_ID, _MOST_TEXT)
        mount = mount_of(place) or Mount("", "", "", "")
        host = socket.gethostname()[:_MOST_TEXT]
        return cls(__version__, host, boot.decode().strip(), os.stat(place).st_dev, mount.kind, myself())

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Card:
        """Returns the card that another host wrote: texts are cut short, what is not understood is empty."""
        device = body.get("device")
        texts = {name: _text(body.get(name)) for name in ("version", "host", "boot", "kind")}
        return cls(device=device if isinstance(device, int) else -1, owner=owner_of(body), **texts)

    def encode(self) -> bytes:
        """Returns the text for :meth:`parse`."""
        return json.dumps({**self._asdict(), "owner": list(self.owner)}).encode()


def owner_of(body: Mapping[str, Any]) -> Owner:
    """Returns the process that a card names; one that is nobody's for a card that names none."""
    owner = body.get("owner")
    if isinstance(owner, list) and len(owner) == 3:
        host, pid, start_ticks = owner
        if isinstance(host, str) and isinstance(pid, int) and isinstance(start_ticks, int):
            return Owner(host, pid, start_ticks)
    return Owner("", 0, 0)


def judge_hosts(first: Card, second: Card) -> Finding:
    """Check whether the file system can tell the two hosts apart."""
    names = first.host if first.host == second.host else f"{first.host} and {second.host}"
    is_one_machine = first.boot == second.boot and (first.boot != "" or first.host == second.host)
    measured = {
        "hosts": [first.host, second.host],
        "kinds": [first.kind, second.kind],
        "same_machine": is_one_machine,
    }
    if is_one_machine and first.device == second.device:
        found = f"both run on one machine ({names}), in one mount"
        means = "nothing of this is certified for two hosts: it is what one kernel does"
        advice = (
            "run it on two: mpiexec -n 2 -ppn 1 (Open MPI: --map-by ppr:1:node), srun -N 2 --ntasks-per-node 1, or by "
            "hand on each"
        )
        return Finding("two hosts", UNTESTED, found, means, advice, measured)
    kinds = first.kind if first.kind == second.kind else f"{first.kind} and {second.kind}"
    found = f"{names}, in two mounts ({kinds or 'kind unknown'})"
    goes_by_name = any(is_kind(card.kind, "nfs") for card in (first, second))
    if first.host == second.host and (goes_by_name or not is_one_machine):
        return _judge_equal_names(first.host, goes_by_name, measured)
    if is_one_machine:
        means = "two clients to a file server, but one clock and one kernel"
        return Finding("two hosts", NOTE, f"{found}; on one machine", means, measured=measured)
    return Finding("two hosts", GOOD, found, measured=measured)


def _judge_equal_names(host: str, goes_by_name: bool, measured: dict[str, Any]) -> Finding:
    found = f"two clients, and both are called {host}"
    if not goes_by_name:
        return Finding("two hosts", NOTE, found, "lockcache tells them apart; people do not", measured=measured)
    means = "an NFS 4 server takes two clients of one name for one that was restarted: they lose their locks"
    advice = "give each host a name of its own, or set nfs4_unique_id of the module nfs"
    return Finding("two hosts", DEGRADED, found, means, advice, measured)


def prints(environment: Mapping[str, str]) -> bool:
    """Returns whether this process prints the certificate: yes, unless a launcher gave it another rank than 0."""
    ranks = [environment[name] for name in RANK_VARIABLES if name in environment]
    return not ranks or ranks[0].strip() in ("0", "")


def _text(value: object) -> str:
    return value[:_MOST_TEXT] if isinstance(value, str) else ""
