# SPDX-License-Identifier: Apache-2.0
"""Backup of an entry of a pyptx directory that is being replaced, kept until the next one is whole.

Three files cannot be replaced at once. So that a reader finds the old entry or the new one at every instant
(invariant 1, a hit is whole), also when the writer dies in between (invariant 5, death is free), hard links to the old
files lie in ``lockcache/staged/`` from before the first of them goes until the last of the new ones is in place: at
every instant the json file of a whole entry is here or in its own place. Links: they cost no bytes, and the old entry
is never half here and half there.

What a writer that died left here is still read; it goes back where the new entry did not get its json, else it is
removed (:func:`settle_locked`). Not promised on file systems without hard links (FAT): there the old entry just goes.
Nor to pyptx's own readers, who do not look here: they find no entry meanwhile.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Final, NamedTuple

from lockcache.filestream.disk import open_folder
from lockcache.integrations.pyptx_directory.listing import SUFFIXES
from lockcache.lowlevel import Layout

__all__ = ["Place", "forget_kept", "keep_locked", "kept_names", "kept_place", "remove_files", "settle_locked"]

_KEPT: Final = re.compile(r"([0-9a-f]{32})\.(?:ptx|cubin|json)\.kept", re.ASCII)


class Place(NamedTuple):
    """Where the three files of entries lie: in the root, or in a folder below it."""

    root: str
    #: The folders on the way from the root, each in the one before.
    folders: tuple[str, ...] = ()
    ending: str = ""
    #: Of the folder, while it is open for several steps; else -1.
    fd: int = -1

    @property
    def folder(self) -> str:
        return "/".join((self.root, *self.folders))

    def file(self, name: str, suffix: str) -> str:
        """The file's name in its folder."""
        return f"{name}.{suffix}{self.ending}"

    def path(self, name: str, suffix: str) -> str:
        return f"{self.folder}/{self.file(name, suffix)}"

    def opened(self) -> AbstractContextManager[int]:
        """A descriptor of the folder, for a ``with`` block: no symlink below the root is followed.

        Raises :class:`OSError`.
        """
        return open_folder(self.root, *self.folders) if self.fd < 0 else contextlib.nullcontext(self.fd)

    @contextlib.contextmanager
    def held_open(self) -> Iterator[Place]:
        """The same place, whose folder :meth:`opened` opens no more in the block: each opening is 10 us of a put.

        Raises :class:`OSError`.
        """
        with self.opened() as fd:
            yield self._replace(fd=fd)


def kept_place(layout: Layout) -> Place:
    """Returns where entries that are being replaced are kept."""
    return Place(layout.root, tuple(os.path.relpath(layout.tmp, layout.root).split("/")), ".kept")


def kept_names(files: Iterable[str]) -> set[str]:
    """Returns the names of which one of these files, as listed, is kept."""
    return {match[1] for match in map(_KEPT.fullmatch, files) if match}


def keep_locked(main: Place, kept: Place, name: str) -> None:
    """Put an entry aside, if there is one, before it is replaced. Requires: the name's lock.

    Without a json in its own place an entry may be the one that is kept already: that one stays.
    """
    if not os.path.lexists(main.path(name, "json")):
        return
    try:
        try:
            _link(main, kept, name)
        except FileExistsError:  # a writer died when all was done but to remove these
            forget_kept(kept, name)
            _link(main, kept, name)
    except OSError:
        # No hard links here, no PTX and so no entry, something planted, a full disk: replaced without being kept,
        # as a reader who looks at that moment will notice, and nobody else.
        with contextlib.suppress(OSError):
            forget_kept(kept, name)


def settle_locked(main: Place, kept: Place, name: str) -> None:
    """End what a writer that died had begun: forwards if its json is in place, else back. Requires: the name's lock.

    Raises :class:`OSError`; the next call goes on.
    """
    if os.path.lexists(kept.path(name, "json")) and not os.path.lexists(main.path(name, "json")):
        remove_files(main, name, ("cubin", "ptx"))
        _link(kept, main, name)
    forget_kept(kept, name)


def forget_kept(kept: Place, name: str) -> None:
    """Remove what is kept of a name, its json first: no reader begins with what is no longer whole."""
    remove_files(kept, name)


def remove_files(place: Place, name: str, suffixes: Iterable[str] = SUFFIXES) -> None:
    """Remove files of an entry, in this order. Raises :class:`OSError`, but not for what is missing."""
    with contextlib.suppress(FileNotFoundError), place.opened() as folder_fd:
        for suffix in suffixes:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(place.file(name, suffix), dir_fd=folder_fd)


def _link(source: Place, target: Place, name: str) -> None:
    with source.opened() as source_fd, target.opened() as target_fd:
        for suffix in reversed(SUFFIXES):  # the json last: by then all of it is there
            old, new = source.file(name, suffix), target.file(name, suffix)
            with contextlib.suppress(FileNotFoundError) if suffix == "cubin" else contextlib.nullcontext():
                os.link(old, new, src_dir_fd=source_fd, dst_dir_fd=target_fd, follow_symlinks=False)
