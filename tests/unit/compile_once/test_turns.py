# SPDX-License-Identifier: Apache-2.0
"""The time for which a holder has been waited for, and by whose clock."""

from __future__ import annotations

import itertools
import math
import os
import time
from weakref import WeakValueDictionary

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.compile_once import LeaseTurn
from lockcache.filestream.compile_once.lease import GENERATIONS, Holder
from lockcache.filestream.compile_once.turns import _Wait
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.disk.mounts import NfsHosts
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.disk.waiting import Waiter
from tests.leases import take_lease
from tests.unit.material import entry_path

SECOND_NS = 10**9


@pytest.fixture
def wait(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        yield _Wait(
            cache._parts.once, LeaseTurn(cache._directory.layout, entry_name(b"k"), WeakValueDictionary()), "saxpy"
        )


def holder(token: str, age_seconds: float) -> Holder:
    return Holder("somewhere", token, 1, "saxpy", time.monotonic_ns() - int(age_seconds * SECOND_NS))


def test_a_wait_begins_with_the_first_generation(wait):
    assert wait._turn.generation == 0
    assert not wait.is_over(math.inf)


def test_after_the_last_generation_nobody_is_waited_for(wait):
    wait._turn.generation = GENERATIONS - 1
    assert not wait.is_over(math.inf)
    wait._turn.generation = GENERATIONS
    assert wait.is_over(math.inf)


def test_a_wait_that_ends_takes_its_bell_away(wait, cache_path):
    leases = cache_path / "lockcache" / "leases"
    leases.mkdir()
    assert wait._waiter.listen()
    assert len(os.listdir(leases)) == 1
    wait.end()
    assert os.listdir(leases) == []


def test_where_leases_cannot_be_had_every_caller_computes(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        (cache_path / "lockcache" / "leases").touch()
        turn = cache._parts.once.wait_or_turn(entry_name(b"k"), "")
        assert isinstance(turn, LeaseTurn)
        assert not turn.is_held


def test_without_a_holder_a_wait_is_over_at_once_and_takes_no_turn(cache_path):
    name = entry_name(b"k")
    with FileStreamProgramCache(cache_path) as cache:
        once = cache._parts.once
        assert once.wait(name, 3600) is None
        assert os.listdir(cache._directory.layout.leases) == []
        cache[b"k"] = b"code"
        found = once.wait(name, 3600)
        assert found is not None
        assert found[0] == b"code"


def test_a_damaged_entry_that_is_computed_again_is_one_miss(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        cache[b"k"] = b"code"
        with open(entry_path(cache_path), "r+b") as file:
            file.write(b"X")
        assert cache.get_or_compute(b"k", lambda: b"again") == b"again"
        assert (cache.stats().hits, cache.stats().misses) == (0, 1)


def test_a_holder_of_this_host_is_as_old_as_it_says_once_it_was_there_for_a_while(wait):
    wait._holder_since = time.monotonic() + 60  # it is not there for a while yet, however busy the machine is
    assert wait._age_seconds(holder(myself().host, 1000)) < 500  # perhaps the record of one that died
    wait._holder_since = time.monotonic() - 10
    assert wait._age_seconds(holder(myself().host, 1000)) >= 1000
    assert wait._age_seconds(holder(myself().host, 0)) >= 10


def test_the_clock_of_another_host_says_nothing_here(wait):
    wait._holder_since -= 10
    assert 10 <= wait._age_seconds(holder("0" * 16, 1000)) < 500
    assert 10 <= wait._age_seconds(None) < 500


def test_a_waiter_on_a_network_file_system_looks_once_before_it_asks_and_not_again_until_it_has_slept(
    cache_path, monkeypatch
):
    """Each look is one or two calls to the server, and each question some six."""
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "nfs4")
    name, steps = entry_name(b"k"), []

    def noted(step, call):
        def note(*arguments, **named):
            steps.append(step)
            return call(*arguments, **named)

        return note

    with FileStreamProgramCache(cache_path) as cache:
        lease = take_lease(cache._directory.layout, name)
        assert lease is not None
        monkeypatch.setattr(LeaseTurn, "take", noted("ask", LeaseTurn.take))
        monkeypatch.setattr(NfsHosts, "has", noted("look", NfsHosts.has))
        monkeypatch.setattr(Waiter, "sleep", noted("sleep", Waiter.sleep))
        turn = cache._parts.once.wait_or_turn(name, "", until=time.monotonic() + 0.3)
        lease.release()
    assert isinstance(turn, LeaseTurn)
    assert steps.count("ask") >= 2
    # The last sleep is the one at whose end it is time to ask.
    assert not set(itertools.pairwise(steps)) & {("ask", "look"), ("look", "look")}


def test_what_a_planted_cost_says_is_waited_for_an_hour_at_most(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        cache._parts.once.costs.remember(entry_name(b"k"), 2**70)
        assert cache._parts.once.costs.cost_ns(entry_name(b"k")) == 2**63 - 1
        assert cache._parts.once.timeout_seconds(2**63 - 1) == 3600
    with FileStreamProgramCache(cache_path, lease_timeout_seconds=10_000) as cache:
        assert cache._parts.once.timeout_seconds(2**63 - 1) == 10_000
