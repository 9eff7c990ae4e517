# SPDX-License-Identifier: Apache-2.0
"""Nothing in a packed bundle is trusted: none fills memory, takes for ever, or brings in what was not packed."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from lockcache import FileStreamProgramCache
from lockcache.bundle.unpacking import Acceptance, Packed, unpack_bundle
from lockcache.errors import ArchiveError
from lockcache.filestream.bundle_format import END_BYTES, encode_end, encode_start
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.codec import HEAD_BYTES, LARGEST_RECORD_BYTES, Record, pack
from tests.limits import within
from tests.unit.bundle.packed import compress, end_of, entry, head_of, packed_of, unpacked

GOOD = {b"first": b"1" * 700, b"last": b"2" * 30}
A_NAME = entry_name(b"a")


def good() -> list[bytes]:
    return [entry(key, payload) for key, payload in GOOD.items()]


def outside(root: Path) -> list[str]:
    """Every path next to a cache directory, and everything in it that is not a plain file or directory."""
    found = [str(path) for path in root.parent.iterdir() if path != root]
    return found + [str(path) for path in root.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())]


WRONG = {
    "another name": entry(b"a", b"payload", name_of=b"b"),
    "altered": entry(b"a", b"payload").replace(b"payload", b"Payload"),
    "zeros for a record": entry(b"a", b"payload", record=bytes(44)),
    "another's record": entry(b"a", b"payload", record=pack(A_NAME, b"other", Record(5, 1, 2, b""))),
    "a longer tail": entry(b"a", b"payload", record=pack(A_NAME, b"payload", Record(7, 1, 2, b"")) + b"x"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_fails_its_digest_is_left_out_and_the_rest_is_stored(kind: str, cache_path: Path) -> None:
    first, last = good()
    content = packed_of(first, WRONG[kind], last)
    done = unpacked(content, cache_path)
    assert (done.stored, done.damaged, done.is_complete) == (2, 1, False)
    assert len(done.problems) == 1
    assert outside(cache_path) == []
    with FileStreamProgramCache(cache_path) as cache:
        assert {key: cache.get(key) for key in GOOD} == GOOD
        assert len(cache) == 2
    with pytest.raises(ArchiveError, match="digest is another"):
        unpacked(content, cache_path, Acceptance(strict=True))


REFUSED = {
    "no record": entry(b"a", b"payload", record=b""),
    "half a record": entry(b"a", b"payload", record=bytes(HEAD_BYTES - 1)),
    "a record that no entry has": entry(b"a", b"payload", record=bytes(LARGEST_RECORD_BYTES + 1)),
    "an entry larger than is accepted": entry(b"a", bytes(2 << 20)),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_sizes_that_are_not_accepted_are_refused_and_the_rest_is_stored(kind: str, cache_path: Path) -> None:
    first, last = good()
    acceptance = Acceptance(largest_entry_bytes=1 << 20)
    tracemalloc.start()
    done = unpacked(packed_of(first, REFUSED[kind], last), cache_path, acceptance)
    tracemalloc.stop()
    assert (done.stored, done.refused, done.is_complete) == (2, 1, False)
    assert outside(cache_path) == []
    with pytest.raises(ArchiveError, match="accepted"):
        unpacked(packed_of(REFUSED[kind]), cache_path, Acceptance(strict=True, largest_entry_bytes=1 << 20))


@pytest.mark.slow
def test_a_run_of_zeros_fills_neither_memory_nor_the_directory(cache_path: Path) -> None:
    size = 256 << 20
    bomb = compress(packed_of(good()[0], head_of(b"a", size - 44, 44) + bytes(size)))
    assert len(bomb) < 100_000
    tracemalloc.start()
    done = unpacked(bomb, cache_path, Acceptance(largest_entry_bytes=1 << 20))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (done.stored, done.refused) == (1, 1)
    assert peak_bytes < 10 << 20


@pytest.mark.slow
def test_an_entry_beyond_the_cap_is_not_read_into_memory(cache_path: Path) -> None:
    size = 256 << 20
    content = compress(packed_of(head_of(b"a", size - 44, 44) + bytes(size)))
    FileStreamProgramCache(cache_path, max_size_bytes=10**6).close()
    tracemalloc.start()
    done = unpacked(content, cache_path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.dropped == 1
    assert peak_bytes < 10 << 20


def test_a_record_counts_as_its_entry_does(cache_path: Path) -> None:
    first, last = good()
    record = pack(A_NAME, b"tiny", Record(4, 1, 2, bytes(1 << 20)))
    content = packed_of(first, entry(b"a", b"tiny", record=record), last)
    done = unpacked(content, cache_path, Acceptance(largest_entry_bytes=1 << 20))
    assert (done.stored, done.refused) == (2, 1)
    assert f"{4 + len(record)} bytes; accepted: 1048576" in done.problems[0]
    assert unpacked(content, cache_path, Acceptance(largest_entry_bytes=4 + len(record))).stored == 1


def test_what_takes_no_bytes_is_no_list_of_entries(cache_path: Path) -> None:
    content = compress(encode_start() + b"".join([*good(), *[entry(b"a", b"x", record=b"")] * 20_000]))
    assert len(content) < 5000
    with pytest.raises(ArchiveError, match=r"10\d\d entries in .* bytes, which no bundle has \(2 entries stored"):
        unpacked(content, cache_path)


@pytest.mark.slow
def test_many_entries_that_are_all_alike_are_entries(cache_path: Path) -> None:
    entries = [entry(b"%d" % number, b"the same") for number in range(3000)]
    assert unpacked(compress(packed_of(*entries)), cache_path).stored == 3000


LARGE = 200 << 20
PACK = """
import os, sys
from pathlib import Path
from lockcache import FileStreamProgramCache
root, size = Path(sys.argv[1]), int(sys.argv[2])
part = os.urandom(1 << 20)
for key in (b"a", b"b"):
    FileStreamProgramCache(root)[key] = part * (size >> 20)
"""
MEASURED = """
import sys
from pathlib import Path
from lockcache.bundle import Acceptance, Packed, compressing, make_bundle, unpack_bundle
from lockcache.lowlevel import CacheDirectory, Layout
from tests.limits import peak_bytes
what, root, packed, level = sys.argv[1:]
directory = CacheDirectory(root, 5.0)
before = peak_bytes()
if what == "pack":
    with open(packed, "wb") as file, compressing(file, int(level)) as out:
        done = make_bundle(Layout(root), out, is_packed=True).entries
else:
    with open(packed, "rb") as file:
        unpacked = unpack_bundle(Packed(file), directory, Acceptance(overwrite=what == "overwrite"))
        done = unpacked.stored + unpacked.kept
print(done, peak_bytes() - before)
"""


@pytest.mark.long
@pytest.mark.parametrize("level", [0, 3])
def test_no_more_than_one_entry_is_in_memory_at_a_time(level: int, tmp_path: Path) -> None:
    source, target, packed = tmp_path / "source", tmp_path / "target", tmp_path / "packed"
    within(100, PACK, source, LARGE)
    for what, root in (("pack", source), ("unpack", target), ("keep", target), ("overwrite", target)):
        done, more_bytes = map(int, within(100, MEASURED, what, root, packed, level))
        assert done == 2
        assert more_bytes < 1.2 * LARGE, f"{what}: {more_bytes / LARGE:.2f} times the entry"


def _frame(window_log: int) -> bytes:
    # A frame header that says nothing but how much memory its reader will need.
    return zstandard.FRAME_HEADER + bytes([0x00, (window_log - 10) << 3]) + bytes(16)


_body = encode_start() + b"".join(good())
NOT_BUNDLES = {
    "a record of which there is less": (_body + head_of(b"a", 100, 44) + bytes(60), "cut off"),
    "a payload that no memory takes": (_body + head_of(b"a", 2**64 - 1, 44) + bytes(1 << 20), "cut off"),
    "no end": (_body, "cut off"),
    "half a head of an entry": (_body + good()[0][:20], "cut off"),
    "no table": (_body + encode_end(encode_start(), b"", len(_body), 2), "damaged"),
    "another end": (_body + end_of(_body, 2)[:-END_BYTES] + bytes(END_BYTES), "damaged"),
    "more entries than are there": (_body + end_of(_body, 3), "table is not that of its entries"),
    "fewer entries than are there": (_body + end_of(_body, 1), "table is not that of its entries"),
    "a table elsewhere": (_body + end_of(_body + bytes(64), 2), "damaged"),
    "something behind the end": (_body + end_of(_body, 2) + bytes(64), "damaged"),
    "zeros for an entry": (_body + bytes(64) + end_of(_body, 2), "damaged"),
    "another version": (encode_start().replace(b"\2", b"\3") + end_of(encode_start(), 0), "version 3"),
    "another alignment": (encode_start().replace(b"\x40", b"\x80") + end_of(encode_start(), 0), "version 2"),
    "an empty frame": (compress(b""), "cut off"),
    "an empty file": (b"", "cut off"),
    "another file": (b"PK\3\4 no zstd", "not a bundle"),
    "the beginning of a head": (b"LCBUND", "cut off"),
    "a window of a gigabyte": (_frame(30), "damaged"),
    "a frame cut off": (compress(packed_of(*good()))[:-9], "cut off|damaged"),
    "a frame with another checksum": (compress(packed_of(*good()))[:-4] + b"abcd", "damaged"),
}


@pytest.mark.parametrize("kind", NOT_BUNDLES)
def test_what_is_not_a_bundle_is_an_error_that_says_so(kind: str, cache_path: Path) -> None:
    content, said = NOT_BUNDLES[kind]
    with pytest.raises(ArchiveError, match=said):
        unpacked(content, cache_path)
    assert outside(cache_path) == []


def test_a_bundle_cut_anywhere_is_an_error_and_leaves_whole_entries(cache_path: Path) -> None:
    content = packed_of(*good())
    for length in range(0, len(content), 50):
        for cut in (content[:length], compress(content[:length])):
            with pytest.raises(ArchiveError, match="cut off"):
                unpacked(cut, cache_path)
    with FileStreamProgramCache(cache_path) as cache:
        assert {key: cache.get(key) for key in GOOD} == GOOD


_whole = packed_of(*good(), entry(b"e", b""))


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(_whole) - 1), st.binary(min_size=1, max_size=40)), min_size=1, max_size=5))
def test_no_altered_bundle_brings_in_anything_that_was_not_packed(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]]
) -> None:
    altered = bytearray(_whole)
    for start, content in changes:
        altered[start : start + len(content)] = content
    for packed in (compress(bytes(altered)), bytes(altered)):
        root = tmp_path_factory.mktemp("hostile") / "cache"
        try:
            unpacked(packed, root)
        except ArchiveError:
            pass
        assert outside(root) == []
        with FileStreamProgramCache(root) as cache:
            found = {key: cache.get(key) for key in (*GOOD, b"e")}
            assert all(value in (None, GOOD.get(key, b"")) for key, value in found.items())
            assert len(cache) == sum(value is not None for value in found.values())


@pytest.mark.parametrize("content", [compress(_whole), _whole], ids=["zstd", "plain"])
def test_a_reader_that_gives_a_byte_at_a_time_is_read_to_the_end(content: bytes, cache_path: Path) -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(1, size or 0) if size and size > 0 else size)

    assert unpack_bundle(Packed(Slow(content)), CacheDirectory(str(cache_path), 5.0)).stored == 3


@pytest.mark.parametrize("used_ns", [2**63, 2**64 - 1])
def test_an_entry_from_a_time_that_no_file_system_can_state_is_stored(used_ns: int, tmp_path: Path) -> None:
    assert unpacked(packed_of(entry(b"a", b"x", used_ns=used_ns)), tmp_path / "cache").stored == 1
