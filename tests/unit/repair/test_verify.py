# SPDX-License-Identifier: Apache-2.0
"""Verification: a verdict for every entry, no false alarm, and no use of what was only looked at."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.disk.locks import ProcessLock
from lockcache.filestream.disk.recency import Recency
from lockcache.filestream.entry.codec import Record, pack
from lockcache.filestream.entry.reader import EntryReader
from lockcache.filestream.entry.verdict import UNREADABLE, WRONG, needs_payload
from lockcache.filestream.repair.verify import entry_names, verify_entry, verify_in_steps
from tests.crash.damage import ATTRIBUTE_DAMAGES, DAMAGES
from tests.unit.material import (
    descriptors,
    descriptors_to_begin_with,
    entry_path,
    on_disk,
    open_directory,
    put,
    record_path,
    shard_of,
)
from tests.verifying import verify_shard

NAME = entry_name(b"k")
PAYLOAD = bytes(range(256)) * 8
TAIL = b"t" * 6000  # too long for an attribute of ext4
STORED = {
    "record in the attribute": {},
    "record file": {"record_files": True},
    "record file with a tail": {"record_files": True, "tail": TAIL},
    "tail in a file": {"tail": TAIL},
}


@pytest.fixture
def directory(cache_path):
    directory = open_directory(cache_path)
    put(directory, b"other", b"something else" * 100)
    yield directory
    directory.close()


def verdict_of(directory, **options):
    verdict = verify_entry(directory, NAME, **options)
    return None if verdict is None else (verdict.state, verdict.why)


def is_served(directory):
    return EntryReader(directory.layout, Recency(directory.layout.root)).load(NAME) is not None


def test_a_payload_is_read_unless_its_length_is_wrong_already():
    record = pack(entry_name(b"k"), b"payload", Record(7, 1, 0, b""))
    assert needs_payload([], 2**40)
    assert [needs_payload([record], size) for size in (6, 7, 8, 2**40)] == [False, True, False, False]


@pytest.mark.parametrize("stored", STORED)
def test_what_a_writer_stored_is_whole(directory, stored):
    put(directory, b"k", PAYLOAD, **STORED[stored])
    assert verdict_of(directory) == ("whole", "")


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_500_000])
def test_a_payload_of_any_length_is_digested_piece_by_piece(directory, size):
    put(directory, b"k", os.urandom(size))
    read = list(verify_in_steps(directory, NAME))
    assert sum(read) == size
    assert max(read, default=0) <= 1 << 20
    assert verdict_of(directory) == ("whole", "")


def test_there_is_no_verdict_on_an_entry_that_is_not_there(directory):
    assert verdict_of(directory) is None


EXPECTED = {
    "first bit flipped": "digest",
    "bit in the middle flipped": "digest",
    "last bit flipped": "digest",
    "truncated to half": "truncated",
    "truncated to nothing": "empty",
    "hollow": "digest",
    "grown by a hole": "grown",
    "grown to a terabyte of holes": "grown",
    "another entry's payload": "truncated",
    "a symlink": "foreign",
    "a fifo": "foreign",
    "a directory": "foreign",
}


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_is_found_and_named(directory, damage, stored):
    put(directory, b"k", PAYLOAD, **STORED[stored])
    DAMAGES[damage](Path(entry_path(directory.layout.root)))
    state, why = verdict_of(directory)
    assert state == "corrupt"
    assert why in WRONG
    if damage in EXPECTED:
        assert why == EXPECTED[damage]
    assert verdict_of(directory) == (state, why), "nothing was repaired that nobody asked for"


@pytest.mark.parametrize("damage", ATTRIBUTE_DAMAGES)
def test_every_damage_to_the_record_is_found(directory, damage):
    put(directory, b"k", PAYLOAD)
    ATTRIBUTE_DAMAGES[damage](Path(entry_path(directory.layout.root)))
    assert verdict_of(directory)[0] == "corrupt"


@pytest.mark.parametrize("stored", ["record file", "record file with a tail", "tail in a file"])
@pytest.mark.parametrize("position", [0, 2, 5, 9, 30, -1])
def test_every_damage_to_a_record_file_is_found(directory, stored, position):
    put(directory, b"k", PAYLOAD, **STORED[stored])
    path = Path(record_path(directory.layout.root))
    blob = bytearray(path.read_bytes())
    blob[position] ^= 0x40
    path.write_bytes(blob)
    assert verdict_of(directory)[0] == "corrupt"


def test_an_entry_without_a_record_is_unverified_and_an_empty_one_corrupt(directory):
    path = Path(entry_path(directory.layout.root))
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"of cuda.core's")
    assert verdict_of(directory) == ("unverified", "")
    path.write_bytes(b"")
    assert verdict_of(directory) == ("corrupt", "empty")


@pytest.mark.parametrize("position, value", [(2, 7), (3, 9)])
def test_a_record_of_a_newer_version_is_no_damage(directory, position, value):
    put(directory, b"k", PAYLOAD)
    path = entry_path(directory.layout.root)
    blob = bytearray(os.getxattr(path, "user.lockcache"))
    blob[position] = value
    blob[28:44] = os.urandom(16)  # its digest is another one
    os.setxattr(path, "user.lockcache", bytes(blob))
    assert verify_entry(directory, NAME, repair=True).state == "unverified"
    assert os.path.exists(path)


@pytest.mark.parametrize("damage, wrong", [("truncated to half", "truncated"), ("truncated to nothing", "empty")])
def test_an_entry_with_an_algorithm_unknown_here_is_corrupt_if_its_length_is_wrong(directory, damage, wrong):
    put(directory, b"k", PAYLOAD)
    path = Path(entry_path(directory.layout.root))
    blob = bytearray(os.getxattr(path, "user.lockcache"))
    blob[3], blob[28:44] = 9, os.urandom(16)
    os.setxattr(path, "user.lockcache", bytes(blob))
    assert verdict_of(directory)[0] == "unverified"
    DAMAGES[damage](path)
    assert verdict_of(directory) == ("corrupt", wrong)


def test_looking_is_no_use(directory):
    put(directory, b"k", PAYLOAD)
    path = entry_path(directory.layout.root)
    os.utime(path, (1000, 1000))
    verify_entry(directory, NAME)
    status = os.stat(path)
    assert (status.st_atime, status.st_mtime) == (1000, 1000)


AS_ANOTHER_USER = """
import json, os, sys
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.repair.verify import verify_entry
os.setgroups([]), os.setgid(65534), os.setuid(65534)
directory = CacheDirectory(sys.argv[1], 1.0)
for may_use in (False, True):
    verdict = verify_entry(directory, sys.argv[2], may_use=may_use)
    print(verdict.state, os.stat(directory.layout.entry(sys.argv[2])).st_atime > 1000, verdict.why)
"""


@pytest.mark.root
def test_what_belongs_to_another_owner_is_not_read_where_that_would_count_as_a_use(tmp_path):
    tmp_path.chmod(0o755)
    for parent in list(tmp_path.parents)[:-2]:
        if not parent.stat().st_mode & stat.S_IXOTH:
            parent.chmod(parent.stat().st_mode | stat.S_IXOTH)
    directory = open_directory(tmp_path / "cache")
    put(directory, b"k", PAYLOAD)
    for path in (tmp_path / "cache").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    (tmp_path / "cache").chmod(0o755)
    os.utime(entry_path(directory.layout.root), (1000, 1000))
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER, directory.layout.root, NAME],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    refused, allowed = done.stdout.splitlines()
    assert refused.startswith("passed over False belongs to uid 0")
    assert allowed.startswith("whole")
    directory.close()


@pytest.mark.root
def test_on_a_read_only_mount_nothing_counts_as_a_use_and_two_looks_take_the_place_of_a_lock(cache_path, mount_tmpfs):
    root = mount_tmpfs("size=8m") / "cache"
    directory = open_directory(root)
    put(directory, b"k", PAYLOAD)
    put(directory, b"whole", PAYLOAD)
    DAMAGES["truncated to half"](Path(entry_path(root)))
    directory.close()
    subprocess.run(["mount", "-o", "remount,ro", str(root.parent)], check=True)
    directory = CacheDirectory(str(root), 1.0)
    assert verdict_of(directory) == ("corrupt", "truncated")
    assert verify_entry(directory, entry_name(b"whole")).state == "whole"
    directory.close()


def test_a_shard_is_verified_entry_by_entry_whatever_lies_in_it(directory):
    put(directory, b"k", PAYLOAD)
    folder = os.path.dirname(entry_path(directory.layout.root))
    os.mkfifo(f"{folder}/{'0' * 62}")
    Path(f"{folder}/notes.txt").write_text("no entry")
    found = {verdict.name: verdict.state for verdict in verify_shard(directory, shard_of(b"k"))}
    assert found == {NAME: "whole", NAME[:2] + "0" * 62: "corrupt"}
    assert entry_names(directory.layout, shard_of(b"k")) == sorted(found)


def test_an_entry_that_is_replaced_between_reading_and_deciding_is_looked_at_again(directory):
    put(directory, b"k", PAYLOAD * 1000)
    DAMAGES["bit in the middle flipped"](Path(entry_path(directory.layout.root)))
    steps = verify_in_steps(directory, NAME, repair=True)
    next(steps)
    put(directory, b"k", b"a newer value")
    with pytest.raises(StopIteration) as end:
        deque_all(steps)
    assert end.value.value.state == "whole"
    assert is_served(directory)


def deque_all(steps):
    while True:
        next(steps)


def test_an_entry_that_is_evicted_while_it_is_read_is_let_go_of(directory):
    put(directory, b"k", bytes(5 << 20))
    steps = verify_in_steps(directory, NAME)
    next(steps)
    os.unlink(entry_path(directory.layout.root))
    with pytest.raises(StopIteration) as end:
        deque_all(steps)
    assert end.value.value is None


def test_a_verification_that_is_given_up_half_way_leaves_nothing_open(directory):
    put(directory, b"k", bytes(5 << 20))
    verify_entry(directory, NAME)
    before = descriptors_to_begin_with()
    steps = verify_in_steps(directory, NAME)
    next(steps)
    steps.close()
    assert descriptors() == before


def test_a_shard_that_stays_locked_leaves_a_corrupt_entry_where_it_is_and_says_so(cache_path):
    directory = open_directory(cache_path, timeout_seconds=0.05)
    put(directory, b"k", PAYLOAD)
    DAMAGES["truncated to half"](Path(entry_path(cache_path)))
    busy = ProcessLock(directory.layout.lock(shard_of(b"k")), 1.0)
    with busy:
        verdict = verify_entry(directory, NAME, repair=True)
    busy.close()
    assert (verdict.state, verdict.is_repaired) == ("corrupt", False)
    assert "another process held this lock" in verdict.error
    assert os.path.exists(entry_path(cache_path))
    directory.close()


@pytest.mark.parametrize("stored", STORED)
@pytest.mark.parametrize("damage", ["truncated to half", "last bit flipped", "truncated to nothing"])
def test_repairing_moves_what_is_corrupt_into_quarantine_with_its_record(directory, damage, stored):
    put(directory, b"k", PAYLOAD, **STORED[stored])
    path = Path(entry_path(directory.layout.root))
    DAMAGES[damage](path)
    content, attributes = path.read_bytes(), os.listxattr(path)
    record = Path(record_path(directory.layout.root))
    record_bytes = record.read_bytes() if record.exists() else None
    from lockcache.filestream.repair.recount import recount_all

    recount_all(directory)
    before = directory.usage().total()
    verdict = verify_entry(directory, NAME, repair=True)
    assert verdict.is_repaired
    moved = Path(verdict.moved_to)
    assert NAME in moved.name
    assert (moved.read_bytes(), os.listxattr(moved)) == (content, attributes)
    kept_record = Path(f"{moved}.record")
    assert (kept_record.read_bytes() if record_bytes is not None else None) == record_bytes
    assert not record.exists()
    assert not path.exists()
    assert verdict_of(directory) is None
    now = directory.usage().total()
    assert (now.bytes, now.entries) == (before.bytes, before.entries - 1)
    assert now == on_disk(directory.layout.root)


@pytest.mark.parametrize("damage", ["a symlink", "a fifo"])
def test_repairing_moves_what_is_planted_without_following_it(directory, damage):
    put(directory, b"k", PAYLOAD)
    DAMAGES[damage](Path(entry_path(directory.layout.root)))
    from lockcache.filestream.repair.recount import recount_all

    recount_all(directory)
    before = directory.usage().total()
    verdict = verify_entry(directory, NAME, repair=True)
    assert verdict.is_repaired
    assert os.path.lexists(verdict.moved_to)
    assert directory.usage().total() == before == on_disk(directory.layout.root)
    put(directory, b"k", PAYLOAD)
    assert is_served(directory)


def test_an_entry_that_cannot_be_opened_at_all_is_unreadable_and_stays(directory, monkeypatch):
    put(directory, b"k", b"code")

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(type(directory.layout.reach), "open", refuse)
        verdict = verify_entry(directory, entry_name(b"k"))
    assert (verdict.state, verdict.why) == (UNREADABLE, "Input/output error")
    assert verify_entry(directory, entry_name(b"k")).state != UNREADABLE
