# SPDX-License-Identifier: Apache-2.0
"""A worker that hangs is a death, and the run says where it hangs."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lockcache_stress.plan import Step
from lockcache_stress.run.runner import run
from lockcache_stress.run.worker import Worker
from tests.stress.support import make_plan


def _wait_for_ever() -> bool:
    threading.Event().wait()
    return True


def make_hanging_step(worker: Worker) -> Step:
    """Returns the step of a worker whose second operation hangs."""

    def step() -> bool:
        if worker.counters.get(worker.writer, "operations"):
            return _wait_for_ever()
        return worker.use(0, [10], writes=1.0)

    return step


@pytest.mark.slow
def test_a_worker_that_hangs_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lockcache_stress.run.workers._GRACE_SECONDS", 0.1)
    monkeypatch.setattr("lockcache_stress.run.runner.OVERTIME_SECONDS", 0.1)
    plan = make_plan(tmp_path, processes=1, seconds=0.2, make_step=make_hanging_step)
    outcome = run(plan, kills=0, is_own_mount=False, progress=lambda share, counters: None)
    assert outcome.deaths == ["worker 0 still hung 0 s after its time"]
    assert [finding["error"].startswith("worker 0 hung:\n") for finding in outcome.findings] == [True]
    assert "in _wait_for_ever" in outcome.findings[0]["error"]
