# SPDX-License-Identifier: Apache-2.0
"""Two daemons at once are found in their logs, made up and real; one after the other is not taken for it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from lockcache_stress.judge.tenures import Life, judge_tenures
from lockcache_stress.run.daemons import Relay
from tests.daemon.daemon_process import until

MS = 1_000_000


def life(name: str, ended_ms: int, *events: tuple[str, int]) -> Life:
    said: list[dict[str, Any]] = [
        {"event": event, "monotonic_ns": at_ms * MS, "milliseconds": 10.0} for event, at_ms in events
    ]
    return Life(name, said, ended_ms * MS)


def test_one_after_the_other_is_right_and_the_time_of_a_takeover_is_told() -> None:
    verdict = judge_tenures(
        [
            life("a", 100, ("start", 10), ("sweep", 50), ("sweep", 99)),
            life("b", 300, ("standby", 20), ("start", 130), ("takeover", 131), ("sweep", 200)),
            life("c", 400, ("standby", 25)),
        ]
    )
    assert verdict.wrong == []
    assert (verdict.tenures, verdict.sweeps, verdict.takeovers_ns) == (2, 3, [30 * MS])


def test_two_that_keep_the_directory_at_once_are_found() -> None:
    verdict = judge_tenures([life("a", 100, ("start", 10)), life("b", 300, ("start", 90))])
    assert len(verdict.wrong) == 1
    assert "b kept the directory 10.0 ms before a was ended" in verdict.wrong[0]


def test_a_sweep_without_a_tenure_or_in_anothers_is_found() -> None:
    idle_that_swept = judge_tenures([life("a", 100, ("start", 10)), life("b", 300, ("standby", 20), ("sweep", 50))])
    assert len(idle_that_swept.wrong) == 2
    after_its_end = judge_tenures([life("a", 100, ("start", 10), ("sweep", 150)), life("b", 300, ("start", 130))])
    assert after_its_end.wrong == ["a swept while b kept the directory"]


@pytest.mark.slow
def test_real_daemons_whose_lock_excludes_nobody_are_found(tmp_path: Path) -> None:
    """The fault that the takeover scenario is for, planted."""
    script = tmp_path / "daemon.py"
    script.write_text(
        "from lockcache_daemon.keeper import single_instance\n"
        "single_instance.Instance.acquire = lambda self: None\n"
        "single_instance.Instance.is_lost = lambda self: False\n"
        "single_instance.Instance.release = lambda self: None\n"
        "from lockcache_daemon.cli import main\n"
        "main()\n"
    )
    (tmp_path / "cache").mkdir(mode=0o700)
    command = [sys.executable, str(script)]
    with Relay(str(tmp_path / "cache"), str(tmp_path), 10**6, count=3, seed=1, command=command) as relay:
        until(lambda: len(relay.keeping()) > 1)
    assert relay.verdict.wrong
    assert not all(check.ok for check in relay.checks())
