"""Reading one entry: what is served is what a writer stored, and the worst that can be planted is a miss."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import subprocess
import sys

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream import finding, read
from lockcache.filestream.record import HEAD_BYTES, XATTR
from tests.unit.forked import in_child
from tests.unit.material import descriptors, entry_path, record_path

CODE, META = b"the code " * 20, {"arch": "sm_90"}

# Where the record is: in the attribute; its head there and its tail in a file; all of it in a file.
MODES = ["attribute", "tail-beside", "file"]
WITH_RECORD_FILE = pytest.mark.parametrize("mode", ["tail-beside", "file"], indirect=True)
WITH_ATTRIBUTE = pytest.mark.parametrize("mode", ["attribute", "tail-beside"], indirect=True)


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def cache(cache_path, mode):
    with FileStreamProgramCache(cache_path, record_files=mode == "file") as cache:
        yield cache


def metadata(mode):
    return {**META, "blob": b"m" * (5000 if mode == "tail-beside" else 5)}


def put(cache, mode, key="k", code=CODE):
    cache.put_entry(key, Entry(code, metadata(mode)))
    assert os.path.exists(record_path(cache.path, key.encode())) == (mode != "attribute")
    return entry_path(cache.path, key.encode())


def flip(path, bit):
    with open(path, "r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def expect_corrupt_miss(cache, key="k"):
    before = cache.stats()
    assert cache.get(key) is None
    assert cache.get_entry(key) is None
    with pytest.raises(KeyError):
        cache[key]
    after = cache.stats()
    assert (after.misses, after.corrupt_entries) == (before.misses + 3, before.corrupt_entries + 3)
    assert after.hits == before.hits


@pytest.mark.parametrize("where", [0, 7, 8 * 90 + 3, 8 * len(CODE) - 1])
def test_a_flipped_bit_of_the_payload_is_a_corrupt_miss(cache, mode, where):
    flip(put(cache, mode), where)
    expect_corrupt_miss(cache)


def test_a_flipped_bit_of_the_record_is_a_corrupt_miss(cache, mode):
    path = put(cache, mode)
    if mode == "file":
        for bit in range(8 * HEAD_BYTES):
            flip(record_path(cache.path), bit)
            assert cache.get("k") is None, f"bit {bit}"
            flip(record_path(cache.path), bit)
    else:
        blob = os.getxattr(path, XATTR)
        for bit in range(8 * HEAD_BYTES):
            changed = bytearray(blob)
            changed[bit // 8] ^= 1 << bit % 8
            os.setxattr(path, XATTR, changed)
            assert cache.get("k") is None, f"bit {bit}"
        os.setxattr(path, XATTR, blob)
    assert cache.get("k") == CODE
    assert cache.stats().corrupt_entries == 8 * HEAD_BYTES


@pytest.mark.parametrize("keep", [0, 1, len(CODE) // 2, len(CODE) - 1])
def test_a_truncated_payload_is_a_corrupt_miss(cache, mode, keep):
    os.truncate(put(cache, mode), keep)
    expect_corrupt_miss(cache)


def test_a_hollow_payload_of_the_right_length_is_a_corrupt_miss(cache, mode):
    path = put(cache, mode)
    os.truncate(path, 0)
    os.truncate(path, len(CODE))  # what a power cut can leave
    expect_corrupt_miss(cache)


def test_a_grown_payload_is_never_served_grown(cache, mode):
    with open(put(cache, mode), "ab") as file:
        file.write(b"more")
    assert cache.get("k") in (None, CODE)
    assert (cache.get_entry("k") or Entry(CODE)).code == CODE


@WITH_RECORD_FILE
def test_a_damaged_record_file_is_a_corrupt_miss(cache, mode):
    put(cache, mode)
    path = record_path(cache.path)
    size = os.path.getsize(path)
    for keep in (size - 1, size // 2, 20, 0):
        os.truncate(path, keep)
        expect_corrupt_miss(cache)


@WITH_ATTRIBUTE
def test_a_truncated_attribute_is_a_corrupt_miss(cache, mode):
    path = put(cache, mode)
    blob = os.getxattr(path, XATTR)
    for keep in (len(blob) - 1, HEAD_BYTES - 1, 12, 5, 1, 0):
        os.setxattr(path, XATTR, blob[:keep])
        expect_corrupt_miss(cache)


def test_a_lost_tail_is_a_corrupt_miss(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        put(cache, "tail-beside")
        os.unlink(record_path(cache.path))
        expect_corrupt_miss(cache)


def copy_in_place(source, target):
    shutil.copyfile(source, target)  # writes into the file that is there: its attribute stays


def copy_and_rename(source, target):
    shutil.copy2(source, target + ".new")  # with its attribute
    os.rename(target + ".new", target)


def hard_link(source, target):
    os.unlink(target)
    os.link(source, target)


def copy_attribute_only(source, target):
    os.setxattr(target, XATTR, os.getxattr(source, XATTR))


@pytest.mark.parametrize("way", [copy_in_place, copy_and_rename, hard_link, copy_attribute_only])
@pytest.mark.parametrize("other", [b"other code", CODE[::-1]], ids=["another-length", "same-length"])
def test_another_entry_copied_over_an_entry_is_a_corrupt_miss(cache, mode, way, other):
    if mode == "file" and way is copy_attribute_only:
        pytest.skip("there is no attribute")
    target = put(cache, mode)
    source = put(cache, mode, "other", other)
    way(source, target)
    if way is copy_attribute_only and mode == "tail-beside":
        shutil.copyfile(record_path(cache.path, b"other"), record_path(cache.path))
    assert cache.get("k") is None
    assert cache.get_entry("k") is None
    assert cache["other"] == other
    assert cache.stats().corrupt_entries == 2


@WITH_RECORD_FILE
def test_another_entrys_record_file_copied_over_is_a_corrupt_miss(cache, mode):
    put(cache, mode)
    cache.put_entry("other", Entry(CODE, {**metadata(mode), "arch": "sm_80"}))
    shutil.copyfile(record_path(cache.path, b"other"), record_path(cache.path))
    expect_corrupt_miss(cache)


def test_damage_is_mended_by_the_next_write(cache, mode):
    flip(put(cache, mode), 5)
    assert cache.get("k") is None
    put(cache, mode)
    assert cache.get_entry("k") == Entry(CODE, metadata(mode))


def test_damage_is_logged_with_its_path(cache, mode, caplog):
    path = put(cache, mode)
    os.truncate(path, 1)
    with caplog.at_level(logging.WARNING, "lockcache"):
        cache.get("k")
    assert path in caplog.text


def test_an_attribute_of_a_later_version_is_not_served(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        path = put(cache, "attribute")
        blob = bytearray(os.getxattr(path, XATTR))
        blob[2] = 2
        os.setxattr(path, XATTR, blob)
        assert cache.get("k") is None


@pytest.mark.parametrize("content", [b"of cuda.core", b"x", b"\0" * 100_000])
def test_a_foreign_entry_without_record_is_served_and_counted(cache_path, content):
    with FileStreamProgramCache(cache_path) as cache:
        write_foreign(cache, content)
        assert cache["k"] == cache.get("k") == content
        assert cache.get_entry("k") == Entry(content, {})
        stats = cache.stats()
        assert (stats.hits, stats.unverified_hits, stats.misses, stats.corrupt_entries) == (3, 3, 0, 0)


def test_an_emptied_foreign_entry_is_a_corrupt_miss(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        write_foreign(cache, b"")
        expect_corrupt_miss(cache)


def test_an_empty_value_of_ours_is_a_verified_hit(cache, mode):
    cache["k"] = b""
    assert cache["k"] == b""
    assert (cache.stats().hits, cache.stats().unverified_hits) == (1, 0)


def write_foreign(cache, content, key=b"k"):
    path = entry_path(cache.path, key)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


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
        import psutil  # noqa: F401 - while it can still be found

        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        return [cache.get(key) for key in ("readable", "k", "absent")], cache.get_entry("readable").metadata

    assert in_child(as_nobody) == ([CODE, None, None], metadata(mode))


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
    tries = fail(monkeypatch, "_open", errno.ESTALE, times=1000)
    assert cache.get("k") is None
    assert len(tries) <= 5
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
    real = getattr(read, call)
    tries = []

    def maybe(*arguments):
        tries.append(arguments)
        if len(tries) <= times:
            raise OSError(code, os.strerror(code))
        return real(*arguments)

    for module in (read, finding):  # an attribute is asked for in either
        if hasattr(module, call):
            monkeypatch.setattr(module, call, maybe)
    return tries


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


def test_a_read_takes_no_lock_makes_nothing_and_leaves_nothing_open(cache, mode, monkeypatch):
    put(cache, mode)
    cache.close()
    cache.get("k")
    before = descriptors()
    files = sorted(os.walk(cache.path))
    for name in ("mkdir", "rename", "unlink", "listdir", "scandir"):
        monkeypatch.setattr(os, name, lambda *a, name=name, **k: pytest.fail(f"{name} on a read"))
    monkeypatch.setattr("lockcache.filestream.locks.ProcessLock.acquire", lambda *a: pytest.fail("a lock on a read"))
    monkeypatch.setattr("lockcache.filestream.locks.ProcessLock.try_acquire", lambda *a: pytest.fail("a lock"))
    for key in ("k", "absent", "k", "absent", "absent"):
        cache.get(key), cache.get_entry(key)
    flip(entry_path(cache.path), 3)
    cache.get("k")
    monkeypatch.undo()
    assert descriptors() == before
    assert sorted(os.walk(cache.path)) == files


def test_an_entry_that_stays_damaged_is_said_once_at_warning_and_then_quietly(cache, caplog):
    for key in ("one", "two"):
        cache[key] = b"x" * 100
        flip(entry_path(cache.path, key.encode()), 5)
    with caplog.at_level(logging.DEBUG, "lockcache"):
        for key in ("one", "one", "two", "one"):
            assert cache.get(key) is None
    levels = [record.levelno for record in caplog.records if "not what a writer stored" in record.message]
    assert levels == [logging.WARNING, logging.DEBUG, logging.WARNING, logging.DEBUG]
    assert cache.stats().corrupt_entries == 4
