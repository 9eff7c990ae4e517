"""The guest's first file system: busybox, the modules, and ``init.sh``; built once for each kernel, and kept."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from lockcache_stress.errors import UnusableError
from lockcache_stress.hosts.kernel import find_package, modules_for, unpack

__all__ = ["Boot", "archive", "prepare"]

# What the guest mounts and makes: 9p and overlay for its root, ext4 by a loop device for the export, links between
# namespaces, both ends of NFS, and delays.
_MODULES: Final = (
    *("virtio_pci", "9pnet_virtio", "9p", "overlay", "loop", "ext4", "crc32c_generic", "veth"),
    *("nfsd", "nfs", "nfsv3", "nfsv4", "nfs_layout_flexfiles", "lockd", "sch_netem"),
)
_FOLDERS: Final = ("bin", "modules", "proc", "sys", "dev", "root", "upper", "merged")
_INIT: Final = Path(__file__).with_name("init.sh")
_FOLDER_MODE: Final = 0o040755
_FILE_MODE: Final = 0o100755


@dataclass(frozen=True)
class Boot:
    """What qemu is given."""

    kernel: Path
    initramfs: Path
    release: str


def prepare(cache: Path, show: Callable[[str], object]) -> Boot:
    """Returns kernel and initramfs, made from Debian's package unless an earlier run of the same left them."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(cache / "lock"):  # another run may be at it
        return _prepare(cache, show)


def _prepare(cache: Path, show: Callable[[str], object]) -> Boot:
    package = find_package()
    show(f"{package.name} {package.version}")
    deb = package.fetch(cache)
    recipe = hashlib.sha256(package.sha256.encode() + _INIT.read_bytes() + repr(_MODULES).encode()).hexdigest()
    built = cache / f"guest-{recipe[:32]}"
    if not built.is_dir():
        for older in cache.glob("guest-*"):
            shutil.rmtree(older)
        _build(deb, built, show)
    return Boot(built / "vmlinuz", built / "initramfs", (built / "release").read_text())


def _build(deb: Path, built: Path, show: Callable[[str], object]) -> None:
    with tempfile.TemporaryDirectory(prefix="making-", dir=built.parent) as folder:
        show("unpacking the kernel")
        root, made = Path(folder, "root"), Path(folder, "made")
        made.mkdir()
        image, release = unpack(deb, root)
        modules = modules_for(root, release, _MODULES)
        if not modules:
            raise UnusableError(f"{deb.name} has no modules that modprobe finds")
        shutil.copy(image, made / "vmlinuz")
        (made / "release").write_text(release)
        with gzip.open(made / "initramfs", "wb", compresslevel=1) as file:
            file.write(archive(_content(modules)))
        os.rename(made, built)


def _content(modules: Iterable[Path]) -> dict[str, bytes | None]:
    """Returns each name in the archive; ``None`` for a folder."""
    files: dict[str, bytes | None] = dict.fromkeys(_FOLDERS)
    files["init"] = _INIT.read_bytes()
    files["bin/busybox"] = Path(shutil.which("busybox") or "").read_bytes()
    names = []
    for path in modules:
        content = path.read_bytes()
        names.append(path.name.removesuffix(".xz"))
        # busybox loads what is not compressed, whatever it was built with.
        files[f"modules/{names[-1]}"] = lzma.decompress(content) if path.suffix == ".xz" else content
    files["modules/order"] = "\n".join(names).encode()
    return files


def archive(files: dict[str, bytes | None]) -> bytes:
    """Returns a cpio archive of the form "newc", which kernels unpack."""
    entries = [*files.items(), ("TRAILER!!!", b"")]
    return b"".join(_member(number, *entry) for number, entry in enumerate(entries, 1))


def _member(number: int, name: str, content: bytes | None) -> bytes:
    mode = _FOLDER_MODE if content is None else _FILE_MODE
    body = content or b""
    # Inode, mode, owner, group, links, time, size, devices (four), length of the name, no checksum.
    fields = (number, mode, 0, 0, 1, 0, len(body), 0, 0, 0, 0, len(name) + 1, 0)
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return _padded(head) + _padded(body)


def _padded(part: bytes) -> bytes:
    return part + bytes(-len(part) % 4)
