# SPDX-License-Identifier: Apache-2.0
"""The workspace of a run: a cache directory and, apart from it, a directory that the processes share.

A temporary directory is always removed; one that the user named is left as it is at the end.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lockcache_stress.errors import UnusableError


@dataclass(frozen=True)
class Workspace:
    """Two directories."""

    cache: str
    control: str
    #: Whether the cache has a file system of its own, so that statvfs gives its bytes.
    is_own_mount: bool


@contextmanager
def open_workspace(
    directory: str | None, *, wants_own_mount: bool = False, parent: str | None = None
) -> Iterator[Workspace]:
    """Make both directories; with ``wants_own_mount`` the temporary one is a tmpfs, if that is allowed.

    ``parent`` is the folder of temporary directories, by default the system's.
    """
    with ExitStack() as stack:
        with _refusing(parent):
            if parent is not None:
                os.makedirs(parent, exist_ok=True)
            control = tempfile.mkdtemp(prefix="lockcache-stress-", dir=parent)
        stack.callback(shutil.rmtree, control, ignore_errors=True)
        if directory is None:
            cache = os.path.join(control, "cache")
            os.mkdir(cache, 0o700)
            if wants_own_mount and can_mount():
                stack.enter_context(mounted_tmpfs(cache))
        else:
            cache = os.path.abspath(directory)
            with _refusing(directory):
                os.makedirs(cache, mode=0o700, exist_ok=True)
        yield Workspace(cache, control, os.path.ismount(cache) and not os.path.isdir(os.path.join(cache, "lost+found")))


def can_mount() -> bool:
    """Returns whether this process may mount a tmpfs."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


@contextmanager
def mounted_tmpfs(path: str, size: str = "1g") -> Iterator[bool]:
    """Mount a tmpfs over ``path`` until the block ends. Yields whether that worked, which a container may forbid."""
    options = f"mode=0700,size={size}"
    command = ["mount", "-t", "tmpfs", "-o", options, "lockcache-stress", path]
    try:
        yield subprocess.run(command, check=False, capture_output=True).returncode == 0
    finally:
        if os.path.ismount(path):  # Ctrl-C may come just after the kernel has mounted it
            unmount(path)


def unmount(path: str) -> None:
    """Unmount the file system at ``path``, if there is one."""
    subprocess.run(["umount", "-l", path], check=False, capture_output=True)


@contextmanager
def _refusing(directory: str | None) -> Iterator[None]:
    """Report a directory in which no file can be made as a mistake of the user."""
    try:
        yield
    except OSError as error:
        raise UnusableError(f"{directory or error.filename!r}: {error.strerror}") from None
