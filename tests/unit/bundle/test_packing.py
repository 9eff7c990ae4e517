# SPDX-License-Identifier: Apache-2.0
"""A cache that goes through a packed bundle comes out as it was: bytes, metadata, costs and the order of uses."""

from __future__ import annotations

import io
import os
import stat
import time
from pathlib import Path

import pytest
import zstandard

from lockcache import BundleProgramCache, Entry, FileStreamProgramCache
from lockcache.bundle.compression import DEFAULT_LEVEL, UNCOMPRESSED
from lockcache.bundle.gathering import Choice, LeftOut
from lockcache.bundle.unpacking import Acceptance, Packed, unpack_bundle
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.entry.codec import Record, pack, unpack
from lockcache.filestream.eviction.evict import all_entries
from tests.crash.measure import assert_one_recount_repairs_all
from tests.unit.bundle.bundles import write
from tests.unit.bundle.packed import CREATED_NS, entry, packed, packed_of, unpacked

ENTRIES = {
    b"empty": Entry(b""),
    b"bare": Entry(b"x" * 1000),
    b"described": Entry(b"y" * 5000, {"arch": "sm_90", "symbols": {b"f": "_Z1fv"}, "compile_cost_ns": 12}),
    b"other arch": Entry(b"z" * 600, {"arch": "sm_80", "kind": "cubin", "compiler": "NVRTC 13.5"}),
    b"with a log": Entry(b"z" * 5001, {"log": "l" * 30_000}),
    b"of a megabyte": Entry(os.urandom(1 << 20), {"n": (1, None)}),
}


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    """A cache whose entries were used a day apart, in the order above, the last one now."""
    root = tmp_path / "filled"
    with FileStreamProgramCache(root) as cache:
        for days_ago, (key, content) in zip(reversed(range(len(ENTRIES))), ENTRIES.items(), strict=True):
            cache.put_entry(key, content)
            used_ns = time.time_ns() - days_ago * 86400 * 10**9
            os.utime(path_of(root, key), ns=(used_ns, used_ns))
    return root


def path_of(root: Path, key: bytes) -> Path:
    return Path(Layout(str(root)).entry(entry_name(key)))


def uses(root: Path) -> list[tuple[int, str]]:
    return sorted((found.last_use_ns, found.name) for found in all_entries(Layout(str(root))))


@pytest.mark.parametrize("level", [UNCOMPRESSED, DEFAULT_LEVEL])
def test_the_order_of_uses_survives_to_the_nanosecond(level: int, filled: Path, tmp_path: Path) -> None:
    unpacked(packed(filled, level=level)[0], tmp_path / "other")
    assert uses(tmp_path / "other") == uses(filled)
    assert [name for _, name in uses(filled)] == [entry_name(key) for key in ENTRIES]


def test_a_packed_bundle_is_a_bundle_and_compressed_it_is_the_same(filled: Path, tmp_path: Path) -> None:
    plain, compressed = (packed(filled, level=level)[0] for level in (UNCOMPRESSED, DEFAULT_LEVEL))
    assert zstandard.ZstdDecompressor().decompressobj().decompress(compressed) == plain
    with BundleProgramCache(write(tmp_path / "plain.lcb", plain)) as bundle:
        assert {key: bundle.get_entry(key) for key in ENTRIES} == ENTRIES


def test_the_same_entries_make_the_same_bytes_wherever_they_are(filled: Path, tmp_path: Path) -> None:
    content, _ = packed(filled)
    assert packed(filled)[0] == content
    unpacked(content, tmp_path / "other")
    assert packed(tmp_path / "other")[0] == content


def test_what_is_unpacked_is_private(filled: Path, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        unpacked(packed(filled)[0], tmp_path / "other")
    finally:
        os.umask(before)
    for folder, _, files in os.walk(tmp_path / "other"):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        assert {stat.S_IMODE(os.stat(os.path.join(folder, file)).st_mode) for file in files} <= {0o600}


def test_packing_is_no_use_of_an_entry_and_changes_nothing(filled: Path) -> None:
    def look() -> list[tuple[str, int, int, int]]:
        paths = sorted(path for path in (filled / "entries").rglob("*") if path.is_file())
        return [
            (str(path), *(getattr(path.stat(), f"st_{time}_ns") for time in ("atime", "mtime", "ctime")))
            for path in paths
        ]

    # Older than its mtime by more than a day: what the kernel itself would set on any reading (relatime).
    os.utime(path_of(filled, b"bare"), ns=(10**18, 10**18))
    before = look()
    packed(filled)
    assert look() == before


def test_a_damaged_entry_is_left_out_and_counted(filled: Path, tmp_path: Path) -> None:
    with open(path_of(filled, b"bare"), "r+b") as file:
        file.write(b"!")
    content, done = packed(filled)
    assert (done.entries, done.damaged, done.is_complete) == (len(ENTRIES) - 1, 1, False)
    assert done.left_out == (LeftOut(entry_name(b"bare"), "damaged"),)
    assert unpacked(content, tmp_path / "other").stored == len(ENTRIES) - 1


def test_an_entry_that_is_damaged_while_it_is_packed_is_left_out_as_damaged_and_one_that_goes_is_not_missed(
    filled: Path, tmp_path: Path
) -> None:
    def after_the_first(done_bytes: int, of_bytes: int) -> None:
        path_of(filled, b"of a megabyte").write_bytes(b"short")
        path_of(filled, b"with a log").unlink(missing_ok=True)

    content, done = packed(filled, progress=after_the_first)
    assert (done.entries, done.damaged) == (len(ENTRIES) - 2, 1)
    assert [each.entry for each in done.left_out] == [entry_name(b"of a megabyte")]
    assert unpacked(content, tmp_path / "other").is_complete


IMPOSSIBLE = {"made before 1970": Record(7, -1, 5, b""), "a cost below nothing": Record(7, CREATED_NS, -5, b"")}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_an_entry_whose_record_states_what_cannot_be_is_packed_and_unpacked_without_that(
    what: str, tmp_path: Path
) -> None:
    record = pack(entry_name(b"a"), b"payload", IMPOSSIBLE[what])
    with FileStreamProgramCache(tmp_path / "here") as cache:
        cache[b"a"] = b"payload"
        os.setxattr(path_of(tmp_path / "here", b"a"), "user.lockcache", record)
        assert cache[b"a"] == b"payload"
    content, done = packed(tmp_path / "here")
    assert done.entries == 1
    older = packed_of(entry(b"a", b"payload", record=record))  # as it was packed once
    for number, each in enumerate((content, older)):
        there = tmp_path / f"there{number}"
        assert unpacked(each, there, Acceptance(strict=True)).is_complete
        stated = unpack(os.getxattr(path_of(there, b"a"), "user.lockcache"))
        assert (stated.cost_ns, stated.created_ns) == ((5, 0) if what == "made before 1970" else (0, CREATED_NS))


def test_entries_without_a_record_are_packed_only_when_asked_for_and_get_one(filled: Path, tmp_path: Path) -> None:
    os.removexattr(path_of(filled, b"bare"), "user.lockcache")
    assert packed(filled)[1].unverified == 1
    content, done = packed(filled, Choice(include_unverified=True))
    assert (done.entries, done.unverified) == (len(ENTRIES), 0)
    assert unpacked(content, tmp_path / "other").stored == len(ENTRIES)
    assert packed(tmp_path / "other")[0] == content
    with FileStreamProgramCache(tmp_path / "other", verified_only=True) as cache:
        assert cache.get(b"bare") == ENTRIES[b"bare"].code


def test_entries_that_are_there_are_kept_unless_they_are_to_be_replaced(filled: Path, tmp_path: Path) -> None:
    content, _ = packed(filled)
    with FileStreamProgramCache(tmp_path / "other") as cache:
        cache[b"bare"] = b"newer"
        assert unpacked(content, tmp_path / "other").kept == 1
        assert cache[b"bare"] == b"newer"
        assert unpacked(content, tmp_path / "other").kept == len(ENTRIES)
        done = unpacked(content, tmp_path / "other", Acceptance(overwrite=True))
        assert (done.stored, done.kept) == (len(ENTRIES), 0)
        assert cache[b"bare"] == ENTRIES[b"bare"].code
        assert_one_recount_repairs_all(cache)


def test_keeping_an_entry_is_no_use_of_it(filled: Path) -> None:
    before = uses(filled)
    assert unpacked(packed(filled)[0], filled).kept == len(ENTRIES)
    assert uses(filled) == before


def test_a_damaged_entry_that_is_there_is_replaced(filled: Path, tmp_path: Path) -> None:
    content, _ = packed(filled)
    unpacked(content, tmp_path / "other")
    with open(path_of(tmp_path / "other", b"bare"), "r+b") as file:
        file.write(b"!")
    assert unpacked(content, tmp_path / "other").stored == 1
    assert FileStreamProgramCache(tmp_path / "other")[b"bare"] == ENTRIES[b"bare"].code


def test_under_a_small_cap_those_used_last_survive(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKCACHE_POLICY", "lru")
    root = tmp_path / "small"
    with FileStreamProgramCache(root, max_size_bytes=1 << 20 | 40_000):
        done = unpacked(packed(filled)[0], root)
    assert done.is_complete
    assert done.evicted >= 1
    assert done.freed_bytes >= 1000
    left = {name for _, name in uses(root)}
    assert left >= {entry_name(key) for key in list(ENTRIES)[-3:]}


def test_a_last_use_in_the_future_would_keep_an_entry_for_ever_and_is_now(tmp_path: Path) -> None:
    name = entry_name(b"key")
    assert unpacked(packed_of(entry(b"key", b"code", used_ns=2**62)), tmp_path / "other").stored == 1
    [(used_ns, found)] = uses(tmp_path / "other")
    assert found == name
    assert used_ns <= time.time_ns()


def test_an_entry_whose_last_use_is_not_stated_was_used_when_it_was_compiled(tmp_path: Path) -> None:
    assert unpacked(packed_of(entry(b"key", b"code", used_ns=0)), tmp_path / "other").stored == 1
    assert uses(tmp_path / "other") == [(CREATED_NS, entry_name(b"key"))]


def test_in_a_directory_that_a_group_shares_no_planted_symlink_is_packed(filled: Path, tmp_path: Path) -> None:
    with FileStreamProgramCache(tmp_path / "shared", group=True) as cache:
        cache[b"bare"] = b"x"
        shard = path_of(tmp_path / "shared", b"bare").parent
        elsewhere = path_of(filled, b"bare").parent
        assert shard.name == elsewhere.name
        assert packed(tmp_path / "shared")[1].entries == 1
        cache.clear()
    shard.rmdir()
    shard.symlink_to(elsewhere)
    assert packed(tmp_path / "shared")[1].entries == 0


def test_unpacking_into_a_directory_that_a_group_shares_is_for_all_of_the_group(filled: Path, tmp_path: Path) -> None:
    FileStreamProgramCache(tmp_path / "shared", group=True).close()
    directory = CacheDirectory(str(tmp_path / "shared"), 5.0, group=True)
    done = unpack_bundle(Packed(io.BytesIO(packed(filled)[0])), directory)
    assert done.stored == len(ENTRIES)
    for path in (tmp_path / "shared" / "entries").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o2770 if path.is_dir() else 0o660)
