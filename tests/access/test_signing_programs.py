# SPDX-License-Identifier: Apache-2.0
"""Signed entries in the daemon and the commands, with the key and without it."""

from __future__ import annotations

import json
import os
import shutil

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.cli.program import run
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.codec import XATTR
from lockcache.filestream.entry.signing import KeyRing
from lockcache.filestream.repair.verify import verify_entry
from lockcache_daemon.command import run as run_daemon
from tests.access.keys import FOREIGN, NEW, OLD, write_keys
from tests.unit.material import entry_path, on_disk, record_path


def test_a_daemon_needs_no_key(cache_path, key_file):
    with FileStreamProgramCache(cache_path, signing_key_file=key_file) as cache:
        cache.update({str(number): b"x" * 1000 for number in range(30)})
    assert run_daemon(["--max-size", "10K", "--once", str(cache_path)]) == 0
    assert 5000 < on_disk(cache_path).bytes <= 10_000


def test_verifying_without_the_key_calls_signed_entries_unverified_and_moves_none(cache_path, key_file):
    with FileStreamProgramCache(cache_path, signing_key_file=key_file) as cache:
        cache.put_entry("k", Entry(b"code", {"a": 1}))
    directory = CacheDirectory(str(cache_path), 1.0)
    verdict = verify_entry(directory, entry_name(b"k"), repair=True)
    assert verdict is not None
    assert (verdict.state, verdict.is_repaired, "key" in verdict.why) == ("unverified", False, True)
    directory.close()


@pytest.mark.parametrize(
    "change, state",
    [
        ("nothing", "whole"),
        ("a bit", "corrupt"),
        ("the name", "corrupt"),
        ("unsigned", "unverified"),
        ("foreign", "unverified"),
        ("no record", "unverified"),
    ],
)
def test_verifying_with_the_key_tells_tampering_from_what_was_never_signed(signed, cache_path, tmp_path, change, state):
    signed().put_entry("k", Entry(b"code", {"long": "x" * 9000}))
    path = entry_path(cache_path)
    if change == "a bit":
        with open(path, "r+b") as file:
            file.write(b"C")
    elif change == "the name":
        for path_of in (entry_path, record_path):
            if os.path.exists(path_of(cache_path)):
                os.makedirs(os.path.dirname(path_of(cache_path, b"moved")), exist_ok=True)
                shutil.copy2(path_of(cache_path), path_of(cache_path, b"moved"))
    elif change == "unsigned":
        signed(False)["k"] = b"code"
    elif change == "foreign":
        signed(write_keys(tmp_path / "foreign", FOREIGN))["k"] = b"code"
    elif change == "no record":
        if os.path.exists(record_path(cache_path)):
            os.unlink(record_path(cache_path))
        if os.listxattr(path):
            os.removexattr(path, XATTR)
    directory = CacheDirectory(str(cache_path), 1.0)
    name = entry_name(b"moved" if change == "the name" else b"k")
    verdict = verify_entry(directory, name, repair=True, keys=KeyRing([OLD]))
    assert verdict is not None
    assert (verdict.state, verdict.is_repaired) == (state, state == "corrupt")
    directory.close()


def test_lockcache_verify_takes_the_key_from_the_environment(cache_path, key_file, monkeypatch, capfd):
    monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", str(key_file))
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"code"
    assert run(["verify", "--json", str(cache_path)]) == 0
    assert json.loads(capfd.readouterr().out)["whole"] == 1
    with open(entry_path(cache_path), "r+b") as file:
        file.write(b"C")
    assert run(["verify", "--json", str(cache_path)]) == 1
    assert json.loads(capfd.readouterr().out)["corrupt"] == 1
    monkeypatch.delenv("LOCKCACHE_SIGNING_KEY_FILE")
    assert run(["verify", "--json", str(cache_path)]) == 0
    assert json.loads(capfd.readouterr().out)["unverified"] == 1


def test_packing_takes_the_key_and_unpacking_signs_with_its_own(tmp_path, key_file, monkeypatch):
    archive = str(tmp_path / "archive")
    with FileStreamProgramCache(tmp_path / "one", signing_key_file=key_file) as cache:
        cache.put_entry("k", Entry(b"code", {"arch": "sm_90"}))
    with FileStreamProgramCache(tmp_path / "one", signing_key_file=False) as cache:
        cache["planted"] = b"1"
    monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", str(key_file))
    assert run(["pack", archive, str(tmp_path / "one")]) in (0, 1)
    other = write_keys(tmp_path / "other", NEW)
    monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", str(other))
    assert run(["unpack", archive, str(tmp_path / "two")]) == 0
    with FileStreamProgramCache(tmp_path / "two", signing_key_file=other) as cache:
        assert cache.get_entry("k") == Entry(b"code", {"arch": "sm_90"})
        assert cache.get("planted") is None


@pytest.mark.parametrize(
    "keys, key, is_verified, words",
    [
        (None, "signed", None, "it takes the key to tell"),
        (OLD, "signed", True, "verified"),
        (NEW, "signed", None, "a key that is not here"),
        (None, "unsigned", True, "verified"),
        (OLD, "unsigned", None, "not signed"),
        (OLD, "altered", False, "does not verify"),
    ],
)
def test_inspecting_says_what_a_program_with_these_keys_would_be_served(
    keys, key, is_verified, words, cache_path, tmp_path, key_file, monkeypatch, capfd
):
    with FileStreamProgramCache(cache_path, signing_key_file=key_file) as cache:
        cache["signed"] = cache["altered"] = b"code"
    with FileStreamProgramCache(cache_path, signing_key_file=False) as cache:
        cache["unsigned"] = b"code"
    with open(entry_path(cache_path, b"altered"), "r+b") as file:
        file.write(b"C")
    if keys is not None:
        monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", str(write_keys(tmp_path / "mine", keys)))
    assert run(["inspect", "--json", key, str(cache_path)]) == 0
    assert json.loads(capfd.readouterr().out)["verified"] is is_verified
    assert run(["inspect", key, str(cache_path)]) == 0
    assert words in capfd.readouterr().out
