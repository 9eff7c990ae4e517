"""Nothing in an archive is trusted: what is not an entry is refused, and no archive writes anywhere or fills memory."""

from __future__ import annotations

import io
import os
import tarfile
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings, strategies as st

from lockcache import FileStreamProgramCache
from lockcache.archive.members import Manifest, end_of_archive, entry_header, manifest_member
from lockcache.archive.unpacking import Acceptance
from lockcache.errors import ArchiveError
from lockcache.filestream.disk.layout import entry_name
from lockcache.filestream.entry.codec import Record, pack
from tests.limits import within
from tests.unit.archive.archives import archive_of, compress, entry, member, unpacked

MANIFEST = "lockcache-pack.json"
NAME = f"entries/{entry_name(b'planted')[:2]}/{entry_name(b'planted')[2:]}"
GOOD = {b"first": b"1" * 700, b"last": b"2" * 30}

HOSTILE = {
    "an absolute path": member("/tmp/lockcache-planted", body=b"x"),
    "a path that leads out": member("../lockcache-planted", body=b"x"),
    "a path that leads out from where entries are": member("entries/../../lockcache-planted", body=b"x"),
    "an entry's name, and more": member(NAME + "/../../../planted", body=b"x"),
    "an entry's name after a dot": member("./" + NAME, body=b"x"),
    "an entry's name with a newline": member(NAME + "\n", body=b"x"),
    "a name in capitals": member(NAME.upper().replace("ENTRIES", "entries"), body=b"x"),
    "a name of other digits": member(NAME[:-1] + "\N{ARABIC-INDIC DIGIT ONE}", body=b"x"),
    "a record file": member(NAME.replace("entries", "lockcache/records"), body=b"x"),
    "a policy": member("lockcache/policy.json", body=b'{"max_size_bytes": 1}'),
    "a symlink": member(NAME, tarfile.SYMTYPE, link="/etc/passwd"),
    "a symlink in place of a directory": member("entries", tarfile.SYMTYPE, link="/tmp"),
    "a hard link": member(NAME, tarfile.LNKTYPE, link="/etc/passwd"),
    "a hard link of a megabyte": member(NAME, tarfile.LNKTYPE, link="/etc/passwd", size=1 << 20),
    "a character device": member(NAME, tarfile.CHRTYPE),
    "a block device": member(NAME, tarfile.BLKTYPE),
    "a FIFO": member(NAME, tarfile.FIFOTYPE),
    "a directory": member(NAME, tarfile.DIRTYPE),
    "a sparse file": member(NAME, tarfile.GNUTYPE_SPARSE, b"x" * 512),
    "a long name of GNU's": member("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"/tmp/lockcache-planted\0"),
    "headers for all that follows": member("././@PaxHeader", tarfile.XGLTYPE, b"13 path=/tmp\n"),
    "an unknown type": member(NAME, b"Z", b"x"),
    "a name stated again": member(NAME, body=b"x", stated={"path": "/tmp/lockcache-planted"}),
    "a size stated again": member(NAME, body=b"x", stated={"size": "100000"}),
    "a sparse file of another kind": member(NAME, body=b"x", stated={"GNU.sparse.major": "1"}),
    "a record that no memory takes": member(NAME, body=b"x", stated={"comment": "c" * (17 << 20)}),
    "a size that no memory takes": member(NAME, size=(1 << 33) - 1) + bytes(1 << 20),
}


def good() -> list[bytes]:
    return [entry(key, payload) for key, payload in GOOD.items()]


def outside(root: Path) -> list[str]:
    """Every path next to a cache directory, and everything in it that is not a plain file or directory."""
    found = [str(path) for path in root.parent.iterdir() if path != root]
    return found + [str(path) for path in root.rglob("*") if path.is_symlink() or not (path.is_file() or path.is_dir())]


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if "a size that no memory" not in kind])
def test_what_is_no_entry_is_refused_and_the_rest_is_stored(kind: str, cache_path: Path) -> None:
    first, last = good()
    done = unpacked(archive_of(first, HOSTILE[kind], last), cache_path)
    assert (done.stored, done.refused, done.is_complete) == (2, 1, False)
    assert len(done.problems) == 1
    assert outside(cache_path) == []
    assert not os.path.exists("/tmp/lockcache-planted")
    with FileStreamProgramCache(cache_path) as cache:
        assert {key: cache.get(key) for key in GOOD} == GOOD
        assert len(cache) == 2
        assert cache.max_size_bytes is None
    with pytest.raises(ArchiveError):
        unpacked(archive_of(HOSTILE[kind]), cache_path, Acceptance(strict=True))


A_NAME = entry_name(b"a")
WRONG = {
    "another name": entry(b"a", b"payload", name_of=b"b"),
    "altered": entry(b"a", b"payload").replace(b"payload", b"Payload"),
    "half a record": entry(b"a", b"payload", record=b"LC"),
    "zeros for a record": entry(b"a", b"payload", record=bytes(44)),
    "another's record": entry(b"a", b"payload", record=pack(A_NAME, b"other", Record(5, 1, 2, b""))),
    "a longer tail": entry(b"a", b"payload", record=pack(A_NAME, b"payload", Record(7, 1, 2, b"")) + b"x"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_fails_its_digest_is_left_out(kind: str, cache_path: Path) -> None:
    first, last = good()
    done = unpacked(archive_of(first, WRONG[kind], last), cache_path)
    assert (done.stored, done.damaged, done.is_complete) == (2, 1, False)
    assert FileStreamProgramCache(cache_path).get(b"a") is None


@pytest.mark.slow
def test_a_run_of_zeros_fills_neither_memory_nor_the_directory(cache_path: Path) -> None:
    size = 256 << 20
    bomb = compress(
        manifest_member(Manifest(3, 1 << 40)) + good()[0] + member(NAME, size=size) + bytes(size) + end_of_archive()
    )
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
    archive = archive_of(member(NAME, size=size), bytes(size))
    FileStreamProgramCache(cache_path, max_size_bytes=10**6).close()
    tracemalloc.start()
    done = unpacked(archive, cache_path)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert done.dropped == 1
    assert peak_bytes < 10 << 20


def test_a_record_counts_as_its_entry_does(cache_path: Path) -> None:
    first, last = good()
    record = pack(A_NAME, b"tiny", Record(4, 1, 2, bytes(1 << 20)))
    archive = archive_of(first, entry(b"a", b"tiny", record=record), last)
    done = unpacked(archive, cache_path, Acceptance(largest_entry_bytes=1 << 20))
    assert (done.stored, done.refused) == (2, 1)
    assert f"{4 + len(record)} bytes; accepted: 1048576" in done.problems[0]
    assert unpacked(archive, cache_path, Acceptance(largest_entry_bytes=4 + len(record))).stored == 1


def test_what_takes_no_bytes_is_no_list_of_entries(cache_path: Path) -> None:
    members = [member("x")] * 20_000
    archive = archive_of(*good(), *members, entries=30_000)
    assert len(archive) < 4000
    with pytest.raises(ArchiveError, match=r"10\d\d members in .* bytes, which no entries are \(2 entries stored"):
        unpacked(archive, cache_path)


@pytest.mark.slow
def test_many_entries_that_are_all_alike_are_entries(cache_path: Path) -> None:
    members = [entry(b"%d" % number, b"the same") for number in range(3000)]
    assert unpacked(archive_of(*members, entries=3000), cache_path).stored == 3000


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
from lockcache.archive.packing import pack_directory
from lockcache.archive.unpacking import Acceptance, unpack_archive
from lockcache.lowlevel import CacheDirectory, Layout
from tests.limits import peak_bytes
what, root, archive = sys.argv[1:]
directory = CacheDirectory(root, 5.0)
before = peak_bytes()
if what == "pack":
    with open(archive, "wb") as file:
        done = pack_directory(Layout(root), file).entries
else:
    with open(archive, "rb") as file:
        _, unpacked = unpack_archive(file, lambda: directory, Acceptance(overwrite=what == "overwrite"))
        done = unpacked.stored + unpacked.kept
print(done, peak_bytes() - before)
"""


@pytest.mark.long
def test_no_more_than_one_entry_is_in_memory_at_a_time(tmp_path: Path) -> None:
    source, target, archive = tmp_path / "source", tmp_path / "target", tmp_path / "archive"
    within(100, PACK, source, LARGE)
    for what, root in (("pack", source), ("unpack", target), ("keep", target), ("overwrite", target)):
        done, more_bytes = map(int, within(100, MEASURED, what, root, archive))
        assert done == 2
        assert more_bytes < 1.2 * LARGE, f"{what}: {more_bytes / LARGE:.2f} times the entry"


def _frame(window_log: int) -> bytes:
    # A frame header that says nothing but how much memory its reader will need.
    return zstandard.FRAME_HEADER + bytes([0x00, (window_log - 10) << 3]) + bytes(16)


NO_ARCHIVES = {
    "more entries than stated": (archive_of(*good(), entries=1), "more than its manifest says"),
    "more bytes than stated": (archive_of(*good(), size_bytes=729), "more than its manifest says"),
    "a size beyond all": (
        archive_of(HOSTILE["a size that no memory takes"], size_bytes=1 << 20),
        "more than",
    ),
    "a size that is not there": (archive_of(HOSTILE["a size that no memory takes"]), "cut off"),
    "a header that overruns": (archive_of(member("x", tarfile.XHDTYPE, b"99999999 a=b\n")), "cannot be understood"),
    "a header without length": (archive_of(member("x", tarfile.XHDTYPE, b"a=b\n")), "cannot be understood"),
    "a header of many": (archive_of(member("x", stated={f"a{n}": "b" for n in range(100)})), "cannot be understood"),
    "a header for nothing": (archive_of(member("x", tarfile.XHDTYPE, b"6 a=b\n")), "middle of a member"),
    "no headers": (archive_of(b"no header" * 512), "damaged"),
    "no manifest": (compress(good()[0] + end_of_archive()), "does not begin with a manifest"),
    "a link for a manifest": (compress(member(MANIFEST, tarfile.SYMTYPE, link="/etc/passwd")), "does not begin with"),
    "a huge manifest": (compress(member(MANIFEST, size=1 << 32)), "manifest is"),
    "a deep manifest": (compress(member(MANIFEST, body=b"[" * 10_000)), "cannot be understood"),
    "another manifest": (compress(member(MANIFEST, body=b"[]")), "cannot be understood"),
    "negative counts": (compress(member(MANIFEST, body=b'{"format": 1, "entries": -1, "bytes": 0}')), "is not a count"),
    "a newer format": (compress(member(MANIFEST, body=b'{"format": 2, "made_by": "later"}')), "upgrade lockcache"),
    "an empty frame": (compress(b""), "cut off"),
    "an empty file": (b"", "cut off"),
    "another file": (b"PK\3\4 no zstd", "not an archive"),
    "the beginning of a name": (b"lockcache-pa", "cut off"),
    "another tar": (entry_header(entry_name(b"e"), 0, 1, b"") + end_of_archive(), "not an archive"),
    "a window of a gigabyte": (_frame(30), "not an archive"),
    "a frame cut off": (archive_of(*good())[:-9], "cut off|decompress"),
}


@pytest.mark.parametrize("kind", NO_ARCHIVES)
def test_what_is_no_archive_is_an_error_that_says_so(kind: str, cache_path: Path) -> None:
    archive, said = NO_ARCHIVES[kind]
    with pytest.raises(ArchiveError, match=said):
        unpacked(archive, cache_path)
    assert outside(cache_path) == []


def test_an_archive_cut_anywhere_is_an_error_and_leaves_whole_entries(cache_path: Path) -> None:
    plain = manifest_member(Manifest(2, 1000)) + b"".join(good()) + end_of_archive()
    for length in range(0, len(plain) - 1024, 100):
        with pytest.raises(ArchiveError, match="cut off"):
            unpacked(compress(plain[:length]), cache_path)
        with pytest.raises(ArchiveError, match="cut off"):
            unpacked(plain[:length], cache_path)
    with FileStreamProgramCache(cache_path) as cache:
        assert {key: cache.get(key) for key in GOOD} == GOOD


_plain = (
    manifest_member(Manifest(9, 10_000))
    + b"".join(good())
    + entry_header(entry_name(b"e"), 0, 1, b"")
    + end_of_archive()
)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(_plain) - 1), st.binary(min_size=1, max_size=40)), min_size=1, max_size=5))
def test_no_altered_archive_brings_in_anything_that_was_not_packed(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]]
) -> None:
    altered = bytearray(_plain)
    for start, content in changes:
        altered[start : start + len(content)] = content
    for archive in (compress(bytes(altered)), bytes(altered)):
        root = tmp_path_factory.mktemp("hostile") / "cache"
        try:
            unpacked(archive, root, Acceptance(include_unverified=False))
        except ArchiveError:
            pass
        assert outside(root) == []
        with FileStreamProgramCache(root) as cache:
            found = {key: cache.get(key) for key in GOOD}
            assert all(value in (None, GOOD[key]) for key, value in found.items())
            assert len(cache) == sum(value is not None for value in found.values())


@pytest.mark.long
@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=3000))
def test_noise_is_no_archive(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    root = tmp_path_factory.mktemp("noise") / "cache"
    plain = manifest_member(Manifest(100, 1 << 40)) + noise
    for archive in (noise, compress(noise), archive_of(noise), plain):
        try:
            done = unpacked(archive, root)
        except ArchiveError:
            continue
        assert done.stored == 0


@pytest.mark.parametrize("archive", [archive_of(*good()), _plain], ids=["zstd", "tar"])
def test_a_reader_that_gives_a_byte_at_a_time_is_read_to_the_end(archive: bytes, cache_path: Path) -> None:
    from lockcache.archive.unpacking import unpack_archive
    from lockcache.filestream.directory import CacheDirectory

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            return super().read(min(1, size or 0) if size and size > 0 else size)

    _, done = unpack_archive(Slow(archive), lambda: CacheDirectory(str(cache_path), 5.0))
    assert done.stored == 2


@pytest.mark.parametrize("seconds", ["9999999999", "9223372037.0"])
def test_an_entry_from_a_time_that_no_record_can_state_is_stored(seconds: str, tmp_path: Path) -> None:
    archive = archive_of(member(NAME, body=b"x", stated={"mtime": seconds}))
    assert unpacked(archive, tmp_path / "cache", Acceptance(include_unverified=True)).stored == 1
