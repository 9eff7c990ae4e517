# SPDX-License-Identifier: Apache-2.0
"""A torchinductor directory (``$TORCHINDUCTOR_CACHE_DIR``, ``/tmp/torchinductor_USER``): several caches under one cap.

Decides which of them an entry belongs to, and leaves the rest to the layout that knows it:

- ``triton/N/KEY`` is Triton's, and goes in its two steps (:mod:`lockcache.layouts.triton`),
- the folder of a graph in ``fxgraph`` and ``aotautograd`` goes whole (:mod:`.files`): Inductor opens each file of it in
  a ``try``, and compiles again,
- files that begin with the hash of one code (``xx/cHASH.py``, ``.cpp``, ``.so``, where ``xx`` is the second and third
  letter of the name) are one entry, which goes under Inductor's own lock of this hash (:mod:`lockcache.layouts.tree`),
- ``xx/HASH.best_config``, what tuning found, is one entry.

All else is nobody's entry and stays: somebody may have pointed Inductor at a folder with other files.

A graph's folder has its code and its kernels in it, too: what goes of the others is written again from it.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from lockcache.layouts.folders.files import FolderFiles, view_entries as view_folders
from lockcache.layouts.folders.scan import Program
from lockcache.layouts.openat import Homes, find_homes, folder, folders_in, is_home, opened_root
from lockcache.layouts.protocol import THREADS, Files, described
from lockcache.layouts.tree import TreeFiles
from lockcache.layouts.tree_scan import CODE, Tree, scan as scan_tree
from lockcache.layouts.triton import TritonFiles, describe_entry as describe_triton, view_entries as view_triton
from lockcache.layouts.triton_scan import is_key
from lockcache.lowlevel import Described, Found, Layout

NAME: Final = "torchinductor"

_TRITON: Final[Homes] = (("triton", r"\d+"),)

#: Graphs by their keys.
GRAPHS: Final = Program(
    name=NAME,
    homes=(("fxgraph", "[a-z2-7]{2}"), ("aotautograd",)),
    folder="[fa][a-z2-7]{51}",
    is_deep=True,
)

_CODE_FOLDER: Final = re.compile("[a-z2-7]{2}", re.ASCII)
_TUNED: Final = re.compile(r"[a-z2-7]{2}/[0-9a-f]{64}\.best_config", re.ASCII)
# The folders that Inductor makes, down to the entries. In no other is anything looked at.
_KNOWN: Final = re.compile(r"[a-z2-7]{2}|locks|fxgraph(/[a-z2-7]{2})?|aotautograd|triton(/\d+)?", re.ASCII)
# One of them is next to Inductor's code, whatever it compiled.
_NEXT_TO_CODE: Final = re.compile("fxgraph|aotautograd|triton", re.ASCII)


class InductorFiles:
    """The entries of one torchinductor directory. For one thread, but for evictions."""

    evicting_threads = THREADS

    def __init__(self, root: str, settle_seconds: float) -> None:
        """Open ``root``, made (mode 0700) if it is missing. Raises as :func:`open_guest`."""
        with contextlib.ExitStack() as opened:
            self._kernels = TritonFiles(root, settle_seconds, _TRITON)
            opened.callback(self._kernels.close)
            self._graphs = FolderFiles(GRAPHS, root, settle_seconds)
            opened.callback(self._graphs.close)
            self._files = TreeFiles(root, settle_seconds, is_of_others)
            opened.pop_all()
        self._parts = (self._kernels, self._graphs, self._files)
        for part in self._parts:
            part.layout_name = NAME
        self.layout: Layout = self._files.layout

    @property
    def settle_seconds(self) -> float:
        """Files that changed so recently may not be evicted."""
        return self._files.settle_seconds

    @settle_seconds.setter
    def settle_seconds(self, seconds: float) -> None:
        for part in self._parts:
            part.settle_seconds = seconds

    @property
    def is_pending(self) -> bool:
        """Whether evicted entries are still on the disk."""
        return self._kernels.is_pending

    def prepare(self) -> None:
        """Make what is missing of our own directories, and find or remove what a dead daemon had condemned."""
        for part in self._parts:
            part.prepare()

    def glance(self) -> object:
        """Returns a value that differs after a change, as far as that shows without a walk."""
        return [part.glance() for part in self._parts]

    def scan(self, between: Callable[[], object] = lambda: None) -> Iterator[Found]:
        """Yields every entry, and one that is none for the folders in which they are."""
        yield from self._kernels.scan(between)
        yield from self._graphs.scan(between)
        yield from filter(_is_file, self._files.scan(between))
        yield _folders(self._files.folders)

    def restate(self, found: Found) -> None:
        """Date the files of an entry to now whose use is dated to come."""
        self._owner(found.name).restate(found)

    def staged_bytes(self) -> int:
        """Returns the bytes that lockcache itself is writing. Raises :class:`OSError`."""
        return self._files.staged_bytes()

    def evict(self, found: Found) -> bool:
        """Remove an entry as its layout does. Returns whether that was done, or begun."""
        owner = self._owner(found.name)
        return (owner is not self._files or _is_file(found)) and owner.evict(found)

    def finish(self) -> bool:
        """Go on with evictions. Returns whether there was anything to do."""
        return self._kernels.finish()

    def reap(self, names: Iterable[str]) -> None:
        """Remove what dead daemons left staged, and among ``names`` what long dead compilers left."""
        self._kernels.reap(names)
        self._graphs.reap(())

    def close(self) -> None:
        """Close what is open."""
        for part in self._parts:
            part.close()

    def _owner(self, path: str) -> Files:
        if self._kernels.owns(path):
            return self._kernels
        return self._graphs if GRAPHS.is_path(path) else self._files


def is_of_others(path: str) -> bool:
    """Returns whether a folder with this path below the root is left to another layout, or is not Inductor's."""
    return _KNOWN.fullmatch(path) is None


def _is_file(found: Found) -> bool:
    """Returns whether this is a file, or the files of a code, that Inductor makes where they are."""
    home, _, name = found.name.rpartition("/")
    is_code = CODE.fullmatch(name) is not None and home == name[1:3]
    return is_code or _TUNED.fullmatch(found.name) is not None


def view_entries(root: str, between: Callable[[], object]) -> Iterator[Found]:
    """Yields every entry, and changes nothing."""
    folders: list[Tree] = []
    yield from view_triton(root, between, _TRITON)
    yield from view_folders(GRAPHS, root, between)
    with opened_root(root) as fd:
        yield from filter(_is_file, scan_tree(fd, root, folders, between, is_of_others))
    yield _folders(folders)


def describe_entry(root: str, found: Found) -> Described:
    """Returns the description of an entry, of Triton's by the names of its files."""
    home, _, name = found.name.rpartition("/")
    return describe_triton(root, found) if is_home(home, _TRITON) and is_key(name) else described(found)


def is_torchinductor(root_fd: int) -> bool:
    """Returns whether Inductor's graphs are here, or its code next to other folders of its own.

    Code alone does not tell: in such a folder other files may be somebody's.
    """
    for home in find_homes(root_fd, GRAPHS.homes)[0]:
        if any(map(GRAPHS.is_path, folders_in(root_fd, home, _ANY))):
            return True
    if not folders_in(root_fd, "", _NEXT_TO_CODE):
        return False
    return any(_has_code(root_fd, path) for path in folders_in(root_fd, "", _CODE_FOLDER))


_ANY: Final = re.compile(".*", re.DOTALL)


def _has_code(root_fd: int, path: str) -> bool:
    with folder(root_fd, path) as fd:
        return fd is not None and any(CODE.match(name) and name[1:3] == path for name in os.listdir(fd))


def default_place() -> str:
    """Returns where Inductor keeps its files; empty where the user has no name."""
    try:
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
    except (KeyError, OSError):
        return ""
    return os.path.join(os.environ.get("TMPDIR") or "/tmp", f"torchinductor_{user}")


def _folders(folders: Iterable[Tree]) -> Found:
    """Returns what the folders take in which the entries are. It is not an entry: they stay."""
    return Found(0, "", sum(each.disk_bytes for each in folders), 0)
