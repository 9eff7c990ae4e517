# SPDX-License-Identifier: Apache-2.0
"""memoize and aget_or_compute: other ways to call a cache, over every back end."""

from __future__ import annotations

import asyncio
import enum
import functools
import threading

import pytest

from lockcache import InMemoryProgramCache, ReentrantComputeError, Turn

calls: list[object] = []


@pytest.fixture
def memory() -> InMemoryProgramCache:
    """A cache for what is decided above all back ends."""
    return InMemoryProgramCache()


@pytest.fixture(autouse=True)
def no_calls():
    calls.clear()


def compile_(source: str, *flags: bytes, arch: str = "sm_90", **options: object) -> bytes:
    calls.append((source, flags, arch, options))
    return f"{source} {flags} {arch} {options}".encode()


def other(source: str) -> bytes:
    return b"other"


def forget() -> bytes:
    """Returns nothing, as a function does without its last line."""


async def forget_async() -> bytes:
    """Returns nothing either."""


async def compile_async(source: str) -> bytes:
    await asyncio.sleep(0)
    calls.append(source)
    return source.encode()


def test_a_memoized_function_runs_once_for_each_arguments(cache):
    compiled = cache.memoize(compile_)
    assert compiled("a") == compiled(source="a", arch="sm_90") == compile_("a")
    assert len(calls) == 2
    others = [compiled("b"), compiled("a", b"-G"), compiled("a", arch="sm_100"), compiled("a", fast=True)]
    assert len({compiled("a"), *others}) == 5
    assert len(calls) == 6
    assert compiled("a", y=1, x=2) == compiled("a", x=2, y=1)
    assert len(calls) == 7


def test_a_key_takes_the_place_of_the_arguments(memory):
    compiled = memory.memoize(key=lambda source, **_: source[0])(compile_)
    assert compiled("first", arch=object()) == compiled("f")
    assert len(calls) == 1
    with pytest.raises(TypeError, match="bytes or str, got int"):
        memory.memoize(key=lambda source: 5)(compile_)("a")


def test_what_cannot_be_told_apart_is_refused(memory):
    with pytest.raises(TypeError, match=r"argument arch has a object.*memoize\(key="):
        memory.memoize(compile_)("a", arch=object())
    with pytest.raises(TypeError, match="missing a required argument"):
        memory.memoize(compile_)()
    with pytest.raises(ValueError, match="<lambda>"):
        memory.memoize(lambda: b"")
    with pytest.raises(ValueError, match="<locals>"):

        @memory.memoize
        def inner() -> bytes: ...

    with pytest.raises(TypeError, match="memoize wants a function"):
        memory.memoize(functools.partial(compile_, "a"))
    with pytest.raises(TypeError, match="version must be str"):
        memory.memoize(version=3)
    assert not calls


def test_a_memoized_function_keeps_its_name_and_raises_what_it_raises(memory):
    compiled = memory.memoize(fail)
    assert (compiled.__name__, compiled.__doc__) == ("fail", fail.__doc__)
    with pytest.raises(ZeroDivisionError):
        compiled()


def fail() -> bytes:
    """Fails."""
    raise ZeroDivisionError


@pytest.mark.parametrize("function", [forget, forget_async], ids=["function", "coroutine function"])
def test_an_error_about_a_result_names_the_memoized_function(memory, function):
    compiled = memory.memoize(function)
    with pytest.raises(TypeError, match=f"what {function.__name__} returned must be bytes, .* got NoneType None"):
        asyncio.run(compiled()) if function is forget_async else compiled()


def test_a_coroutine_function_is_computed_once_by_many_tasks(cache):
    compiled = cache.memoize(compile_async)

    async def want() -> list[bytes]:
        return await asyncio.gather(*(compiled("a") for _ in range(20)), compiled("b"))

    assert asyncio.run(want()) == [b"a"] * 20 + [b"b"]
    assert sorted(calls) == ["a", "b"]


def test_the_event_loop_goes_on_while_a_task_waits_for_a_turn(cache):
    async def wait_and_store() -> bytes:
        turn = cache.begin("k")
        assert isinstance(turn, Turn)
        waiting = asyncio.create_task(cache.aget_or_compute("k", lambda: b"never"))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not waiting.done()
        turn.store(b"code")
        return await waiting

    assert asyncio.run(wait_and_store()) == b"code"


def test_a_function_is_computed_in_a_thread(cache):
    def compute() -> bytes:
        calls.append(threading.current_thread())
        return b"code"

    assert asyncio.run(cache.aget_or_compute("k", compute)) == cache["k"] == b"code"
    assert calls[0] is not threading.main_thread()


@pytest.mark.parametrize("error", [ZeroDivisionError, StopIteration], ids=lambda error: error.__name__)
def test_what_compute_raises_reaches_its_task_and_the_next_one_tries(cache, error):
    def compute() -> bytes:
        raise error

    with pytest.raises(error if error is not StopIteration else RuntimeError):
        asyncio.run(cache.aget_or_compute("k", compute))
    assert asyncio.run(cache.aget_or_compute("k", lambda: b"code")) == b"code"


def test_a_task_that_is_cancelled_gives_its_turn_up(cache):
    async def cancel() -> bytes:
        began = asyncio.Event()

        async def compute() -> bytes:
            began.set()
            await asyncio.Event().wait()
            return b"never"

        task = asyncio.create_task(cache.aget_or_compute("k", compute))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return await cache.aget_or_compute("k", lambda: b"code")

    assert asyncio.run(cancel()) == b"code"


def test_a_task_that_is_cancelled_while_it_waits_leaves_the_turn_to_others(cache):
    async def cancel() -> None:
        turn = cache.begin("k")
        task = asyncio.create_task(cache.aget_or_compute("k", lambda: b"never"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        turn.give_up()

    asyncio.run(cancel())
    assert cache.get_or_compute("k", lambda: b"code") == b"code"


def test_the_same_key_inside_is_an_error_and_no_deadlock(cache):
    async def compute() -> bytes:
        return await cache.aget_or_compute("k", lambda: b"inner")

    with pytest.raises(ReentrantComputeError, match="itself"):
        asyncio.run(cache.aget_or_compute("k", compute))
    assert asyncio.run(cache.aget_or_compute("k", lambda: b"code")) == b"code"


def test_a_function_that_asks_for_its_own_key_in_its_thread_is_an_error_too(cache):
    with pytest.raises(ReentrantComputeError, match="itself"):
        asyncio.run(cache.aget_or_compute("k", lambda: cache.get_or_compute("k", lambda: b"inner")))
    assert cache.get_or_compute("k", lambda: b"code") == b"code"


def test_a_task_that_outlives_the_computation_which_started_it_may_ask_for_its_key(cache):
    async def ask() -> bytes:
        may_ask, later = asyncio.Event(), []

        async def ask_later() -> bytes:
            await may_ask.wait()
            return await cache.aget_or_compute("k", lambda: b"never")

        async def compute() -> bytes:
            later.append(asyncio.create_task(ask_later()))
            return b"code"

        await cache.aget_or_compute("k", compute)
        may_ask.set()
        return await later[0]

    assert asyncio.run(ask()) == b"code"


def test_a_waiter_that_was_cancelled_keeps_no_turn_in_a_loop_that_does_not_run(cache):
    loop = asyncio.new_event_loop()
    turn = cache.begin("k")

    async def cancel() -> None:
        task = loop.create_task(cache.aget_or_compute("k", lambda: b"never"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    loop.run_until_complete(cancel())
    turn.give_up()
    found: list[bytes] = []
    other = threading.Thread(target=lambda: found.append(cache.get_or_compute("k", lambda: b"code")))
    other.start()
    other.join(30)
    loop.close()
    assert found == [b"code"]


class Kind(str, enum.Enum):
    FLOAT = "float"


def show(value: object) -> bytes:
    return f"{value!r}".encode()


def test_a_list_is_no_tuple_and_a_member_of_an_enumeration_is_refused(memory):
    shown = memory.memoize(show)
    assert (shown((1, 2)), shown([1, 2]), shown([1, (2,)]), shown([1, [2]])) == (
        b"(1, 2)",
        b"[1, 2]",
        b"[1, (2,)]",
        b"[1, [2]]",
    )
    assert (shown(1), shown(True), shown(1.0), shown("1"), shown(b"1"), shown(None)) == (
        b"1",
        b"True",
        b"1.0",
        b"'1'",
        b"b'1'",
        b"None",
    )
    assert shown("float") == b"'float'"
    for value in (Kind.FLOAT, [Kind.FLOAT]):
        with pytest.raises(TypeError, match="argument value has a Kind"):
            shown(value)
