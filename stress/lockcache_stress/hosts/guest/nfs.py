# SPDX-License-Identifier: Apache-2.0
"""The kernel's NFS: an ext4 that knfsd exports; each client has the NFS client of its network."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from lockcache_stress.hosts.guest.site import GRACE_SECONDS, SHARED, Client, Site, make_disk, mount
from lockcache_stress.trouble import run_quietly

_LOCK_PORT: Final = 32803
# The folder of nfsd's, mountd's and statd's state, which the guest must not share with this machine's root.
_STATE: Final = Path("/var/lib/nfs")
_LOCK_MANAGER: Final = "mount -t tmpfs run /run && rpcbind && rpc.statd --no-notify"


class NfsSite(Site):
    """NFS of one version."""

    def __init__(self, mount_options: Sequence[str], version: str, *, lock_manager: bool) -> None:
        super().__init__(mount_options)
        self._is_3 = version == "3"
        self._version = version
        self._lock_manager = self._is_3 and lock_manager

    def stop_server(self) -> None:
        """End nfsd, with which all locks of clients are lost."""
        run_quietly("rpc.nfsd", "0")

    def start_server(self) -> None:
        """Start nfsd, which lets clients reclaim their locks for some seconds."""
        run_quietly("rpc.nfsd", *(["-V", "3", "4"] if self._is_3 else ["-N", "3", "-V", "4.2", "4"]))

    def make_on_coarse_disk(self, name: str) -> str:
        """Make an empty directory on a disk with times in whole seconds, which the export crosses into."""
        disk = self.at(self.make(f"{name}-disk"))
        make_disk(disk, is_coarse=True)
        os.mkdir(os.path.join(disk, name), 0o700)
        return os.path.join(f"{name}-disk", name)

    def _serve(self) -> None:
        mount("tmpfs", "state", str(_STATE))
        for name in ("v4recovery", "nfsdcltrack", "rpc_pipefs", "sm", "sm.bak"):
            (_STATE / name).mkdir()
        for name in ("etab", "rmtab", "state"):
            (_STATE / name).touch()
        make_disk()
        mount("nfsd", "nfsd", "/proc/fs/nfsd")
        for name in ("nfsv4gracetime", "nfsv4leasetime"):
            Path("/proc/fs/nfsd", name).write_text(str(GRACE_SECONDS))
        if self._is_3:
            self._start_locks()
        run_quietly("exportfs", "-o", "rw,no_root_squash,sync,no_subtree_check,crossmnt,fsid=0", f"*:{SHARED}")
        run_quietly("rpc.mountd", *([] if self._is_3 else ["-N", "3", "-N", "2"]))
        self.start_server()

    def _start_locks(self) -> None:
        # The kernel registers its lock managers with the rpcbind whose socket it finds, which is the server's in all
        # three networks. Only the last port stays registered, so all three have the same port.
        for name in ("nlm_tcpport", "nlm_udpport"):
            Path("/proc/sys/fs/nfs", name).write_text(str(_LOCK_PORT))
        # The lock manager has a grace period of its own, 50 s, for which the first lock of a client would have to wait.
        Path("/proc/sys/fs/nfs/nlm_grace_period").write_text(str(GRACE_SECONDS))
        run_quietly("rpcbind")
        if self._lock_manager:
            run_quietly("rpc.statd", "--no-notify")

    def _mount_on(self, client: Client) -> None:
        inside = client.inside()
        server = f"10.98.{client.number}.1"
        options = ",".join([f"vers={self._version}", *self._mount_options])
        if not self._is_3:
            run_quietly(*inside, "mount", "-t", "nfs4", "-o", options, f"{server}:/", client.mount)
            return
        if not self._lock_manager:
            options += ",nolock"
        else:
            # In a mount namespace, because its sockets and pid files have the same paths as the server's.
            run_quietly(*inside, "unshare", "--mount", "sh", "-c", _LOCK_MANAGER)
        run_quietly(*inside, "mount", "-t", "nfs", "-o", options, f"{server}:{SHARED}", client.mount)
