# SPDX-License-Identifier: Apache-2.0
"""Counters for OpenTelemetry, read by its own SDK, in processes of their own: they count all that a process does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache.telemetry.opentelemetry import _COUNTERS

pytest.importorskip("opentelemetry.sdk.metrics", reason="needs opentelemetry-sdk")

_READ = """
import json, sys
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

reader = InMemoryMetricReader()

def read():
    found = {}
    for resource in (reader.get_metrics_data() or metrics_of_none).resource_metrics:
        for scope in resource.scope_metrics:
            assert scope.scope.name == "lockcache", scope
            for each in scope.metrics:
                [point] = each.data.data_points
                assert each.data.is_monotonic and each.unit
                found[each.name.removeprefix("lockcache.")] = point.value
    return found

class metrics_of_none:
    resource_metrics = ()
"""
_WORK = """
from lockcache import FileStreamProgramCache

def work(path):
    with FileStreamProgramCache(path) as cache:
        for _ in range(3):
            cache.get_or_compute("key", lambda: b"code")
        cache.get("another")
"""


def _run(program: str, tmp_path: Path, **variables: str) -> dict[str, float]:
    environment = {**os.environ, **variables}
    command = [sys.executable, "-W", "error", "-c", _READ + _WORK + program, str(tmp_path / "kernels")]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    found: dict[str, float] = json.loads(ran.stdout)
    return found


@pytest.mark.slow
def test_the_variable_is_all_that_a_program_needs_and_a_late_provider_gets_what_was_counted_before(
    tmp_path: Path,
) -> None:
    found = _run(
        "work(sys.argv[1]); metrics.set_meter_provider(MeterProvider([reader])); work(sys.argv[1]);"
        "print(json.dumps(read()))",
        tmp_path,
        LOCKCACHE_TELEMETRY="opentelemetry",
    )
    assert found.keys() == {each.name for each in _COUNTERS}
    assert (found["hits"], found["misses"], found["puts"]) == (5, 3, 1)


@pytest.mark.long
def test_a_provider_that_is_given_is_asked_once_however_often_it_is_given(tmp_path: Path) -> None:
    found = _run(
        "from lockcache.telemetry import export_counters; provider = MeterProvider([reader]);"
        "[export_counters(provider) for _ in range(2)]; work(sys.argv[1]); print(json.dumps(read()))",
        tmp_path,
    )
    assert (found["hits"], found["misses"]) == (2, 2)


@pytest.mark.long
def test_a_forked_child_counts_from_zero(tmp_path: Path) -> None:
    found = _run(
        "from lockcache.telemetry import export_counters; export_counters(MeterProvider([reader]));"
        "work(sys.argv[1]); read(); import os; child = os.fork();"
        "print(json.dumps(read())) if not child else os.waitpid(child, 0); sys.stdout.flush(); os._exit(0)",
        tmp_path,
    )
    assert (found["hits"], found["misses"], found["puts"]) == (0, 0, 0)
