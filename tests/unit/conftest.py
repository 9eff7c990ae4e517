# SPDX-License-Identifier: Apache-2.0
"""Unit tests, whose files are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout
from tests.in_memory import run_path, tmp_path
from tests.unit.material import open_directory

__all__ = ["run_path", "tmp_path"]


@pytest.fixture
def directory(cache_path: Path) -> Iterator[CacheDirectory]:
    """The open directory of a new cache."""
    directory = open_directory(cache_path)
    yield directory
    directory.close()


@pytest.fixture
def layout(cache_path: Path) -> Layout:
    """The layout of a new cache, which is closed."""
    FileStreamProgramCache(cache_path).close()
    return Layout(str(cache_path))
