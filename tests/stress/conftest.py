"""Where the stress program's temporary files go in these tests."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_IN_MEMORY = "/dev/shm"


@pytest.fixture
def run_path(tmp_path: Path) -> Iterator[Path]:
    """An empty directory, in memory if there is such: short runs must get enough done whatever the disk is doing."""
    if not os.access(_IN_MEMORY, os.W_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="lockcache-test-", dir=_IN_MEMORY))
    yield path
    shutil.rmtree(path, ignore_errors=True)
