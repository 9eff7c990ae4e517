# SPDX-License-Identifier: Apache-2.0
"""Signed entries: served only if one of the keys signed exactly these bytes under exactly this name."""

from __future__ import annotations

import os
import pickle
import shutil
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.codec import HEAD_BYTES, SIGNED, XATTR, Record, pack
from lockcache.filestream.entry.signing import KeyRing, load_keys
from tests.access.keys import FOREIGN, NEW, OLD, write_keys
from tests.unit.material import entry_path, record_path


def test_what_is_signed_is_served_with_its_metadata(signed):
    signed().put_entry("k", Entry(b"code", {"arch": "sm_90", "long": "x" * 9000}))
    cache = signed()
    assert cache.get_entry("k") == Entry(b"code", {"arch": "sm_90", "long": "x" * 9000})
    assert cache.get("k") == cache["k"] == b"code"
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.corrupt_entries, stats.refused_entries) == (3, 0, 0, 0)


def test_an_empty_value_and_get_or_compute_work_signed(signed):
    cache = signed()
    cache["empty"] = b""
    assert signed()["empty"] == b""
    assert [signed().get_or_compute("k", lambda: b"once") for _ in range(2)] == [b"once", b"once"]


def test_what_was_stored_without_the_key_is_a_miss_and_no_damage(signed, cache_path):
    unsigned = signed(False)
    unsigned["k"] = b"planted"
    cache = signed()
    assert cache.get("k") is None
    assert (cache.stats().misses, cache.stats().corrupt_entries, cache.stats().refused_entries) == (1, 0, 1)
    cache["k"] = b"ours"
    assert cache["k"] == b"ours"


def test_an_entry_without_a_record_is_a_miss(signed, cache_path):
    path = entry_path(cache_path)
    os.makedirs(os.path.dirname(path), mode=0o700)
    cache_path.chmod(0o700)
    for folder in (cache_path / "entries", Path(path).parent):
        folder.chmod(0o700)
    with open(path, "wb") as file:
        file.write(b"planted")
    cache = signed()
    assert cache.get("k") is None
    assert (cache.stats().refused_entries, cache.stats().unverified_hits) == (1, 0)


def test_without_the_key_a_signed_entry_is_a_miss_and_no_damage(signed, caplog):
    signed()["k"] = b"signed"
    unsigned = signed(False)
    assert unsigned.get("k") is None
    assert (unsigned.stats().misses, unsigned.stats().corrupt_entries, unsigned.stats().refused_entries) == (1, 0, 1)
    assert caplog.records == []


def test_another_key_is_no_key(signed, tmp_path):
    signed(write_keys(tmp_path / "foreign", FOREIGN))["k"] = b"planted"
    cache = signed()
    assert cache.get("k") is None
    assert (cache.stats().corrupt_entries, cache.stats().refused_entries) == (0, 1)


def test_keys_can_be_rotated_one_signs_and_all_verify(signed, tmp_path):
    signed()["old"] = b"1"
    rotated = signed(write_keys(tmp_path / "rotated", NEW, OLD))
    assert rotated["old"] == b"1"
    rotated["new"] = b"2"
    assert signed(write_keys(tmp_path / "without the old", NEW))["new"] == b"2"
    assert signed(write_keys(tmp_path / "without the old", NEW)).get("old") is None
    assert signed().get("new") is None  # who has not read the file again


def test_a_signed_file_under_another_name_is_a_miss_and_damage(signed, cache_path):
    cache = signed()
    cache["k"], cache["other"] = b"code", b"other code"
    for path_of in (entry_path, record_path):
        if os.path.exists(path_of(cache_path)):
            os.makedirs(os.path.dirname(path_of(cache_path, b"moved")), exist_ok=True)
            shutil.copy2(path_of(cache_path), path_of(cache_path, b"moved"))
    assert cache.get("moved") is None
    assert cache["k"] == b"code"
    assert (cache.stats().corrupt_entries, cache.stats().refused_entries) == (1, 0)


@pytest.mark.parametrize("at", [0, 50, 99])
def test_a_bit_of_the_payload_turns_it_into_a_miss(signed, cache_path, at):
    cache = signed()
    cache["k"] = b"x" * 100
    with open(entry_path(cache_path), "r+b") as file:
        file.seek(at)
        file.write(b"y")
    assert cache.get("k") is None
    assert cache.stats().corrupt_entries == 1


@pytest.mark.parametrize("at", range(HEAD_BYTES + 3))
def test_every_byte_of_the_record_is_signed(cache_path, key_file, at):
    with FileStreamProgramCache(cache_path, signing_key_file=key_file) as cache:
        cache.put_entry("k", Entry(b"code", {"a": 1}))
        path = entry_path(cache_path)
        blob = bytearray(os.getxattr(path, XATTR))
        assert blob[:4] == SIGNED
        blob[at] ^= 1
        os.setxattr(path, XATTR, bytes(blob))
        assert cache.get("k") is None


def test_a_checksum_passes_for_no_signature(cache_path, key_file):
    """A user who may write there can make any record, but none with the key's signature."""
    with FileStreamProgramCache(cache_path, signing_key_file=key_file) as cache:
        cache["k"] = b"code"
        path, name = entry_path(cache_path), entry_name(b"k")
        plain = pack(name, b"code", Record(4, 1, 0, b""))
        for blob in (plain, SIGNED + plain[4:], plain[:28] + os.getxattr(path, XATTR)[28:44]):
            os.setxattr(path, XATTR, blob)
            assert cache.get("k") is None


def test_a_pickled_cache_carries_the_file_and_no_key(signed, key_file):
    cache = signed()
    cache["k"] = b"1"
    blob = pickle.dumps(cache)
    assert OLD not in blob
    assert OLD.hex().encode() not in blob
    assert str(key_file).encode() in blob
    with pickle.loads(blob) as twin:
        assert twin["k"] == b"1"
    assert OLD.hex() not in repr(load_keys(key_file)) + repr(cache)


def test_the_environment_names_the_file_and_an_argument_overrules_it(cache_path, key_file, monkeypatch):
    monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", str(key_file))
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"1"
    with FileStreamProgramCache(cache_path, signing_key_file=False) as cache:
        assert cache.get("k") is None
    with FileStreamProgramCache(cache_path, signing_key_file=key_file) as cache:
        assert cache["k"] == b"1"


def test_two_keys_with_one_id_both_verify(monkeypatch):
    from lockcache.filestream.entry import signing

    monkeypatch.setattr(signing, "_id_of", lambda key: b"ab")
    name, record = entry_name(b"k"), Record(4, 1, 0, b"tail")
    ring = KeyRing([NEW, OLD])
    for keys in ([OLD], [NEW]):
        assert ring.is_whole(KeyRing(keys).pack(name, b"code", record), name, b"code")
    assert not ring.is_whole(KeyRing([FOREIGN]).pack(name, b"code", record), name, b"code")
