# SPDX-License-Identifier: Apache-2.0
"""Directories in memory for tests that prove nothing about a disk: half the time, and no wait for others' writes."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_IN_MEMORY = "/dev/shm"


@pytest.fixture
def run_path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """An empty directory, in memory if possible."""
    parent = _IN_MEMORY if os.access(_IN_MEMORY, os.W_OK) else tmp_path_factory.getbasetemp()
    path = Path(tempfile.mkdtemp(prefix="lockcache-test-", dir=parent))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def tmp_path(run_path: Path) -> Path:
    """A directory in memory instead of pytest's, in folders whose ``conftest`` imports this fixture."""
    return run_path
