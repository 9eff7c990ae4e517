# SPDX-License-Identifier: Apache-2.0
"""Disks: what may be on one after a power cut, by what was synced, and by what a file system promises of the rest.

Two promises:

- ``journal``: ext4 (data=ordered or writeback), xfs, btrfs. Changes of names, attributes and lengths are durable in the
  order in which they were made: a beginning of them is there. A sync of any file or folder makes all of them durable
  that were made before it. Bytes that were written and not synced may be there, or be cut off (a length of 0, or the
  first part), or be zeros.
- ``posix``: nothing that was not synced is in any order. Each change of a name, of an attribute, of bytes is there or
  not, whatever the others are; of a rename, the new name or the disappearance of the old one may be missing. A sync of
  a file makes its bytes, attributes and length durable, and not its name; a sync of a folder makes the names in it
  durable, and not the folder's own.

In both a change within 512 bytes of a file is there whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Final

from lockcache_stress.crash_states.traced import Change

#: What is there of one change.
ABSENT: Final = "absent"
WHOLE: Final = "whole"
#: Bytes: the first part; or zeros.
PART: Final = "part"
ZEROS: Final = "zeros"
#: A rename: the new name, next to the old one; or neither the old one nor the new one.
BOTH_NAMES: Final = "both"
NO_NAME: Final = "neither"

_SECTOR: Final = 512
PROMISES: Final = ("journal", "posix")
_NAMES: Final = ("open", "mkdir", "rename", "unlink", "rmdir")
_BYTES: Final = ("write", "pwrite")


@dataclass
class File:
    """A file: its bytes and attributes."""

    content: bytes = b""
    attributes: dict[str, bytes] = field(default_factory=dict)

    def copy(self) -> File:
        return File(self.content, dict(self.attributes))


@dataclass
class Disk:
    """Names and files below the root of a cache."""

    folders: set[str] = field(default_factory=set)
    #: The number of the file under each name.
    names: dict[str, int] = field(default_factory=dict)
    files: dict[int, File] = field(default_factory=dict)

    def copy(self) -> Disk:
        return Disk(set(self.folders), dict(self.names), {number: file.copy() for number, file in self.files.items()})

    def visible(self) -> tuple[tuple[str, bytes, tuple[tuple[str, bytes], ...]], ...]:
        """Returns what a program can see: two disks that show the same are one state."""
        folder: tuple[tuple[str, bytes], ...] = (("folder", b""),)
        shown = [(path, b"", folder) for path in self.folders if self._leads_to(path)]
        for path, number in self.names.items():
            if self._leads_to(path):
                file = self.files[number]
                shown.append((path, file.content, tuple(sorted(file.attributes.items()))))
        return tuple(sorted(shown))

    def _leads_to(self, path: str) -> bool:
        folder = os.path.dirname(path)
        return not folder or (folder in self.folders and self._leads_to(folder))


def read_disk(root: str) -> Disk:
    """Returns what is below a root."""
    disk = Disk()
    for folder, folders, files in os.walk(root):
        base = os.path.relpath(folder, root)
        inner = "" if base == "." else f"{base}/"
        disk.folders |= {f"{inner}{name}" for name in folders}
        for name in files:
            path = f"{inner}{name}"
            with open(os.path.join(root, path), "rb") as file:
                content = file.read()
            attributes = {each: os.getxattr(os.path.join(root, path), each) for each in os.listxattr(f"{root}/{path}")}
            disk.names[path] = number = len(disk.files)
            disk.files[number] = File(content, attributes)
    return disk


@dataclass(frozen=True)
class Step:
    """A change, with the numbers of the files that it is of."""

    change: Change
    number: int
    offset: int = -1
    #: Whether bytes are behind the end of the file: of others, the older ones are there before the new ones.
    extends: bool = True

    def options(self, promise: str) -> tuple[str, ...]:
        """Returns what may be there of it."""
        if self.change.call in _BYTES:
            if len(self.change.content) <= _SECTOR:
                return (WHOLE, ABSENT)
            return (WHOLE, ABSENT, PART, ZEROS) if self.extends else (WHOLE, ABSENT, PART)
        if self.change.call == "rename" and promise == "posix":
            return (WHOLE, ABSENT, BOTH_NAMES, NO_NAME)
        return (WHOLE, ABSENT)


def steps_of(disk: Disk, changes: Sequence[Change]) -> list[Step]:
    """Returns the changes with the files that they are of, by running them on a copy of the disk."""
    now, found, lengths = disk.copy(), [], dict[int, int]()
    for change in changes:
        path = change.paths[0]
        if change.call == "open" and path in now.names:
            continue  # it was there
        if change.call == "open":
            number = len(now.files)
            now.files[number] = File()
        else:
            number = now.names.get(path, -1)
        offset = lengths.get(number, 0) if change.call == "write" else change.offset
        if change.call == "write":
            lengths[number] = offset + len(change.content)
        known = now.files[number].content if number in now.files else b""
        step = Step(change, number, offset, offset + len(change.content) > len(known))
        apply(now, step, WHOLE)
        found.append(step)
    return found


def apply(disk: Disk, step: Step, option: str) -> None:
    """Make on a disk what is there of a step."""
    if option == ABSENT:
        return
    change, number = step.change, step.number
    path = change.paths[0]
    if change.call == "mkdir":
        disk.folders.add(path)
    elif change.call == "rmdir":
        disk.folders.discard(path)
    elif change.call == "open":
        disk.names[path] = number
        disk.files.setdefault(number, File())
    elif change.call == "unlink":
        disk.names.pop(path, None)
    elif change.call == "rename":
        _rename(disk, step, option)
    elif number >= 0:
        _change_file(disk.files.setdefault(number, File()), step, option)


def _rename(disk: Disk, step: Step, option: str) -> None:
    old, new = step.change.paths
    if option != BOTH_NAMES:
        disk.names.pop(old, None)
    if option != NO_NAME:
        disk.names[new] = step.number
        disk.files.setdefault(step.number, File())


def _change_file(file: File, step: Step, option: str) -> None:
    change = step.change
    if change.call == "setxattr":
        file.attributes[change.attribute] = change.content
    elif change.call == "ftruncate":
        file.content = file.content[: change.offset].ljust(change.offset, b"\0")
    elif change.call in _BYTES:
        content = change.content
        if option == PART:
            content = content[: len(content) // 2 // _SECTOR * _SECTOR or _SECTOR]
        elif option == ZEROS:
            content = bytes(len(content))
        before = file.content.ljust(step.offset, b"\0")
        file.content = before[: step.offset] + content + before[step.offset + len(content) :]


def after_cuts(disk: Disk, steps: Sequence[Step], promise: str, *, returned: bool) -> Iterator[Disk]:
    """Yields every disk that a power cut may leave, each once.

    ``returned``: of a cut after the operation had returned; else at any moment of it.
    """
    seen = set()
    ends = [len(steps)] if returned else range(len(steps) + 1)
    for end in ends:
        for options in _choices(steps[:end], promise):
            found = disk.copy()
            for step, option in zip(steps, options, strict=False):
                apply(found, step, option)
            shown = found.visible()
            if shown not in seen:
                seen.add(shown)
                yield found


def _choices(steps: Sequence[Step], promise: str) -> Iterator[tuple[str, ...]]:
    """Yields what may be there of each of the steps that were made."""
    if promise == "posix":
        yield from product(*(_options(steps, number, promise) for number in range(len(steps))))
        return
    # A beginning of the changes of names, attributes and lengths, at least up to the last sync.
    synced = max((number for number, step in enumerate(steps) if step.change.call == "fsync"), default=-1)
    for end in range(synced + 1, len(steps) + 1):
        yield from product(*(_in_journal(steps, number, end) for number in range(len(steps))))


def _in_journal(steps: Sequence[Step], number: int, end: int) -> tuple[str, ...]:
    step = steps[number]
    if step.change.call in _BYTES:
        return _options(steps, number, "journal")
    return (WHOLE,) if number < end else (ABSENT,)


def _options(steps: Sequence[Step], number: int, promise: str) -> tuple[str, ...]:
    step = steps[number]
    if step.change.call == "fsync" or any(_syncs(later, step) for later in steps[number + 1 :]):
        return (WHOLE,)
    return step.options(promise)


def _syncs(later: Step, step: Step) -> bool:
    """Returns whether a sync makes a step durable: of its file, or of the folder that its name is in."""
    if later.change.call != "fsync":
        return False
    if step.change.call in _NAMES:
        folders = [os.path.dirname(path) for path in step.change.paths]
        return later.change.paths[0] == folders[-1]
    return later.number == step.number >= 0
