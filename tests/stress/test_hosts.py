# SPDX-License-Identifier: Apache-2.0
"""``lockcache-stress hosts``: what it needs, what becomes of a guest that hangs; once, each real guest."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lockcache_stress.errors import UnusableError
from lockcache_stress.hosts.guest.rpc import parse_mountstats
from lockcache_stress.hosts.kernel import Package, parse_record
from lockcache_stress.hosts.machine import Guest, in_namespaces
from lockcache_stress.hosts.needs import why_no_hosts
from lockcache_stress.hosts.running import HostsOptions, _fill
from tests.daemon.daemon_process import until
from tests.stress.support import PROGRAM, environment, stress


@pytest.mark.slow
def test_the_guest_gets_a_copy_of_the_checkout_and_none_that_does_not_compile(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for package in ("lockcache", "daemon/lockcache_daemon"):
        (checkout / package).mkdir(parents=True)
        (checkout / package / "__init__.py").write_text("THIS = 'checkout'\n")
    options = HostsOptions(("herd",), seed=3, checkout=str(checkout))
    (tmp_path / "whole").mkdir()
    _fill(tmp_path / "whole" / "share", options)
    with tarfile.open(tmp_path / "whole" / "share" / "code.tar") as code:
        content = code.extractfile("./lockcache/__init__.py")
        assert content is not None
        assert b"checkout" in content.read()
        assert "./lockcache_stress/hosts/init.sh" in code.getnames()
    assert json.loads((tmp_path / "whole" / "share" / "job.json").read_text())["trials"] == ["herd"]
    (checkout / "lockcache" / "cut.py").write_text("<<<<<<< HEAD\n")
    (tmp_path / "broken").mkdir()
    with pytest.raises(UnusableError, match="does not compile"):
        _fill(tmp_path / "broken" / "share", options)


def test_requests_are_counted_for_one_mount_and_without_the_clients_own() -> None:
    text = (
        "device rootfs mounted on / with fstype rootfs\n"
        "device 10.98.1.1:/ mounted on /mnt/host-1 with fstype nfs4 statvers=1.1\n"
        "\tper-op statistics\n\t        READ: 7 7 0 1 1 1 1 1 0\n"
        "device 10.98.2.1:/ mounted on /mnt/host-2 with fstype nfs4 statvers=1.1\n"
        "\topts:\trw,vers=4.2\n\tbytes:\t1 2 3\n\tper-op statistics\n"
        "\t        NULL: 1 1 0 44 24 0 0 0 0\n\t        READ: 2 2 0 1 1 1 1 1 0\n"
        "\t        OPEN_NOATTR: 3 3 0 1 1 1 1 1 0\n\t    SEQUENCE: 9 9 0 1 1 1 1 1 0\n"
    )
    assert parse_mountstats(text, "/mnt/host-2") == {"READ": 2, "OPEN_NOATTR": 3}


def test_a_package_is_taken_only_with_the_digest_that_apt_knows(tmp_path: Path) -> None:
    content = b"a package"
    record = f"Package: linux-image-6\nVersion: 6.1-1\nSHA256: {hashlib.sha256(content).hexdigest()}\n"
    package = parse_record(record)
    assert package == Package("linux-image-6", "6.1-1", hashlib.sha256(content).hexdigest())
    assert parse_record("Package: linux-image-6\nVersion: 6.1-1\n") is None
    (tmp_path / "kept.deb").write_bytes(content)
    assert package.is_in(tmp_path / "kept.deb")
    (tmp_path / "kept.deb").write_bytes(content + b"!")
    assert not package.is_in(tmp_path / "kept.deb")


@pytest.fixture
def silent_guest(tmp_path: Path) -> Iterator[Guest]:
    """A program in qemu's place, since no real guest hangs on demand: it says two lines and then nothing."""
    with Guest(["sh", "-c", "echo one; echo two; exec sleep 1000"], tmp_path / "console") as guest:
        yield guest


def test_a_guest_that_falls_silent_is_an_error_with_its_last_lines(silent_guest: Guest) -> None:
    lines = silent_guest.lines(silent_seconds=1.0)
    assert [next(lines), next(lines)] == ["one", "two"]
    with pytest.raises(UnusableError, match=r"for 1 s: one \| two"):
        next(lines)


@pytest.mark.long
@pytest.mark.root
@pytest.mark.timeout(600)
@pytest.mark.parametrize("file_system", ["nfs", "juicefs", "glusterfs"])
def test_a_holder_that_is_killed_on_one_host_is_taken_over_on_the_other(file_system: str, run_path: Path) -> None:
    why = why_no_hosts(file_system)
    if why is not None:
        pytest.skip(f"no guest: {why}")
    words = ("hosts", f"--{file_system}", "--scenarios", "kill", "--if-possible", "--json")
    ran = stress(*words, "--out", str(run_path / "out"), run_path=run_path, timeout=580)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    report = json.loads(ran.stdout)
    if report["skipped"]:
        pytest.skip(report["skipped"])
    assert report["ok"]
    assert [tried["trial"] for tried in report["trials"]] == ["kill"]
    assert report["trials"][0]["numbers"]["takeover"]["taken_over"]
    assert sorted(os.listdir(run_path / "out")) == ["console.log", "results.jsonl"]
    assert os.listdir(run_path) == ["out"]


@pytest.mark.slow
@pytest.mark.root
@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_guest_in_namespaces_however_its_run_ends(way: signal.Signals, run_path: Path) -> None:
    why = why_no_hosts("juicefs")
    if why is not None:
        pytest.skip(f"no guest: {why}")
    before = _mounts()
    with subprocess.Popen(
        [PROGRAM, "hosts", "--juicefs", "--scenarios", "bytes", "--out", str(run_path / "out")],
        env=environment(run_path),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as run:
        until(lambda: len([each for each in _below(run.pid) if each.info["name"] == "juicefs"]) >= 3)
        processes = _below(run.pid)
        run.send_signal(way)
        run.wait()
    gone, alive = psutil.wait_procs(processes, timeout=30)
    assert (len(gone), alive) == (len(processes), [])
    assert _mounts() == before
    assert way == signal.SIGKILL or os.listdir(run_path) == ["out"]


@pytest.mark.slow
@pytest.mark.root
def test_a_guest_in_namespaces_has_its_own_run_and_its_share_wherever_that_is(tmp_path: Path) -> None:
    why = why_no_hosts("juicefs")
    if why is not None and "not on PATH" not in why:
        pytest.skip(f"no guest: {why}")
    (tmp_path / "start.sh").write_text(
        "echo $$; hostname lockcache-guest; ls -A /run; touch /run/share/here /run/gone\n"
    )
    with Guest(in_namespaces(tmp_path), tmp_path / "console") as guest:
        assert [line for line in guest.lines() if line != "mount"] == ["1", "share"]
    assert (tmp_path / "here").exists()
    assert not Path("/run/gone").exists()
    assert socket.gethostname() != "lockcache-guest"


def _below(pid: int) -> list[psutil.Process]:
    """Returns the processes that descend from this one, with their names."""
    below = {pid}
    found = []
    for each in psutil.process_iter(["name", "ppid"]):
        if each.info["ppid"] in below:
            below.add(each.pid)
            found.append(each)
    return found


def _mounts() -> list[str]:
    """Returns what is mounted of JuiceFS here."""
    return [line for line in Path("/proc/self/mounts").read_text().splitlines() if "juicefs" in line]
