# SPDX-License-Identifier: Apache-2.0
"""A path for a database, and a cache in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache import SQLiteProgramCache


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "programs.sqlite3"


@pytest.fixture
def cache(path: Path) -> Iterator[SQLiteProgramCache]:
    with SQLiteProgramCache(path) as cache:
        yield cache
