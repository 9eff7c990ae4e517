# SPDX-License-Identifier: Apache-2.0
"""Telemetry that fails costs a line in the log, and no program its kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_WORK = """
import sys
from lockcache import FileStreamProgramCache

with FileStreamProgramCache(sys.argv[1]) as cache:
    assert bytes(cache.get_or_compute("key", lambda: b"code")) == b"code"
"""
_DOMAIN = """
class Domain:
    def get_event_attributes(self, **words): return words
    def start_range(self, attributes): {start}
    def end_range(self, number): raise RuntimeError("no profiler")

def get_domain(name): return Domain()
"""


@pytest.mark.parametrize(
    "nvtx",
    [
        "",  # an old one, without get_domain
        "raise OSError('its library cannot be loaded')",
        _DOMAIN.format(start="raise RuntimeError('no profiler')"),
        _DOMAIN.format(start="return 1"),
    ],
)
def test_an_nvtx_that_fails_is_one_warning(tmp_path: Path, nvtx: str) -> None:
    (tmp_path / "nvtx.py").write_text(nvtx, encoding="utf-8")
    _expect_one_line(tmp_path, LOCKCACHE_TELEMETRY="nvtx", PYTHONPATH=os.pathsep.join([str(tmp_path), *sys.path]))


def test_a_provider_of_opentelemetry_that_is_not_there_is_one_warning(tmp_path: Path) -> None:
    pytest.importorskip("opentelemetry.metrics", reason="needs opentelemetry-api")
    _expect_one_line(
        tmp_path, LOCKCACHE_TELEMETRY="opentelemetry", OTEL_PYTHON_METER_PROVIDER="none_such",
        PYTHONPATH=os.pathsep.join(sys.path),
    )  # fmt: skip


def _expect_one_line(tmp_path: Path, **variables: str) -> None:
    command = [sys.executable, "-c", _WORK, str(tmp_path / "kernels")]
    ran = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert len([line for line in ran.stderr.splitlines() if line.startswith("lockcache: ")]) == 1, ran.stderr
