# SPDX-License-Identifier: Apache-2.0
"""The probe: one private directory for trials, which is made for them and removed with its contents.

Keeps the promise that an examination changes nothing: in a cache it works below ``lockcache/``, where no entry is
looked for; elsewhere next to what is there, so that a directory of other things does not become a cache. Its name is
chosen by the examining process, so that it is found and removed whichever process was killed, and when.

Keeps an examination of a directory that others may write to inside of it: the probe is made, used and removed by
descriptors, so that a symlink in its place, or in that of ``lockcache/``, leads nowhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import time
from collections.abc import Iterator
from typing import Final

from lockcache.doctor.findings import DEGRADED, GOOD, UNTESTED, UNUSABLE, Finding, Subject
from lockcache.filestream.disk import FOLDER, TAG_NAME, open_folder
from lockcache.lowlevel import Layout, is_cache

#: The beginning of the directory's name, wherever it is.
PREFIX = ".lockcache-doctor-"

#: For how long another host may make files in a probe that is being removed; as long as it looks for one thing.
_REMOVAL_SECONDS: Final = 5.0


def kind_of(root: str) -> str:
    """Returns what is at ``root``: ``cache``, ``empty``, ``other`` or ``missing``. May raise :class:`OSError`."""
    layout = Layout(root)
    try:
        names = os.listdir(root)
    except FileNotFoundError:
        return "missing"
    if is_cache(layout):
        return "cache"
    return "other" if set(names) - {"lost+found", TAG_NAME} else "empty"


def make_probe(subject: Subject) -> str:
    """Make the directory; its path. Raises :class:`OSError` where nothing can be written."""
    path = _path(subject)
    with _parent_of(subject, path) as (parent_fd, name):
        os.mkdir(name, 0o700, dir_fd=parent_fd)
    return path


@contextlib.contextmanager
def held(subject: Subject) -> Iterator[Subject]:
    """Yields the subject with its probe as an open folder, if others might swap it. Raises :class:`OSError`.

    Also the second process reaches it by that path, which is the descriptor of this one in ``/proc``.
    """
    if not os.stat(subject.place).st_mode & (stat.S_IWGRP | stat.S_IWOTH) or not os.path.isdir("/proc/self/fd"):
        yield subject
        return
    with _parent_of(subject, subject.probe) as (parent_fd, name):
        probe_fd = os.open(name, FOLDER, dir_fd=parent_fd)
    try:
        if os.fstat(probe_fd).st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "somebody else's folder is in its place", subject.probe)
        yield subject._replace(probe=f"/proc/{os.getpid()}/fd/{probe_fd}")
    finally:
        os.close(probe_fd)


def remove_probe(subject: Subject) -> None:
    """Remove the probe, if there is one. Raises :class:`OSError` if that fails."""
    path = subject.probe or _path(subject)
    with contextlib.suppress(FileNotFoundError), _parent_of(subject, path) as (parent_fd, name):
        # rmtree itself follows no symlink, however files are swapped; before Python 3.11 it takes no descriptor.
        removed = f"/proc/self/fd/{parent_fd}/{name}" if os.path.isdir("/proc/self/fd") else path
        until = time.monotonic() + _REMOVAL_SECONDS
        while os.path.lexists(removed):
            try:
                shutil.rmtree(removed)
            except OSError as error:
                # Another host of a pair makes, renames and removes files in it meanwhile.
                if error.errno not in (errno.ENOENT, errno.ENOTEMPTY) or time.monotonic() > until:
                    raise


def clean(subject: Subject) -> list[Finding]:
    """Remove the probe. Returns a finding if that fails."""
    try:
        remove_probe(subject)
    except OSError as error:
        return [Finding("cleaning up", UNTESTED, f"{subject.probe} is left: {error}", advice=f"rm -r {subject.probe}")]
    return []


@contextlib.contextmanager
def _parent_of(subject: Subject, path: str) -> Iterator[tuple[int, str]]:
    """Yields the open folder for the probe, and the probe's name in it."""
    parent, name = os.path.split(path)
    is_own = parent == Layout(subject.root).own
    with open_folder(*(subject.root, "lockcache") if is_own else (parent,)) as parent_fd:
        yield parent_fd, name


def _path(subject: Subject) -> str:
    own = Layout(subject.root).own
    is_own = subject.kind == "cache" and os.path.isdir(own) and not os.path.islink(own)
    return os.path.join(own if is_own else subject.place, PREFIX + subject.token)


def writable(subject: Subject, probe: str) -> list[Finding]:
    """Check whether a new folder is private."""
    mode = stat.S_IMODE(os.lstat(probe).st_mode) & 0o777  # a directory may hand down its setgid bit
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        found = f"a directory made with mode 0700 has {mode:04o}: the mount decides, and lets others write"
        means = "a cache here is refused: others could plant programs in it"
        return [Finding("writing", UNUSABLE, found, means, "mount it with umask=077 (or dmask, fmask)")]
    if mode != 0o700:
        found = f"a directory made with mode 0700 has {mode:04o}: the mount decides"
        means = "others on this machine can read the compiled programs"
        return [Finding("writing", DEGRADED, found, means, "mount it with umask=077 (or dmask, fmask)")]
    return [Finding("writing", GOOD, "files can be made, with the modes that are asked for")]


def not_writable(subject: Subject, error: OSError) -> list[Finding]:
    """Report what it means that no file can be made here."""
    found = f"no file can be made here: {error.strerror}"
    if subject.kind == "cache":
        means = "entries can be read, and nothing is added"
        return [
            Finding(
                "writing", DEGRADED, found, means, "fine for a cache that is shipped filled; else let it be written"
            )
        ]
    return [Finding("writing", UNUSABLE, found, "no cache can be made", "make it writable for you, or choose another")]
