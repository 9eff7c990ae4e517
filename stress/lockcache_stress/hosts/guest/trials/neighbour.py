# SPDX-License-Identifier: Apache-2.0
"""cuda.core's own cache on one host and lockcache on the other use one directory, which a daemon keeps."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, Final

from lockcache_stress.hosts.guest.ranks import Rank
from lockcache_stress.hosts.guest.site import Site
from lockcache_stress.run import bytes_on_disk

__all__ = ["neighbour"]

_CAP_BYTES: Final = 4_000_000
_SECONDS: Final = 20.0
# The daemon recounts other programs' writes this often; until then the directory may be above the cap by these writes.
_SETTLE_SECONDS: Final = 120.0


def neighbour(site: Site) -> Iterator[tuple[str, Any]]:
    """Yield reads and writes of both, values that were not whole, and the bytes on disk after the daemon's recount."""
    first, second = site.clients
    name = site.make("neighbour")
    with Rank(first) as cuda_core, Rank(second) as lockcache:
        if not cuda_core.call("has_cuda_core"):
            yield "skipped", "cuda.core cannot be imported"
            return
        lockcache.call("open", second.at(name))
        cuda_core.call("open_cuda_core", first.at(name))
        words = [sys.executable, "-m", "lockcache_daemon", "--max-size", str(_CAP_BYTES), "--interval", "1s"]
        with second.running([*words, second.at(name)]) as daemon:
            began = time.monotonic()
            cuda_core.begin("trade", 1, _SECONDS)
            lockcache.begin("trade", 2, _SECONDS)
            traded = [cuda_core.result(), lockcache.result()]
            deadline = time.monotonic() + _SETTLE_SECONDS
            while bytes_on_disk(site.at(name)) > _CAP_BYTES and time.monotonic() < deadline:
                time.sleep(0.2)
            disk, is_alive = bytes_on_disk(site.at(name)), daemon.poll() is None
    sums = {each: sum(found.get(each, 0) for found in traded) for each in ("puts", "put_bytes", "hits", "wrong")}
    seconds = round(time.monotonic() - began, 1)
    yield "traded", {**sums, "disk_bytes": disk, "cap_bytes": _CAP_BYTES, "daemon_lives": is_alive, "seconds": seconds}
