# SPDX-License-Identifier: Apache-2.0
"""begin, store, give_up and wait: a turn is held by an object, and ends however that object goes."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from lockcache import Entry, ReentrantComputeError, Turn
from tests.contract.backends import each_with_all_ways

HANG_SECONDS = 60


def turn_of(found: Any) -> Turn[Entry]:
    assert isinstance(found, Turn)
    return found


def in_thread(action: Callable[[], Any]) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_miss_gives_the_turn_and_a_hit_the_entry(cache):
    turn = turn_of(cache.begin("k", label="a kernel"))
    stored = turn.store(Entry(b"code", {"arch": "sm_90"}))
    assert (stored.code, stored.metadata["arch"]) == (b"code", "sm_90")
    assert stored.metadata["compile_cost_ns"] > 0
    assert cache.begin("k") == cache.get_entry("k") == stored


def test_keys_are_those_of_the_mapping(cache):
    turn_of(cache.begin(bytearray(b"k"))).store(b"code")
    assert cache["k"] == b"code"
    with pytest.raises(TypeError, match="int"):
        cache.begin(5)
    with pytest.raises(TypeError, match="int"):
        cache.wait(5, 0)


def test_a_turn_is_over_once(cache):
    turn = turn_of(cache.begin("k"))
    turn.store(b"code")
    with pytest.raises(RuntimeError, match="has ended"):
        turn.store(b"other")
    turn.give_up()
    given_up = turn_of(cache.begin("other"))
    given_up.give_up()
    with pytest.raises(RuntimeError, match="has ended"):
        given_up.store(b"other")
    assert (cache["k"], cache.get("other")) == (b"code", None)


def _give_up(turn: Turn[Entry]) -> None:
    turn.give_up()


def _leave(turn: Turn[Entry]) -> None:
    with turn:
        pass


def _fail_inside(turn: Turn[Entry]) -> None:
    with pytest.raises(ZeroDivisionError), turn:
        raise ZeroDivisionError


def _store_what_cannot_be_stored(turn: Turn[Entry]) -> None:
    with pytest.raises(TypeError, match="int"):
        turn.store(5)


def _forget(turn: Turn[Entry]) -> None:
    del turn


@each_with_all_ways([_give_up, _leave, _fail_inside, _store_what_cannot_be_stored, _forget])
def test_however_a_turn_ends_the_next_one_who_waits_has_it(cache, way):
    held, waits, next_turns = [turn_of(cache.begin("k"))], threading.Event(), []

    def want() -> None:
        waits.set()
        next_turns.append(cache.begin("k"))

    thread = in_thread(want)
    assert waits.wait(HANG_SECONDS)
    assert next_turns == []
    way(held.pop())
    gc.collect()
    thread.join(HANG_SECONDS)
    turn_of(next_turns[0]).store(b"code")
    assert cache["k"] == b"code"


def test_who_waits_gets_what_the_turn_stored(cache):
    turn, found = turn_of(cache.begin("k")), []
    threads = [in_thread(lambda: found.append(cache.begin("k"))) for _ in range(4)]
    threads += [in_thread(lambda: found.append(cache.wait("k", HANG_SECONDS))) for _ in range(4)]
    turn.store(b"code")
    for thread in threads:
        thread.join(HANG_SECONDS)
    # One that waits may have come before the turn was taken for somebody's: there was none but this, so it has waited.
    assert [entry.code for entry in found] == [b"code"] * 8


def test_a_thread_holds_turns_of_several_keys_and_others_may_end_them(cache):
    turns = [turn_of(cache.begin(f"{number}")) for number in range(5)]
    threads = [in_thread(lambda turn=turn: turn.store(b"code")) for turn in reversed(turns)]
    for thread in threads:
        thread.join(HANG_SECONDS)
    assert [cache.get(f"{number}") for number in range(5)] == [b"code"] * 5
    turn_of(cache.begin("more")).give_up()


def test_the_same_key_again_is_an_error_and_no_deadlock(cache):
    with turn_of(cache.begin("k")) as turn:
        with pytest.raises(ReentrantComputeError, match="itself"):
            cache.begin("k")
        with pytest.raises(ReentrantComputeError, match="itself"):
            cache.get_or_compute("k", lambda: b"code")
        with pytest.raises(ReentrantComputeError, match="itself"):
            cache.wait("k", HANG_SECONDS)
        turn.store(b"code")
    assert cache.begin("k").code == b"code"


def test_a_child_that_is_forked_holds_no_turn(cache):
    turn, found = turn_of(cache.begin("k")), []
    child = os.fork()
    if not child:
        status = 1
        try:
            turn.give_up()  # it is the parent's
            status = 0
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    in_thread(lambda: found.append(cache.wait("k", 0.01))).join(HANG_SECONDS)
    assert found == [None]
    turn.store(b"code")
    assert cache["k"] == b"code"


def test_waiting_takes_no_turn_and_does_not_wait_for_nobody(cache):
    assert cache.wait("k", HANG_SECONDS * 10) is None
    turn = turn_of(cache.begin("k"))
    found = []
    in_thread(lambda: found.append(cache.wait("k", 0.01))).join(HANG_SECONDS)
    assert found == [None]
    turn.store(b"code")
    assert cache.wait("k", 0).code == b"code"
    with pytest.raises(ValueError, match="timeout_seconds"):
        cache.wait("k", -1)


def test_who_waits_is_not_kept_by_a_turn_that_is_given_up(cache):
    turn, waits, found = turn_of(cache.begin("k")), threading.Event(), []

    def wait() -> None:
        waits.set()
        found.append(cache.wait("k", HANG_SECONDS * 10))

    thread = in_thread(wait)
    assert waits.wait(HANG_SECONDS)
    turn.give_up()
    thread.join(HANG_SECONDS)
    assert found == [None]
    turn_of(cache.begin("k"))


def test_the_namespace_of_a_turn_is_stored_unless_the_entry_states_another(cache):
    for key, value in (("a", b"x"), ("b", Entry(b"x", {"namespace": "mine"}))):
        with cache.begin(key, namespace="theirs") as turn:
            turn.store(value)
    assert [cache.get_entry(key).metadata["namespace"] for key in "ab"] == ["theirs", "mine"]
