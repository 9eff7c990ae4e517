"""Opening a directory: private from the first moment, refused where it is unsafe, made again where it was deleted."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import time
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, FormatError, UnsafeCacheDirError
from lockcache.filestream import directory as directory_module
from lockcache.filestream.accounting.state import Slot, StatePage
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.descriptors import Descriptor
from lockcache.filestream.disk.layout import SHARDS, Layout, StagedName
from lockcache.filestream.disk.owners import myself
from lockcache.filestream.disk.permissions import check_directory
from lockcache.filestream.disk.reach import Reach
from lockcache.filestream.inspect import accounted
from tests.state_pages import damage, make_newer, state_of
from tests.unit.material import on_disk, open_directory


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
    command = str(error.value).rpartition("Run: ")[2]
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
    subprocess.run(str(error.value).rpartition("run: ")[2], shell=True, check=True)
    FileStreamProgramCache(cache_path).close()


def test_a_newer_format_is_refused(cache_path):
    FileStreamProgramCache(cache_path).close()
    make_newer(cache_path)
    with pytest.raises(FormatError, match="upgrade") as error:
        FileStreamProgramCache(cache_path)
    assert error.value.path == str(state_of(cache_path))
    with pytest.raises(FormatError):
        check_directory(Layout(str(cache_path)))


def _empty(path: Path) -> None:
    os.truncate(state_of(path), 0)


def _cut(path: Path) -> None:
    os.truncate(state_of(path), 100)


def _overwrite(path: Path) -> None:
    state_of(path).write_bytes(b"no version ever wrote this")


@pytest.mark.parametrize("spoil", [damage, _empty, _cut, _overwrite, lambda path: state_of(path).unlink()])
def test_a_page_that_is_lost_or_damaged_is_counted_again(cache_path, spoil, caplog):
    with FileStreamProgramCache(cache_path, max_size_bytes=1000) as cache:
        cache["k"] = b"x" * 100
    is_said = spoil in (damage, _cut, _overwrite)
    spoil(cache_path)
    assert accounted(Layout(str(cache_path))) is None
    with FileStreamProgramCache(cache_path, max_size_bytes=1000) as cache:
        assert ("is damaged" in caplog.text) == is_said
        assert cache["k"] == b"x" * 100
        cache["l"] = b"x" * 100
        assert (cache.stats().bytes, cache.stats().entries) == on_disk(cache_path) == (200, 2)
        for number in range(20):
            cache[str(number)] = b"x" * 100
        assert on_disk(cache_path).bytes <= 1000


def test_a_copy_of_a_directory_is_counted_and_has_its_cap(cache_path, tmp_path):
    copy = tmp_path / "copy"
    with FileStreamProgramCache(cache_path, max_size_bytes=1000) as cache:
        cache["k"] = b"x" * 100
        shutil.copytree(cache_path / "lockcache", copy / "lockcache")  # the copy has begun
        cache["l"] = b"x" * 100
        for folder in ("entries", "tmp"):
            shutil.copytree(cache_path / folder, copy / folder)
    for folder in (copy, copy / "lockcache"):
        folder.chmod(0o700)
    assert accounted(Layout(str(copy))) is None
    with FileStreamProgramCache(copy) as cache:
        assert (cache.max_size_bytes, cache.stats().bytes) == (1000, 200)
    with FileStreamProgramCache(cache_path) as cache:
        assert (cache.max_size_bytes, cache.stats().bytes) == (1000, 200)


def test_a_copy_by_hard_links_shares_no_accounting(cache_path, tmp_path):
    copy = tmp_path / "copy"
    with FileStreamProgramCache(cache_path) as cache:
        cache["k"] = b"x" * 100
        shutil.copytree(cache_path, copy, copy_function=os.link)
        copy.chmod(0o700)
        with FileStreamProgramCache(copy) as other:
            other["l"] = b"x" * 100
            cache["m"] = b"x" * 300
            assert (other.stats().bytes, cache.stats().bytes) == (200, 400)


def test_hosts_that_open_a_directory_in_turn_count_it_once(cache_path, monkeypatch):
    """Each sees it on another device."""
    FileStreamProgramCache(cache_path)["k"] = b"x" * 100
    real = os.stat_result
    monkeypatch.setattr(CacheDirectory, "_replace_page_locked", lambda directory: pytest.fail("it is there"))
    lstat = os.lstat

    def look(path: str, **options: object) -> os.stat_result:
        fields = list(lstat(path))
        fields[2] += 7
        return real(fields)

    monkeypatch.setattr("lockcache.filestream.accounting.state.os.lstat", look)
    assert FileStreamProgramCache(cache_path).stats().bytes == 100


def test_opening_keeps_the_page_young(cache_path):
    FileStreamProgramCache(cache_path).close()
    os.utime(state_of(cache_path), (10**9, 10**9))
    FileStreamProgramCache(cache_path).close()
    assert time.time() - state_of(cache_path).stat().st_mtime < 3600


def test_a_file_in_the_way_is_the_plain_os_error(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    for path in (file, file / "below"):
        with pytest.raises(OSError, match="file"):
            FileStreamProgramCache(path)
    with pytest.raises(NotADirectoryError):
        check_directory(Layout(str(file)))
    assert file.read_text() == "mine"


@pytest.mark.parametrize("folder", ["entries", "tmp", "lockcache", "lockcache/locks"])
def test_a_file_or_symlink_in_place_of_a_folder_is_refused(cache_path, tmp_path, folder):
    (cache_path / folder).parent.mkdir(parents=True)
    cache_path.chmod(0o700)
    (cache_path / folder).parent.chmod(0o700)
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


@pytest.mark.parametrize("what", ["entries/ab", "tmp/file", "lockcache/records/ab", "lockcache/quarantine/file",
                                  "lockcache/locks/ab"])  # fmt: skip
def test_the_shards_of_a_new_directory_are_not_looked_into_and_of_any_other_all_are(cache_path, monkeypatch, what):
    looked = []
    monkeypatch.setattr(
        directory_module, "measure_shard", lambda layout, shard, **_: looked.append(shard) or Slot(0, 0)
    )

    def count():
        directory = open_directory(cache_path)
        directory.usage()
        directory.close()

    count()
    assert looked == []
    os.unlink(state_of(cache_path))
    (cache_path / what).mkdir(mode=0o700, parents=True)
    count()
    assert looked == list(range(SHARDS))


def test_a_directory_with_entries_and_no_accounting_is_counted_at_opening(cache_path):
    with FileStreamProgramCache(cache_path) as cache:
        cache.update({"a": b"x" * 10, "b": b"y" * 20})
    shutil.rmtree(cache_path / "lockcache")
    directory = open_directory(cache_path)
    assert directory.usage().total() == (30, 2)
    directory.close()


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


@pytest.mark.cuda
def test_what_cuda_core_writes_over_our_entry_is_theirs_whole(cache_path):
    from cuda.core.utils import FileStreamProgramCache as Upstream

    for record_files in (False, True):
        with FileStreamProgramCache(cache_path, record_files=record_files) as ours, Upstream(cache_path) as theirs:
            ours["k"] = b"ours"
            theirs["k"] = b"theirs"
            assert ours.get("k") in (None, b"theirs")
            ours["k"] = b"ours again"
            assert theirs["k"] == ours["k"] == b"ours again"


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


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_page_that_another_host_replaces_while_it_is_opened_is_looked_for_again(
    times: int, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An NFS client answers so once or twice; a file system that goes on with this answer is broken."""
    FileStreamProgramCache(cache_path)["k"] = b"x"
    opened, stale = CacheDirectory._opened_page, iter(range(times))

    def open_unless_stale(directory: CacheDirectory) -> StatePage:
        if next(stale, None) is not None:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return opened(directory)

    monkeypatch.setattr(CacheDirectory, "_opened_page", open_unless_stale)
    monkeypatch.setattr(CacheDirectory, "_replace_page_locked", lambda directory: pytest.fail("it is there"))
    if times == 3:
        with pytest.raises(OSError, match="Stale"):
            FileStreamProgramCache(cache_path)
    else:
        assert FileStreamProgramCache(cache_path).stats().entries == 1


@pytest.mark.parametrize("times, number", [(1, errno.ESTALE), (2, errno.ESTALE), (1, errno.EINVAL)])
def test_only_a_mount_that_refuses_it_has_the_page_opened_in_the_clients_cache(
    times: int, number: int, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FileStreamProgramCache(cache_path)["k"] = b"x"
    opened, errors = Reach.open, iter([number] * times)
    direct: list[bool] = []

    def open_unless_refused(reach: Reach, path: str, flags: int, file: Descriptor | None = None) -> Descriptor:
        if path.endswith("/lockcache/state"):
            direct.append(bool(flags & os.O_DIRECT))
            if flags & os.O_DIRECT and (error := next(errors, None)) is not None:
                raise OSError(error, os.strerror(error))
        return opened(reach, path, flags & ~os.O_DIRECT, file)  # not every file system below a test takes it

    monkeypatch.setattr("lockcache.filestream.disk.layout.network_kind", lambda root: "nfs4")
    monkeypatch.setattr(Reach, "open", open_unless_refused)
    assert FileStreamProgramCache(cache_path).stats().entries == 1
    assert direct == ([True, False] if number == errno.EINVAL else [True] * (times + 1))


@pytest.mark.parametrize("folder", ["entries", "tmp", "lockcache/locks"])
def test_on_a_network_file_system_a_folder_that_is_missing_at_opening_is_made_by_the_write_that_lacks_it(
    folder: str, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockcache.filestream.disk.layout.network_kind", lambda root: "lustre")
    FileStreamProgramCache(cache_path)["k"] = b"x"
    shutil.rmtree(cache_path / folder)
    cache = FileStreamProgramCache(cache_path)
    cache["k"] = b"newer"
    assert (cache.get("k"), cache.stats().dropped_writes) == (b"newer", 0)


def test_on_a_network_file_system_the_first_write_gives_back_what_the_dead_had_reserved(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lockcache.filestream.disk.layout.network_kind", lambda root: "lustre")
    FileStreamProgramCache(cache_path)["k"] = b"x"
    me = myself()
    staged = Path(cache_path, "tmp", str(StagedName(0, 500, me.host, 2**22 + 1, 1, 0)))
    staged.touch()
    os.utime(staged, (10**9, 10**9))
    cache = FileStreamProgramCache(cache_path)
    assert staged.exists(), "opening looks for none"
    cache["k"] = b"newer"
    assert not staged.exists()
