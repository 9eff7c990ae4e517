# SPDX-License-Identifier: Apache-2.0
"""Reading where somebody planted something, or where the file system answers with errors: the worst is a miss."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk.mounts import Nfs3Hosts, ServerHosts
from lockcache.filestream.entry import locate, reader
from lockcache.filestream.entry.codec import XATTR
from tests.unit.entry.material import CODE, WITH_RECORD_FILE, metadata, put
from tests.unit.forked import in_child
from tests.unit.material import entry_path, record_path


def plant_symlink(path, tmp_path):
    (tmp_path / "planted").write_bytes(b"planted")
    os.symlink(tmp_path / "planted", path)


def plant_dangling_symlink(path, tmp_path):
    os.symlink(tmp_path / "nowhere", path)


def plant_directory(path, tmp_path):
    os.mkdir(path)


def plant_fifo(path, tmp_path):
    os.mkfifo(path)


PLANTED = [plant_symlink, plant_dangling_symlink, plant_directory, plant_fifo]


@pytest.mark.parametrize("plant", PLANTED)
@pytest.mark.parametrize("warm", [False, True], ids=["after-a-miss", "after-a-hit"])
def test_what_is_planted_under_an_entrys_name_is_a_miss_and_no_hang(cache, mode, tmp_path, plant, warm):
    path = put(cache, mode)
    os.unlink(path)
    plant(path, tmp_path)
    put(cache, mode, "other")
    cache.get("other" if warm else "absent")
    assert cache.get("k") is None
    assert cache.get_entry("k") is None


@WITH_RECORD_FILE
@pytest.mark.parametrize("plant", [plant_symlink, plant_directory, plant_fifo])
def test_what_is_planted_under_a_records_name_is_a_miss_and_no_hang(cache, mode, tmp_path, plant):
    put(cache, mode)
    os.unlink(record_path(cache.path))
    plant(record_path(cache.path), tmp_path)
    assert cache.get("k") is None


def test_a_shard_that_is_no_directory_is_a_miss(cache, mode):
    shard = os.path.dirname(put(cache, mode))
    shutil.rmtree(shard)
    with open(shard, "w"):
        pass
    assert cache.get("k") is None


@pytest.mark.root
def test_an_unreadable_entry_is_a_miss(cache, mode, tmp_path):
    """Read as somebody else: root, as whom such tests run, may read everything."""
    put(cache, mode, "readable")
    os.chmod(put(cache, mode), 0)
    for folder, _, files in os.walk(cache.path):
        os.chmod(folder, 0o755)
        for file in files:
            if os.stat(f"{folder}/{file}").st_mode & 0o777:
                os.chmod(f"{folder}/{file}", 0o644)
    for parent in [tmp_path, *tmp_path.parents][:-2]:
        os.chmod(parent, os.stat(parent).st_mode | 0o011)

    def as_nobody():
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        return [cache.get(key) for key in ("readable", "k", "absent")], cache.get_entry("readable").metadata

    assert in_child(as_nobody) == ([CODE, None, None], metadata(mode))


@pytest.mark.slow
@pytest.mark.parametrize("code", [errno.ESTALE, errno.ENOTCONN, errno.EIO, errno.EBADF, errno.EPERM, errno.EACCES])
@pytest.mark.parametrize("call", ["_open", "_read_fd", "_getxattr"])
def test_whatever_a_shared_file_system_answers_is_a_miss_or_the_right_value(cache, mode, monkeypatch, call, code):
    # A fake: no network file system here. The real ones are tried in tests/processes where there are some.
    put(cache, mode)
    if (call, code) == ("_getxattr", errno.EPERM):
        return  # how a file system says that it has no attributes
    fail(monkeypatch, call, code, times=1000)
    found = cache.get_entry("k")
    assert found is None or found == Entry(CODE, metadata(mode))
    monkeypatch.undo()
    assert cache.get_entry("k") == Entry(CODE, metadata(mode))


@pytest.mark.parametrize("call", ["_open", "_read_fd"])
@pytest.mark.parametrize("times", [1, 2])
def test_a_stale_handle_is_looked_up_again(cache, mode, monkeypatch, call, times):
    # A fake, as above: a single ESTALE on open is retried by the kernel, one on read is not.
    put(cache, mode)
    fail(monkeypatch, call, errno.ESTALE, times)
    assert cache.get_entry("k") == Entry(CODE, metadata(mode))
    assert (cache.stats().hits, cache.stats().misses, cache.stats().corrupt_entries) == (1, 0, 0)


def test_a_handle_that_stays_stale_is_a_miss_after_a_few_tries(cache, mode, monkeypatch):
    put(cache, mode)
    tries = [fail(monkeypatch, each, errno.ESTALE, times=1000) for each in ("_open", "opening")]
    assert cache.get("k") is None
    assert sum(map(len, tries)) <= 5
    assert (cache.stats().misses, cache.stats().corrupt_entries) == (1, 0)


def test_an_attribute_that_cannot_be_read_now_does_not_make_an_entry_pass_unverified(cache_path, monkeypatch):
    # A fake: a network file system that answers for the bytes and not for the attribute.
    with FileStreamProgramCache(cache_path) as cache:
        put(cache, "attribute")
        for code in (errno.EIO, errno.ENOTCONN, errno.ESTALE):
            fail(monkeypatch, "_getxattr", code, times=1000)
            assert cache.get("k") is None
            monkeypatch.undo()
        assert cache.stats().unverified_hits == 0


def fail(monkeypatch, call, code, times):
    """Has the reader's system call fail so many times; a list that grows with each."""
    real = getattr(reader, call)
    tries = []

    def maybe(*arguments, **named):
        tries.append(arguments)
        if len(tries) <= times:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **named)

    for module in (reader, locate):  # an attribute is asked for in either
        if hasattr(module, call):
            monkeypatch.setattr(module, call, maybe)
    return tries


@pytest.mark.slow
def test_a_length_that_was_flipped_to_gigabytes_is_a_miss_where_memory_is_short(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        path = put(cache, "attribute")
        blob = bytearray(os.getxattr(path, XATTR))
        blob[11] |= 0x7F
        os.setxattr(path, XATTR, blob)
    code = """
import resource, sys
from lockcache import FileStreamProgramCache
cache = FileStreamProgramCache(sys.argv[1])
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
assert cache.get("k") is None
"""
    done = subprocess.run([sys.executable, "-c", code, str(cache_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind, hosts, look", [("nfs4", ServerHosts, "at"), ("nfs", Nfs3Hosts, "has")])
def test_on_a_network_file_system_each_hit_looks_at_the_folder_and_a_miss_once_a_second(
    cache_path, monkeypatch, kind, hosts, look
):
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: kind)
    looked, now = [], [1000.0]
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"v"
        really = getattr(hosts, look)
        monkeypatch.setattr(hosts, look, lambda *given, **named: looked.append(given[-1]) or really(*given, **named))
        monkeypatch.setattr("lockcache.filestream.disk.mounts.time.monotonic", lambda: now[0])
        folder = entry_path(cache.path) if kind == "nfs" else os.path.dirname(entry_path(cache.path))
        assert [cache.get("k"), cache.get("k")] == [b"v", b"v"]
        assert looked == [folder] * 2
        os.unlink(entry_path(cache.path))
        assert cache.get("k") is None
        assert looked == [folder] * 2  # just looked at, and this client knows of its removal
        now[0] += 1.0
        assert cache.get("k") is None
        assert looked == [folder] * 3
        assert cache.stats().misses == 2
