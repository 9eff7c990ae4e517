# SPDX-License-Identifier: Apache-2.0
"""Measures the real content of a cache directory, without the library, and reads its accounting page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from lockcache import FileStreamProgramCache
from lockcache.filestream.accounting import NOT_COUNTED, head_of, read_state, slots_in
from lockcache.filestream.disk import Layout, parse_staged_name
from lockcache_stress.experiments.kill_points import deaths
from tests.state_pages import space_stated

Shards = dict[int, tuple[int, int]]

_SHARDS: Final = 256


def on_disk(root: Path) -> Shards:
    """Returns (bytes, entries) of each shard: payloads, record files, views, quarantine, staged files.

    Counts as the directory states: in blocks, with inodes, attributes and folders where the file system counts those.
    """
    found: Shards = {}
    block, inode, shows_blocks = space_stated(root)

    def size(path: Path) -> int:
        status = path.lstat()
        blocks = -(-status.st_size // block) * block
        return blocks + inode + (block if shows_blocks and status.st_blocks * 512 > blocks else 0)

    def add(shard: int, bytes_: int, entries: int) -> None:
        before = found.get(shard, (0, 0))
        found[shard] = before[0] + bytes_, before[1] + entries

    for folder, entries in ((root / "entries", 1), (root / "lockcache/records", 0)):
        for file in folder.glob("??/*"):
            add(int(file.parent.name, 16), size(file), entries)
        for shard in folder.glob("??"):
            add(int(shard.name, 16), shard.lstat().st_blocks * 512 if shows_blocks else 0, 0)
    views = root / "lockcache/views"
    for folder in [*views.glob("??"), *views.glob("??/*")]:
        shard = int(folder.relative_to(views).parts[0], 16)
        held = sum(size(file) for file in folder.iterdir() if file.is_file())
        add(shard, inode + held + (folder.lstat().st_blocks * 512 if shows_blocks else 0), 0)
    for file in (root / "lockcache/quarantine").glob("2*"):
        add(int(file.name.split("-")[1][:2], 16), size(file), 0)
    for file in staged_files(root):
        staged = parse_staged_name(file.name)
        # Staged policies, pages and the like do not count, because a fixed part of the cap covers them.
        if staged is not None and not staged.is_own_file:
            add(staged.shard, sum(size(each) for each in (file, *file.glob("*")) if each.is_file()), 0)
    return {shard: slot for shard, slot in found.items() if slot != (0, 0)}


def staged_files(root: Path) -> list[Path]:
    return sorted((root / "tmp").iterdir()) if (root / "tmp").is_dir() else []


def accounted(root: Path) -> Shards:
    """Returns the accounting page's numbers of each shard that is not empty."""
    slots = slots_in(read_state(Layout(str(root))))
    return {shard: slot for shard, slot in enumerate(slots) if slot != (0, 0)}


def assert_accounting_is_not_too_low(root: Path) -> None:
    """Assert that no shard holds more than its accounting, which would let writers overshoot the cap."""
    head = head_of(Layout(str(root)))
    if head is None or head.folder >= NOT_COUNTED:
        return  # the process died before the first opening was complete, and the next process counts
    said = accounted(root)
    for shard, (bytes_, _) in on_disk(root).items():
        assert said.get(shard, (0, 0))[0] >= bytes_, f"shard {shard:02x} says {said.get(shard)}, has {bytes_} bytes"


def assert_one_recount_repairs_all(cache: FileStreamProgramCache) -> None:
    """Assert that after a recount the page equals the disk, nothing is staged, and a second one finds nothing."""
    root = Path(cache.path)
    cache.recount()
    left = [file.name for file in staged_files(root)]
    assert left == []
    assert accounted(root) == on_disk(root)
    assert cache.recount() == []


def every_death(
    prepare: Callable[[], Callable[[], object]], check: Callable[[], object], calls: Sequence[str] = ()
) -> list[str]:
    """Die at every step of an action, which ``prepare`` makes each time, and check what is left. Returns the steps."""
    steps = []
    for step in deaths(prepare, calls):
        steps.append(step)
        try:
            check()
        except AssertionError as error:
            raise AssertionError(f"died in front of {step}: {error}") from error
    return steps


def empty(root: Path) -> None:
    """Remove everything except the 256 lock files, because making these for each step would take most of the time."""
    for folder in ("entries", "tmp", "lockcache/records", "lockcache/views"):
        shutil.rmtree(root / folder, ignore_errors=True)
    for file in (root / "lockcache").glob("*"):
        if file.is_file():
            file.unlink()
