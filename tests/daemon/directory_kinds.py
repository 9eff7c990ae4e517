"""The kinds of directories that a daemon keeps: how each is filled, and what is left of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.daemon import directories, pyptx_crowd, triton_format


@dataclass(frozen=True)
class Kind:
    """A directory of some program; its entries have about 10 kB."""

    #: As the daemon names it when it starts.
    layout: str
    #: Makes entries of these numbers, that were used in their order.
    fill: Callable[[Path, range], object]
    #: What an entry of a number is called on disk.
    name_of: Callable[[int], str]
    #: The names of those that are there.
    names: Callable[[Path], set[str]]
    #: Whether no part of an entry is missing, and nothing is left over.
    is_whole: Callable[[Path], bool] = lambda root: True
    #: The options by which a daemon keeps it, and that no test writes while a pass evicts.
    options: tuple[str, ...] = ("--settle", "1ms")

    def touch(self, root: Path) -> None:
        """Use all entries now."""
        for path in root.rglob("*"):
            if path.is_file() and "lockcache" not in path.parts:
                os.utime(path)


def bytes_of(root: Path) -> int:
    """Entries, what is left of any, and what is staged."""
    total = 0
    for folder, below, files in os.walk(root):  # which passes over what goes meanwhile
        if "lockcache" in below:
            below.remove("lockcache")
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                total += os.lstat(f"{folder}/{file}").st_size
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


#: By name. Of lockcache's what strangers wrote, as cuda.core does; of pyptx what our adapter wrote, and what pyptx did.
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
    ),
    "files": Kind(
        "files",
        _grow,
        lambda number: f"{number}.cubin",
        lambda root: {path.name for path in root.rglob("*.cubin")},
        options=("--settle", "1ms", "--layout", "files"),
    ),
}
