"""Two hosts that share a directory over NFS: a kernel in qemu, an export, two clients, and trials run on both.

Promises that a guest which hangs is an error with its last lines, and that nothing is left of one when its block ends.
The modules of this room run on the machine itself; what runs in the guest is the room ``guest``.

May use: errors, processes, run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lockcache.doors import door

if TYPE_CHECKING:
    from lockcache_stress.hosts.initramfs import *
    from lockcache_stress.hosts.needs import *
    from lockcache_stress.hosts.running import *
    from lockcache_stress.hosts.verdicts import *

if not TYPE_CHECKING:
    __getattr__, __dir__ = door(
        __name__,
        {
            "initramfs": "Boot",
            "needs": "why_no_hosts",
            "running": "HostsOptions prepare_guest run_hosts",
            "verdicts": "TRIALS Tried",
        },
    )
