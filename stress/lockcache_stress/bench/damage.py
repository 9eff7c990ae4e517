"""Entries that were damaged on disk: how many are served all the same. Ours: none, ever.

What is not covered: a file that was replaced by one without a record. It is served like an entry of cuda.core's own
cache, which has none either; whoever may write to the directory could forge a record anyway.
"""

from __future__ import annotations

import hashlib
import logging
import os
import random
import shutil
from collections.abc import Callable
from typing import Any, Final

from lockcache_stress.bench.base import VALUE_BYTES, Bench, Line, open_ours, open_theirs

__all__ = ["measure"]

_Damage = Callable[[str, str, random.Random], None]


def measure(bench: Bench) -> list[Line]:
    """None served, for each kind of damage."""
    logging.getLogger("lockcache").setLevel(logging.ERROR)  # each damaged entry is a warning, and here no news
    entries = bench.pick(200, 4)
    lines = []
    for done, (name, damage) in enumerate(_KINDS.items()):
        ours, theirs = (
            _served(bench.ours("damage"), open_ours, damage, entries),
            _served(bench.directory("damage"), open_theirs, damage, entries),
        )
        lines.append(
            Line(
                f"damaged entries served: {name}",
                f"{ours} of {entries}",
                theirs="" if theirs is None else f"{theirs} of {entries}",
                bar="0",
                ok=ours == 0,
                numbers={"ours": ours, "theirs": theirs, "entries": entries},
            )
        )
        bench.show((done + 1) / len(_KINDS), name)
    return lines


def _served(directory: str, open_cache: Callable[[str], Any], damage: _Damage, entries: int) -> int | None:
    cache = open_cache(directory)
    if cache is None:
        return None
    rng = random.Random(0)
    keys = [b"damaged-%d" % number for number in range(entries)]
    for key in keys:
        cache[key] = rng.randbytes(VALUE_BYTES)
    cache[b"other"] = rng.randbytes(VALUE_BYTES)
    for key in keys:
        damage(_path(directory, key), _path(directory, b"other"), rng)
    return sum(cache.get(key) is not None for key in keys)


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


def _halve(path: str, other: str, rng: random.Random) -> None:
    os.truncate(path, os.path.getsize(path) // 2)


def _empty(path: str, other: str, rng: random.Random) -> None:
    os.truncate(path, 0)


def _copy_bytes(path: str, other: str, rng: random.Random) -> None:
    shutil.copyfile(other, path)


def _copy_all(path: str, other: str, rng: random.Random) -> None:
    shutil.copy2(other, path)


_KINDS: Final[dict[str, _Damage]] = {
    "one bit flipped": _flip,
    "cut to half": _halve,
    "cut to nothing": _empty,
    "another's bytes copied over": _copy_bytes,
    "another's file copied over, attributes too": _copy_all,
}
