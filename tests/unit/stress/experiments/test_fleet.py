# SPDX-License-Identifier: Apache-2.0
"""The model of a fleet that starts: what it conserves, what one rank takes exactly, and what a guest counted."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, strategies as st

from lockcache_stress.experiments.fleet import WAYS, Calls, Fleet, _Start, load_counts, run_start
from tests.unit.material import property_test

CALLS = Calls.counted(load_counts())
SMALL = Fleet(CALLS, ranks=24, ranks_per_node=4, kernels=12)

_fleets = st.builds(
    Fleet,
    st.just(CALLS),
    ranks=st.integers(1, 40),
    ranks_per_node=st.integers(1, 9),
    kernels=st.integers(1, 9),
    stored=st.sampled_from([0.0, 0.5, 1.0]),
    is_shuffled=st.booleans(),
    requests_per_second=st.sampled_from([200.0, 20_000.0]),
    seed=st.integers(0, 9),
)


@property_test
@given(_fleets, st.sampled_from(list(WAYS)))
def test_every_rank_ends_no_request_is_lost_and_the_server_is_no_faster_than_stated(fleet: Fleet, way: str) -> None:
    start = _Start(fleet)
    cost = start.run(way)
    requests = sum(cost.requests.values())
    assert len(start.ended) == fleet.ranks
    assert cost.busy_seconds == pytest.approx(requests / fleet.requests_per_second)
    assert cost.seconds >= cost.busy_seconds * (1 - 1e-9)
    assert cost.seconds >= cost.sent_bytes / fleet.bytes_per_second


@property_test
@given(_fleets, st.sampled_from(list(WAYS)))
def test_a_kernel_is_compiled_by_as_many_as_the_way_promises(fleet: Fleet, way: str) -> None:
    missing = fleet.kernels - round(fleet.stored * fleet.kernels)
    each = {
        "each compiles": fleet.kernels * fleet.ranks,
        "one directory": missing,
        "with node-local": missing,
        "bundle per node": missing * fleet.nodes,
    }
    assert run_start(fleet, way).computes == each[way]


def test_one_rank_alone_takes_exactly_the_sum_of_what_it_does() -> None:
    fleet = replace(SMALL, ranks=1, launch_seconds=0.0)
    a_request = 1 / fleet.requests_per_second + fleet.round_trip_seconds
    stored = run_start(replace(fleet, stored=1.0), "one directory")
    requests = CALLS.open + fleet.kernels * CALLS.hit + CALLS.close
    assert stored.seconds == pytest.approx(requests * a_request)
    first = run_start(fleet, "one directory")
    compiling = sum(_Start(fleet).compile_seconds)
    requests = CALLS.open_empty + fleet.kernels * CALLS.compute + CALLS.close
    assert sum(first.requests.values()) == pytest.approx(requests)
    assert first.seconds == pytest.approx(requests * a_request + compiling)
    assert run_start(fleet, "each compiles").seconds == pytest.approx(compiling)
