# SPDX-License-Identifier: Apache-2.0
"""Staged files of adapters: what a killed process left goes, and what a living one makes stays."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lockcache.filestream.disk import myself
from lockcache.integrations.staged import reap_folder, staged_name

STAGE = """
import os, sys
from lockcache.integrations.staged import staged_name
folder = sys.argv[1]
made = [os.path.join(folder, staged_name("warp")) for _ in range(3)]
os.makedirs(os.path.join(made[0], "wp_module"))
open(os.path.join(made[0], "wp_module", "a.o"), "w").close()
os.symlink("/etc", made[1])
open(made[2], "w").close()
print("made", flush=True)
sys.stdin.read()
"""


def grow_old(folder: Path) -> None:
    for path in folder.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)


@pytest.mark.slow
def test_what_a_killed_process_staged_goes_and_what_a_living_one_did_stays(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "wp_module").mkdir()
    (folder / staged_name("warp")).mkdir()
    kept = {path.name for path in folder.iterdir()}
    with subprocess.Popen([sys.executable, "-c", STAGE, folder], stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "made\n"
        grow_old(folder)
        reap_folder(str(folder))
        assert len([*folder.iterdir()]) == len(kept) + 3
        process.kill()
    reap_folder(str(folder))
    assert {path.name for path in folder.iterdir()} == kept
    reap_folder(str(folder / "missing"))


@pytest.mark.parametrize("owner", ["dead", "of another host"])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_is_dated_in_the_future_is_not_young(tmp_path: Path, owner: str, kind: str) -> None:
    me = myself()
    dead = me._replace(start_ticks=1) if owner == "dead" else me._replace(host="0123456789abcdef")
    staged = tmp_path / f"{'0' * 32}.warp.{dead.host}.{dead.pid}.{dead.start_ticks}.1"
    staged.mkdir() if kind == "folder" else staged.touch()
    os.utime(staged, (1, time.time() + 2 * 3600))  # as after a clock that was set back
    reap_folder(str(tmp_path))
    assert not staged.exists()
