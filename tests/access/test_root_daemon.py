# SPDX-License-Identifier: Apache-2.0
"""A daemon that runs as root refuses what others may write to, and names the line that starts it as one of them."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache_daemon.command import run
from tests.access.group_members import ALICE, GROUP
from tests.daemon.directories import photograph
from tests.daemon.keepers import Kept, keep

__all__ = ["keep"]

pytestmark = pytest.mark.root

HOW = ["--once", "--dry-run", "--interval=1s"]


def account() -> pwd.struct_passwd:
    """Some account of this system other than root's."""
    return next(each for each in pwd.getpwall() if each.pw_uid and each.pw_gid)


def refused(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> str:
    """Returns the error, which is one line."""
    monkeypatch.setattr(sys, "argv", ["/some where/lockcache-daemon", *arguments])
    assert run(arguments) == 2
    said = capfd.readouterr().err
    assert said.count("\n") == 1
    assert "this daemon runs as root" in said
    return said


def who_runs(said: str, arguments: list[str]) -> tuple[int, int]:
    """The user and group as which the line that was named starts something; that it starts the same is checked."""
    words = shlex.split(said.rpartition("Run: ")[2])
    behind = words.index("--") + 1
    assert words[behind:] == ["/some where/lockcache-daemon", *arguments]
    if shutil.which(words[0]) is None:
        pytest.skip(f"needs {words[0]}")
    printed = subprocess.run([*words[:behind], "sh", "-c", "id -u; id -g"], capture_output=True, text=True, check=True)
    uid, gid = map(int, printed.stdout.split())
    return uid, gid


@pytest.mark.parametrize("how", HOW)
def test_another_users_directory_is_kept_by_that_user(
    how: str, cache_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    owner = account()
    cache_path.mkdir(mode=0o700)
    os.chown(cache_path, owner.pw_uid, 0)
    arguments = ["--max-size", "1M", how, str(cache_path)]
    said = refused(arguments, monkeypatch, capfd)
    assert f"belongs to uid {owner.pw_uid} ({owner.pw_name})" in said
    assert who_runs(said, arguments) == (owner.pw_uid, owner.pw_gid)
    assert os.listdir(cache_path) == []


@pytest.mark.parametrize("how", HOW)
def test_a_directory_that_a_group_shares_is_kept_by_a_member(
    how: str, cache_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    owner, other = account(), [each for each in pwd.getpwall() if each.pw_uid and each.pw_gid][1]
    arguments = ["--max-size", "1M", how, "--group", "yes", str(cache_path)]
    cache_path.mkdir()
    for uid, gid, expected in (
        (0, owner.pw_gid, (owner.pw_uid, owner.pw_gid)),
        (owner.pw_uid, other.pw_gid, (owner.pw_uid, other.pw_gid)),
        (ALICE, GROUP, (ALICE, GROUP)),  # numbers that have no names here
        (owner.pw_uid, GROUP, (owner.pw_uid, GROUP)),
    ):
        os.chown(cache_path, uid, gid)
        cache_path.chmod(0o2770)
        assert who_runs(refused(arguments, monkeypatch, capfd), arguments) == expected
    assert os.listdir(cache_path) == []


def test_what_only_the_option_would_share_is_refused_too(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    owner = next(each for each in pwd.getpwall() if each.pw_uid and each.pw_gid > 1)  # --group 1 is "yes"
    arguments = ["--max-size", "1M", "--once", "--group", str(owner.pw_gid), str(cache_path)]
    assert who_runs(refused(arguments, monkeypatch, capfd), arguments) == (owner.pw_uid, owner.pw_gid)
    assert not cache_path.exists()
    FileStreamProgramCache(cache_path, group=False).close()
    assert who_runs(refused(arguments, monkeypatch, capfd), arguments) == (owner.pw_uid, owner.pw_gid)


def test_one_that_a_group_may_write_to_by_accident_is_mended_by_the_command_that_is_named(
    cache_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    cache_path.mkdir()
    cache_path.chmod(0o775)
    arguments = ["--max-size", "1M", "--once", str(cache_path)]
    said = refused(arguments, monkeypatch, capfd)
    subprocess.run(said.partition("fix that: ")[2].partition(")")[0], shell=True, check=True)
    assert run(arguments) == 0


def test_root_keeps_its_own(cache_path: Path) -> None:
    FileStreamProgramCache(cache_path, group=False)["k"] = b"v"
    assert run(["--max-size", "1M", "--once", str(cache_path)]) == 0


@pytest.mark.parametrize("layout", ["lockcache", "pyptx", "triton", "files"])
def test_one_that_is_shared_while_it_is_kept_is_left_alone_until_it_is_not(
    layout: str, cache_path: Path, keep: Callable[..., Kept]
) -> None:
    cache_path.mkdir(mode=0o700)
    kept = keep(cache_path, layout)
    kept.keeper.tick()
    os.chown(cache_path, 0, GROUP)
    cache_path.chmod(0o2770)
    before = photograph(cache_path)
    for _ in range(3):
        kept.keeper.tick()
    assert photograph(cache_path) == before
    (error,) = kept.said("error")
    assert f"is shared with group {GROUP}" in error["error"]["message"]
    assert "this daemon runs as root" in error["error"]["message"]
    cache_path.chmod(0o700)
    kept.keeper.tick()
    assert kept.keeper.is_well
