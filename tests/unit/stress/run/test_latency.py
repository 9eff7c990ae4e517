"""Percentiles from buckets are within the buckets' width of the true ones."""

from __future__ import annotations

import random

import pytest

from lockcache_stress.run.counters import Latencies


def test_percentiles_are_within_two_percent() -> None:
    rng = random.Random(0)
    times_ns = [int(rng.lognormvariate(9, 1)) for _ in range(20_000)]
    latencies = Latencies()
    for nanoseconds in times_ns:
        latencies.add(nanoseconds)
    times_ns.sort()
    assert latencies.percentile_us(50) == pytest.approx(times_ns[10_000] / 1000, rel=0.03)
    assert latencies.percentile_us(99) == pytest.approx(times_ns[19_800] / 1000, rel=0.03)


def test_workers_latencies_add_up_through_json() -> None:
    first, second = Latencies(), Latencies()
    first.add(1000)
    second.add(1_000_000)
    first.merge(Latencies(second.as_json()))
    assert first.percentile_us(100) == pytest.approx(1000, rel=0.02)
    assert first.percentile_us(50) == pytest.approx(1, rel=0.02)


def test_no_operations_have_no_percentile() -> None:
    assert Latencies().percentile_us(50) is None
