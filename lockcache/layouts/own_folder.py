"""Keeping house in another program's directory: our own files go into one folder, ``lockcache/``, and nowhere else.

Decides where they are, and that such a directory is refused where lockcache's own would be: if somebody else owns it or
may write to it. The name of the layout is left in ``lockcache/layout``, so that a directory from which all was evicted
is still known for what it is, and one that an operator named is never taken for something else.
"""

from __future__ import annotations

import os
import stat
from typing import Final

from lockcache.filestream.disk import DISK_FULL, READ, make_private_folder, open_folder, replace_file
from lockcache.integrations.pyptx_files import guest_layout
from lockcache.layouts.openat import NOT_A_FOLDER, status_in
from lockcache.lowlevel import Layout, check_directory

_LONGEST_NAME: Final = 64
_OWN: Final = "lockcache"
_NAME: Final = "layout"


def open_guest(root: str) -> Layout:
    """lockcache's paths in ``root``, which is made (mode 0700) if it is missing.

    Raises :class:`UnsafeCacheDirError` if somebody else owns it or may write to it, or the plain :class:`OSError`.
    """
    layout = guest_layout(root)
    if not os.path.isdir(root):
        os.makedirs(os.path.dirname(root), exist_ok=True)
        make_private_folder(root)
    check_directory(layout, False)
    return layout


def read_name(root: str) -> str:
    """The layout under which ``root`` was kept before; empty if it never was, or if that is not known."""
    try:
        # Before anything was checked: the directory may turn out to be one that others write to.
        with open_folder(root, _OWN) as folder_fd:
            status = status_in(folder_fd, _NAME)
            if status is None or not stat.S_ISREG(status.st_mode):
                return ""
            fd = os.open(_NAME, READ, dir_fd=folder_fd)
    except OSError as error:
        if error.errno in NOT_A_FOLDER:
            return ""
        raise
    try:
        return os.read(fd, _LONGEST_NAME).decode("ascii", "replace").strip()
    finally:
        os.close(fd)


def leave_name(layout: Layout, name: str) -> None:
    """Leave the name for the next start. Requires: ``lockcache/`` and its folder for staged files are there."""
    if read_name(layout.root) == name:
        return
    try:
        replace_file(layout, _path(layout), name.encode("ascii") + b"\n", fsync=False)
    except OSError as error:
        # A full disk needs its sweeps most of all; the name can wait.
        if error.errno not in DISK_FULL:
            raise


def _path(layout: Layout) -> str:
    return os.path.join(layout.own, _NAME)
