# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus from a real daemon, and whether Prometheus's own tool likes it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.explain import state
from lockcache_daemon.observe.board import Board
from lockcache_daemon.observe.metrics import Metrics
from tests.daemon.daemon_process import HANG_SECONDS, run_daemon, until
from tests.daemon.directories import fill, make_directory
from tests.daemon.http_client import Watched, get
from tests.daemon.tools import promtool
from tests.unit.material import entry_path


@cache
def lint(metrics: bytes) -> None:
    said = subprocess.run([promtool(), "check", "metrics"], input=metrics, capture_output=True, check=False)
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")


@pytest.mark.long
def test_a_sweep_is_counted_and_timed(cache_path: Path) -> None:
    fill(cache_path, 200, 10_000)
    with Watched("--max-size", "1M", cache_path) as daemon:
        root = str(cache_path)
        until(
            lambda: (
                daemon.metric("lockcache_directory_bytes", directory=root)
                == daemon.directory(cache_path)["bytes"]
                < 950_000
            )
        )
        swept = daemon.directory(cache_path)
        assert swept["evicted_entries"] > 100
        for name, value in (
            ("lockcache_directory_up", 1),
            ("lockcache_directory_standby", 0),
            ("lockcache_directory_entries", swept["entries"]),
            ("lockcache_directory_max_bytes", 1_000_000),
            ("lockcache_sweeps_total", swept["sweeps"]),
            ("lockcache_evicted_entries_total", swept["evicted_entries"]),
            ("lockcache_evicted_bytes_total", swept["evicted_bytes"]),
            ("lockcache_sweep_duration_seconds_count", swept["sweeps"]),
            ("lockcache_last_sweep_timestamp_seconds", pytest.approx(swept["last_sweep"])),
            ("lockcache_errors_total", 0),
        ):
            assert daemon.metric(name, directory=root) == value, name
        assert daemon.metric("lockcache_sweep_duration_seconds_bucket", directory=root, le="+Inf") == swept["sweeps"]
        assert daemon.metric("lockcache_up") == 1


@pytest.mark.long
def test_entries_of_programs_that_do_not_account_are_repaired_drift(cache_path: Path) -> None:
    make_directory(cache_path)
    with Watched("--max-size", "1G", cache_path) as daemon:
        fill(cache_path, 30, 10_000)
        root = str(cache_path)
        until(lambda: daemon.metric("lockcache_accounting_drift_bytes_total", directory=root) == 300_000)
        repairs = daemon.metric("lockcache_accounting_repairs_total", directory=root)
        assert repairs is not None
        assert 1 <= repairs <= 30


@pytest.mark.long
def test_what_programs_report_of_hits_and_misses_is_exported(cache_path: Path) -> None:
    with Watched("--max-size", "1G", cache_path) as daemon:
        with FileStreamProgramCache(cache_path) as programs:
            programs[b"key"] = b"code"
            assert programs[b"key"] == b"code"
            assert programs.get(b"none") is None
        root = str(cache_path)
        until(lambda: daemon.metric("lockcache_client_hits_total", directory=root) == 1)
        assert daemon.metric("lockcache_client_misses_total", directory=root) == 1
        assert daemon.metric("lockcache_client_puts_total", directory=root) == 1


@pytest.mark.long
def test_programs_that_are_compiled_again_are_counted(cache_path: Path) -> None:
    with Watched("--max-size", "1G", cache_path) as daemon:
        for _ in range(2):
            state(b"key", {"compiler": "nvrtc 13.5", "source": "kernel"})
            with FileStreamProgramCache(cache_path) as program:
                program[b"key"] = b"code"
                os.removexattr(entry_path(cache_path, b"key"), "user.lockcache")
        until(lambda: daemon.metric("lockcache_client_compiled_again_total", directory=str(cache_path)) == 1)
        assert "compiled again" in daemon.text("/")


@pytest.mark.long
def test_promtool_finds_nothing_in_the_metrics_of_a_running_daemon(tmp_path: Path) -> None:
    odd = tmp_path / 'a "b"\\c\n<d>'
    file = tmp_path / "lockcache.prom"
    fill(tmp_path / "plain", 200, 10_000)
    with Watched("--max-size", "1M", "--metrics-file", file, tmp_path / "plain", odd, starts=2) as daemon:
        until(lambda: bool(daemon.metric("lockcache_sweeps_total", directory=str(tmp_path / "plain"))))
        lint(daemon.text("/metrics").encode())
        lint(file.read_bytes())


def test_openmetrics_is_served_to_who_asks_for_it(cache_path: Path) -> None:
    with Watched("--max-size", "1M", cache_path) as daemon:
        status, headers, body = get(daemon.port, "/metrics", accept="application/openmetrics-text; version=1.0.0")
        assert (status, headers["Content-Type"].partition(";")[0]) == (200, "application/openmetrics-text")
        assert body.endswith(b"# EOF\n")


@pytest.mark.parametrize(
    "accept", ["application/openmetrics-text;version=a.b", "application/openmetrics-text;version==;;q", ",;=,"]
)
def test_a_client_that_asks_for_no_format_there_is_gets_text(accept: str) -> None:
    body, content_type = Metrics(Board()).negotiated(accept)
    assert (content_type.partition(";")[0], b"lockcache_up 1.0\n" in body) == ("text/plain", True)


def test_the_metrics_file_is_there_at_the_start_whole_and_readable_and_says_when_the_daemon_ended(
    cache_path: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "textfile"
    folder.mkdir()
    file = folder / "lockcache.prom"
    with Watched("--max-size", "1M", "--metrics-file", file, cache_path) as daemon:
        until(file.exists)
        assert b"lockcache_up 1.0\n" in file.read_bytes()
        assert file.stat().st_mode & 0o777 == 0o644
        assert daemon.end(signal.SIGTERM) == 0
        assert daemon.errors() == ""
    assert b"lockcache_up 0.0\n" in file.read_bytes()
    assert os.listdir(folder) == ["lockcache.prom"]


def test_once_leaves_a_metrics_file(cache_path: Path, tmp_path: Path) -> None:
    fill(cache_path, 200, 10_000)
    file = tmp_path / "lockcache.prom"
    assert run_daemon("--max-size", "1M", "--once", "--metrics-file", file, cache_path).returncode == 0
    assert f'lockcache_evicted_bytes_total{{directory="{cache_path}"}}' in file.read_text()
    lint(file.read_bytes())


def test_a_full_disk_under_the_metrics_file_is_said_once_and_costs_no_sweep(
    cache_path: Path, mount_tmpfs, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lockcache_daemon.observe import metrics_file
    from lockcache_daemon.observe.metrics_file import MetricsFile

    monkeypatch.setattr(metrics_file, "_INTERVAL_SECONDS", 0.01)
    folder = mount_tmpfs("size=64k")
    reported: list[OSError] = []
    written = MetricsFile(str(folder / "lockcache.prom"), lambda: bytes(8192), reported.append)
    written.start()
    (folder / "ballast").write_bytes(bytes(57344))
    until(lambda: bool(reported))
    assert (folder / "lockcache.prom").read_bytes() == bytes(8192)
    (folder / "ballast").unlink()
    written.close()
    assert len(reported) == 1
    assert os.listdir(folder) == ["lockcache.prom"]


@pytest.mark.unmeasured  # coverage loads html
def test_a_daemon_without_metrics_loads_nothing_for_them(cache_path: Path) -> None:
    program = (
        "import sys; from lockcache_daemon.command import run; code = run(sys.argv[1:]); "
        "print([name for name in ('prometheus_client', 'asyncio', 'html') if name in sys.modules]); sys.exit(code)"
    )
    command = [sys.executable, "-c", program, "--once", "--max-size", "1M", str(cache_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_SECONDS)
    assert ended.stdout.endswith("\n[]\n")


def test_the_documents_name_every_metric(cache_path: Path) -> None:
    text = (Path(__file__).parents[2] / "docs" / "observability.md").read_text()
    named = set(re.findall(r"`(\w+)`", text))
    with Watched("--max-size", "1M", cache_path) as daemon:
        exported = set(re.findall(r"(?m)^# TYPE (lockcache_\w+)", daemon.text("/metrics")))
    endings = tuple(name for name in named if name.startswith("_"))
    assert [name for name in exported if name not in named and not name.endswith(endings)] == []
