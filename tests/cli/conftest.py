"""What tests of the operator's command may ask for in addition."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that other users may reach. Not pytest's, which is root's alone."""
    with tempfile.TemporaryDirectory(prefix="lockcache-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
