"""The model of a fleet that starts: what it conserves, what one rank takes exactly, and what a guest counted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.events import Steps
from lockcache_stress.experiments.fleet import WAYS, Calls, Fleet, _Start, load_counts, run_start
from tests.unit.material import property_test

CALLS = Calls.counted(load_counts())
SMALL = Fleet(CALLS, ranks=24, ranks_per_node=4, kernels=12)
SHARING = ("one directory", "with node-local")

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


@pytest.mark.parametrize("way", SHARING)
def test_what_is_stored_is_asked_for_once_by_each_rank_or_node(way: str) -> None:
    fleet = replace(SMALL, stored=1.0)
    cost = run_start(fleet, way)
    first = fleet.nodes * fleet.kernels * CALLS.hit
    again = (fleet.ranks - fleet.nodes) * fleet.kernels * CALLS.hit_again
    assert set(cost.requests) == {"open", "hit", "close"}
    assert cost.requests["open"] == pytest.approx(
        fleet.nodes * CALLS.open + (fleet.ranks - fleet.nodes) * CALLS.open_again
    )
    if way == "one directory":
        assert cost.requests["hit"] == pytest.approx(first + again)
    else:
        assert first <= cost.requests["hit"] < first + again
    assert cost.sent_bytes == fleet.nodes * fleet.kernels * fleet.kernel_bytes


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


def test_a_bundle_is_read_once_by_a_node_however_many_ranks_it_has() -> None:
    few, many = (
        run_start(replace(SMALL, stored=1.0, ranks=6 * each, ranks_per_node=each), "bundle per node")
        for each in (1, 64)
    )
    assert few.requests == many.requests == {"bundle": 6 * (4 + 3)}  # four, and three reads of half a MiB
    assert few.sent_bytes == many.sent_bytes == 6 * SMALL.kernels * SMALL.kernel_bytes


def test_a_waiters_second_is_as_counted() -> None:
    fleet = replace(SMALL, ranks=2, ranks_per_node=1, kernels=1, compile_seconds=60.0, launch_seconds=0.01)
    start = _Start(fleet)
    seen: list[float] = []

    def look() -> Steps:
        for seconds in (1.5, 20.0):
            yield seconds
            seen.append(sum(start.server.requests.values()))

    start.clock.start(look())
    start.run("one directory")
    counted = load_counts()["calls"]["each"]["a waiter's second"]
    assert (seen[1] - seen[0]) / 20.0 == pytest.approx(counted, rel=0.25)


@pytest.mark.parametrize("content", ["{", "[]", '{"trials": []}', '{"trials": [{"trial": "calls", "numbers": {}}]}'])
def test_a_file_without_counts_is_refused_with_the_command_that_makes_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "counts.json"
    path.write_text(content)
    with pytest.raises(UnusableError, match="lockcache-stress hosts --nfs --scenarios calls,fleet,seed --json-file"):
        load_counts(path)
