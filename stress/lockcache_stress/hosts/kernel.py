# SPDX-License-Identifier: Apache-2.0
"""The guest's kernel: Debian's package, verified against apt's index, and its first file system.

Only a package whose SHA-256 is the one in apt's signed index is unpacked: a package that was kept from an earlier run
is hashed again. The first file system (busybox, the modules that the guest needs, and ``init.sh``) is built once for
each kernel, and kept.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from filelock import FileLock

from lockcache_stress.errors import UnusableError

_META: Final = "linux-image-amd64"
_DOWNLOAD_SECONDS: Final = 600
_CHUNK_BYTES: Final = 1 << 20
# The modules that the guest needs: 9p and overlay for its root, ext4 on a loop device for the export, links between
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
class Package:
    """One version of the kernel's package, by its record in apt's index."""

    name: str
    version: str
    sha256: str

    def is_in(self, path: Path) -> bool:
        """Returns whether ``path`` is this package, byte for byte."""
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
        return digest.hexdigest() == self.sha256

    def fetch(self, folder: Path) -> Path:
        """Returns the package's file, downloaded by apt if ``folder`` has none that is whole."""
        for path in folder.glob("*.deb"):
            if self.is_in(path):
                return path
            path.unlink()  # an older kernel, or a download that was interrupted
        said = _run(["apt-get", "download", f"{self.name}={self.version}"], cwd=folder)
        for path in folder.glob("*.deb"):
            if self.is_in(path):
                return path
        raise UnusableError(
            f"{self.name} {self.version} cannot be downloaded: {said.strip() or 'it has another digest'}"
        )


def find_package() -> Package:
    """Returns the package on which Debian's newest kernel depends. Raises :class:`UnusableError` if apt knows none."""
    name = re.search(r"Depends: (linux-image-[\w.+-]+)", _run(["apt-cache", "depends", _META]))
    package = parse_record(_run(["apt-cache", "show", "--no-all-versions", name[1]])) if name else None
    if package is None:
        raise UnusableError(f"apt does not know the package {_META}, which is Debian's kernel: apt-get update")
    return package


def parse_record(text: str) -> Package | None:
    """Returns the package of a record of apt's index; ``None`` if the record lacks a field."""
    fields = dict(re.findall(r"^(Package|Version|SHA256): (\S+)$", text, re.MULTILINE))
    try:
        return Package(fields["Package"], fields["Version"], fields["SHA256"])
    except KeyError:
        return None


def unpack(package: Path, folder: Path) -> tuple[Path, str]:
    """Unpack a kernel below ``folder``. Returns its image and its release."""
    _run(["dpkg-deb", "-x", str(package), str(folder)])
    (image,) = (folder / "boot").glob("vmlinuz-*")
    release = image.name.removeprefix("vmlinuz-")
    _run(["depmod", "-b", str(folder), release])
    return image, release


def modules_for(folder: Path, release: str, names: Sequence[str]) -> list[Path]:
    """Returns the files of these modules and of all that they need, in the order in which they can be loaded."""
    found: dict[Path, None] = {}
    for name in names:
        said = _run(["modprobe", "-d", str(folder), "-S", release, "--show-depends", name])
        found.update(dict.fromkeys(Path(path) for path in re.findall(r"^insmod (\S+)", said, re.MULTILINE)))
    return list(found)


def _run(words: Sequence[str], cwd: Path | None = None) -> str:
    """Returns the output of a program; after a failure of apt or modprobe their errors, which name what is missing."""
    environment = {**os.environ, "LC_ALL": "C"}
    ran = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
    )
    if ran.returncode and words[0] not in ("apt-cache", "apt-get", "modprobe"):
        raise UnusableError(f"{' '.join(words[:2])}: {ran.stderr.strip()}")
    return ran.stdout if ran.returncode == 0 else ran.stderr


@dataclass(frozen=True)
class Boot:
    """The kernel and the first file system for qemu."""

    kernel: Path
    initramfs: Path
    release: str


def prepare(cache: Path, show: Callable[[str], object]) -> Boot:
    """Returns kernel and initramfs, made from Debian's package unless an earlier run left those of the same package."""
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    with FileLock(cache / "lock"):  # another run may be making the same files
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
    """Returns the content of each name in the archive; ``None`` for a folder."""
    files: dict[str, bytes | None] = dict.fromkeys(_FOLDERS)
    files["init"] = _INIT.read_bytes()
    files["bin/busybox"] = Path(shutil.which("busybox") or "").read_bytes()
    names = []
    for path in modules:
        content = path.read_bytes()
        names.append(path.name.removesuffix(".xz"))
        # Decompressed, because not every build of busybox loads compressed modules.
        files[f"modules/{names[-1]}"] = lzma.decompress(content) if path.suffix == ".xz" else content
    files["modules/order"] = "\n".join(names).encode()
    return files


def archive(files: dict[str, bytes | None]) -> bytes:
    """Returns a cpio archive in the format "newc", which kernels unpack."""
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
