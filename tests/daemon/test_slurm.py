# SPDX-License-Identifier: Apache-2.0
"""The scripts for Slurm, run as Slurm runs them: on a node that is a folder."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.daemon.daemon_process import HANG_SECONDS, SCRIPT, until
from tests.daemon.directories import fill
from tests.daemon.tools import need_program

SLURM = Path(__file__).parents[2] / "daemon" / "lockcache_daemon" / "deploy" / "slurm"
JOB = "4711"


class Node:
    """A node of a cluster, as far as the scripts can see one."""

    def __init__(self, folder: Path, mode: str = "job", uid: int | None = None, daemon: str = SCRIPT) -> None:
        self.root = folder / "node"
        self.conf = folder / "lockcache.conf"
        uid = os.getuid() if uid is None else uid
        self.conf.write_text(
            f"LOCKCACHE_SLURM_ROOT={self.root}\nLOCKCACHE_SLURM_MODE={mode}\n"
            f'LOCKCACHE_SLURM_OPTIONS="--max-size 1M --interval 50ms"\nLOCKCACHE_SLURM_DAEMON={daemon}\n'
        )
        self.directory = self.root / (f"job-{JOB}" if mode == "job" else f"user-{uid}")
        slurm = {
            "SLURM_JOB_ID": JOB,
            "SLURM_JOB_UID": str(uid),
            "SLURM_JOB_GID": str(os.getgid() if uid == os.getuid() else uid),
        }
        self.environment = {**os.environ, **slurm, "LOCKCACHE_SLURM_CONF": str(self.conf)}
        self.environment.pop("LOCKCACHE_DIR", None)

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(SLURM / script)],
            env={**self.environment, **environment},
            capture_output=True,  # to the end: who kept these pipes would keep Slurm
            text=True,
            timeout=HANG_SECONDS,
            check=False,
        )

    @property
    def pid(self) -> int:
        return int((self.root / ".pids" / JOB).read_text())


@pytest.fixture
def node(tmp_path: Path) -> Node:
    need_program("setpriv")
    return Node(tmp_path)


@pytest.mark.long
def test_a_job_has_a_directory_and_a_daemon_and_leaves_neither(node: Node) -> None:
    began = node.run("prolog.sh")
    assert (began.returncode, began.stdout, began.stderr) == (0, "", "")
    try:
        assert stat.S_IMODE(node.directory.stat().st_mode) == 0o700
        assert node.run("taskprolog.sh").stdout == f"export LOCKCACHE_DIR={node.directory}\n"
        until((node.directory / "lockcache" / "daemon.json").exists)
        fill(node.directory, 200, 10_000)
        with FileStreamProgramCache(node.directory) as cache:
            assert cache.max_size_bytes == 1_000_000
            until(lambda: cache.stats().bytes <= 950_000 and len(cache) < 100)
        pid = node.pid
    finally:
        ended = node.run("epilog.sh")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert os.listdir(node.root / ".pids") == []
    assert not node.directory.exists()
    until(lambda: not _is_running(pid))


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.long
def test_a_daemon_that_does_not_hear_is_killed(node: Node) -> None:
    node.run("prolog.sh")
    until((node.directory / "lockcache" / "daemon.json").exists)
    pid = node.pid
    os.kill(pid, signal.SIGSTOP)
    assert node.run("epilog.sh").returncode == 0
    until(lambda: not _is_running(pid))
    assert not node.directory.exists()


def test_a_process_that_has_the_daemons_pid_by_now_is_left_alone(node: Node) -> None:
    node.run("prolog.sh")
    daemon = node.pid
    with subprocess.Popen(["sleep", "1000"]) as other:
        (node.root / ".pids" / JOB).write_text(f"{other.pid}\n")
        assert node.run("epilog.sh").returncode == 0
        assert other.poll() is None
        other.kill()
    os.kill(daemon, signal.SIGTERM)


@pytest.mark.long
def test_a_directory_that_stays_is_brought_under_its_budget_when_a_job_ends(tmp_path: Path) -> None:
    node = Node(tmp_path, "node")
    assert node.run("prolog.sh").stderr == ""
    assert node.run("taskprolog.sh").stdout == f"export LOCKCACHE_DIR={node.directory}\n"
    fill(node.directory, 200, 10_000)
    ended = node.run("epilog.sh")
    assert (ended.returncode, ended.stdout) == (0, "")
    assert sum(path.stat().st_size for path in node.directory.glob("entries/??/*")) <= 950_000


def test_what_the_user_set_counts(node: Node) -> None:
    node.root.mkdir()
    node.directory.mkdir()
    assert node.run("taskprolog.sh", LOCKCACHE_DIR="/mine").stdout == ""


@pytest.mark.parametrize(
    "script, lacks",
    [
        *(("prolog.sh", lacks) for lacks in ("SLURM_JOB_ID", "SLURM_JOB_UID", "conf", "daemon", "root")),
        ("epilog.sh", "SLURM_JOB_ID"),
        ("epilog.sh", "conf"),
        ("taskprolog.sh", "conf"),
        ("taskprolog.sh", "root"),
    ],
)
def test_nothing_that_is_missing_fails_a_job(tmp_path: Path, script: str, lacks: str) -> None:
    node = Node(tmp_path, daemon="/no/such/daemon" if lacks == "daemon" else SCRIPT)
    if lacks == "conf":
        node.conf.unlink()
    if lacks == "root":
        node.root.write_text("a file in its place")
    done = node.run(script, **({lacks: "x; touch /"} if lacks.startswith("SLURM") else {}))
    assert done.returncode == 0
    if lacks != "daemon":
        assert done.stdout == ""
    if lacks == "daemon":
        node.run("epilog.sh")


@pytest.mark.root
def test_another_users_job_has_a_directory_and_a_daemon_of_its_own(tmp_path: Path) -> None:
    need_program("setpriv")
    for folder in (tmp_path, *tmp_path.parents[:-2]):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    output, program = tmp_path / "told", tmp_path / "daemon"
    output.write_text("")
    output.chmod(0o666)
    program.write_text(
        f'#!/bin/sh\necho "$(id -u):$(id -g):$(id -G)" >> {output}\nexec sleep 1000 # stands in for the daemon\n'
    )
    program.chmod(0o755)
    node = Node(tmp_path, uid=65534, daemon=str(program))
    assert node.run("prolog.sh").stderr == ""
    status = node.directory.stat()
    assert (status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode)) == (65534, 65534, 0o700)
    until(lambda: output.read_text() == "65534:65534:65534\n")
    os.kill(node.pid, signal.SIGTERM)
    assert node.run("epilog.sh").returncode == 0
    assert not node.directory.exists()


@pytest.mark.root
def test_a_directory_that_somebody_else_planted_is_not_given_to_the_job(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.root.mkdir()
    node.directory.symlink_to(tmp_path)
    done = node.run("prolog.sh")
    assert (done.returncode, "belongs to somebody else" in done.stderr) == (0, True)
    assert not (node.root / ".pids" / JOB).exists()


def test_shellcheck_has_nothing_to_say_of_the_scripts() -> None:
    scripts = sorted(map(str, SLURM.glob("*.sh")))
    command = [need_program("shellcheck"), "--external-sources", "--source-path=SCRIPTDIR", *scripts]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "")
