"""Metrics for Prometheus, made from the board.

Decides names, units and types, by Prometheus's conventions (base units, ``_total`` for counters; ``promtool check
metrics`` finds no fault). Reads the board and nothing else, so that a scrape never waits for a disk or for the work.

Needs the extra ``metrics``. Label values are paths as the operator gave them; bytes that are not UTF-8 are escaped.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from lockcache import __version__
from lockcache.filestream.remote import ServerSeen
from lockcache_daemon.observe.board import SWEEP_BUCKETS_SECONDS, Board, DirectoryView, shown


class _Value(NamedTuple):
    """A metric with one sample for each directory."""

    name: str
    help: str
    #: ``None``: no sample for this directory.
    of: Callable[[DirectoryView], float | None]


def _up(view: DirectoryView) -> bool:
    return view.is_open and view.problem is None


_GAUGES: Final = (
    _Value("lockcache_directory_up", "1 while the directory is managed and nothing is wrong with it.", _up),
    _Value(
        "lockcache_directory_standby", "1 while another daemon manages the directory.", lambda view: view.is_standby
    ),
    _Value("lockcache_directory_bytes", "What entries and staged writes add up to.", lambda view: view.bytes),
    _Value("lockcache_directory_entries", "Number of entries.", lambda view: view.entries),
    _Value("lockcache_directory_max_bytes", "The cap in force.", lambda view: view.limits.max_size_bytes),
    _Value("lockcache_directory_max_entries", "The cap on entries in force.", lambda view: view.limits.max_entries),
    _Value("lockcache_sweep_low_watermark_bytes", "Where a sweep ends.", lambda view: view.limits.low_bytes),
    _Value("lockcache_sweep_high_watermark_bytes", "Above what a sweep begins.", lambda view: view.limits.high_bytes),
    _Value(
        "lockcache_last_sweep_timestamp_seconds",
        "When the last sweep that evicted something ended.",
        lambda view: view.last_sweep,
    ),
    _Value(
        "lockcache_client_last_report_timestamp_seconds",
        "When a program last added to the client counters.",
        lambda view: view.clients.last_report_ns / 1e9 if view.clients.reports else None,
    ),
)

_COUNTERS: Final = (
    _Value("lockcache_sweeps", "Sweeps that evicted something.", lambda view: view.sweeps),
    _Value("lockcache_evicted_bytes", "Bytes of entries that the daemon evicted.", lambda view: view.evicted_bytes),
    _Value("lockcache_evicted_entries", "Entries that the daemon evicted.", lambda view: view.evicted_entries),
    _Value("lockcache_accounting_repairs", "Shards whose accounting was set right.", lambda view: view.repairs),
    _Value(
        "lockcache_accounting_drift_bytes",
        "By how much the accounting was wrong, in either direction, when it was set right.",
        lambda view: view.drift_bytes,
    ),
    _Value("lockcache_scrubbed_entries", "Entries that were verified.", lambda view: view.scrubbed_entries),
    _Value("lockcache_scrubbed_bytes", "Bytes of entries that were verified.", lambda view: view.scrubbed_bytes),
    _Value(
        "lockcache_corrupt_entries",
        "Entries that were not what a writer had stored there, and were put into quarantine.",
        lambda view: view.corrupt_entries,
    ),
    _Value(
        "lockcache_unreadable_entries",
        "Entries that the disk did not give, each time that it was asked.",
        lambda view: view.unreadable_entries,
    ),
    _Value("lockcache_errors", "Steps of the daemon that failed; each is tried again.", lambda view: view.errors),
    _Value(
        "lockcache_client_hits",
        "Lookups that found an entry, in all programs that reported.",
        lambda view: view.clients.hits,
    ),
    _Value(
        "lockcache_client_misses",
        "Lookups that found none, and were not served by another process that compiled it meanwhile.",
        lambda view: view.clients.misses,
    ),
    _Value(
        "lockcache_client_waits",
        "Hits that were served after waiting until another process had compiled.",
        lambda view: view.clients.waits,
    ),
    _Value(
        "lockcache_client_uncacheable",
        "Compilations that programs did not store, since they cannot be cached.",
        lambda view: view.clients.uncacheable,
    ),
    _Value(
        "lockcache_client_compiled_again",
        "Misses, of a sample, of programs that had been stored before: evicted, not whole, or not waited for.",
        lambda view: view.compiled_again,
    ),
    _Value("lockcache_client_puts", "Values that programs stored.", lambda view: view.clients.puts),
    _Value(
        "lockcache_client_evictions", "Entries that programs evicted to make room.", lambda view: view.clients.evictions
    ),
    _Value(
        "lockcache_client_dropped_writes",
        "Writes that programs gave up: a full disk, a lock not free in time, larger than the cap.",
        lambda view: view.clients.dropped_writes,
    ),
    _Value(
        "lockcache_client_corrupt_entries",
        "Lookups that found bytes which no writer had stored there; each was a miss.",
        lambda view: view.clients.corrupt_entries,
    ),
    _Value(
        "lockcache_client_unverified_hits",
        "Hits on entries that carry no record to verify.",
        lambda view: view.clients.unverified_hits,
    ),
    _Value(
        "lockcache_client_saved_seconds",
        "What compiling took when it was done, summed over hits, where the entry's record says it.",
        lambda view: view.clients.saved_ns / 1e9,
    ),
)


class Metrics:
    """Renders the board. For any thread."""

    def __init__(self, board: Board) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_BoardCollector(board))
        ProcessCollector(registry=self._registry)  # from /proc: memory, descriptors, processor time

    def text(self) -> bytes:
        """Render the metrics in the text format, for a file."""
        return generate_latest(self._registry)

    def negotiated(self, accept: str) -> tuple[bytes, str]:
        """Render the metrics in the format of a client's ``Accept`` header. Returns them with their content type."""
        try:
            encode, content_type = choose_encoder(accept)
        except (TypeError, ValueError, LookupError):  # a malformed header, such as a version of letters
            encode, content_type = choose_encoder("")
        return encode(self._registry), content_type


class _BoardCollector(Collector):
    def __init__(self, board: Board) -> None:
        self._board = board

    def collect(self) -> Iterator[Metric]:
        board, views = self._board, self._board.directories
        yield InfoMetricFamily("lockcache_build", "The daemon that is running.", value={"version": __version__})
        yield GaugeMetricFamily("lockcache_up", "0 once the daemon is about to end.", value=not board.is_stopping)
        yield GaugeMetricFamily(
            "lockcache_last_tick_age_seconds", "How long ago the daemon last reported progress.", board.silent_seconds
        )
        yield CounterMetricFamily("lockcache_warnings", "Warnings that were logged.", value=board.warnings)
        gauges = (_family(GaugeMetricFamily, value, views) for value in _GAUGES)
        counters = (_family(CounterMetricFamily, value, views) for value in _COUNTERS)
        yield from itertools.chain(gauges, counters)
        yield from _namespaces(views)
        yield from _servers(views)
        yield _durations(views)


def _family(
    kind: type[GaugeMetricFamily] | type[CounterMetricFamily], value: _Value, views: Iterable[DirectoryView]
) -> Metric:
    family = kind(value.name, value.help, labels=["directory"])
    for view in views:
        number = value.of(view)
        if number is not None:
            family.add_metric([shown(view.root)], float(number))
    return family


def _namespaces(views: Sequence[DirectoryView]) -> Iterator[Metric]:
    for name, help_, of in _BY_NAMESPACE:
        family = GaugeMetricFamily(f"lockcache_namespace_{name}", help_, labels=["directory", "namespace"])
        for view in views:
            for namespace, number in of(view).items():
                family.add_metric([shown(view.root), shown(namespace)], number)
        yield family


_BY_NAMESPACE: Final[tuple[tuple[str, str, Callable[[DirectoryView], Mapping[str, int]]], ...]] = (
    (
        "bytes",
        "What the entries of a namespace add up to.",
        lambda view: {name: slot.bytes for name, slot in view.namespaces.items()},
    ),
    (
        "entries",
        "Number of entries of a namespace.",
        lambda view: {name: slot.entries for name, slot in view.namespaces.items()},
    ),
    ("max_bytes", "The size limit of a namespace.", lambda view: view.limits.namespaces),
)


# Of one server behind a directory: a metric's kind, name and help, and its value.
_BY_SERVER: Final[
    tuple[tuple[type[GaugeMetricFamily | CounterMetricFamily], str, str, Callable[[ServerSeen], float]], ...]
] = (
    (GaugeMetricFamily, "up", "0 while nobody asks it, because it did not answer.", lambda seen: not seen.is_resting),
    (
        GaugeMetricFamily,
        "last_report_timestamp_seconds",
        "When a program last added to its counters.",
        lambda seen: seen.counters.last_report_ns / 1e9,
    ),
    (CounterMetricFamily, "hits", "Lookups that it had an entry for.", lambda seen: seen.counters.hits),
    (CounterMetricFamily, "misses", "Lookups that it had none for, or no answer.", lambda seen: seen.counters.misses),
    (
        CounterMetricFamily,
        "waits",
        "Hits that were served after waiting until another host had compiled.",
        lambda seen: seen.counters.waits,
    ),
    (
        CounterMetricFamily,
        "prefetched",
        "Entries that were fetched because a manifest lists them.",
        lambda seen: seen.counters.prefetched,
    ),
    (CounterMetricFamily, "puts", "Entries that it took.", lambda seen: seen.counters.puts),
    (CounterMetricFamily, "lost_puts", "Entries that it did not get.", lambda seen: seen.counters.lost_puts),
    (
        CounterMetricFamily,
        "lost_removals",
        "Removals that it did not confirm.",
        lambda seen: seen.counters.lost_removals,
    ),
    (CounterMetricFamily, "errors", "Calls that failed.", lambda seen: seen.counters.errors),
    (
        CounterMetricFamily,
        "corrupt_entries",
        "Answers that no writer had stored under that key; each was a miss.",
        lambda seen: seen.counters.corrupt_entries,
    ),
    (
        CounterMetricFamily,
        "refused_entries",
        "Answers without a signature that is believed; each was a miss.",
        lambda seen: seen.counters.refused_entries,
    ),
    (
        CounterMetricFamily,
        "stale_entries",
        "Answers older than what the host had stored or read; each was a miss.",
        lambda seen: seen.counters.stale_entries,
    ),
    (CounterMetricFamily, "read_bytes", "Bytes that it answered.", lambda seen: seen.counters.bytes_read),
    (CounterMetricFamily, "written_bytes", "Bytes that it took.", lambda seen: seen.counters.bytes_written),
    (CounterMetricFamily, "answers", "Lookups that were answered.", lambda seen: seen.counters.answers),
    (
        CounterMetricFamily,
        "answer_seconds",
        "How long lookups that were answered took together.",
        lambda seen: seen.counters.answers_ns / 1e9,
    ),
)


def _servers(views: Sequence[DirectoryView]) -> Iterator[Metric]:
    """Yields the metrics of servers; none where no directory ever had a server."""
    if not any(view.servers for view in views):
        return
    for kind, name, help_, of in _BY_SERVER:
        family = kind(f"lockcache_remote_{name}", help_, labels=["directory", "server"])
        for view in views:
            for seen in view.servers:
                family.add_metric([shown(view.root), shown(seen.server)], float(of(seen)))
        yield family


def _durations(views: Iterable[DirectoryView]) -> Metric:
    family = HistogramMetricFamily("lockcache_sweep_duration_seconds", "How long sweeps took.", labels=["directory"])
    bounds = [*(str(bound) for bound in SWEEP_BUCKETS_SECONDS), "+Inf"]
    for view in views:
        cumulative = itertools.accumulate(view.sweep_seconds)
        buckets = list(zip(bounds, map(float, cumulative), strict=True))
        family.add_metric([shown(view.root)], buckets, view.sweep_seconds_sum)
    return family
