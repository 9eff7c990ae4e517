"""What tests of signing may ask for: a file of keys, and caches that sign."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.access.keys import OLD, write_keys


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    return write_keys(tmp_path / "keys", OLD)


@pytest.fixture(params=[False, True], ids=["attributes", "record-files"])
def signed(request, cache_path, key_file):
    """Opens caches with the keys of ``key_file``, or of another."""
    opened = []

    def open_cache(keys: object = key_file, **arguments):
        cache = FileStreamProgramCache(cache_path, record_files=request.param, signing_key_file=keys, **arguments)
        opened.append(cache)
        return cache

    yield open_cache
    for cache in opened:
        cache.close()
