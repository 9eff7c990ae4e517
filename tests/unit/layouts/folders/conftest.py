# SPDX-License-Identifier: Apache-2.0
"""Directories of other programs, opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache.layouts import GUESTS, Files


@pytest.fixture
def opened(cache_path: Path, keep_open: Callable[[Files], Files]) -> Callable[..., Files]:
    return lambda layout, settle=0.0: keep_open(GUESTS[layout].open_files(str(cache_path), settle, lambda: None))
