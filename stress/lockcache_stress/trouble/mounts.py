# SPDX-License-Identifier: Apache-2.0
"""Places that scenarios need: a small disk, a quota, a read-only view of one, a file system of another kind.

The mounts are real, made by root, and unmounted at the end. Each place is a context manager that takes the path of the
place, and the run's seed, which these places do not need.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lockcache_stress.errors import UnusableError
from lockcache_stress.trouble.workspace import can_mount, mounted_tmpfs, unmount

_MIB: Final = 1 << 20
_SMALL: Final = "8m"


def needs_mounts(*programs: str) -> str | None:
    """Returns why file systems cannot be mounted here; ``None`` if they can, as far as can be known without a trial."""
    if not can_mount():
        return "needs root, to mount file systems"
    missing = [program for program in programs if shutil.which(program) is None]
    return f"needs {' and '.join(missing)}" if missing else None


def run_quietly(*command: str) -> None:
    """Run a command. Raises :class:`UnusableError` with its output if it fails, or if it is not installed."""
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        raise UnusableError(f"needs {command[0]}") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().replace("\n", "; ")
        raise UnusableError(f"{' '.join(command)}: {said or f'exit code {done.returncode}'}")


@contextmanager
def small_disk(path: str, seed: int = 0, size: str = _SMALL) -> Iterator[None]:
    """Mount a tmpfs, of 8 MiB by default. Raises :class:`UnusableError` where none can be mounted."""
    with mounted_tmpfs(path, size) as is_mounted:
        if not is_mounted:
            raise UnusableError("a tmpfs cannot be mounted here")
        yield


@contextmanager
def mounted_image(path: str, kind: str, size_mib: int, *options: str, image: str | None = None) -> Iterator[str]:
    """Mount a file system of its own from an image file, by loop. Yields the image's path.

    ``options`` are those of mkfs. The image is removed when the block ends.
    """
    image = f"{path}.img" if image is None else image
    try:
        with open(image, "wb") as file:
            file.truncate(size_mib * _MIB)
        run_quietly(f"mkfs.{kind}", *options, image)
        run_quietly("mount", "-o", "loop", image, path)
        os.chmod(path, 0o700)
        yield image
    finally:
        if os.path.ismount(path):  # Ctrl-C may come just after the kernel has mounted it
            unmount(path)
        if os.path.exists(image):
            os.unlink(image)


def copy_sparse(source: str, target: str) -> None:
    """Copy a file with its holes, such as a disk image, most of which was never written."""
    run_quietly("cp", "--sparse=always", source, target)


@contextmanager
def quota(path: str, seed: int = 0) -> Iterator[None]:
    """Make a directory that may hold 8 MiB on a disk that has much more: a limited btrfs subvolume."""
    disk = f"{path}-disk"
    os.mkdir(disk)
    try:
        with mounted_image(disk, "btrfs", 256, "-q"):
            within = os.path.join(disk, "cache")
            run_quietly("btrfs", "quota", "enable", disk)
            run_quietly("btrfs", "subvolume", "create", within)
            run_quietly("btrfs", "qgroup", "limit", _SMALL, within)
            run_quietly("mount", "--bind", within, path)
            try:
                os.chmod(path, 0o700)
                yield
            finally:
                unmount(path)
    finally:
        os.rmdir(disk)


def view_of(path: str) -> str:
    """Returns the path of the read-only view that :func:`read_only_view` makes."""
    return f"{path}-read-only"


@contextmanager
def read_only_view(path: str, seed: int = 0) -> Iterator[None]:
    """Mount a tmpfs, and a read-only view of it, to be mounted on top (``mount --bind VIEW PATH``).

    The kernel refuses to remount read-only while a process has a file open for writing, but not to mount on top.
    """
    view = view_of(path)
    os.mkdir(view)
    try:
        with small_disk(path, size="64m"):
            run_quietly("mount", "--make-private", path)
            run_quietly("mount", "--bind", path, view)
            try:
                run_quietly("mount", "--make-private", view)
                run_quietly("mount", "-o", "remount,bind,ro", view)
                yield
            finally:
                unmount(view)
                while _mounts_at(path) > 1:
                    run_quietly("umount", "-l", path)
    finally:
        os.rmdir(view)


def _mounts_at(path: str) -> int:
    with open("/proc/self/mounts") as file:
        return sum(line.split()[1] == path for line in file)
