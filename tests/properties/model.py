# SPDX-License-Identifier: Apache-2.0
"""A cache compared with a plain dict over any sequence of calls, on every back end, with and without a cap.

Without a cap the two agree on everything. With a cap, a read may miss an entry of the dict, but a value that it gives
is the dict's, and neither the accounting nor the disk is ever above the cap.
"""

from __future__ import annotations

import pickle
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lockcache import Entry
from tests.contract.backends import BackEnd

_COST = "compile_cost_ns"

#: Few keys, so that each is used several times; one has two spellings.
KEYS: list[Any] = [b"k", "k", b"", b"\0", "\u00e9", bytearray(b"a" * 10_000), b"other", b"x" * 32]
keys = st.sampled_from(KEYS)
payloads = st.binary(max_size=40) | st.builds(
    lambda byte, size: byte * size, st.binary(min_size=1, max_size=1), st.integers(41, 900)
)
values = payloads | payloads.map(bytearray) | payloads.map(memoryview)
metadata = st.dictionaries(
    st.sampled_from(["kind", "arch", "symbol_mapping", "log"]),
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=20) | st.binary(max_size=20),
        lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=4,
    ),
    max_size=3,
)
#: The number of the open cache that a call goes to.
handles = st.integers(0, 2)


def plain(key: Any) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key)


class CacheMachine(RuleBasedStateMachine):
    """Calls of the whole interface, on up to three caches over one store if it can be shared."""

    back_end: BackEnd
    cap: int | None = None

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="lockcache-model-"))
        self.model: dict[bytes, Entry] = {}
        self.caches: list[Any] = []

    @initialize()
    def open_first(self) -> None:
        self.caches.append(self.open())

    def open(self) -> Any:
        capped = {} if self.cap is None else {"max_size_bytes": self.cap}
        return self.back_end.make(self.folder / "cache", **self.back_end.patience, **capped)

    def cache(self, handle: int) -> Any:
        return self.caches[handle % len(self.caches)]

    # ---- writing -----------------------------------------------------------------------------------------------------

    @rule(handle=handles, key=keys, value=values)
    def put(self, handle: int, key: Any, value: Any) -> None:
        self.cache(handle)[key] = value
        self.model[plain(key)] = Entry(bytes(value))

    @rule(handle=handles, key=keys, code=payloads, about=metadata, cost_ns=st.integers(0, 2**63 - 1))
    def put_entry(self, handle: int, key: Any, code: bytes, about: dict[str, Any], cost_ns: int) -> None:
        stated = {**about, _COST: cost_ns} if cost_ns else about
        self.cache(handle).put_entry(key, Entry(code, stated))
        self.model[plain(key)] = Entry(code, stated)

    @rule(handle=handles, pairs=st.lists(st.tuples(keys, payloads), max_size=3))
    def update(self, handle: int, pairs: list[tuple[Any, bytes]]) -> None:
        self.cache(handle).update(pairs)
        self.model.update({plain(key): Entry(code) for key, code in pairs})

    @rule(handle=handles, key=keys)
    def delete(self, handle: int, key: Any) -> None:
        expected = self.model.pop(plain(key), None)
        try:
            del self.cache(handle)[key]
        except KeyError:
            assert expected is None or self.cap is not None, "an entry was gone"
        else:
            # A tier of its own may still hold an entry that another cache deleted from the shared tier.
            is_copy = "tiered" in self.back_end.name
            assert expected is not None or is_copy, "an entry was deleted that nobody had stored"

    @rule(handle=handles)
    def clear(self, handle: int) -> None:
        self.cache(handle).clear()
        self.model.clear()
        assert len(self.cache(handle)) == 0

    @rule(handle=handles, key=keys, code=payloads, about=metadata)
    def get_or_compute(self, handle: int, key: Any, code: bytes, about: dict[str, Any]) -> None:
        computed: list[bytes] = []

        def compute() -> Entry:
            computed.append(code)
            return Entry(code, about)

        expected = self.model.get(plain(key))
        found = self.cache(handle).get_or_compute_entry(key, compute)
        if computed:
            assert expected is None or self.cap is not None, "computed though it was there"
            expected = Entry(code, about)
            # The cache adds the cost, if the value does not state one.
            self.model[plain(key)] = Entry(code, found.metadata)
            found = Entry(found.code, {name: item for name, item in found.metadata.items() if name != _COST})
        assert found == expected

    # ---- reading -----------------------------------------------------------------------------------------------------

    @rule(handle=handles, key=keys, how=st.sampled_from(["get", "getitem", "get_entry", "default"]))
    def read(self, handle: int, key: Any, how: str) -> None:
        cache = self.cache(handle)
        before = cache.stats()
        found = getattr(self, f"_{how}")(cache, key)
        after = cache.stats()
        expected = self.model.get(plain(key))
        if found is None:
            assert expected is None or self.cap is not None, "a miss of what was stored"
            # An entry that was missed once must not come back by itself.
            self.model.pop(plain(key), None)
        elif how == "get_entry":
            assert found == expected
        else:
            assert expected is not None
            assert found == expected.code
        counted = (after.hits - before.hits, after.misses - before.misses)
        assert counted == ((0, 1) if found is None else (1, 0))
        assert after.corrupt_entries == after.unverified_hits == after.refused_entries == 0

    @staticmethod
    def _get(cache: Any, key: Any) -> Any:
        return cache.get(key)

    @staticmethod
    def _default(cache: Any, key: Any) -> Any:
        missing = object()
        found = cache.get(key, missing)
        return None if found is missing else found

    @staticmethod
    def _getitem(cache: Any, key: Any) -> Any:
        try:
            return cache[key]
        except KeyError:
            return None

    @staticmethod
    def _get_entry(cache: Any, key: Any) -> Any:
        return cache.get_entry(key)

    @rule(handle=handles)
    def count(self, handle: int) -> None:
        number = len(self.cache(handle))
        stats = self.cache(handle).stats()
        assert stats.entries == number
        if self.cap is None:
            assert number == len(self.model)
            least = sum(len(entry.code) + self.back_end.overhead_bytes for entry in self.model.values())
            assert stats.bytes >= least
            if not any(entry.metadata for entry in self.model.values()):
                assert stats.bytes == least
        else:
            assert number <= len(self.model)

    # ---- other objects over the store --------------------------------------------------------------------------------

    @rule(handle=handles)
    def close_and_go_on(self, handle: int) -> None:
        self.cache(handle).close()

    @rule(handle=handles)
    def open_another(self, handle: int) -> None:
        if self.back_end.is_shared:
            self._replace(handle, self.open())

    @rule()
    def reopen(self) -> None:
        if self.back_end.is_shared or self.back_end.has_copies:
            for cache in self.caches:
                cache.close()
            self.caches = [self.open()]

    @rule(handle=handles)
    def pickle(self, handle: int) -> None:
        if self.back_end.is_shared and self.back_end.is_picklable:
            self._replace(handle + 1, pickle.loads(pickle.dumps(self.cache(handle))))

    def _replace(self, handle: int, cache: Any) -> None:
        if len(self.caches) < 3:
            self.caches.append(cache)
        else:
            self.caches[handle % 3].close()
            self.caches[handle % 3] = cache

    # ---- at all times ------------------------------------------------------------------------------------------------

    @invariant()
    def the_cap_holds(self) -> None:
        if self.cap is None or not self.caches:
            return
        assert self.caches[0].stats().bytes <= self.cap
        assert self.bytes_on_disk() <= self.cap

    def bytes_on_disk(self) -> int:
        """Returns the bytes of entries, their records and staged files, if the store is a directory of them."""
        root = self.folder / "cache"
        folders = [root / "entries", root / "lockcache" / "records", root / "tmp"]
        files = [path for folder in folders if folder.is_dir() for path in folder.rglob("*") if path.is_file()]
        return sum(path.stat().st_size for path in files)

    def teardown(self) -> None:
        for cache in self.caches:
            cache.close()
        shutil.rmtree(self.folder)


def machine_for(back_end: BackEnd, cap: int | None) -> type[CacheMachine]:
    """Returns the machine for one back end."""
    return type(f"{back_end.name} {cap}", (CacheMachine,), {"back_end": back_end, "cap": cap})


#: No cap, a cap into which a few entries fit, and a cap that is smaller than some entries.
CAPS = [pytest.param(None, id="no-cap"), pytest.param(2500, id="cap-2500"), pytest.param(700, id="cap-700")]
