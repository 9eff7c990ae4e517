# SPDX-License-Identifier: Apache-2.0
"""Services of a daemon whose settings change: another metrics file."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from lockcache_daemon.observe.log import Report
from lockcache_daemon.run.services import FollowingService, _metrics_file
from lockcache_daemon.settings.model import Settings


def settings(path: Path | None) -> Settings:
    return Settings(metrics_file=None if path is None else str(path))


def filing(settings: Settings, report: Report) -> FollowingService[str]:
    service = FollowingService(lambda each: each.metrics_file, _metrics_file, settings, report)
    service.prepare()
    service.open([])
    return service


@pytest.fixture
def report() -> Report:
    return Report(as_json=True, out=io.StringIO(), err=io.StringIO())


def test_another_metrics_file_takes_over_at_a_reload_and_none_ends_it(tmp_path: Path, report: Report) -> None:
    one, other = tmp_path / "one.prom", tmp_path / "other.prom"
    service = filing(settings(one), report)
    service.change(settings(one), [])
    service.change(settings(other), [])
    assert other.exists()
    service.change(settings(None), [])
    assert service._running is None
    service.change(settings(one), [])
    service.close()
    assert one.exists()


def test_a_metrics_file_that_cannot_be_written_leaves_the_one_before_in_use(tmp_path: Path, report: Report) -> None:
    service = filing(settings(tmp_path / "one.prom"), report)
    service.change(settings(tmp_path / "none" / "x.prom"), [])
    (tmp_path / "one.prom").unlink()
    service.close()
    assert (tmp_path / "one.prom").exists()
