"""The server is stopped for four seconds in the middle of traffic, loses all locks, and is started again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lockcache_stress.hosts.guest.site import Site
from lockcache_stress.hosts.guest.traffic import run_traffic, settle
from lockcache_stress.plan import Step
from lockcache_stress.run import Worker

__all__ = ["make_mixed_step", "restart"]

_EACH: Final = 2
_KEYS: Final = 24
_CAP_BYTES: Final = 6_000_000
_STOP_SECONDS: Final = 5.0
_START_SECONDS: Final = 9.0
# Long enough for the server's grace time, and for traffic after it.
_SECONDS: Final = 35.0


def restart(site: Site, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield the counts of reads and errors, and the accounting at the end."""
    actions = [(_STOP_SECONDS, site.stop_server), (_START_SECONDS, site.start_server)]
    counted = run_traffic(
        site,
        "restart",
        make_mixed_step,
        each=_EACH,
        keys=_KEYS,
        max_size_bytes=_CAP_BYTES,
        seconds=_SECONDS,
        seed=seed,
        actions=actions,
    )
    yield "traffic", {**counted, **settle(site, "restart")}


def make_mixed_step(worker: Worker) -> Step:
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
