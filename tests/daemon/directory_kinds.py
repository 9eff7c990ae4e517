# SPDX-License-Identifier: Apache-2.0
"""The kinds of directories that a daemon keeps: fills each, and lists what is left."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lockcache.layouts.triton_scan import is_key
from tests.daemon import directories, pyptx_crowd, triton_format


@dataclass(frozen=True)
class Kind:
    """A directory of some program."""

    #: The name that the daemon logs at its start.
    layout: str
    #: Makes entries of these numbers, which were used in this order.
    fill: Callable[[Path, range], object]
    #: Returns the name on disk of the entry of a number.
    name_of: Callable[[int], str]
    #: Returns the names of all entries.
    names: Callable[[Path], set[str]]
    #: Returns whether no part of an entry is missing or left over.
    is_whole: Callable[[Path], bool] = lambda root: True
    #: The options with which a daemon keeps it, for tests that do not write while a pass evicts.
    options: tuple[str, ...] = ("--settle", "1ms")
    #: What an entry takes, about.
    entry_bytes: int = 10_000

    def touch(self, root: Path) -> None:
        """Use all entries now."""
        for path in root.rglob("*"):
            if path.is_file() and "lockcache" not in path.parts:
                os.utime(path)


def bytes_of(root: Path) -> int:
    """Returns the bytes of entries, of their remains, and of staged files; of other programs' as ``du`` says."""
    total, is_ours = 0, (root / "entries").exists() or any(root.glob("*.ptx"))
    for folder, below, files in os.walk(root):  # which ignores folders that are removed meanwhile
        if "lockcache" in below:
            below.remove("lockcache")
        for file in files if is_ours else [".", *files] if is_key(os.path.basename(folder)) else files:
            with contextlib.suppress(FileNotFoundError):
                status = os.lstat(f"{folder}/{file}")
                total += status.st_size if is_ours else status.st_blocks * 512
    return total


def _grow(root: Path, numbers: range) -> None:
    root.mkdir(mode=0o700, exist_ok=True)
    directories.grow(root, numbers)


def _store_as_pyptx(root: Path, numbers: range) -> None:
    root.mkdir(mode=0o700, exist_ok=True)
    pyptx_crowd.store(root, numbers, by_pyptx=True)


def _pyptx(fill: Callable[[Path, range], object]) -> Kind:
    return Kind(
        "pyptx",
        fill,
        lambda number: pyptx_crowd.key_of(number).hash(),
        lambda root: set(pyptx_crowd.parts(root)),
        lambda root: all(each == pyptx_crowd.SUFFIXES for each in pyptx_crowd.parts(root).values()),
    )


#: The kinds by name. Entries of lockcache's kind are written as by cuda.core, those of pyptx by the adapter or by
#: pyptx.
KINDS: Final = {
    "lockcache": Kind(
        "cuda.core",
        lambda root, numbers: directories.fill(root, len(numbers), 10_000, numbers.start),
        lambda number: hashlib.sha256(b"%d" % number).hexdigest(),
        directories.names_on_disk,
        directories.accounting_is_exact,
    ),
    "pyptx": _pyptx(pyptx_crowd.store),
    "pyptx's own": _pyptx(_store_as_pyptx),
    "triton": Kind(
        "triton",
        triton_format.fill,
        triton_format.key_of,
        triton_format.keys_on_disk,
        lambda root: os.listdir(root / "lockcache" / "condemned") == [],
        entry_bytes=33_000,
    ),
    "files": Kind(
        "files",
        _grow,
        lambda number: f"{number}.cubin",
        lambda root: {path.name for path in root.rglob("*.cubin")},
        options=("--settle", "1ms", "--layout", "files"),
    ),
}
