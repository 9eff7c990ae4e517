# SPDX-License-Identifier: Apache-2.0
"""Recorded costs: read without the payload, and nothing believed of a record that is damaged."""

from __future__ import annotations

import os
import pathlib

import pytest

from lockcache.filestream.accounting.scan import scan_shard
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.entry.codec import HEAD_BYTES, XATTR, Record
from lockcache.filestream.entry.locate import Prices, read_record_file
from lockcache.filestream.writer import EntryWriter, Outcome
from tests.unit.material import entry_path, record_path, shard_of

COST_NS = 1_234_567_890


def put(directory, cost_ns=COST_NS, *, record_files=False, tail=b""):
    writer = EntryWriter(directory, 5.0, fsync=False, use_record_files=record_files)
    payload = b"x" * 1000
    assert writer.store(entry_name(b"k"), payload, Record(len(payload), 1, cost_ns, tail)).outcome is Outcome.STORED


def price(directory):
    [found] = scan_shard(directory.layout, shard_of(b"k"))
    return Prices(directory.layout).cost_ns(found)


@pytest.mark.parametrize("record_files", [False, True])
@pytest.mark.parametrize("tail", [b"", b"t" * 6, b"t" * 5000])
def test_a_cost_is_read_wherever_its_record_is(directory, record_files, tail):
    put(directory, record_files=record_files, tail=tail)
    assert price(directory) == COST_NS


@pytest.mark.parametrize(
    "kind, is_sure, sees",
    [("nfs", True, True), ("nfs", False, False), ("nfs4", True, True), ("nfs4", False, False), ("lustre", True, False)],
)
@pytest.mark.parametrize("is_folder_known", [True, False])
def test_on_nfs_a_name_that_the_client_takes_for_missing_is_looked_for_in_its_folder(
    tmp_path, monkeypatch, kind, is_sure, sees, is_folder_known
):
    """A client that did not notice a change, as the two of ``lockcache-stress hosts --nfs`` may not."""
    tmp_path.chmod(0o700)
    layout = Layout(str(tmp_path))
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: kind)
    path = layout.entry("ab" * 32)
    folder, fresh = os.path.dirname(path), set[int]()
    known = {layout.entries, folder} if is_folder_known else {layout.entries}
    os.makedirs(folder)
    pathlib.Path(path).touch()
    real_access, real_list, real_open = os.access, os.listdir, os.open

    def list_names(fd):
        names = real_list(fd)
        if fd in fresh:
            known.update(f"{os.readlink(f'/proc/self/fd/{fd}')}/{name}" for name in names)
        return names

    def open_known(where, *arguments, **options):
        if where not in known:
            raise FileNotFoundError(where)
        return real_open(where, *arguments, **options)

    monkeypatch.setattr(os, "posix_fadvise", lambda fd, *_: fresh.add(fd))
    monkeypatch.setattr(os, "listdir", list_names)
    monkeypatch.setattr(os, "open", open_known)
    monkeypatch.setattr(os, "access", lambda where, *_, **how: where in known and real_access(where, os.F_OK))
    assert layout.hosts.has(path, is_sure=is_sure) == sees
    assert not layout.hosts.has(layout.entry("ab" + "cd" * 31), is_sure=is_sure)


@pytest.mark.parametrize("missing", ["records", "record_shard", "record"])
def test_a_record_that_this_client_takes_for_missing_is_looked_for_on_the_server(directory, monkeypatch, missing):
    """As a client of NFS does that looked before another host made it, until the client opens the folder above."""
    put(directory, record_files=True)
    layout, name = directory.layout, entry_name(b"k")
    expected = read_record_file(layout, name)
    assert expected
    places = {
        "records": layout.records,
        "record_shard": layout.record_shard(shard_of(b"k")),
        "record": layout.record(name),
    }
    hidden, real_open, real_list = {places[missing]}, os.open, os.listdir

    def see(folder):
        hidden.difference_update([path for path in hidden if os.path.dirname(path) == folder])

    def open_seen(path, flags, *arguments, **options):
        if any(path == each or path.startswith(f"{each}/") for each in hidden):
            raise FileNotFoundError(path)
        if missing != "record":  # of a file in it NFS 3 lists the folder
            see(path)
        return real_open(path, flags, *arguments, **options)

    def list_seen(fd):
        see(os.readlink(f"/proc/self/fd/{fd}"))
        return real_list(fd)

    monkeypatch.setattr(os, "open", open_seen)
    monkeypatch.setattr(os, "listdir", list_seen)
    monkeypatch.setattr(os, "access", lambda path, *_, **how: not any(path.startswith(each) for each in hidden))
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "")
    assert read_record_file(Layout(layout.root), name) is None
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "nfs")
    assert read_record_file(Layout(layout.root), name) == expected


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
