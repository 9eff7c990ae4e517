# SPDX-License-Identifier: Apache-2.0
"""Visibility: when a plain ``get`` sees an entry that the other host stored after this host had looked for it.

Only the begin of each read counts, on the clock that both hosts share, so that a slow machine changes nothing: the
promise is broken by a read that misses and began more than the promised time after the put had returned.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from lockcache.lowlevel import entry_name
from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.site import Site

__all__ = ["visible"]

_KEYS: Final = 3
_SECONDS: Final = 6.0
_PAUSE_SECONDS: Final = 0.1


def visible(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield for each kind of key how long after the return of the put the last read began that missed."""
    for shard, found in _in(site, site.make("visible")):
        yield shard, found
    coarse = site.make_on_coarse_disk("visible-coarse")
    for shard, found in _in(site, coarse) if coarse else ():
        yield f"{shard}, the server's clock has whole seconds", found


def _in(site: Site, name: str) -> Iterator[tuple[str, Any]]:
    first, second = site.clients
    with Rank(first) as writer, Rank(second) as reader:
        writer.call("open", first.at(name))
        reader.call("open", second.at(name))
        yield "the shard is new", [_latest(writer, reader, f"new/{number}") for number in range(_KEYS)]
        old = []
        for number in range(_KEYS):
            key = f"known/{number}"
            writer.call("put", _neighbour(key), b"another entry of the shard")
            reader.call("get", _neighbour(key))
            old.append(_latest(writer, reader, key))
        yield "the shard is known", old


def _latest(writer: Rank, reader: Rank, key: str) -> dict[str, Any]:
    value = b"stored: " + key.encode()
    if reader.call("get", key) is not None:
        raise RuntimeError(f"{key} is there before it was stored")
    returned = writer.call("put", key, value)
    seen = reader.call("poll", key, value, _SECONDS, _PAUSE_SECONDS)
    missed = [began for began, what in seen if what != "wanted"]
    late_seconds = round(missed[-1] - returned, 2) if missed else None
    return {"late_seconds": late_seconds, "reads": len(seen), "unverified": reader.call("unverified_hits")}


def _neighbour(key: str) -> str:
    """Returns a key whose entry is in the same shard."""
    shard = entry_name(key.encode())[:2]
    names = (f"{key}/beside/{number}" for number in itertools.count())
    return next(name for name in names if entry_name(name.encode())[:2] == shard)
