# SPDX-License-Identifier: Apache-2.0
"""Views in a directory: damage, the cap, who holds one, what others do, and where there are none."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.entry.views import StagedView
from lockcache.filestream.repair.verify import verify_entry
from lockcache.lowlevel import CacheDirectory
from tests.crash.measure import accounted, on_disk
from tests.unit.bundle.bundles import made_of

FILES = {"kernel.so": b"\x7fELF" * 100, "kernel.json": b"{}"}
BYTES = sum(map(len, FILES.values()))


@pytest.fixture
def cache(cache_path: Path) -> FileStreamProgramCache:
    return FileStreamProgramCache(cache_path, lock_timeout_seconds=2.0)


def _files(path: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path(path).iterdir()}


def _views(root: Path) -> list[Path]:
    return sorted((root / "lockcache/views").glob("??/*"))


def _change(path: Path) -> None:
    path.write_bytes(b"X" + path.read_bytes()[1:])


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: os.truncate(file, 7),
        _change,
        lambda file: file.write_bytes(file.read_bytes() + b"more"),
        lambda file: (file.unlink(), file.symlink_to("/etc/passwd")),
        lambda file: (file.unlink(), os.mkfifo(file)),
        Path.unlink,
    ],
)
def test_a_damaged_file_is_repaired_and_not_served(
    cache: FileStreamProgramCache, cache_path: Path, damage: Callable[[Path], object]
) -> None:
    cache.put_files("k", FILES)
    path = str(cache.view_files("k"))
    damage(Path(path, "kernel.so"))
    assert cache.view_files("k") == path
    assert _files(path) == FILES
    assert accounted(cache_path) == on_disk(cache_path)


def test_a_damaged_one_that_is_held_is_not_handed_out_until_it_can_be_repaired(
    cache: FileStreamProgramCache, cache_path: Path
) -> None:
    cache.put_files("k", FILES)
    held = cache.view_files("k")
    _change(Path(held, "kernel.so"))
    assert cache.view_files("k") is None
    assert cache.recount() == []
    path = str(held)
    del held
    assert cache.view_files("k") == path
    assert _files(path) == FILES


def test_nobody_but_the_owner_reads_it_whatever_the_umask(cache: FileStreamProgramCache, cache_path: Path) -> None:
    cache.put_files("k", FILES)
    before = os.umask(0)
    try:
        path = Path(cache.view_files("k"))
    finally:
        os.umask(before)
    for folder in (path, path.parent, path.parent.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()} == {0o600}


def test_where_others_may_write_and_not_sign_there_is_none(cache_path: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("5a" * 32)
    keys.chmod(0o600)
    cache = FileStreamProgramCache(cache_path, group=True, signing_key_file=keys)
    cache.put_files("k", FILES)
    assert cache.view_files("k") is None
    assert cache.get_files("k") == FILES


def test_an_eviction_takes_the_view_with_the_entry_and_none_that_is_held(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=5 * BYTES)
    cache.put_files("held", FILES)
    held = cache.view_files("held")
    cache.put_files("free", FILES)
    free = str(cache.view_files("free"))
    for number in range(4):
        cache[f"{number}"] = bytes(BYTES)
    assert _files(held) == FILES
    assert cache.get_files("held") == FILES, "the entry of a view that is held stays too"
    assert not os.path.exists(free)
    assert cache.get("free") is None
    assert cache.stats().bytes <= 5 * BYTES
    assert cache.recount() == []
    del held
    for number in range(9):
        cache[f"{number}"] = bytes(BYTES)
    assert cache.get("held") is None
    assert _views(cache_path) == []


def test_room_for_a_view_is_made_by_eviction_and_counted(cache_path: Path) -> None:
    cache = FileStreamProgramCache(cache_path, max_size_bytes=3 * BYTES)
    cache["older"] = bytes(2 * BYTES)
    cache.put_files("k", FILES)
    assert _files(cache.view_files("k")) == FILES
    assert cache.get("older") is None
    assert cache.stats().evictions == 1
    assert cache.stats().bytes == 2 * BYTES


def test_a_directory_that_is_only_read_shows_the_views_that_there_are(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache.put_files("shown", FILES)
        path = str(cache.view_files("shown"))
        cache.put_files("other", FILES)
    reading = FileStreamProgramCache(cache_path, read_only=True)
    assert reading.view_files("shown") == path
    assert reading.view_files("other") is None
    assert len(_views(cache_path)) == 1


def test_looking_for_a_view_takes_no_turn_and_counts_as_a_use(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path, compile_once=True) as cache:
        assert cache.view_files("k") is None
        assert list((cache_path / "lockcache").glob("leases/*")) == []
        cache.put_files("k", FILES)
        assert cache.view_files("k") is not None
        assert cache.stats().hits == 1


def test_the_view_of_an_entry_that_another_program_removed_goes_by_a_recount(
    cache: FileStreamProgramCache, cache_path: Path
) -> None:
    cache.put_files("k", FILES)
    cache.view_files("k")
    [entry] = (cache_path / "entries").glob("??/*")
    entry.unlink()
    [repair] = cache.recount()
    assert repair.after == (0, 0)
    assert _views(cache_path) == []


def test_a_corrupt_entry_takes_its_view_into_no_quarantine(cache: FileStreamProgramCache, cache_path: Path) -> None:
    cache.put_files("k", FILES)
    path = str(cache.view_files("k"))
    [entry] = (cache_path / "entries").glob("??/*")
    _change(entry)
    assert cache.view_files("k") is None, "the entry decides, however whole its view is"
    verify_entry(CacheDirectory(str(cache_path), 2.0), entry.parent.name + entry.name, repair=True)
    assert not os.path.exists(path)
    assert cache.recount() == []


def test_of_two_that_make_a_view_at_once_the_second_takes_that_of_the_first(
    cache: FileStreamProgramCache, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill, other, paths = StagedView.fill, FileStreamProgramCache(cache_path), []

    def fill_after_the_other(staged: StagedView, files: dict[str, bytes]) -> None:
        if not paths:
            paths.append(None)
            paths[0] = other.view_files("k")
        fill(staged, files)

    monkeypatch.setattr(StagedView, "fill", fill_after_the_other)
    cache.put_files("k", FILES)
    assert cache.view_files("k") == paths[0]
    assert cache.stats().bytes == 2 * BYTES
    assert list((cache_path / "tmp").iterdir()) == []
    assert cache.recount() == []


@pytest.mark.root
@pytest.mark.long
@pytest.mark.parametrize("kind", ["ext4", "xfs"])
def test_on_file_systems_that_show_blocks_nothing_is_unaccounted_for(
    real_blocks: None, mount_image: Callable[..., Path], kind: str
) -> None:
    root = mount_image(kind, 512) / "cache"
    cache = FileStreamProgramCache(root, max_size_bytes=4 << 20)
    for number in range(150):
        cache.put_files(f"{number}", {f"{name} {number}": bytes(number * 99) for name in range(5)})
        view = cache.view_files(f"{number}")
        assert view is not None
    del view
    said, there = accounted(root), on_disk(root)
    assert [shard for shard in there if said[shard][0] < there[shard][0]] == []
    if kind == "ext4":  # on xfs a folder of few names is in its inode, and counts for a block
        assert said == there
    assert cache.recount() == []
    assert sum(path.lstat().st_blocks * 512 for path in root.rglob("*")) <= 4 << 20
    cache.clear()
    assert accounted(root) == on_disk(root)


def test_files_that_only_the_seed_has_are_shown(cache_path: Path, tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "source") as source:
        source.put_files("k", FILES)
    made_of(tmp_path / "source", tmp_path / "kernels.lcb")
    with FileStreamProgramCache(cache_path, seed=tmp_path / "kernels.lcb") as cache:
        assert _files(str(cache.view_files("k"))) == FILES
        assert cache.view_files("other") is None
