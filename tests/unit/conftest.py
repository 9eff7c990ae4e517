"""Unit tests, whose files are in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache.filestream.directory import CacheDirectory
from tests.in_memory import run_path, tmp_path
from tests.unit.material import open_directory

__all__ = ["run_path", "tmp_path"]


@pytest.fixture
def directory(cache_path: Path) -> Iterator[CacheDirectory]:
    """The open directory of a new cache."""
    directory = open_directory(cache_path)
    yield directory
    directory.close()
