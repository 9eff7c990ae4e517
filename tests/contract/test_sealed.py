# SPDX-License-Identifier: Apache-2.0
"""A sealed process, on every back end: each compilation is reported or refused, and a hit costs what it did."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import lockcache
from lockcache import Entry, SealedError, Turn
from tests.serving_support import logging_all, reports, unsealed_process


@pytest.fixture(autouse=True)
def not_sealed(caplog: Any) -> Iterator[None]:
    logging_all(caplog)
    with unsealed_process():
        yield


def compiled() -> bytes:
    return b"code"


def never() -> bytes:
    raise AssertionError("it was compiled")


def test_a_compilation_is_reported_once_when_it_is_over(cache, caplog):
    cache.get_or_compute("before", compiled)
    lockcache.seal()
    assert cache.get_or_compute("before", never) == b"code"
    assert reports(caplog) == []

    def compute() -> bytes:
        assert reports(caplog) == []
        return b"code"

    assert cache.get_or_compute("k", compute, label="gemm") == b"code"
    [report] = reports(caplog)
    assert report["label"] == "gemm"
    assert report["seconds"] >= 0
    assert "in test_a_compilation_is_reported_once" in report["callers"]
    assert "lockcache/" not in report["callers"].replace(__file__, "")
    assert cache.get_or_compute("k", never) == b"code"
    assert reports(caplog) == []


def test_a_turn_is_reported_however_it_ends(cache, caplog):
    lockcache.seal("log")
    found = cache.begin("stored")
    assert isinstance(found, Turn)
    found.store(b"code")
    cache.begin("given up").give_up(failed=True)
    cache.begin("dropped")  # nobody refers to it
    with pytest.raises(ZeroDivisionError):
        cache.get_or_compute("raised", lambda: 1 / 0)
    assert [report["label"] for report in reports(caplog)] == ["stored", "given up", "dropped", "raised"]
    assert cache.get_or_compute("given up", compiled) == b"code", "its turn has ended"


def test_a_refused_compilation_does_not_begin_and_holds_up_nobody(cache, caplog):
    cache["hit"] = b"stored"
    lockcache.seal("error")
    assert cache.get_or_compute("hit", never) == b"stored"
    for _ in range(2):
        with pytest.raises(SealedError, match="this process is sealed, and gemm"):
            cache.get_or_compute("k", never, label="gemm")
    with pytest.raises(SealedError, match="k"):
        cache.begin("k")
    lockcache.unseal()
    assert cache.get_or_compute("k", compiled) == b"code"
    assert reports(caplog) == []


def test_a_store_without_a_turn_is_reported_or_raises_and_is_stored(cache, caplog):
    lockcache.seal()
    cache["k"] = b"one"
    cache.put_entry("k", Entry(b"two", {"arch": "sm_90"}))
    cache.update({"k": b"three"})
    cache.put_files("group", {"a": b"1", "b": b"2"})
    assert [report["label"] for report in reports(caplog)] == ["k", "k", "k", "group"]
    lockcache.seal("error")
    with pytest.raises(SealedError, match="was compiled"):
        cache["other"] = b"code"
    assert cache.get("other") == b"code"


def test_what_is_not_whole_is_reported_as_itself(cache, caplog):
    cache["k"] = b"without metadata"
    lockcache.seal()
    found = cache.get_or_compute_entry(
        "k", lambda: Entry(b"code", {"arch": "sm_90"}), label="gemm", is_whole=lambda entry: "arch" in entry.metadata
    )
    assert found.code == b"code"
    assert [report["label"] for report in reports(caplog)] == ["gemm"]
    lockcache.seal("error")
    with pytest.raises(SealedError, match="gemm"):
        cache.get_or_compute_entry("k", never, label="gemm", is_whole=lambda entry: False)


def test_a_memoized_function_and_a_task_are_reported_with_their_callers(cache, caplog):
    lockcache.seal()

    async def compute() -> bytes:
        return b"code"

    async def serve() -> bytes:
        return await cache.aget_or_compute("k", compute, label="a task's")

    assert asyncio.run(serve()) == b"code"
    [report] = reports(caplog)
    assert report["label"] == "a task's"
    assert report["callers"].split(" < ")[0].endswith(" in serve")
    memoized = cache.memoize(version="1")(compile_gemm)
    assert memoized(3) == memoized(3) == b"3"
    assert [report["label"] for report in reports(caplog)] == ["compile_gemm"]
    lockcache.seal("error")
    with pytest.raises(SealedError):
        memoized(4)
    with pytest.raises(SealedError):
        asyncio.run(cache.aget_or_compute("other", compute))


def compile_gemm(tile: int) -> bytes:
    return b"%d" % tile
