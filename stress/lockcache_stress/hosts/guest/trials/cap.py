# SPDX-License-Identifier: Apache-2.0
"""Four writers on each host write two and a half times as much as fits: is the server's disk ever above the cap?

And if the accounting is lost meanwhile, is it right in the end?
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final

from lockcache.lowlevel import Layout
from lockcache_stress.hosts.guest.site import Site
from lockcache_stress.hosts.guest.traffic import Action, run_traffic, settle
from lockcache_stress.plan import Step
from lockcache_stress.run import Worker

__all__ = ["cap"]

_RUNS: Final = 3
_EACH: Final = 4
_CAP_BYTES: Final = 16_000_000
_PUTS: Final = 16
_SMALLEST_BYTES: Final = 200_000
_LARGEST_BYTES: Final = 440_000
_SECONDS: Final = 300.0
# By then some have written, and most is still to be written.
_LOSE_SECONDS: Final = 3.0


def cap(site: Site, seed: int) -> Iterator[tuple[str, Any]]:
    """Yield for each run the peak on the server's disk, and the accounting at the end."""
    for number in range(1, _RUNS + 1):
        yield f"run {number}", _run(site, f"cap-{number}", seed + number)
    yield "the page is lost", _run_without_page(site, "cap-lost", seed)


def _run_without_page(site: Site, name: str, seed: int) -> dict[str, Any]:
    page, lost = Layout(site.at(name)).state, []

    def lose() -> None:
        os.unlink(page)
        lost.append(page)

    counted = _run(site, name, seed, [(_LOSE_SECONDS, lose)])
    if not lost:
        raise RuntimeError("the writers were done before the page was to be lost")
    return {**counted, "page_is_lost": True}


def _run(site: Site, name: str, seed: int, actions: Sequence[Action] = ()) -> dict[str, Any]:
    counted = run_traffic(
        site,
        name,
        _make_step,
        each=_EACH,
        keys=2 * _EACH * _PUTS,
        max_size_bytes=_CAP_BYTES,
        seconds=_SECONDS,
        seed=seed,
        actions=actions,
        samples=True,
    )
    stored = (counted["puts"] - counted["dropped"]) * _SMALLEST_BYTES
    return {**counted, **settle(site, name), "least_stored_bytes": stored}


def _make_step(worker: Worker) -> Step:
    """Returns the step: write a new key, and read any process's; done after so many.

    Each host alone writes more than fits, so that hosts that only knew of their own entries would hold twice the cap.
    """
    rng = worker.rng
    keys = iter(range(worker.index * _PUTS, (worker.index + 1) * _PUTS))

    def step() -> bool:
        key = next(keys, None)
        if key is None:
            return False
        worker.put(key, rng.randrange(_SMALLEST_BYTES, _LARGEST_BYTES))
        worker.get(rng.randrange(worker.plan.keys))
        return True

    return step
