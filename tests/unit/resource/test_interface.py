# SPDX-License-Identifier: Apache-2.0
"""The interface of back ends: coercions, and what the base class gives to a back end that has only the minimum."""

from __future__ import annotations

import dataclasses
import errno
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockcache import CacheStats, Entry, InMemoryProgramCache, ProgramCacheResource, TieredProgramCache
from lockcache.resource import coerce_key, coerce_max_size_bytes, coerce_value, join_metadata, split_metadata


class Minimal(ProgramCacheResource):
    """The five that are abstract, and nothing else."""

    def __init__(self):
        self.entries = {}
        self.closed = 0

    def __getitem__(self, key):
        return self.entries[coerce_key(key)]

    def __setitem__(self, key, value):
        self.entries[coerce_key(key)] = coerce_value(value)[0]

    def __delitem__(self, key):
        del self.entries[coerce_key(key)]

    def __len__(self):
        return len(self.entries)

    def clear(self):
        self.entries.clear()

    def close(self):
        self.closed += 1


@pytest.mark.parametrize("missing", ["__getitem__", "__setitem__", "__delitem__", "__len__", "clear"])
def test_a_back_end_without_one_of_the_five_cannot_be_made(missing):
    body = {name: getattr(Minimal, name) for name in vars(Minimal) if name != missing and name != "__dict__"}
    incomplete = type("Incomplete", (ProgramCacheResource,), {k: v for k, v in body.items() if callable(v)})
    with pytest.raises(TypeError, match=missing):
        incomplete()


class ReadOnly(Minimal):
    def __setitem__(self, key, value):
        raise OSError(errno.EROFS, "it may only be read")


def test_a_minimal_back_end_compiles_once_and_keeps_the_code_without_its_metadata():
    cache, runs = Minimal(), []
    compute = lambda: runs.append(1) or Entry(b"code", {"arch": "sm_90"})  # noqa: E731
    assert cache.get_or_compute_entry("k", compute).metadata["arch"] == "sm_90"
    assert cache.get_or_compute_entry("k", compute) == Entry(b"code")
    assert len(runs) == 1


def test_what_was_compiled_is_not_lost_with_a_store_that_may_not_be_written(caplog):
    with caplog.at_level(logging.WARNING, "lockcache"):
        assert ReadOnly().get_or_compute("k", lambda: b"code") == b"code"
    assert "it may only be read" in caplog.text


def test_of_two_threads_that_miss_at_once_one_compiles_and_both_get_its_code():
    cache, inside, go_on, runs = Minimal(), threading.Event(), threading.Event(), []

    def compute():
        runs.append(1)
        inside.set()
        assert go_on.wait(60)
        return b"code"

    class Watched(dict):
        """Says when the second thread has missed: it is about to wait for the first."""

        def __getitem__(self, key):
            if inside.is_set():
                go_on.set()
            return super().__getitem__(key)

    cache.entries = Watched()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.get_or_compute, "k", compute)
        assert inside.wait(60)
        second = pool.submit(cache.get_or_compute, "k", compute)
        assert (first.result(60), second.result(60)) == (b"code", b"code")
    assert len(runs) == 1


def test_a_minimal_back_end_gets_the_rest():
    cache = Minimal()
    cache.update({"a": b"1"})
    cache.put_entry("b", Entry(b"2"))
    assert (cache.get("a"), cache.get("x", 5), cache.get_entry("b"), cache.get_entry("x")) == (
        b"1",
        5,
        Entry(b"2"),
        None,
    )
    assert cache.stats() == CacheStats(entries=2)
    with pytest.raises(TypeError):
        assert "a" in cache


def test_a_minimal_back_end_keeps_no_entry_whole_and_computes_it_each_time():
    cache, computed = Minimal(), []

    def compute():
        computed.append(1)
        return Entry(b"code", {"arch": "sm_90"})

    for _ in range(2):
        entry = cache.get_or_compute_entry("k", compute, is_whole=lambda entry: "arch" in entry.metadata)
        assert entry.metadata["arch"] == "sm_90"
    assert (len(computed), cache["k"]) == (2, b"code")


def test_a_back_end_that_stores_no_metadata_refuses_it_instead_of_losing_it():
    cache = Minimal()
    with pytest.raises(TypeError, match="Minimal"):
        cache.put_entry("a", Entry(b"1", {"kind": "ptx"}))
    assert len(cache) == 0


def test_a_with_block_closes_once_also_after_an_error():
    cache = Minimal()
    with pytest.raises(KeyError), cache:
        cache["missing"]
    assert cache.closed == 1


def test_entries_and_stats_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Entry(b"").code = b"1"
    with pytest.raises(dataclasses.FrozenInstanceError):
        CacheStats().hits = 1


@pytest.mark.parametrize("key, name", [("k", b"k"), ("é", b"\xc3\xa9"), (bytearray(b"k"), b"k"), (b"\0", b"\0")])
def test_keys_become_bytes(key, name):
    assert coerce_key(key) == name
    assert isinstance(coerce_key(key), bytes)


class Index:
    def __index__(self):
        return 7


def test_a_key_that_utf_8_cannot_write_is_the_error_that_cuda_core_raises():
    upstream = pytest.importorskip("cuda.core.utils").InMemoryProgramCache()
    for cache in (upstream, InMemoryProgramCache()):
        with pytest.raises(UnicodeEncodeError, match="surrogates not allowed") as refused:
            cache["\udc80"] = b"code"
        assert (refused.value.object, refused.value.start) == ("\udc80", 0)


@pytest.mark.parametrize("given, cap", [(None, None), (1, 1), (2**63 - 1, 2**63 - 1), (Index(), 7)])
def test_a_cap_is_an_integer_or_none(given, cap):
    assert coerce_max_size_bytes(given) == cap


def test_the_compile_cost_travels_apart_and_comes_back():
    metadata = {"kind": "ptx", "compile_cost_ns": 2**62}
    code, tail, cost_ns = split_metadata(b"code", dict(metadata))
    assert (code, cost_ns, b"compile_cost" in tail) == (b"code", 2**62, False)
    assert join_metadata(tail, cost_ns) == metadata
    assert split_metadata(b"", {"compile_cost_ns": 5})[1] == b""


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda cache: cache.get(5), "key must be bytes, bytearray or str, got int 5"),
        (lambda cache: cache.get("\udc80"), r"key must be .* got '\\udc80'"),
        (lambda cache: cache.update([("a", b"1"), 5]), r"items\[1\] must be a \(key, value\) pair, got 5"),
        (lambda cache: cache.update([("a",)]), r"items\[0\] must be a \(key, value\) pair, got \('a',\)"),
        (lambda cache: cache.update(5), "items must be a mapping or an iterable.* got 5"),
        (lambda cache: cache.__setitem__("a", 5), "value must be bytes.* got int 5"),
        (lambda cache: cache.put_entry("a", b"1"), "entry must be a lockcache.Entry, got bytes b'1'"),
        (lambda cache: cache.put_entry("a", Entry("1")), "entry.code must be bytes.* got str '1'"),
        (lambda cache: cache.put_entry("a", Entry(b"1", 5)), "entry.metadata must be a mapping, got int"),
        (lambda cache: cache.put_entry("a", Entry(b"1", {5: 6})), "metadata names must be str, got int 5"),
        (lambda cache: cache.put_entry("a", Entry(b"1", {"b": [{6}]})), r"metadata\['b'\]\[0\] is a set \(\{6\}\)"),
        (
            lambda cache: cache.put_entry("a", Entry(b"1", {"compile_cost_ns": -1})),
            r"metadata\['compile_cost_ns'\] .* -1",
        ),
        (lambda cache: cache.get_or_compute("a", 5), "compute must be callable without arguments, got int 5"),
        (lambda cache: cache.get_or_compute("a", lambda: 5), "the computed value must be bytes.* got int 5"),
        (
            lambda cache: cache.get_or_compute("a", lambda: Entry(5)),
            "the code of the computed value must be",
        ),
        (lambda cache: TieredProgramCache(cache, 5), r"tiers\[1\] must be a lockcache.ProgramCacheResource, got int"),
        (lambda cache: TieredProgramCache(), "tiers must be one cache or more, got none"),
    ],
)
def test_a_refused_argument_is_named_with_what_was_given(call, named):
    with pytest.raises((TypeError, ValueError), match=named):
        call(InMemoryProgramCache())
