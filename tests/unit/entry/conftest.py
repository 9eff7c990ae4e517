# SPDX-License-Identifier: Apache-2.0
"""A cache for each place where a record can be."""

from __future__ import annotations

import pytest

from lockcache import FileStreamProgramCache
from tests.unit.entry.material import MODES


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


@pytest.fixture
def cache(cache_path, mode):
    with FileStreamProgramCache(cache_path, record_files=mode == "file") as cache:
        yield cache
