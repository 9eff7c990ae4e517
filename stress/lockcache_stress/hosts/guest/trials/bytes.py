"""All processes on both hosts read and write the same keys: each key is one register, or a read was torn or stale."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from lockcache_stress.hosts.guest.site import Site
from lockcache_stress.hosts.guest.traffic import run_traffic, settle
from lockcache_stress.hosts.guest.trials.restart import make_mixed_step

__all__ = ["shared_bytes"]

_EACH: Final = 3
_SECONDS: Final = 12.0
_CAP_BYTES: Final = 8_000_000
#: The numbers of keys: one for the tightest race, many for a race with evictions.
_KEYS: Final = {"one key": 1, "many keys": 64}


def shared_bytes(site: Site, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield for one key and for many the counts of reads, and the accounting at the end."""
    for number, (kind, keys) in enumerate(_KEYS.items()):
        name = f"bytes-{number}"
        counted = run_traffic(
            site,
            name,
            make_mixed_step,
            each=_EACH,
            keys=keys,
            max_size_bytes=_CAP_BYTES,
            seconds=_SECONDS,
            seed=seed,
        )
        yield kind, {**counted, **settle(site, name)}
