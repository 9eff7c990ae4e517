# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress mpi --hosts``: ranks of one job on two hosts, which are network and UTS namespaces."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lockcache_stress.experiments.mpi_hosts import why_no_hosts
from tests.stress.support import environment


@pytest.mark.root
@pytest.mark.cuda
@pytest.mark.long
def test_ranks_on_two_hosts_compile_each_kernel_once_and_outlive_one_that_is_killed(run_path: Path) -> None:
    reason = why_no_hosts()
    if reason is not None:
        pytest.skip(reason)
    command = [sys.executable, "-m", "lockcache_stress", "mpi", "--hosts", "2", "--processes", "2", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment(run_path), timeout=110)
    assert done.stdout, done.stderr
    found = json.loads(done.stdout)
    assert (found["hosts"], found["ranks"]) == (2, 4)
    # How long a takeover takes is the command's to judge, not a test's on a busy machine.
    failed = {check["name"] for check in found["checks"] if not check["ok"]}
    assert failed <= {"takeover, median"}, done.stdout
    assert found["compiles"] == {"cold": 8, "warm": 0}
    assert len(found["takeovers_ms"]) == 3
