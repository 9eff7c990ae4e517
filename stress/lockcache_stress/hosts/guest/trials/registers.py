# SPDX-License-Identifier: Apache-2.0
"""All processes on both hosts read and write the same keys: each key is one register, or a read was torn or stale.

In the second trial the server is stopped for four seconds in the middle of it, loses all locks, and is started again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lockcache_stress.hosts.guest.site import Site
from lockcache_stress.hosts.guest.traffic import run_traffic, settle
from lockcache_stress.plan import Step
from lockcache_stress.run import Worker

__all__ = ["restart", "shared_bytes"]

_BYTES_EACH: Final = 3
_BYTES_SECONDS: Final = 12.0
_BYTES_CAP: Final = 8_000_000
#: The numbers of keys: one for the tightest race, many for a race with evictions.
_BYTES_KEYS: Final = {"one key": 1, "many keys": 64}

_EACH: Final = 2
_KEYS: Final = 24
_CAP_BYTES: Final = 6_000_000
_STOP_SECONDS: Final = 5.0
_START_SECONDS: Final = 9.0
# Long enough for the server's grace time, and for traffic after it.
_SECONDS: Final = 35.0


def shared_bytes(site: Site, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield for one key and for many the counts of reads, and the accounting at the end."""
    for number, (kind, keys) in enumerate(_BYTES_KEYS.items()):
        name = f"bytes-{number}"
        counted = run_traffic(
            site,
            name,
            _make_mixed_step,
            each=_BYTES_EACH,
            keys=keys,
            max_size_bytes=_BYTES_CAP,
            seconds=_BYTES_SECONDS,
            seed=seed,
        )
        yield kind, {**counted, **settle(site, name)}


def restart(site: Site, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield the counts of reads and errors, and the accounting at the end."""
    actions = [(_STOP_SECONDS, site.stop_server), (_START_SECONDS, site.start_server)]
    counted = run_traffic(
        site,
        "restart",
        _make_mixed_step,
        each=_EACH,
        keys=_KEYS,
        max_size_bytes=_CAP_BYTES,
        seconds=_SECONDS,
        seed=seed,
        actions=actions,
    )
    yield "traffic", {**counted, **settle(site, "restart")}


def _make_mixed_step(worker: Worker) -> Step:
    """Returns the step: read and write keys of all processes, of very different sizes."""
    rng = worker.rng

    def step() -> bool:
        key = rng.randrange(worker.plan.keys)
        if rng.random() < 0.4:
            worker.put(key, rng.choice((1000, 20_000, 300_000)))
        else:
            worker.get(key)
        return True

    return step
