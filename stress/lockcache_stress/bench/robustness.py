# SPDX-License-Identifier: Apache-2.0
"""Robustness: damaged entries, as one number for each kind of damage.

Entries are damaged on disk, and those that are served all the same are counted. lockcache must serve none; the number
of cuda.core's cache is next to it. Not covered is a file that was replaced by one without a record: it is served like
an entry of cuda.core's own cache, which has no records; a user who may write to the directory could forge a record
anyway.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import shutil
from collections.abc import Callable
from typing import Final

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line, shown
from lockcache_stress.bench.peers import CUDA_CORE, LOCKCACHE, Peer, opened

_Damage = Callable[[str, str, random.Random], object]


def measure_damage(bench: Bench) -> list[Line]:
    """Measure damaged entries: none served, for each kind of damage."""
    logging.getLogger("lockcache").setLevel(logging.ERROR)  # every damaged entry logs a warning, which is expected here
    entries = bench.pick(200, 4)
    lines = []
    for done, (name, damage) in enumerate(_KINDS.items()):
        ours = _served(bench.lockcache_directory("damage"), LOCKCACHE, damage, entries)
        theirs = _served(bench.directory("damage"), CUDA_CORE, damage, entries) if CUDA_CORE.is_installed() else None
        lines.append(
            Line(
                f"damaged entries served: {name}",
                f"{ours} of {entries}",
                theirs=shown(theirs, f"{{}} of {entries}"),
                bar="0",
                ok=ours == 0,
                numbers={"ours": ours, "theirs": theirs, "entries": entries},
            )
        )
        bench.show((done + 1) / len(_KINDS), name)
    return lines


def _served(directory: str, peer: Peer, damage: _Damage, entries: int) -> int:
    rng = random.Random(0)
    keys = [b"damaged-%d" % number for number in range(entries)]
    with opened(peer, directory) as store:
        for key in (*keys, b"other"):
            store.put(key, rng.randbytes(VALUE_BYTES))
        for key in keys:
            damage(_path(directory, key), _path(directory, b"other"), rng)
        return sum(store.get(key) is not None for key in keys)


def _path(directory: str, key: bytes) -> str:
    name = hashlib.sha256(key).hexdigest()
    return os.path.join(directory, "entries", name[:2], name[2:])


def _flip(path: str, other: str, rng: random.Random) -> None:
    with open(path, "r+b") as file:
        place = rng.randrange(os.path.getsize(path))
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1 << rng.randrange(8)]))


#: Damages to an entry's file, given its path and that of another entry's.
_KINDS: Final[dict[str, _Damage]] = {
    "one bit flipped": _flip,
    "cut to half": lambda path, other, rng: os.truncate(path, os.path.getsize(path) // 2),
    "cut to nothing": lambda path, other, rng: os.truncate(path, 0),
    "another's bytes copied over": lambda path, other, rng: shutil.copyfile(other, path),
    "another's file copied over, attributes too": lambda path, other, rng: shutil.copy2(other, path),
}
