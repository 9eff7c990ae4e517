# SPDX-License-Identifier: Apache-2.0
"""Opening a directory: private from the first moment, refused where it is unsafe, made again where it was deleted."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, FormatError, UnsafeCacheDirError
from lockcache.filestream.disk.layout import Layout, StagedName
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.disk.permissions import check_directory
from tests.state_pages import make_newer, state_of
from tests.unit.material import on_disk

_MADE_LATER = ["lockcache/records", "lockcache/views", "lockcache/leases"]


def modes(root):
    """Every mode below (and with) the root, directories apart from files."""
    folders, files = {os.stat(root).st_mode & 0o7777}, set()
    for folder, folder_names, file_names in os.walk(root):
        folders |= {os.stat(os.path.join(folder, name)).st_mode & 0o7777 for name in folder_names}
        files |= {os.stat(os.path.join(folder, name)).st_mode & 0o7777 for name in file_names}
    return folders, files


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o027, 0o077])
@pytest.mark.parametrize("record_files", [False, True])
def test_directories_and_files_are_private_whatever_the_umask(cache_path, umask, record_files):
    before = os.umask(umask)
    try:
        with FileStreamProgramCache(cache_path, max_size_bytes=10_000, record_files=record_files) as cache:
            cache["k"] = b"code"
            shutil.rmtree(cache_path)
            cache["k"] = b"code"
            assert modes(cache_path) == ({0o700}, {0o600})
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0o770, 0o777, 0o1777, 0o707, 0o720, 0o702])
def test_a_root_that_others_may_write_to_is_refused_with_the_command_that_mends_it(tmp_path, mode):
    path = tmp_path / "with a space"
    path.mkdir()
    path.chmod(mode)
    with pytest.raises(UnsafeCacheDirError) as error:
        FileStreamProgramCache(path)
    assert error.value.path == str(path)
    assert os.listdir(path) == []  # nothing was made in it
    command = f"chmod 700 '{path}'" if mode == 0o1777 else str(error.value).rpartition("Run: ")[2]
    subprocess.run(command, shell=True, check=True)
    with FileStreamProgramCache(path) as cache:
        cache["k"] = b"1"


@pytest.mark.parametrize("folder", ["entries", "tmp", "lockcache", "lockcache/locks"])
@pytest.mark.parametrize("mode", [0o770, 0o777])
def test_a_folder_in_it_that_others_may_write_to_is_refused_too(cache_path, folder, mode):
    FileStreamProgramCache(cache_path).close()
    (cache_path / folder).chmod(mode)
    with pytest.raises(UnsafeCacheDirError, match="chmod -R go-w") as error:
        FileStreamProgramCache(cache_path)
    assert error.value.path == str(cache_path / folder)
    with pytest.raises(UnsafeCacheDirError):
        check_directory(Layout(str(cache_path)))


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o700, 0o711])
def test_a_root_that_others_may_only_read_is_fine(cache_path, mode):
    cache_path.mkdir()
    cache_path.chmod(mode)
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"1"
    assert stat.S_IMODE(cache_path.stat().st_mode) == mode  # and stays as its owner wants it


@pytest.mark.root
@pytest.mark.parametrize("folder", ["", "entries", "tmp", "lockcache"])
def test_a_directory_of_somebody_else_is_refused_with_the_command_that_mends_it(cache_path, folder, monkeypatch):
    FileStreamProgramCache(cache_path).close()
    os.chown(cache_path / folder, 12345, -1)
    with pytest.raises(UnsafeCacheDirError, match="as its owner, uid 12345"):
        FileStreamProgramCache(cache_path)  # root has no use for a directory of its own
    monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(UnsafeCacheDirError, match="12345") as error:
        FileStreamProgramCache(cache_path)
    assert f"chown -R {os.geteuid()} " in str(error.value)
    subprocess.run(str(error.value).rpartition("run: ")[2].partition(". Where")[0], shell=True, check=True)
    FileStreamProgramCache(cache_path).close()


def test_a_newer_format_is_refused(cache_path):
    FileStreamProgramCache(cache_path).close()
    make_newer(cache_path)
    with pytest.raises(FormatError, match="upgrade") as error:
        FileStreamProgramCache(cache_path)
    assert error.value.path == str(state_of(cache_path))
    with pytest.raises(FormatError):
        check_directory(Layout(str(cache_path)))


def test_a_file_in_the_way_is_the_plain_os_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below"):
        with pytest.raises(OSError, match="file"):
            FileStreamProgramCache(path)
    with pytest.raises(NotADirectoryError):
        check_directory(Layout(str(file)))
    assert file.read_text() == "mine"


@pytest.mark.parametrize("folder", ["entries", "tmp", "lockcache", "lockcache/locks", *_MADE_LATER])
def test_a_file_or_symlink_in_place_of_a_folder_is_refused(cache_path, tmp_path, folder):
    (cache_path / folder).parent.mkdir(parents=True)
    cache_path.chmod(0o700)
    (cache_path / folder).parent.chmod(0o700)
    if folder not in _MADE_LATER:
        (cache_path / folder).write_text("")
        with pytest.raises(NotADirectoryError):
            FileStreamProgramCache(cache_path)
        (cache_path / folder).unlink()
    (tmp_path / "elsewhere").mkdir()
    (cache_path / folder).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NotADirectoryError):
        FileStreamProgramCache(cache_path)
    assert os.listdir(tmp_path / "elsewhere") == []


def test_missing_parents_are_made(tmp_path):
    with FileStreamProgramCache(tmp_path / "a" / "b" / "c") as cache:
        cache["k"] = b"1"
        assert cache["k"] == b"1"


def test_a_symlinked_root_is_fine_and_a_dangling_one_is_not(cache_path, tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    cache_path.symlink_to(tmp_path / "real")
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"1"
    assert (tmp_path / "real" / "entries").is_dir()
    dangling = tmp_path / "dangling"
    dangling.symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match="dangling"):
        FileStreamProgramCache(dangling)


def test_looking_at_a_directory_makes_nothing(tmp_path):
    check_directory(Layout(str(tmp_path / "missing")))
    check_directory(Layout(str(tmp_path)))
    assert os.listdir(tmp_path) == []


@pytest.mark.cuda
def test_a_directory_that_cuda_core_filled_is_served_counted_and_bounded(cache_path):
    from cuda.core.utils import FileStreamProgramCache as Upstream

    with Upstream(cache_path) as theirs:
        theirs.update({str(number): b"%03d" % number * 100 for number in range(20)})
        with FileStreamProgramCache(cache_path) as ours:
            assert (len(ours), ours.stats().entries, ours.stats().bytes) == (20, 20, 6000)
            assert ours["7"] == b"007" * 100
            assert (ours.stats().hits, ours.stats().unverified_hits) == (1, 1)
        with FileStreamProgramCache(cache_path, max_size_bytes=3000) as ours:
            assert on_disk(cache_path).bytes <= 3000
            ours["new"] = b"x" * 300
            assert theirs["new"] == b"x" * 300
            assert on_disk(cache_path).bytes <= 3000
            assert (ours.stats().bytes, ours.stats().entries) == on_disk(cache_path)
            del theirs["new"]
            assert ours.get("new") is None
            theirs["new"] = b"theirs"
            assert ours["new"] == b"theirs"


def test_a_new_directory_is_tagged_as_a_cache_for_backups(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)["k"] = b"x"
    tag = cache_path / "CACHEDIR.TAG"
    assert tag.read_bytes().startswith(b"Signature: 8a477f597d28d172789f06886806bc55\n")
    assert stat.S_IMODE(tag.stat().st_mode) == 0o600
    with FileStreamProgramCache(cache_path) as cache:
        assert (len(cache), cache.stats().bytes) == (1, 1)
        cache.clear()
    assert tag.exists()


@pytest.mark.parametrize("name", ["entries/ab/cd", "mine.txt", "CACHEDIR.TAG"])
def test_what_somebody_else_put_there_is_not_called_a_cache(
    name: str, cache_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also cuda.core's own cache, which was there first, and a tag of other words."""
    (cache_path / name).parent.mkdir(parents=True)
    cache_path.chmod(0o700)
    (cache_path / name).write_bytes(b"mine")
    FileStreamProgramCache(cache_path)["k"] = b"x"
    tag = cache_path / "CACHEDIR.TAG"
    assert tag.read_bytes() == b"mine" if name == tag.name else not tag.exists()
    assert ("holds other files" in caplog.text) == (name == "mine.txt")
    caplog.clear()
    FileStreamProgramCache(cache_path)["k"] = b"x"
    assert caplog.text == "", "said once, when it was made"


def test_a_tag_alone_is_left_of_a_directory_that_may_be_made_again(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path)["k"] = b"x"
    for folder in ("entries", "lockcache", "tmp"):
        shutil.rmtree(cache_path / folder)
    FileStreamProgramCache(cache_path)["k"] = b"x"
    assert FileStreamProgramCache(cache_path).get("k") == b"x"


@pytest.mark.parametrize("folder", ["entries", "tmp", "lockcache/locks"])
def test_on_a_network_file_system_a_folder_that_is_missing_at_opening_is_made_by_the_write_that_lacks_it(
    folder: str, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "lustre")
    FileStreamProgramCache(cache_path)["k"] = b"x"
    shutil.rmtree(cache_path / folder)
    cache = FileStreamProgramCache(cache_path)
    cache["k"] = b"newer"
    assert (cache.get("k"), cache.stats().dropped_writes) == (b"newer", 0)


@pytest.mark.parametrize("kind", ["", "lustre"])
def test_the_first_write_gives_back_what_the_dead_had_reserved(
    kind: str, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FileStreamProgramCache(cache_path)["k"] = b"x"
    me = myself()
    staged = Path(cache_path, "tmp", str(StagedName(0, 500, me.host, 2**22 + 1, 1, 0)))
    staged.touch()
    os.utime(staged, (10**9, 10**9))
    with monkeypatch.context() as patch:  # and not for the age of the file
        patch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: kind)
        cache = FileStreamProgramCache(cache_path)
    assert cache.get("absent") is None
    assert staged.exists(), "opening looks for none, and a program that only reads pays nothing for it"
    cache["k"] = b"newer"
    assert not staged.exists()
