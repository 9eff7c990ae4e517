"""Signed entries: served only if one of the keys signed exactly these bytes under exactly this name."""

from __future__ import annotations

import base64
import json
import os
import pickle
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache, SigningKeyError
from lockcache.cli.program import run
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.layout import entry_name
from lockcache.filestream.record import HEAD_BYTES, SIGNED, XATTR, Record, pack
from lockcache.filestream.signing import KeyRing, load_keys, new_key, read_key_file
from lockcache.filestream.verify import verify_entry
from lockcache_daemon.command import run as run_daemon
from tests.unit.material import entry_path, on_disk, record_path


def write_keys(path: Path, *keys: bytes) -> Path:
    path.write_text("# a comment\n\n" + "".join(f"{key.hex()}\n" for key in keys))
    path.chmod(0o600)
    return path


OLD, NEW, FOREIGN = (bytes([number]) * 32 for number in (1, 2, 3))


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys", OLD)


@pytest.fixture(params=[False, True], ids=["attributes", "record-files"])
def signed(request, cache_path, key_file):
    """Opens caches with the keys of ``key_file``, or of another."""
    opened = []

    def open_cache(keys: object = key_file, **arguments):
        cache = FileStreamProgramCache(cache_path, record_files=request.param, signing_key_file=keys, **arguments)
        opened.append(cache)
        return cache

    yield open_cache
    for cache in opened:
        cache.close()


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
    """Who may write there can make any record, only not one with the key's signature."""
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
    from lockcache.filestream import signing

    monkeypatch.setattr(signing, "_id_of", lambda key: b"ab")
    name, record = entry_name(b"k"), Record(4, 1, 0, b"tail")
    ring = KeyRing([NEW, OLD])
    for keys in ([OLD], [NEW]):
        assert ring.is_whole(KeyRing(keys).pack(name, b"code", record), name, b"code")
    assert not ring.is_whole(KeyRing([FOREIGN]).pack(name, b"code", record), name, b"code")


@pytest.mark.parametrize(
    "encode", [bytes.hex, lambda key: key.hex().upper(), lambda key: base64.b64encode(key).decode()]
)
@pytest.mark.parametrize("length", [32, 33, 64])
def test_keys_are_hex_or_base64(tmp_path, encode, length):
    key = os.urandom(length)
    (tmp_path / "keys").write_text(f"\n# today's\n  {encode(key)}  \r\n")
    (tmp_path / "keys").chmod(0o640)
    assert read_key_file(str(tmp_path / "keys")) == [key]


@pytest.mark.parametrize(
    "text, wrong",
    [
        ("", "holds no key"),
        ("# only this\n", "holds no key"),
        ("secret password", "line 1 is no key"),
        (f"{OLD.hex()}\n{OLD.hex()[:-1]}", "line 2"),
        (OLD.hex()[:62], "line 1 is a key of 31 bytes"),
        ("x" * 70_000, "longer than"),
    ],
)
def test_a_file_without_good_keys_is_one_line_that_names_it_and_shows_no_key(tmp_path, text, wrong):
    (tmp_path / "keys").write_text(text)
    (tmp_path / "keys").chmod(0o600)
    with pytest.raises(SigningKeyError, match=wrong) as refused:
        FileStreamProgramCache(tmp_path / "cache", signing_key_file=tmp_path / "keys")
    assert str(tmp_path / "keys") in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "password" not in str(refused.value)
    assert OLD.hex()[:20] not in str(refused.value)


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o660, 0o644, 0o666])
def test_a_file_that_others_could_read_or_change_is_refused_with_the_command_that_mends_it(tmp_path, mode):
    path = write_keys(tmp_path / "with a space", OLD)
    path.chmod(mode)
    with pytest.raises(SigningKeyError, match="by others") as refused:
        read_key_file(str(path))
    subprocess.run(str(refused.value).rpartition("Run: ")[2], shell=True, check=True)
    assert read_key_file(str(path)) == [OLD]


@pytest.mark.root
def test_a_file_of_somebody_else_is_refused(key_file):
    os.chown(key_file, 12345, -1)
    with pytest.raises(SigningKeyError, match="uid 12345"):
        read_key_file(str(key_file))


def test_what_is_no_file_is_refused_and_no_hang(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    (tmp_path / "folder").mkdir(0o700)
    for name in ("fifo", "folder"):
        with pytest.raises(SigningKeyError, match="no plain file"):
            load_keys(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        load_keys(tmp_path / "missing")


@pytest.mark.parametrize("given, error", [(5, TypeError), (True, TypeError), (b"/x", TypeError), ("", ValueError)])
def test_what_names_no_file_is_an_error_that_shows_it(tmp_path, given, error):
    with pytest.raises(error, match="signing_key_file must"):
        FileStreamProgramCache(tmp_path / "cache", signing_key_file=given)


def test_a_new_key_is_in_a_file_of_its_owners_alone_and_never_replaces_one(tmp_path, capfd):
    path = tmp_path / "keys"
    assert run(["key", "new", str(path)]) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    [key] = read_key_file(str(path))
    assert len(key) >= 32
    assert run(["key", "new", str(path)]) == 2
    assert str(path) in capfd.readouterr().err
    assert read_key_file(str(path)) == [key]


def test_rotating_puts_a_new_key_in_front_and_keeps_as_many_as_wanted(tmp_path, capfd):
    path = write_keys(tmp_path / "keys", NEW, OLD)
    path.chmod(0o640)
    assert run(["key", "rotate", str(path)]) == 0
    first, *older = read_key_file(str(path))
    assert (older, stat.S_IMODE(path.stat().st_mode)) == ([NEW, OLD], 0o640)
    assert run(["key", "rotate", "--keep", "1", "--json", str(path)]) == 0
    assert json.loads(capfd.readouterr().out) == {"path": str(path), "keys": 2}
    assert read_key_file(str(path))[1:] == [first]
    path.write_text("nonsense")
    assert run(["key", "rotate", str(path)]) == 2
    assert path.read_text() == "nonsense"
    assert os.listdir(tmp_path) == ["keys"]
    assert first.hex() not in "".join(capfd.readouterr())
    assert new_key() != new_key()


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
        (None, "signed", None, "only who has the key can tell"),
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


@pytest.mark.parametrize("keys, packed", [(None, 1), (OLD, 2), (NEW, 0)])
def test_packing_counts_what_it_has_no_key_for_apart_from_damage(
    keys, packed, cache_path, tmp_path, key_file, monkeypatch, capfd
):
    with FileStreamProgramCache(cache_path, signing_key_file=key_file) as cache:
        cache["a"] = cache["b"] = b"code"
    with FileStreamProgramCache(cache_path, signing_key_file=False) as cache:
        cache["unsigned"] = b"code"
    if keys is not None:
        monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", str(write_keys(tmp_path / "mine", keys)))
    assert run(["pack", "--json", str(tmp_path / "warm"), str(cache_path)]) == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["entries"], found["refused"], found["damaged"]) == (packed, 3 - packed, 0)


def test_a_variable_that_names_no_file_is_not_taken_for_no_key(cache_path, monkeypatch):
    monkeypatch.setenv("LOCKCACHE_SIGNING_KEY_FILE", "")
    with pytest.raises(ValueError, match="LOCKCACHE_SIGNING_KEY_FILE must not be empty"):
        FileStreamProgramCache(cache_path)
    FileStreamProgramCache(cache_path, signing_key_file=False).close()


@pytest.mark.root
def test_a_full_disk_leaves_no_file_in_the_way_of_the_next_try(mount_tmpfs, capfd):
    disk = mount_tmpfs("size=64k")
    keys = write_keys(disk / "keys", OLD)
    free = os.statvfs(disk)
    with open(disk / "filling", "wb") as filling:
        os.posix_fallocate(filling.fileno(), 0, free.f_bavail * free.f_frsize)
    assert run(["key", "new", str(disk / "new")]) == 1
    assert run(["key", "rotate", str(keys)]) == 1
    assert sorted(os.listdir(disk)) == ["filling", "keys"]
    assert read_key_file(str(keys)) == [OLD]
    assert capfd.readouterr().err.splitlines() == [
        f"lockcache: {file}: No space left on device" for file in (disk / "new", keys)
    ]
