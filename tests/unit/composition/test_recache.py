# SPDX-License-Identifier: Apache-2.0
"""LOCKCACHE_RECACHE compares what is compiled again with what was stored."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache


@pytest.mark.parametrize("store", ["put", "get_or_compute"])
def test_another_code_than_was_stored_is_reported_once_and_counts_no_lookup(
    store: str, cache_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    FileStreamProgramCache(cache_path).update({"same": b"code", "other": b"older"})
    monkeypatch.setenv("LOCKCACHE_RECACHE", "1")
    cache = FileStreamProgramCache(cache_path)
    with caplog.at_level(logging.WARNING, "lockcache"):
        for key, code in (("same", b"code"), ("other", b"newer"), ("new", b"code"), ("other", b"third")):
            if store == "put":
                cache[key] = code
            else:
                cache.get_or_compute(key, lambda code=code: code)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "compiled again, it is another code (5 bytes) than was stored (5 bytes)" in said[0]
    stats = cache.stats()
    assert (stats.hits, stats.misses) == ((0, 0) if store == "put" else (1, 3))
