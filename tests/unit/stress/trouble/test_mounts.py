"""Copying a disk image: what was written, where it was, and no more of it on the disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache_stress.trouble.mounts import copy_sparse

MIB = 1 << 20


@pytest.mark.parametrize(
    "written",
    [{}, {0: b"a" * 5000}, {100_000: b"b" * 70_000, 5 * MIB: b"c"}, {8 * MIB - 1: b"d"}, {0: b"e" * 8 * MIB}],
    ids=["nothing", "begin", "two", "end", "all"],
)
def test_a_sparse_copy_is_the_same_and_has_the_same_holes(tmp_path: Path, written: dict[int, bytes]) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    copy.write_bytes(b"older and longer" * MIB)
    with open(source, "wb") as file:
        file.truncate(8 * MIB)
        for offset, blob in written.items():
            file.seek(offset)
            file.write(blob)
    copy_sparse(str(source), str(copy))
    assert copy.read_bytes() == source.read_bytes()
    assert copy.stat().st_blocks <= source.stat().st_blocks + 8


def test_an_empty_file_is_copied_too(tmp_path: Path) -> None:
    (tmp_path / "source").touch()
    copy_sparse(str(tmp_path / "source"), str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == b""
