# SPDX-License-Identifier: Apache-2.0
"""Directories for a daemon: filled by programs that do not account, measured on disk, compared."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Any

from lockcache.filestream.accounting.scan import measure_shard
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import SHARDS
from lockcache.filestream.disk.space import Space
from lockcache.filestream.repair.recount import recount_all
from tests.state_pages import state_of, state_space


def make_directory(root: Path) -> None:
    """Make a directory in which a block is a byte, unless there is one.

    Directories that tests make in their own process are like this (tests/conftest.py); one that a daemon makes counts
    in blocks.
    """
    if not state_of(root).exists():
        state_space(root, Space(1))


def fill(root: Path, entries: int, size_bytes: int, first: int = 0) -> list[Path]:
    """Store entries like a program that does not account, staged and renamed. Returns their names by age."""
    made = []
    make_directory(root)
    (root / "tmp").mkdir(mode=0o700, exist_ok=True)
    for number in range(first, first + entries):
        name = hashlib.sha256(b"%d" % number).hexdigest()
        path = root / "entries" / name[:2] / name[2:]
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        staged = root / "tmp" / f"stranger-{number}"
        staged.write_bytes(bytes(size_bytes))
        staged.rename(path)
        _age(path, 10**9 + number)
        made.append(path)
    return made


def grow(root: Path, numbers: range) -> None:
    """Make files of 10,000 bytes in folders, used in the order of their numbers."""
    for number in numbers:
        path = root / f"{number % 7}" / "deep" / f"{number}.cubin"
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(bytes(10_000))
        _age(path, 10**9 + number)


def _age(path: Path, used_seconds: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # a running daemon may have evicted it by now
        os.utime(path, (used_seconds, used_seconds))


def bytes_on_disk(root: Path) -> int:
    """Returns the bytes of entries and staged files on disk."""
    total = 0
    for folder, _, files in [*os.walk(root / "entries"), *os.walk(root / "tmp")]:
        for file in files:
            try:
                total += os.lstat(f"{folder}/{file}").st_size
            except FileNotFoundError:
                continue
    return total


def disk_usage(path: Path) -> int:
    """Returns the bytes of a file, or of a folder with all that is in it, as ``du`` says."""
    return sum(each.lstat().st_blocks * 512 for each in [path, *path.rglob("*")])


def names_on_disk(root: Path) -> set[str]:
    return {path.parent.name + path.name for path in root.glob("entries/??/*")}


def is_accounted_for(root: Path) -> bool:
    """Returns whether the accounting equals the disk, which takes the daemon a while after writes of other programs."""
    directory = CacheDirectory(str(root), 1.0)
    try:
        return directory.usage().slots() == [measure_shard(directory.layout, shard) for shard in range(SHARDS)]
    finally:
        directory.close()


def accounting_is_exact(root: Path) -> bool:
    """Returns whether :func:`is_accounted_for`, and a recount agrees, which corrects errors: call this last."""
    was_exact = is_accounted_for(root)
    directory = CacheDirectory(str(root), 1.0)
    try:
        return was_exact and not recount_all(directory)
    finally:
        directory.close()


def photograph(root: Path) -> dict[str, tuple[Any, ...]]:
    """Returns everything of a tree that a process could change, except access times."""
    picture = {}
    for path in [root, *sorted(root.rglob("*"))]:
        status = path.lstat()
        content = path.read_bytes() if path.is_file() else b""
        attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
        picture[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ino, content, attributes)
    return picture


def stage_and_hang(root: str) -> None:
    """Reserve a write, report this on stdout, and wait to be killed. For a process of its own."""
    from lockcache.filestream.entry.staging import StagedEntry

    staged = StagedEntry(CacheDirectory(root, 1.0), "ab" * 32, 5000)
    staged.reserve()
    print("staged", flush=True)
    input()


if __name__ == "__main__":
    import sys

    stage_and_hang(sys.argv[1])
