"""What a guest with two NFS clients needs of this machine, and where it comes from."""

from __future__ import annotations

import os
import platform
import shutil
from typing import Final

__all__ = ["why_no_hosts"]

#: Programs, and Debian's packages that have them. Those from ``rpc.nfsd`` on run in the guest, from this root.
PROGRAMS: Final = {
    "qemu-system-x86_64": "qemu-system-x86",
    "busybox": "busybox-static",
    "apt-get": "apt",
    "apt-cache": "apt",
    "dpkg-deb": "dpkg",
    "depmod": "kmod",
    "modprobe": "kmod",
    "rpc.nfsd": "nfs-kernel-server",
    "rpc.mountd": "nfs-kernel-server",
    "exportfs": "nfs-kernel-server",
    "mount.nfs": "nfs-common",
    "mkfs.ext4": "e2fsprogs",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
#: NFS 3 finds its parts by the first, and has its locks from the second.
NFS_3: Final = {"rpcbind": "rpcbind", "rpc.statd": "nfs-common"}
# A program that wants an interpreter has its path in the first page.
_ELF_START_BYTES: Final = 4096


def why_no_hosts(nfs_version: str = "4.2") -> str | None:
    """Returns why no guest can be had here, with the packages that are missing; ``None`` if one can."""
    wanted = {**PROGRAMS, **(NFS_3 if nfs_version == "3" else {})}
    missing = [name for name in wanted if shutil.which(name) is None]
    if missing:
        packages = sorted({wanted[name] for name in missing})
        return f"{', '.join(missing)} not on PATH: apt-get install {' '.join(packages)}"
    busybox = shutil.which("busybox") or ""
    with open(busybox, "rb") as file:
        if b"/ld-linux" in file.read(_ELF_START_BYTES):
            return f"{busybox} needs shared libraries: apt-get install busybox-static"
    if platform.machine() != "x86_64":
        return f"the guest is an x86_64, and this machine a {platform.machine()}"
    if os.geteuid() != 0:
        return "only root may lend the whole root to a guest, and read all of it there"
    return None
