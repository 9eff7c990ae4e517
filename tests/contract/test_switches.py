# SPDX-License-Identifier: Apache-2.0
"""Variables that switch every back end: ``LOCKCACHE_DISABLE`` and ``LOCKCACHE_RECACHE``."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, InMemoryProgramCache
from lockcache.arguments import is_disabled


def computing(cache: Any, key: str = "k") -> Callable[[bytes], tuple[bytes, bool]]:
    """Asks ``cache`` for a key with a value to compute; what it gives, and whether it was computed."""

    def ask(value: bytes) -> tuple[bytes, bool]:
        computed: list[bytes] = []
        code = cache.get_or_compute(key, lambda: computed.append(value) or value)
        return code, bool(computed)

    return ask


def test_a_cache_that_is_off_is_empty_and_stays_so(
    make: Callable[..., Any], cache_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("LOCKCACHE_DISABLE", "1")
    before = set(os.listdir(cache_path.parent))
    cache = make(max_size_bytes=1000)
    cache["k"] = b"code"
    cache.update({"a": b"1", "b": bytes(2000)})
    cache.put_entry("k", Entry(b"code", {"arch": "sm_90"}))
    assert (cache.get("k"), cache.get_entry("k"), cache.get("k", b"default"), len(cache)) == (None, None, b"default", 0)
    with pytest.raises(KeyError):
        cache["k"]
    with pytest.raises(KeyError):
        del cache["k"]
    ask = computing(cache)
    assert [ask(b"first"), ask(b"second")] == [(b"first", True), (b"second", True)]
    cache.clear()
    stats = cache.stats()
    assert (stats.hits, stats.puts, stats.bytes, stats.entries) == (0, 0, 0, 0)
    cache.close()
    made = set(os.listdir(cache_path.parent)) - before
    assert made <= {f"{cache_path.name}.keys"}, "which the test itself made"
    assert not caplog.records


def test_a_cache_that_is_off_leaves_what_is_stored_alone(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make()
    if isinstance(first, InMemoryProgramCache):
        pytest.skip("nothing is stored in memory of another object")
    first["k"] = b"older"
    with monkeypatch.context() as switched:
        switched.setenv("LOCKCACHE_DISABLE", "yes")
        cache = make()
        assert cache.get("k") is None
        cache["k"] = b"newer"
        cache.clear()
    assert make().get("k") == b"older"


def test_a_process_that_renews_compiles_each_key_once_and_replaces_it(
    make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make()
    first.update({"k": b"older", "other": b"kept"})
    with monkeypatch.context() as switched:
        switched.setenv("LOCKCACHE_RECACHE", "1")
        cache = make()
        assert (cache.get("k"), cache.get_entry("k")) == (None, None)
        ask = computing(cache)
        assert [ask(b"newer"), ask(b"third")] == [(b"newer", True), (b"newer", False)]
        assert cache["k"] == b"newer"
        cache.put_entry("other", Entry(b"put", {"arch": "sm_90"}))
        assert cache["other"] == b"put"
        if not isinstance(cache, InMemoryProgramCache):
            assert make()["k"] == b"newer", "what another object of this process stored need not be compiled again"
            assert make()["k"] == b"newer"
    if not isinstance(first, InMemoryProgramCache):
        assert make().get("k") == b"newer"


def test_a_switch_that_is_off_changes_nothing(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    for value in ("0", "no", "off", "FALSE", ""):
        for name in ("DISABLE", "RECACHE", "READONLY"):
            monkeypatch.setenv(f"LOCKCACHE_{name}", value)
        cache = make()
        cache["k"] = value.encode()
        assert cache["k"] == value.encode()


def test_another_value_is_an_error_that_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_DISABLE", "please")
    with pytest.raises(ValueError, match=r"LOCKCACHE_DISABLE: 'please' is not 1, yes, on or true"):
        is_disabled()


def test_a_pickled_copy_is_off_too(
    back_end: Any, make: Callable[..., Any], cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not back_end.is_shared or not back_end.is_picklable:
        pytest.skip("it belongs to its process")
    monkeypatch.setenv("LOCKCACHE_DISABLE", "on")
    copy = pickle.loads(pickle.dumps(make()))
    copy["k"] = b"code"
    assert copy.get("k") is None
    assert not cache_path.exists()
