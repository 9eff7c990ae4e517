# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests that compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache


@pytest.fixture
def cache(cache_path: Path) -> FileStreamProgramCache:
    return FileStreamProgramCache(cache_path)


@pytest.fixture(scope="module")
def plain_cubin() -> bytes:
    from tests.cuda.keys import compile_cxx

    return compile_cxx("cubin")


@pytest.fixture(scope="module")
def ptx_text() -> str:
    from tests.cuda.keys import compile_cxx

    return compile_cxx("ptx", lineinfo=True).rstrip(b"\0 ").decode()
