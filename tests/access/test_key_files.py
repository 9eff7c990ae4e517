# SPDX-License-Identifier: Apache-2.0
"""Files of signing keys: which are taken, which are refused, how they are made and rotated."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess

import pytest

from lockcache import FileStreamProgramCache, SigningKeyError
from lockcache.cli.program import run
from lockcache.filestream.entry.signing import load_keys, new_key, read_key_file
from tests.access.keys import NEW, OLD, write_keys


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
        ("secret password", "line 1 is not a key"),
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
        with pytest.raises(SigningKeyError, match="not a plain file"):
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
