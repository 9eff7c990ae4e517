"""The model of a fleet that starts: what it conserves, what one rank takes exactly, and what a guest counted."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from lockcache_stress.errors import UnusableError
from lockcache_stress.experiments.events import Bell, Clock, Server, Steps
from lockcache_stress.experiments.fleet import (
    WAYS,
    Calls,
    Fleet,
    _Start,
    compare,
    is_near,
    load_counts,
    run_start,
)
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


@property_test
@given(_fleets)
def test_more_ranks_are_never_faster_where_each_compiles(fleet: Fleet) -> None:
    more = replace(fleet, ranks=fleet.ranks + 1)
    assert run_start(more, "each compiles").seconds >= run_start(fleet, "each compiles").seconds


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


def test_a_server_that_is_too_slow_is_what_a_start_takes() -> None:
    slow = run_start(replace(SMALL, stored=1.0, requests_per_second=100.0), "one directory")
    assert slow.seconds == pytest.approx(slow.busy_seconds, rel=0.1)


def test_the_same_seed_gives_the_same_and_another_another() -> None:
    assert run_start(SMALL, "one directory") == run_start(SMALL, "one directory")
    assert run_start(SMALL, "one directory") != run_start(replace(SMALL, seed=1), "one directory")


def test_the_model_has_the_requests_that_a_guest_counted() -> None:
    compared = compare(load_counts())
    assert len(compared) == 5
    for name, (counted, model) in compared.items():
        assert is_near(counted, model), f"{name}: {counted} counted, {model} in the model"


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


def test_ranks_on_the_holders_node_are_woken_and_others_look() -> None:
    clock, bell, woken = Clock(), Bell(), []

    def wait(seconds: float) -> Steps:
        yield seconds, bell
        woken.append(clock.now)

    def ring() -> Steps:
        yield 1.0
        clock.ring(bell)

    clock.start(wait(5.0))
    clock.start(wait(0.5))
    clock.start(ring())
    clock.run()
    assert woken == [0.5, 1.0]


def test_a_server_answers_in_turn_and_bytes_share_one_pipe() -> None:
    server = Server(Clock(), 10.0, 0.25, 100.0)
    assert server.ask("hit", 2) == pytest.approx(0.2 + 2 * 0.25)
    assert server.ask("hit", 1) == pytest.approx(0.3 + 0.25)
    assert server.ask("read", 1, 200) == pytest.approx(2.0 + 0.25)
    assert server.ask("read", 1, 200) == pytest.approx(4.0 + 0.25)
    assert dict(server.requests) == {"hit": 3, "read": 2}


@pytest.mark.parametrize("content", ["{", "[]", '{"trials": []}', '{"trials": [{"trial": "calls", "numbers": {}}]}'])
def test_a_file_without_counts_is_refused_with_the_command_that_makes_one(tmp_path: Path, content: str) -> None:
    path = tmp_path / "counts.json"
    path.write_text(content)
    with pytest.raises(UnusableError, match="lockcache-stress hosts --nfs --scenarios calls,fleet,seed --json-file"):
        load_counts(path)


def test_costs_are_plain_values() -> None:
    cost = run_start(replace(SMALL, seed=random.Random(0).randrange(9)), "one directory")
    read = json.loads(json.dumps(cost.as_json()))
    assert read["all_requests"] == pytest.approx(sum(read["requests"].values()), abs=len(read["requests"]))
