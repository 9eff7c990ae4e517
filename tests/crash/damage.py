# SPDX-License-Identifier: Apache-2.0
"""Damages to the bytes of an entry: each function damages the entry file at a path."""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk.layout import Layout, entry_name


def _flip(path: Path, position: int) -> None:
    payload = bytearray(path.read_bytes())
    payload[position] ^= 1
    # In place, so that the inode and its attribute stay the same.
    with open(path, "r+b") as file:
        file.write(payload)


def _flip_attribute(path: Path, position: int) -> None:
    blob = bytearray(os.getxattr(path, "user.lockcache"))
    blob[position % len(blob)] ^= 0x80
    os.setxattr(path, "user.lockcache", bytes(blob))


def _truncate_attribute(path: Path) -> None:
    os.setxattr(path, "user.lockcache", os.getxattr(path, "user.lockcache")[:7])


def _hollow(path: Path) -> None:
    """Damage a file as a power cut can: the same length, all zeros."""
    size = path.stat().st_size
    os.truncate(path, 0)
    os.truncate(path, size)


def _other(path: Path) -> Path:
    return next(file for file in path.parent.parent.glob("??/*") if file != path)


def _overwrite_by_other(path: Path) -> None:
    shutil.copy2(_other(path), path)  # copies the attributes too


def _take_payload_of_other(path: Path) -> None:
    with open(path, "r+b") as file:
        file.write(_other(path).read_bytes())
        file.truncate()


def _symlink_to_other(path: Path) -> None:
    other = _other(path)
    path.unlink()
    path.symlink_to(other)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


#: The damages that only add to a file, so that a reader who knows the length still finds what was stored.
GROWTHS: Final = ("grown by a hole", "grown to a terabyte of holes")

#: The damages that replace the file by something else.
PLANTED: Final = ("a symlink", "a fifo", "a directory")

#: The damages: the function that does each, by its name.
DAMAGES: Final[dict[str, Callable[[Path], object]]] = {
    "first bit flipped": lambda path: _flip(path, 0),
    "bit in the middle flipped": lambda path: _flip(path, 500),
    "last bit flipped": lambda path: _flip(path, -1),
    "truncated to half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "truncated to nothing": lambda path: os.truncate(path, 0),
    "hollow": _hollow,
    "grown by a hole": lambda path: os.truncate(path, path.stat().st_size + 5000),
    "grown to a terabyte of holes": lambda path: os.truncate(path, 1 << 40),
    "another entry's file": _overwrite_by_other,
    "another entry's payload": _take_payload_of_other,
    "a symlink": _symlink_to_other,
    "a fifo": _fifo,
    "a directory": _directory,
}

#: The damages to the attribute, for entries that have one.
ATTRIBUTE_DAMAGES: Final[dict[str, Callable[[Path], object]]] = {
    f"record bit {position} flipped": functools.partial(_flip_attribute, position=position)
    for position in (0, 2, 3, 5, 8, 11, 13, 30, 43)
} | {"record truncated": _truncate_attribute}


def fill_to_damage(root: Path, keys: Sequence[bytes]) -> Path:
    """Make a cache of these keys; the value of each is the key 500 times."""
    with FileStreamProgramCache(root) as cache:
        for key in keys:
            cache[key] = key * 500
    return root


def spoil(root: Path, key: bytes, damage: str = "last bit flipped") -> str:
    """Damage the entry of a key. Returns the entry's name."""
    name = entry_name(key)
    DAMAGES[damage](Path(Layout(str(root)).entry(name)))
    return name
