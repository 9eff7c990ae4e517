# SPDX-License-Identifier: Apache-2.0
"""The trials by name, in the order in which they are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from lockcache_stress.hosts.guest.site import Site
from lockcache_stress.hosts.guest.trials.calls import calls
from lockcache_stress.hosts.guest.trials.cap import cap
from lockcache_stress.hosts.guest.trials.copied import copied
from lockcache_stress.hosts.guest.trials.cut import cut
from lockcache_stress.hosts.guest.trials.fleet import fleet
from lockcache_stress.hosts.guest.trials.herd import herd
from lockcache_stress.hosts.guest.trials.kill import kill
from lockcache_stress.hosts.guest.trials.neighbour import neighbour
from lockcache_stress.hosts.guest.trials.opened import opened
from lockcache_stress.hosts.guest.trials.registers import restart, shared_bytes
from lockcache_stress.hosts.guest.trials.replaced import replaced
from lockcache_stress.hosts.guest.trials.seed import seed as seed_
from lockcache_stress.hosts.guest.trials.visible import visible

__all__ = ["RUNS"]

#: Each takes the site and the run's seed, and yields numbers as it counts them.
RUNS: Final[Mapping[str, Callable[[Site, int], Iterator[tuple[str, Any]]]]] = {
    "calls": lambda site, seed: calls(site),
    "fleet": lambda site, seed: fleet(site),
    "seed": lambda site, seed: seed_(site),
    "opened": lambda site, seed: opened(site),
    "copied": lambda site, seed: copied(site),
    "visible": lambda site, seed: visible(site),
    "replaced": lambda site, seed: replaced(site),
    "herd": herd,
    "kill": lambda site, seed: kill(site),
    "bytes": shared_bytes,
    "cap": cap,
    "cut": lambda site, seed: cut(site),
    "restart": restart,
    "neighbour": lambda site, seed: neighbour(site),
}
