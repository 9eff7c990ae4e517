# SPDX-License-Identifier: Apache-2.0
"""A bundle's file: honest bytes are served, and no others, whatever stands there."""

from __future__ import annotations

import os
import struct
import threading
import tracemalloc

import pytest

from lockcache import BundleProgramCache, UnsafeCacheDirError
from lockcache.errors import ArchiveError
from lockcache.filestream.bundle import reader
from lockcache.filestream.bundle.reader import BundleFile, is_bundle
from lockcache.filestream.bundle_format import (
    END_BYTES,
    ENTRY_HEAD_BYTES,
    SLOT,
    START_BYTES,
    Place,
    encode_end,
    encode_start,
    lay_out,
)
from lockcache.filestream.entry.signing import KeyRing
from lockcache.filestream.seed_marks import is_in_order
from tests.matrix_sampling import all_but
from tests.threads import running
from tests.unit.bundle.bundles import bundle_of, name_of, write

ENTRIES = {b"a": b"first" * 20, b"b": b"", b"c": b"third" * 300}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "kernels.lcb"


def read_all(path, keys=None):
    """Returns what a cache serves of it, by key; ``None`` for a miss."""
    with BundleProgramCache(path) as cache:
        return {key: cache.get(key) for key in ENTRIES}


def serves_nothing_else(path):
    """Returns whether each key is its value or a miss, by copy, by view and with metadata."""
    with BundleProgramCache(path) as cache:
        for key, value in ENTRIES.items():
            view, entry = cache.view(key), cache.get_entry(key)
            found = {cache.get(key), None if view is None else bytes(view), None if entry is None else entry.code}
            if not found <= {value, None}:
                return False
    return True


def test_what_was_written_is_read(path):
    write(path, bundle_of(ENTRIES))
    assert read_all(path) == ENTRIES
    with BundleProgramCache(path) as cache:
        assert cache.get(b"other") is None
        assert cache.get_entry(b"a").metadata == {"kind": "cubin", "compile_cost_ns": 7}


def test_the_numbers_of_the_format_are_the_documented_ones(path):
    content = bundle_of({b"a": b"x" * 100})
    assert content[:16] == b"LCBUNDLE" + struct.pack("<II", 2, 64)
    record_bytes = content.index(b"x" * 100) - 128
    assert content[64:128] == b"LCENTRY\0" + name_of(b"a") + struct.pack("<QQI4x", 0, 100, record_bytes)
    assert content[-END_BYTES:][:8] == b"LCBTABLE"
    offset, slots, entries = struct.unpack_from("<QQQ", content, len(content) - END_BYTES + 8)
    assert (slots, entries, len(content)) == (2, 1, offset + 2 * 56 + 64)
    assert offset % 64 == 0


def test_a_bundle_of_nothing_is_a_bundle(path):
    write(path, bundle_of({}))
    assert BundleFile(str(path)).damage == ""
    assert set(read_all(path).values()) == {None}


def test_many_entries_are_all_found(path):
    entries = {b"%d" % number: b"%d" % number * 3 for number in range(5000)}
    write(path, bundle_of(entries))
    with BundleProgramCache(path) as cache:
        assert all(cache.get(key) == value for key, value in entries.items())
        assert all(cache.get(b"no %d" % number) is None for number in range(1000))
        assert len(cache) == 5000


@pytest.mark.parametrize("bits", all_but([0x80], [0x01, 0x80, 0xFF]))
def test_an_altered_byte_is_never_served(path, bits):
    content = bundle_of(ENTRIES)
    for place in range(len(content)):
        altered = bytearray(content)
        altered[place] ^= bits
        write(path, bytes(altered))
        assert serves_nothing_else(path), place


def test_a_file_that_is_cut_or_lengthened_is_never_served(path):
    content = bundle_of(ENTRIES)
    for length in range(len(content)):
        write(path, content[:length])
        assert set(read_all(path).values()) == {None}, length
    for more in (b"\0", b"x" * 64, content):
        write(path, content + more)
        assert serves_nothing_else(path)


def hostile(place=None, *, offset=START_BYTES, slots=2, entries=1):
    """A bundle whose table and end say what they like, with digests that are right."""
    body = bundle_of({b"a": b"x" * 100})[:-END_BYTES]
    table = bytearray(body[-2 * SLOT.size :])
    body = body[: -2 * SLOT.size]
    if place is not None:
        table = bytearray(lay_out([Place(name_of(b"a"), *place)]))
    end = bytearray(encode_end(encode_start(), bytes(table), len(body), entries))
    if (offset, slots) != (START_BYTES, 2):
        struct.pack_into("<QQ", end, 8, offset, slots)
    return body + bytes(table) + bytes(end)


# The offset of the first record.
FIRST = START_BYTES + ENTRY_HEAD_BYTES
HUGE = [2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1]


@pytest.mark.parametrize(
    "content",
    [
        *(hostile((offset, 100, 60)) for offset in (0, 1, 63, 65, *HUGE)),
        *(hostile((FIRST, size, 60)) for size in (0, 99, 101, 10_000, *HUGE)),
        *(hostile((FIRST, 100, size)) for size in (1, 43, 44, 61, 10_000, 2**31, 2**32 - 1)),
        *(hostile(offset=offset) for offset in (0, 65, *HUGE)),
        *(hostile(slots=slots) for slots in (0, 1, 3, *HUGE)),
        hostile(entries=2**63),
    ],
)
def test_numbers_of_any_size_cost_no_memory(path, content):
    write(path, content)
    tracemalloc.start()
    try:
        assert BundleProgramCache(path).get(b"a") in (b"x" * 100, None)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_entries_that_overlap_are_each_what_their_digest_says(path):
    content = bytearray(bundle_of(ENTRIES))
    table = content[-END_BYTES - 8 * SLOT.size : -END_BYTES]
    places = [Place._make(SLOT.unpack_from(table, slot * SLOT.size)) for slot in range(8)]
    first = next(place for place in places if place.name == name_of(b"a"))
    all_there = lay_out([Place(name_of(key), *first[1:]) for key in ENTRIES])
    body = bytes(content[: -END_BYTES - len(table)])
    write(path, body + all_there + encode_end(encode_start(), all_there, len(body), 3))
    assert read_all(path) == {b"a": ENTRIES[b"a"], b"b": None, b"c": None}


def test_a_bundle_that_is_more_than_its_bytes_is_not_gone_through(path):
    """Entries in entries, each with a digest that is right: a merge would write the square of what it reads."""
    body = bundle_of({b"a": b"x" * 1000})[: -END_BYTES - 2 * SLOT.size]
    table = lay_out([Place(name_of(b"%d" % number), START_BYTES, 1000, 44) for number in range(10)])
    write(path, body + table + encode_end(encode_start(), table, len(body), 10))
    with pytest.raises(ArchiveError, match="overlap"):
        BundleFile(str(path)).places()


def test_a_table_is_never_in_memory_as_a_whole(path):
    """Of a sparse file it would be more than the disk holds."""
    slots = 1 << 18
    end = encode_end(encode_start(), bytes(slots * SLOT.size), START_BYTES, 0)
    write(path, encode_start())
    with open(path, "r+b") as file:
        file.seek(START_BYTES + slots * SLOT.size)
        file.write(end)
    tracemalloc.start()
    try:
        assert (BundleFile(str(path)).damage, BundleFile(str(path)).places()) == ("", [])
        with open(path, "rb") as file:
            assert is_in_order(file.fileno())
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("entries, why", [(1 << 14, "overlap"), (1, "more than the 1 entries")])
def test_a_table_full_of_nothing_is_not_gone_through(path, entries, why):
    table = SLOT.pack(b"\1" * 32, START_BYTES, 0, 0) * (1 << 14)
    write(path, encode_start() + table + encode_end(encode_start(), table, START_BYTES, entries))
    bundle = BundleFile(str(path))
    tracemalloc.start()
    try:
        with pytest.raises(ArchiveError, match=why):
            bundle.places()
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_names_that_begin_alike_are_refused_in_the_end():
    """By hashing nobody gets them; a merge of a hostile bundle must not double its table for ever."""
    alike = [Place(b"\0" * 24 + b"%08d" % number, 64, 0, 44) for number in range(100)]
    assert len(lay_out(alike[:64])) == 128 * SLOT.size
    with pytest.raises(ValueError, match="begin alike"):
        lay_out(alike)


def test_a_file_that_is_cut_while_it_is_opened_is_a_miss(path, monkeypatch):
    write(path, bundle_of(ENTRIES))
    real = reader.read_end

    def cut_after(*arguments):
        os.truncate(path, 200)
        return real(*arguments)

    monkeypatch.setattr(reader, "read_end", cut_after)
    assert set(read_all(path).values()) == {None}


def test_a_file_that_is_cut_anywhere_while_it_is_in_use_is_a_miss(path):
    content = bundle_of({b"k": b"x" * 100})
    for length in range(len(content)):
        write(path, content)
        with BundleProgramCache(path) as cache:
            os.truncate(path, length)
            assert cache.get(b"k") in (b"x" * 100, None)
            assert cache.get_entry(b"k") is None or length > content.index(b"x" * 100)


def test_what_is_altered_after_it_was_read_is_not_served(path):
    content = write(path, bundle_of({b"k": b"x" * 100, b"l": b"y" * 100})).read_bytes()
    with BundleProgramCache(path) as cache:
        assert (cache[b"k"], cache[b"l"]) == (b"x" * 100, b"y" * 100)
        with open(path, "r+b") as file:
            file.seek(content.index(b"x" * 100) + 50)
            file.write(b"z")
        assert cache.get(b"k") is None
        assert cache[b"l"] == b"y" * 100


def test_what_does_not_fit_into_memory_is_a_miss(path, monkeypatch):
    """A sparse file takes no disk, and can be of any length."""
    write(path, bundle_of({b"k": b"x" * 100}))
    with BundleProgramCache(path) as cache:

        def refuse(*_):
            raise MemoryError

        monkeypatch.setattr("lockcache.filestream.bundle.reader.refuse_unless_whole", refuse)
        assert cache.get(b"k") is None


def test_closing_while_others_read_is_a_hit_or_a_miss(path):
    write(path, bundle_of({b"k": b"x" * 100}))
    cache, stop = BundleProgramCache(path), threading.Event()
    seen = set()

    def read():
        while not stop.is_set():
            view = cache.view(b"k")
            seen.add(None if view is None else bytes(view))

    with running(read, [(), ()], stop):
        for _ in range(300):
            cache.close()
    assert seen <= {None, b"x" * 100}


def test_a_bundle_that_is_replaced_is_read_on_until_closed(path):
    write(path, bundle_of({b"k": b"old"}))
    with BundleProgramCache(path) as cache:
        kept = cache.view(b"k")
        write(path, bundle_of({b"k": b"new"}))
        assert cache.get(b"k") == b"old"
        cache.close()
        assert bytes(kept) == b"old"
        assert cache.get(b"k") == b"new"


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_could_change_is_refused_with_the_command_that_helps(path, mode):
    write(path, bundle_of(ENTRIES)).chmod(mode)
    with pytest.raises(UnsafeCacheDirError, match="chmod go-w"):
        BundleProgramCache(path)


def test_what_is_no_file_is_refused_and_not_waited_for(path):
    os.mkfifo(path)
    with pytest.raises(OSError, match="not a plain file"):
        BundleProgramCache(path)
    with pytest.raises(FileNotFoundError):
        BundleProgramCache(path.with_name("nowhere"))
    write(path.with_name("bundle"), bundle_of(ENTRIES))
    names = ("bundle", path.name, "nowhere", ".", "with\0null")
    assert [is_bundle(str(path.with_name("bundle").parent / name)) for name in names] == [True] + [False] * 4


@pytest.mark.root
def test_a_file_of_somebody_else_is_refused_unless_its_entries_are_signed(path, tmp_path):
    keys = write(tmp_path / "keys", b"5a" * 32)
    write(path, bundle_of(ENTRIES, KeyRing([bytes.fromhex("5a" * 32)])))
    os.chown(path, 12345, 12345)
    path.chmod(0o666)
    with pytest.raises(UnsafeCacheDirError, match="belongs to uid 12345"):
        BundleProgramCache(path)
    with BundleProgramCache(path, signing_key_file=keys) as cache:
        assert {key: cache.get(key) for key in ENTRIES} == ENTRIES


def test_with_keys_only_what_is_signed_with_them_is_served(path, tmp_path):
    keys = write(tmp_path / "keys", b"5a" * 32)
    for signer in (None, KeyRing([b"another key, which is long enough"])):
        write(path, bundle_of(ENTRIES, signer))
        with BundleProgramCache(path, signing_key_file=keys) as cache:
            assert [cache.get(key) for key in ENTRIES] == [None] * 3
            assert (cache.stats().refused_entries, cache.stats().corrupt_entries) == (3, 0)
