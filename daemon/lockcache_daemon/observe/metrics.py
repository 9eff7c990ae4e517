# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus, made from the board.

Decides names, units and types, by Prometheus's conventions (base units, ``_total`` for counters; ``promtool check
metrics`` finds no fault). Reads the board and nothing else, so that a scrape never waits for a disk or for the work.

Needs the extra ``metrics``. Label values are paths as the operator gave them; bytes that are not UTF-8 are escaped.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.exposition import choose_encoder, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from lockcache import __version__
from lockcache_daemon.observe.board import SWEEP_BUCKETS_SECONDS, Board, DirectoryView, shown

# By name: what each metric says. Its value is the field of that name, or the one in _FIELDS; ``None``: no sample.
_GAUGES: Final = {
    "directory_up": "1 while the directory is managed and nothing is wrong with it.",
    "directory_standby": "1 while another daemon manages the directory.",
    "directory_bytes": "Bytes of entries and staged writes.",
    "directory_entries": "Number of entries.",
    "directory_max_bytes": "The cap in force.",
    "directory_max_entries": "The cap on entries in force.",
    "sweep_low_watermark_bytes": "Where a sweep ends.",
    "sweep_high_watermark_bytes": "Above what a sweep begins.",
    "last_sweep_timestamp_seconds": "When the last sweep that evicted something ended.",
}
_COUNTERS: Final = {
    "sweeps": "Sweeps that evicted something.",
    "evicted_bytes": "Bytes of entries that the daemon evicted.",
    "evicted_entries": "Entries that the daemon evicted.",
    "accounting_repairs": "Shards whose accounting was set right.",
    "accounting_drift_bytes": "By how much the accounting was wrong, in either direction, when it was set right.",
    "scrubbed_entries": "Entries that were verified.",
    "scrubbed_bytes": "Bytes of entries that were verified.",
    "corrupt_entries": "Entries that were not what a writer had stored there, and were put into quarantine.",
    "unreadable_entries": "Entries that the disk did not give, each time that it was asked.",
    "errors": "Steps of the daemon that failed; each is tried again.",
    "client_compiled_again": (
        "Misses, of a sample, of programs that had been stored before: evicted, not whole, or not waited for."
    ),
}

# Of the programs that use a directory: fields of their counters.
_CLIENT_TIMES: Final = {"last_report_timestamp_seconds": "When a program last added to the client counters."}
_CLIENT_COUNTERS: Final = {
    "hits": "Lookups that found an entry, in all programs that reported.",
    "misses": "Lookups that found none, and were not served by another process that compiled it meanwhile.",
    "waits": "Hits that were served after waiting until another process had compiled.",
    "uncacheable": "Compilations that programs did not store, since they cannot be cached.",
    "puts": "Values that programs stored.",
    "evictions": "Entries that programs evicted to make room.",
    "dropped_writes": "Writes that programs gave up: a full disk, a lock not free in time, larger than the cap.",
    "corrupt_entries": "Lookups that found bytes which no writer had stored there; each was a miss.",
    "unverified_hits": "Hits on entries that carry no record to verify.",
    "saved_seconds": "Recorded compile time of the entries that were hit, summed over hits.",
}

# Of one server behind a directory.
_SERVER_TIMES: Final = {"last_report_timestamp_seconds": "When a program last added to its counters."}
_SERVER_COUNTERS: Final = {
    "hits": "Lookups that it had an entry for.",
    "misses": "Lookups that it had none for, or no answer.",
    "waits": "Hits that were served after waiting until another host had compiled.",
    "prefetched": "Entries that were fetched because a manifest lists them.",
    "puts": "Entries that it took.",
    "lost_puts": "Entries that it did not get.",
    "refused_puts": "Entries that it did not get because it refused them.",
    "lost_removals": "Removals that it did not confirm.",
    "errors": "Calls that failed.",
    "corrupt_entries": "Answers that no writer had stored under that key; each was a miss.",
    "refused_entries": "Answers without a signature that is believed; each was a miss.",
    "stale_entries": "Answers older than what the host had stored or read; each was a miss.",
    "read_bytes": "Bytes that it answered.",
    "written_bytes": "Bytes that it took.",
    "answers": "Lookups that were answered.",
    "answer_seconds": "How long lookups that were answered took together.",
}

_OF_NAMESPACES: Final = {
    "bytes": "Bytes of the entries of a namespace.",
    "entries": "Number of entries of a namespace.",
}

# Fields of another name than their metric.
_FIELDS: Final = {
    "directory_up": "is_up",
    "directory_standby": "is_standby",
    "directory_bytes": "bytes",
    "directory_entries": "entries",
    "directory_max_bytes": "limits.max_size_bytes",
    "directory_max_entries": "limits.max_entries",
    "sweep_low_watermark_bytes": "limits.low_bytes",
    "sweep_high_watermark_bytes": "limits.high_bytes",
    "last_sweep_timestamp_seconds": "last_sweep",
    "accounting_repairs": "repairs",
    "accounting_drift_bytes": "drift_bytes",
    "client_compiled_again": "compiled_again",
    "last_report_timestamp_seconds": "last_report_ns",
    "saved_seconds": "saved_ns",
    "read_bytes": "bytes_read",
    "written_bytes": "bytes_written",
    "answer_seconds": "answers_ns",
}


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
        yield GaugeMetricFamily(
            "lockcache_reload_refused",
            "1 after a reload that found a mistake in the settings: the older ones are in force.",
            value=board.is_reload_refused,
        )
        yield CounterMetricFamily("lockcache_warnings", "Warnings that were logged.", value=board.warnings)
        yield from _families(GaugeMetricFamily, "", _GAUGES, _BY_DIRECTORY, [((view.root,), view) for view in views])
        yield from _families(
            CounterMetricFamily, "", _COUNTERS, _BY_DIRECTORY, [((view.root,), view) for view in views]
        )
        yield from _clients(views)
        yield from _namespaces(views)
        yield from _servers(views)
        yield _durations(views)


# The labels of a sample, and the object whose fields are its values.
_Samples = Sequence[tuple[tuple[str, ...], object]]

_BY_DIRECTORY: Final = ("directory",)


def _families(
    kind: type[GaugeMetricFamily | CounterMetricFamily],
    prefix: str,
    helps: Mapping[str, str],
    labels: Sequence[str],
    samples: _Samples,
) -> Iterator[Metric]:
    for name, help_ in helps.items():
        family = kind(f"lockcache_{prefix}{name}", help_, labels=labels)
        field = _FIELDS.get(name, name)
        value_of = attrgetter(field)
        for texts, of in samples:
            value = value_of(of)
            if value is not None:
                family.add_metric(list(map(shown, texts)), value / 1e9 if field.endswith("_ns") else float(value))
        yield family


def _clients(views: Sequence[DirectoryView]) -> Iterator[Metric]:
    samples = [((view.root,), view.clients) for view in views]
    reported = [((view.root,), view.clients) for view in views if view.clients.reports]
    yield from _families(GaugeMetricFamily, "client_", _CLIENT_TIMES, _BY_DIRECTORY, reported)
    yield from _families(CounterMetricFamily, "client_", _CLIENT_COUNTERS, _BY_DIRECTORY, samples)


def _namespaces(views: Sequence[DirectoryView]) -> Iterator[Metric]:
    labels = ("directory", "namespace")
    held = [((view.root, name), slot) for view in views for name, slot in view.namespaces.items()]
    yield from _families(GaugeMetricFamily, "namespace_", _OF_NAMESPACES, labels, held)
    limits = GaugeMetricFamily("lockcache_namespace_max_bytes", "The size limit of a namespace.", labels=labels)
    for view in views:
        for name, limit in view.limits.namespaces.items():
            limits.add_metric([shown(view.root), shown(name)], limit)
    yield limits


def _servers(views: Sequence[DirectoryView]) -> Iterator[Metric]:
    """Yields the metrics of servers; none where no directory ever had a server."""
    servers = [((view.root, seen.server), seen) for view in views for seen in view.servers]
    if not servers:
        return
    labels, counters = ("directory", "server"), [(texts, seen.counters) for texts, seen in servers]
    up = GaugeMetricFamily("lockcache_remote_up", "0 while nobody asks it, because it did not answer.", labels=labels)
    for (root, server), seen in servers:
        up.add_metric([shown(root), shown(server)], not seen.is_resting)
    yield up
    yield from _families(GaugeMetricFamily, "remote_", _SERVER_TIMES, labels, counters)
    yield from _families(CounterMetricFamily, "remote_", _SERVER_COUNTERS, labels, counters)


def _durations(views: Iterable[DirectoryView]) -> Metric:
    family = HistogramMetricFamily("lockcache_sweep_duration_seconds", "How long sweeps took.", labels=["directory"])
    bounds = [*(str(bound) for bound in SWEEP_BUCKETS_SECONDS), "+Inf"]
    for view in views:
        cumulative = itertools.accumulate(view.sweep_seconds)
        buckets = list(zip(bounds, map(float, cumulative), strict=True))
        family.add_metric([shown(view.root)], buckets, view.sweep_seconds_sum)
    return family
