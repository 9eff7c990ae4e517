# SPDX-License-Identifier: Apache-2.0
"""Two hosts that share a directory over NFS, JuiceFS or GlusterFS: a server, two clients, and trials run on both.

NFS is in the kernel, so its guest is a kernel in qemu; the others are FUSE, so their guest is namespaces of this
machine.

Promises that a guest which hangs is an error with its last lines, and that no process or mount of a guest is left when
its block ends. The modules of this room run on the machine itself; the room ``guest`` runs in the guest.

May use: errors, processes, run.
"""

# mypy: implicit-reexport

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.hosts.running import HostsOptions, prepare_guest, run_hosts
    from lockcache_stress.hosts.verdicts import TRIALS, Tried, trials_of

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(__name__)
