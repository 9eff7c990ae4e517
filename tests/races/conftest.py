# SPDX-License-Identifier: Apache-2.0
"""Two caches over one directory in one process, which share no lock object and no descriptor, like two processes."""

from __future__ import annotations

import pytest

from lockcache import FileStreamProgramCache
from tests.unit.material import on_disk


@pytest.fixture(params=[False, True], ids=["attribute", "record-files"])
def record_files(request):
    return request.param


@pytest.fixture
def make(cache_path, record_files):
    """Makes caches over one directory. At the end its accounting must equal the disk."""
    made = []

    def make(**arguments):
        made.append(FileStreamProgramCache(cache_path, record_files=record_files, **arguments))
        return made[-1]

    yield make
    with FileStreamProgramCache(cache_path) as last:
        assert (last.stats().bytes, last.stats().entries) == on_disk(cache_path)
        assert (cache_path / "tmp").exists()
        assert list((cache_path / "tmp").iterdir()) == []
    for cache in made:
        cache.close()


@pytest.fixture
def one(make):
    return make()


@pytest.fixture
def other(make):
    return make()
