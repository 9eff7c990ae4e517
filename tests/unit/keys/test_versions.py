# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of compilers: a library is known by its content."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from lockcache.keys import versions


def test_a_library_is_known_by_its_content_not_by_its_path_or_time(tmp_path: Path) -> None:
    library = tmp_path / "lib.so.1"
    library.write_bytes(os.urandom(300_000))
    copy = tmp_path / "elsewhere.so"
    shutil.copyfile(library, copy)
    os.utime(copy, (1, 1))
    assert versions.fingerprint(str(library)) == versions.fingerprint(str(copy))


@pytest.mark.parametrize("offset", [0, 0x270, 300_000 - 40, 300_000])
def test_another_build_of_a_library_is_another_library(tmp_path: Path, offset: int) -> None:
    content = bytearray(os.urandom(300_000))
    library = tmp_path / "lib.so.1"
    library.write_bytes(content)
    before = versions.fingerprint(str(library))
    content[offset : offset + 1] = bytes([content[offset] ^ 1]) if offset < len(content) else b"x"
    library.write_bytes(content)
    assert versions.fingerprint(str(library)) != before


@pytest.mark.parametrize("size", [0, 1, 65_536, 65_537, 100_000])
def test_a_library_of_any_size_has_a_fingerprint(tmp_path: Path, size: int) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(bytes(size))
    assert len(versions.fingerprint(str(library))) == 32
