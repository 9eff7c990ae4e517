# SPDX-License-Identifier: Apache-2.0
"""$LOCKCACHE_TELEMETRY: which words it takes, and what happens where a package is missing or nothing is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.serving import watch
from lockcache.telemetry import configured_telemetry

# Packages that cannot be imported, as where an extra was not installed.
_WITHOUT = """
import sys
sys.modules["nvtx"] = sys.modules["opentelemetry"] = None
from lockcache import FileStreamProgramCache
for _ in range(2):
    with FileStreamProgramCache(sys.argv[1]) as cache:
        assert cache.get_or_compute("key", lambda: b"code") == b"code"
"""


def test_the_words_are_taken_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKCACHE_TELEMETRY", "opentelemetry, nvtx,")
    assert configured_telemetry() == ["opentelemetry", "nvtx"]


def test_another_word_is_a_mistake_that_opening_reports(monkeypatch: pytest.MonkeyPatch, cache_path: Path) -> None:
    monkeypatch.setattr(watch, "has_obeyed_telemetry", False)
    monkeypatch.setenv("LOCKCACHE_TELEMETRY", "nvtx,otel")
    with pytest.raises(ValueError, match="LOCKCACHE_TELEMETRY: 'otel' is not nvtx or opentelemetry"):
        FileStreamProgramCache(cache_path)


@pytest.mark.slow
def test_a_package_that_is_missing_is_one_warning_each_and_the_program_goes_on(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _WITHOUT, tmp_path],
        env={**os.environ, "LOCKCACHE_TELEMETRY": "nvtx,opentelemetry"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0
    first, second = ran.stderr.splitlines()
    assert "LOCKCACHE_TELEMETRY=nvtx: " in first
    assert "pip install" in first
    assert "[nvtx]" in first
    assert "LOCKCACHE_TELEMETRY=opentelemetry: " in second
    assert "[opentelemetry]" in second


@pytest.mark.slow
def test_nothing_of_it_is_loaded_where_nothing_is_asked_for(tmp_path: Path) -> None:
    program = (
        "import sys; from lockcache import FileStreamProgramCache as Cache\n"
        "with Cache(sys.argv[1]) as cache: cache.get_or_compute('key', lambda: b'code')\n"
        "print([name for name in sys.modules if 'telemetry' in name or 'nvtx' in name])"
    )
    environment = {name: value for name, value in os.environ.items() if name != "LOCKCACHE_TELEMETRY"}
    command = [sys.executable, "-c", program, tmp_path]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
