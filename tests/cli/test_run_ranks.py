# SPDX-License-Identifier: Apache-2.0
"""``lockcache run`` under launchers that start one for each rank: what is done once a node, and for how long."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockcache.lowlevel import Layout, keeper_of
from lockcache_stress.run import find_mpiexec
from tests.cli.command import KEPT, ROOT, RUN, start, until_free
from tests.processes.crowd import HANG_SECONDS


@contextlib.contextmanager
def ranks(path: Path, *numbers: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Ranks that a launcher started on this node: each has seen who manages the directory, and waits for its input."""
    words = ("--daemon", "--dir", str(path), "--max-size", "1G", "--", sys.executable, "-c", KEPT, str(path))
    started = [start(*words, SLURM_LOCALID=number) for number in numbers]
    try:
        assert len({process.stdout.readline() for process in started}) == 1
        yield started
    finally:
        for process in started:
            with process:
                process.kill()


@pytest.mark.slow
def test_the_daemon_lasts_until_the_last_rank_of_its_node_ends(cache_path: Path) -> None:
    with ranks(cache_path, "0", "1", "2") as (first, second, third):
        keeper = keeper_of(Layout(str(cache_path)))
        first.stdin.close()
        assert first.wait(HANG_SECONDS) == 0
        second.kill()
        second.wait()
        assert keeper_of(Layout(str(cache_path))) == keeper
        third.stdin.close()
        assert third.wait(HANG_SECONDS) == 0
        until_free(cache_path)


@pytest.mark.slow
def test_the_first_rank_waits_for_the_daemon_where_it_is_the_last(cache_path: Path) -> None:
    with ranks(cache_path, "0", "1") as (first, second):
        second.stdin.close()
        assert second.wait(HANG_SECONDS) == 0
        assert keeper_of(Layout(str(cache_path))) is not None
        first.stdin.close()
        assert first.wait(HANG_SECONDS) == 0
        assert keeper_of(Layout(str(cache_path))) is None


@pytest.mark.slow
def test_no_daemon_outlives_ranks_that_are_all_killed(cache_path: Path) -> None:
    with ranks(cache_path, "0", "1") as started:
        for process in started:
            process.kill()
        until_free(cache_path)


# Computes what the others have not, and looks both keys up. Not before all are here: a rank counts from its start on.
RANK = """
import os, sys
from lockcache import FileStreamProgramCache
rank = os.environ["PMI_RANK"]
with open(os.environ["HERE"], "w") as here:
    here.write("1")
open(os.environ["GATE"]).close()
with FileStreamProgramCache() as cache:
    for key in ("0", "1"):
        cache.get_or_compute(key, lambda: b"code")
sys.exit(int(rank) * 5)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_mpiexec() is None, reason="needs mpiexec: pip install mpich")
def test_under_mpiexec_a_key_is_compiled_once_one_rank_speaks_and_exit_codes_come_back(
    cache_path: Path, tmp_path: Path
) -> None:
    here, gate = tmp_path / "here", tmp_path / "gate"
    os.mkfifo(here)
    os.mkfifo(gate)
    run = [*RUN, "--daemon", "--dir", str(cache_path), "--max-size", "1G", "--", sys.executable, "-c", RANK]
    command = [str(find_mpiexec()), "-n", "4", *run]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "LOCKCACHE_MAXSIZE": "1G", "HERE": here, "GATE": gate}
    job = subprocess.Popen(command, env=environment, stdin=-1, stdout=-1, stderr=-1, text=True, start_new_session=True)
    try:
        arrived = os.open(here, os.O_RDWR)
        for _ in range(4):
            os.read(arrived, 1)
        opened = os.open(gate, os.O_RDWR)
        _, err = job.communicate(timeout=HANG_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGKILL)
    os.close(arrived)
    os.close(opened)
    said = [line for line in err.splitlines() if line.startswith("lockcache: ")]
    assert job.returncode == 5 | 10 | 15, err  # as mpiexec has it: those of all ranks, or one after the other
    assert said[0] == "lockcache: LOCKCACHE_MAXSIZE is not a variable of lockcache's; did you mean LOCKCACHE_MAX_SIZE?"
    assert [line.partition(" compiled")[0][-1] for line in said[1:]] == ["2"], err
    until_free(cache_path)
