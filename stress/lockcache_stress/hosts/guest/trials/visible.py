"""What one host stores while the other has looked for it already: from when on does a plain ``get`` see it?

Only the begin of each read counts, on the clock that both share, so that a slow machine changes nothing: a read that
begins later than the promise after the put had returned, and still misses, is what breaks it.
"""

from __future__ import annotations

import hashlib
import itertools
from typing import Any, Final

from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.site import Site

__all__ = ["visible"]

_KEYS: Final = 3
_SECONDS: Final = 6.0
_PAUSE_SECONDS: Final = 0.1


def visible(site: Site) -> dict[str, Any]:
    """Returns for each kind of key how long after the put's return the last read began that missed."""
    first, second = site.clients
    name = site.make("visible")
    with Rank(first) as writer, Rank(second) as reader:
        writer.call("open", first.at(name))
        reader.call("open", second.at(name))
        new = [_latest(writer, reader, f"new/{number}") for number in range(_KEYS)]
        old = []
        for number in range(_KEYS):
            key = f"known/{number}"
            writer.call("put", _neighbour(key), b"another entry of the shard")
            reader.call("get", _neighbour(key))
            old.append(_latest(writer, reader, key))
    return {"the shard is new": new, "the shard is known": old}


def _latest(writer: Rank, reader: Rank, key: str) -> dict[str, Any]:
    value = b"stored: " + key.encode()
    if reader.call("get", key) is not None:
        raise RuntimeError(f"{key} is there before it was stored")
    returned = writer.call("put", key, value)
    seen = reader.call("poll", key, value, _SECONDS, _PAUSE_SECONDS)
    missed = [began for began, what in seen if what != "wanted"]
    return {"late_seconds": round(missed[-1] - returned, 2) if missed else None, "reads": len(seen)}


def _neighbour(key: str) -> str:
    """Returns a key whose entry is in the same shard."""
    shard = hashlib.sha256(key.encode()).digest()[0]
    names = (f"{key}/beside/{number}" for number in itertools.count())
    return next(name for name in names if hashlib.sha256(name.encode()).digest()[0] == shard)
