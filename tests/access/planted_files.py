# SPDX-License-Identifier: Apache-2.0
"""Planted files: what an attacker may put into a cache directory, and the outside world that must stay untouched."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from lockcache.filestream.accounting import Head, Slot, encode_page
from lockcache.filestream.disk import Space
from lockcache.filestream.disk.layout import SHARDS, Layout, StagedName, entry_name
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.policy import Policy

KEY: Final = b"k"
NAME: Final = entry_name(KEY)
FORGED: Final = b"forged"

_OLD_SECONDS: Final = 10**9

# The name of a staged file of a dead process of this host, which every process reaps at once.
_DEAD: Final = str(StagedName(int(NAME[:2], 16), 64, myself().host, 2**22 + 1, 1, 0))

#: Every file and folder with a known name below the root, for an entry of ``KEY``; ``{}`` is the shard of the entry.
PLACES: Final[dict[str, str]] = {
    "entry": f"entries/{NAME[:2]}/{NAME[2:]}",
    "another entry": f"entries/{NAME[:2]}/{'0' * 62}",
    "shard": f"entries/{NAME[:2]}",
    "another shard": f"entries/{(int(NAME[:2], 16) + 1) % SHARDS:02x}",
    "entries": "entries",
    "staged file": f"tmp/{_DEAD}",
    "stranger's staged file": "tmp/stranger",
    "tmp": "tmp",
    "own": "lockcache",
    "state": "lockcache/state",
    "locks": "lockcache/locks",
    "lock": f"lockcache/locks/{NAME[:2]}",
    "directory lock": "lockcache/locks/directory",
    "room lock": "lockcache/locks/room",
    "leases": "lockcache/leases",
    "lease": f"lockcache/leases/{NAME}.0",
    "records": "lockcache/records",
    "record shard": f"lockcache/records/{NAME[:2]}",
    "record": f"lockcache/records/{NAME[:2]}/{NAME[2:]}",
    "daemon lock": "lockcache/daemon.lock",
    "daemon status": "lockcache/daemon.json",
    "scrub": "lockcache/scrub",
    "layout": "lockcache/layout",
    "quarantine": "lockcache/quarantine",
    "misses": "lockcache/misses",
    "views": "lockcache/views",
    "room queue": "lockcache/locks/room.queue",
    "room bell": "lockcache/locks/room.bell",
    "bell": f"lockcache/leases/{NAME}.bell",
}


#: Files that are read, and never written in place if they have a second name. A hard link in the place of one is like a
#: copy, which its maker could have made as well; hard-linked copies (backups) of a cache directory have to work.
READABLE: Final = (
    "state",
    "layout",
    "record",
    "scrub",
    "daemon status",
)


class Outside:
    """A directory of the user's own next to the cache: a whole cache directory of forged entries, and private files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        layout = Layout(str(root))
        for folder in (layout.entry_shard(int(NAME[:2], 16)), layout.record_shard(int(NAME[:2], 16)), layout.tmp,
                       layout.locks, layout.leases, str(root / NAME[:2])):  # fmt: skip
            os.makedirs(folder, exist_ok=True)
        for path in PLACES.values():
            self._fill(root / path)
        # The names that are looked up in a folder, for the case that a symlink leads to this one.
        for file in (
            NAME[2:],
            f"{NAME[:2]}/{NAME[2:]}",
            _DEAD,
            f"{NAME}.0",
            NAME[:2],
            "directory",
            "room",
            "thesis.tex",
        ):
            self._fill(root / file)
        head = Head((root / "lockcache").stat().st_ino, Space(1), Policy(1, by_operator=True))
        (root / "state").write_bytes(encode_page(head, [Slot(10**6, 10)] * SHARDS))
        shutil.copy(root / "state", root / "lockcache" / "state")
        self.file = root / "secret"
        self.file.write_bytes(FORGED)
        for path in [*root.rglob("*"), root]:
            os.chmod(path, 0o700 if path.is_dir() else 0o600)
        self._before = self._picture(ages=True)

    def assert_untouched(self, *, may_be_read: bool = False) -> None:
        """Assert that nothing was made, changed, removed or read in the outside world."""
        now = self._picture(ages=False)
        seen = 3 if may_be_read else 4
        assert {
            path: now.get(path) for path, was in self._before.items() if was[:seen] != now.get(path, ())[:seen]
        } == {}
        assert now.keys() == self._before.keys()

    def _fill(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(FORGED)

    def _picture(self, *, ages: bool) -> dict[str, tuple[Any, ...]]:
        """Returns the content of the tree, with its times before this look. ``ages``: make all of it old."""
        paths = sorted([self.root, *self.root.rglob("*")])
        if ages:
            for path in paths:
                os.utime(path, (_OLD_SECONDS, _OLD_SECONDS))
        # rglob reads directories, so that their access times prove nothing; a listing by the cache leaves no other
        # trace.
        seen = {}
        for path in paths:
            status = path.lstat()
            is_file = stat.S_ISREG(status.st_mode)
            times = (status.st_mtime_ns, status.st_atime_ns if is_file else 0)
            seen[str(path)] = (status.st_mode, status.st_size, *times)
        return seen


def plant(kind: str, path: Path, outside: Outside) -> None:
    """Replace the file or folder at ``path``, if there is one, by an object of this kind."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    OBJECTS[kind](path, outside)


def _symlink_to_folder(path: Path, outside: Outside) -> None:
    # The folder in the same place of the outside tree, if there is one, is the most convincing target.
    same = outside.root / os.path.relpath(path, path.parents[_depth(path)])
    path.symlink_to(same if same.is_dir() else outside.root)


def _depth(path: Path) -> int:
    return next(depth for depth, folder in enumerate(path.parents) if folder.name == "cache")


def _symlink_to_file(path: Path, outside: Outside) -> None:
    same = outside.root / os.path.relpath(path, path.parents[_depth(path)])
    path.symlink_to(same if same.is_file() else outside.file)


def _hard_link(path: Path, outside: Outside) -> None:
    same = outside.root / os.path.relpath(path, path.parents[_depth(path)])
    os.link(same if same.is_file() else outside.file, path)


def _full_folder(path: Path, outside: Outside) -> None:
    path.mkdir()
    (path / "full").write_bytes(FORGED)


def _socket(path: Path, outside: Outside) -> None:
    # Bound by a relative name, because the path of a socket may have only 108 bytes.
    before = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name if len(path.name) < 100 else "short")
        if len(path.name) >= 100:
            os.rename("short", path.name)
    finally:
        os.chdir(before)


def _device(path: Path, outside: Outside) -> None:
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))  # /dev/zero, which can be read without an end


OBJECTS: Final[dict[str, Callable[[Path, Outside], None]]] = {
    "symlink to a file": _symlink_to_file,
    "symlink to a folder": _symlink_to_folder,
    "dangling symlink": lambda path, outside: path.symlink_to(outside.root / "nowhere"),
    "symlink to itself": lambda path, outside: path.symlink_to(path),
    "fifo": lambda path, outside: os.mkfifo(path),
    "folder": lambda path, outside: path.mkdir(),
    "full folder": _full_folder,
    "hard link": _hard_link,
    "socket": _socket,
    "device": _device,
}
