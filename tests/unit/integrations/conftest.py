# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of adapters, and of ``lockcache.integrations.pyptx``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.integrations.adapter import Shared, open_shared
from lockcache.integrations.pyptx import CubinCache


@pytest.fixture
def shared(cache_path: Path) -> Shared:
    return open_shared("some", "1.2", cache_path, None)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "pyptx"


@pytest.fixture
def cache(directory: Path) -> CubinCache:
    return CubinCache(directory)


@pytest.fixture
def fresh(directory: Path) -> Callable[[], CubinCache]:
    """Makes caches with an empty memory, like that of another process."""
    return lambda: CubinCache(directory)


@pytest.fixture
def foreign(directory: Path) -> Path:
    """A directory as pyptx makes it."""
    directory.mkdir()
    return directory
