# SPDX-License-Identifier: Apache-2.0
"""OpenTelemetry: what the caches of this process have counted, as observable counters of a meter.

A reader of OpenTelemetry asks, now and then or at the process's end, and is given the counts of
:mod:`lockcache.reports`: nothing is counted for it. A forked child counts for itself, from zero. Promises counters that
never fall, which :mod:`.reports` does not: a miss that became a hit is taken off there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from lockcache.fork import after_fork_in_child
from lockcache.reports import Counters, reports

if TYPE_CHECKING:
    from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

__all__ = ["export_counters"]

_NAME: Final = "lockcache"
_NS: Final = 10**9


class _Counter(NamedTuple):
    name: str
    unit: str
    description: str
    value: Callable[[Counters], float]


_COUNTERS: Final = (
    _Counter("hits", "{lookup}", "Lookups that found an entry.", lambda counts: counts.hits),
    _Counter("misses", "{lookup}", "Lookups that found none.", lambda counts: counts.misses),
    _Counter("waits", "{lookup}", "Hits after waiting for another compilation.", lambda counts: counts.waits),
    _Counter("puts", "{entry}", "Entries stored.", lambda counts: counts.puts),
    _Counter("evictions", "{entry}", "Entries evicted by this process.", lambda counts: counts.evictions),
    _Counter("dropped_writes", "{entry}", "Entries that were not stored.", lambda counts: counts.dropped_writes),
    _Counter("corrupt_entries", "{entry}", "Damaged entries that were met.", lambda counts: counts.corrupt_entries),
    _Counter("unverified_hits", "{lookup}", "Hits without a record.", lambda counts: counts.unverified_hits),
    _Counter("uncacheable", "{compilation}", "Compilations that cannot be cached.", lambda counts: counts.uncacheable),
    _Counter("saved", "s", "Compile time that the hits' records state.", lambda counts: counts.saved_ns / _NS),
)


def export_counters(meter_provider: MeterProvider | None = None) -> None:
    """Have the counts of all directories that this process uses read by OpenTelemetry, as ``lockcache.hits`` and so on.

    ``meter_provider``: by default that of the process, which may be set later. Nothing happens if it was called before
    for that one. Raises :class:`ImportError` without the package ``opentelemetry-api``.
    """
    from opentelemetry.metrics import Observation, get_meter

    if any(provider is meter_provider for provider in _exported):
        return
    meter = get_meter(_NAME, meter_provider=meter_provider)
    _exported.append(meter_provider)
    for each in _COUNTERS:
        observe = partial(_observe, _Highest(), each.value, Observation)
        meter.create_observable_counter(f"{_NAME}.{each.name}", [observe], each.unit, each.description)


#: The providers that were given; ``None`` is that of the process.
_exported: list[Any] = []


class _Highest:
    """The highest value that one counter of one provider had in this process."""

    def __init__(self) -> None:
        self.value: float = 0
        after_fork_in_child(self)

    def _after_fork_in_child(self) -> None:
        self.value = 0


def _observe(
    highest: _Highest, value: Callable[[Counters], float], make: type[Observation], _: CallbackOptions
) -> Iterable[Observation]:
    highest.value = max(highest.value, value(reports.counted()))
    return [make(highest.value)]
