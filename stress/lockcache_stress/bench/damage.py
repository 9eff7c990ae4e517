"""Entries that were damaged on disk: how many are served all the same. Ours: none, ever.

What is not covered: a file that was replaced by one without a record. It is served like an entry of cuda.core's own
cache, which has none either; who may write to the directory could forge a record anyway.
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
from lockcache_stress.bench.peers import OURS, THEIRS, Peer, opened

__all__ = ["measure"]

_Damage = Callable[[str, str, random.Random], object]


def measure(bench: Bench) -> list[Line]:
    """None served, for each kind of damage."""
    logging.getLogger("lockcache").setLevel(logging.ERROR)  # each damaged entry is a warning, and here expected
    entries = bench.pick(200, 4)
    lines = []
    for done, (name, damage) in enumerate(_KINDS.items()):
        ours = _served(bench.ours("damage"), OURS, damage, entries)
        theirs = _served(bench.directory("damage"), THEIRS, damage, entries) if THEIRS.is_installed() else None
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


#: What can happen to an entry's file, given the path of another's.
_KINDS: Final[dict[str, _Damage]] = {
    "one bit flipped": _flip,
    "cut to half": lambda path, other, rng: os.truncate(path, os.path.getsize(path) // 2),
    "cut to nothing": lambda path, other, rng: os.truncate(path, 0),
    "another's bytes copied over": lambda path, other, rng: shutil.copyfile(other, path),
    "another's file copied over, attributes too": lambda path, other, rng: shutil.copy2(other, path),
}
