# SPDX-License-Identifier: Apache-2.0
"""A million keys in a Valkey that has no room for them and evicts: misses and no errors, and never a wrong byte."""

from __future__ import annotations

import random
import time
from functools import partial
from pathlib import Path
from typing import Final

from lockcache import RemoteProgramCache
from lockcache.filestream.disk import entry_name
from lockcache.filestream.entry import Record
from lockcache.remote import RemoteCounts, seal
from lockcache_stress.run import Check, Show, Tabled, equal, some, zero
from lockcache_stress.servers import Valkey

__all__ = ["run_million"]

_MEMORY: Final = "64mb"
_PAYLOAD_BYTES: Final = 200
#: The number of entries of other hosts that are sent in one round trip.
_AT_ONCE: Final = 2000
_LOOKUPS: Final = 5000
_PREFIX: Final = "lockcache:"


def run_million(folder: Path, keys: int, seed: int, show: Show) -> Tabled:
    """Fill the server as many hosts do, then want keys from it as one program. Raises :class:`UnusableError`."""
    server = Valkey(folder, "--maxmemory", _MEMORY, "--maxmemory-policy", "allkeys-lru")
    try:
        began = time.monotonic()
        _fill(server, keys, show)
        filled = time.monotonic() - began
        wrong, counts = _look_up(server, keys, seed)
        evicted = int(server.client.info("stats")["evicted_keys"])
        held = int(server.client.dbsize())
    finally:
        server.kill()
    lines = [
        equal("keys stored", keys, keys),
        some("keys that the server evicted", evicted),
        Check("keys that it holds in the end", f"{held:,}", f"< {keys:,}", held < keys),
        equal("lookups answered, and computations stored", counts.hits + counts.misses, min(_LOOKUPS, keys)),
        some("hits", counts.hits),
        some("misses", counts.misses),
        equal("puts taken", counts.puts, counts.misses),
        zero("errors", counts.errors),
        zero("wrong bytes", wrong),
    ]
    numbers = {"keys": keys, "seed": seed, "evicted": evicted, "held": held, "fill_seconds": round(filled, 1)}
    title = f"million: {keys:,} keys in a Valkey of {_MEMORY} that evicts"
    return Tabled("million", title, lines, {**numbers, "counts": vars(counts)}, [f"{keys:,}"])


def _payload(number: int) -> bytes:
    return (b"%d " % number * _PAYLOAD_BYTES)[:_PAYLOAD_BYTES]


def _fill(server: Valkey, keys: int, show: Show) -> None:
    with server.client as client:
        for first in range(0, keys, _AT_ONCE):
            show("million", first / keys, f"{first:,} of {keys:,} keys")
            with client.pipeline(transaction=False) as pipeline:
                for number in range(first, min(first + _AT_ONCE, keys)):
                    name, payload = entry_name(b"key %d" % number), _payload(number)
                    record = Record(len(payload), time.time_ns(), 0, b"")
                    pipeline.set(f"{_PREFIX}{name}", seal(name, payload, record, None), ex=3600)
                pipeline.execute()


def _look_up(server: Valkey, keys: int, seed: int) -> tuple[int, RemoteCounts]:
    draw, wrong = random.Random(f"{seed}/million"), 0
    with RemoteProgramCache(server.url) as cache:
        for number in draw.sample(range(keys), min(_LOOKUPS, keys)):
            wrong += cache.get_or_compute(f"key {number}", partial(_payload, number)) != _payload(number)
        cache.flush()
    return wrong, cache.remote_stats()
