"""The guest's kernel: Debian's package, verified against what apt knows of it, and the modules that the guest needs.

What is unpacked comes from a package whose SHA-256 is the one in apt's signed index, every time: a package that was
kept from an earlier run is hashed again.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lockcache_stress.errors import UnusableError

__all__ = ["Package", "find_package", "modules_for", "parse_record", "unpack"]

_META: Final = "linux-image-amd64"
_DOWNLOAD_SECONDS: Final = 600
_CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Package:
    """One version of the kernel's package, as apt's index has it."""

    name: str
    version: str
    sha256: str

    def is_in(self, path: Path) -> bool:
        """Whether ``path`` is this package, byte for byte."""
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
            path.unlink()  # an older kernel, or a download that was cut
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
    """Returns what a record of apt's index says, ``None`` if it lacks a field."""
    fields = dict(re.findall(r"^(Package|Version|SHA256): (\S+)$", text, re.MULTILINE))
    try:
        return Package(fields["Package"], fields["Version"], fields["SHA256"])
    except KeyError:
        return None


def unpack(package: Path, folder: Path) -> tuple[Path, str]:
    """Unpack a kernel below ``folder``; returns its image and its release."""
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
    """Returns what a program says. A failure is told by what is then missing, in words that fit there."""
    environment = {**os.environ, "LC_ALL": "C"}
    ran = subprocess.run(
        words, cwd=cwd, env=environment, capture_output=True, text=True, timeout=_DOWNLOAD_SECONDS, check=False
    )
    if ran.returncode and words[0] not in ("apt-cache", "apt-get", "modprobe"):
        raise UnusableError(f"{' '.join(words[:2])}: {ran.stderr.strip()}")
    return ran.stdout if ran.returncode == 0 else ran.stderr
