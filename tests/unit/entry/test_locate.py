"""Recorded costs: read without the payload, and nothing believed of a record that is damaged."""

from __future__ import annotations

import os

import pytest

from lockcache.filestream.accounting.scan import scan_shard
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.codec import HEAD_BYTES, XATTR, Record
from lockcache.filestream.entry.locate import Prices
from lockcache.filestream.writer import EntryWriter
from tests.unit.material import entry_path, record_path, shard_of

COST_NS = 1_234_567_890


def put(directory, cost_ns=COST_NS, *, record_files=False, tail=b""):
    writer = EntryWriter(directory, 5.0, fsync=False, use_record_files=record_files)
    payload = b"x" * 1000
    assert writer.store(entry_name(b"k"), payload, Record(len(payload), 1, cost_ns, tail)).dropped is None


def price(directory):
    [found] = scan_shard(directory.layout, shard_of(b"k"))
    return Prices(directory.layout).cost_ns(found)


@pytest.mark.parametrize("record_files", [False, True])
@pytest.mark.parametrize("tail", [b"", b"t" * 6, b"t" * 5000])
def test_a_cost_is_read_wherever_its_record_is(directory, record_files, tail):
    put(directory, record_files=record_files, tail=tail)
    assert price(directory) == COST_NS


@pytest.mark.parametrize("cost_ns", [0, -5, 24 * 3600 * 10**9 + 1, 2**63 - 1])
def test_what_no_compilation_takes_is_no_cost(directory, cost_ns):
    put(directory, cost_ns)
    assert price(directory) == 0


def _damaged(offset, value):
    def damage(path):
        blob = bytearray(os.getxattr(path, XATTR))
        blob[offset] = value
        os.setxattr(path, XATTR, bytes(blob))

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        _damaged(0, 0),  # magic
        _damaged(2, 9),  # a version of the future
        _damaged(3, 7),  # an algorithm of the future
        _damaged(8, 1),  # the length of another payload
        lambda path: os.setxattr(path, XATTR, b"LC"),
        lambda path: os.removexattr(path, XATTR),
        lambda path: os.truncate(path, 999),
        lambda path: os.truncate(path, 1001),
    ],
    ids=["magic", "version", "algorithm", "length", "short", "none", "truncated", "grown"],
)
def test_a_damaged_record_says_nothing(directory, damage):
    put(directory)
    damage(entry_path(directory.layout.root, b"k"))
    assert price(directory) == 0


def test_a_record_file_that_is_short_gone_or_a_fifo_says_nothing_and_is_not_waited_for(directory):
    put(directory, record_files=True)
    path = record_path(directory.layout.root, b"k")
    os.truncate(path, HEAD_BYTES - 1)
    assert price(directory) == 0
    os.unlink(path)
    assert price(directory) == 0
    os.mkfifo(path)
    assert price(directory) == 0


def test_no_symlink_is_followed_to_a_cost(directory, tmp_path):
    put(directory)
    [found] = scan_shard(directory.layout, shard_of(b"k"))
    path = entry_path(directory.layout.root, b"k")
    os.rename(path, tmp_path / "target")
    os.symlink(tmp_path / "target", path)
    assert Prices(directory.layout).cost_ns(found) == 0
    os.unlink(path)
    assert Prices(directory.layout).cost_ns(found) == 0
