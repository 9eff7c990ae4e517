# SPDX-License-Identifier: Apache-2.0
"""Times a put into JAX's own cache and into lockcache, each at a cap that its 10,000 entries fill."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from jax._src import compilation_cache
from jax._src.lru_cache import LRUCache

from lockcache import FileStreamProgramCache
from lockcache.integrations.jax import install

ENTRIES, VALUE, OWN_PUTS, OUR_PUTS = 10_000, 4_000, 5, 2_000


def filled_own(root: Path) -> LRUCache:
    """Returns JAX's own cache, filled with the files that JAX would write in hours."""
    root.mkdir()
    for number in range(ENTRIES):
        (root / f"jit_f-{number:064x}-cache").write_bytes(os.urandom(VALUE))
        (root / f"jit_f-{number:064x}-atime").write_bytes(time.time_ns().to_bytes(8, "little"))
    return LRUCache(str(root), max_size=ENTRIES * VALUE)


def filled_by_adapter(root: Path) -> object:
    """Returns the cache that the adapter gives to JAX; its directory has a cap once it is full."""
    install(root)
    cache = compilation_cache.get_file_cache("")[0]
    for number in range(ENTRIES):
        cache.put(f"jit_f-{number:064x}", os.urandom(VALUE))
    with FileStreamProgramCache(root) as found:
        used = found.stats().bytes
    FileStreamProgramCache(root, max_size_bytes=used).close()
    return cache


def mean_seconds(cache: object, count: int, serial: int) -> float:
    began = time.perf_counter()
    for number in range(count):
        cache.put(f"jit_g-{serial}-{number:064x}", os.urandom(VALUE))
    return (time.perf_counter() - began) / count


folder = Path(sys.argv[1])
own, ours = filled_own(folder / "own"), filled_by_adapter(folder / "ours")
pairs = [(mean_seconds(own, OWN_PUTS, serial), mean_seconds(ours, OUR_PUTS, serial)) for serial in range(3)]
held = sum(1 for _ in (folder / "own").glob("*-cache")), FileStreamProgramCache(folder / "ours").stats().entries
print(json.dumps({"own": [pair[0] for pair in pairs], "ours": [pair[1] for pair in pairs], "entries": held}))
