# SPDX-License-Identifier: Apache-2.0
"""``lockcache run --keep``: which folders of a program are stored, and that they are there on another node."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.integrations.kept_folders import FolderGuard, parse_pattern
from lockcache.lowlevel import Layout, Selection, describe_entry, select_entries
from tests.cli.builders import HANG_SECONDS, build, building, go_on, is_built
from tests.cli.command import run, start
from tests.daemon.daemon_process import until
from tests.matrix_sampling import EXHAUSTIVE


def stored(cache: Path) -> list[str]:
    """The names of the folders that are stored."""
    layout = Layout(str(cache))
    found = select_entries(layout, Selection(kind=("folder",)), time.time_ns())
    described = [describe_entry(layout, each) for each in found]
    return sorted(each.label or "" for each in described if each is not None)


def listed(cache: Path) -> Collection[str]:
    """The names of folders that a later command looks for."""
    with FileStreamProgramCache(cache) as opened:
        names = FolderGuard(opened, parse_pattern("KERNELS/*/", {"KERNELS": str(cache)}))._names
        names.read()
        return names.known


def finish(cache: Path, node: Path, script: str, *words: str, **variables: str) -> tuple[int, str, str]:
    """Run a script of the shell in the folder of a node: exit code, and what was printed and said."""
    command = ["--dir", str(cache), "--keep", "KERNELS/*/", *words, "--", "sh", "-c", script]
    process = start(*command, **{"KERNELS": str(node), **variables})
    out, err = process.communicate(timeout=HANG_SECONDS)
    return process.returncode, out, err


@pytest.mark.slow
@pytest.mark.parametrize("how", ["moved", "in place"])
def test_a_folder_that_one_node_built_is_there_on_another(how: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert build(cache, tmp_path / "a", how)[0] == "built"
    word, said, code = build(cache, tmp_path / "b", how)
    assert (word, code) == ("found", 0)
    assert said.splitlines()[0] == "lockcache: 1 folder laid down, 0 stored"
    assert is_built(tmp_path / "b" / "k1")
    listed = run("ls", cache).stdout
    assert "folder" in listed
    assert "KERNELS/*/  k1" in listed


@pytest.mark.slow
def test_what_appears_whole_is_stored_while_the_command_runs_and_stays_when_the_guard_is_killed(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with building(cache, tmp_path / "a", "moved") as process:
        go_on(process, "midway")
        assert process.stdout.readline() == "built\n"
        # The last step of storing: a guard that is killed before it leaves an entry that nobody looks for.
        until(lambda: "k1" in listed(cache))
        process.kill()
    assert build(cache, tmp_path / "b", "moved")[0] == "found"


@pytest.mark.slow
@pytest.mark.parametrize(
    "how, which", [("moved", "command"), ("in place", "both"), pytest.param("in place", "guard", marks=EXHAUSTIVE)]
)
def test_what_is_half_done_when_something_is_killed_is_never_stored(how: str, which: str, tmp_path: Path) -> None:
    cache, node = tmp_path / "cache", tmp_path / "a"
    with building(cache, node, how, "-q") as process:
        assert process.stdout.readline() == "midway\n"
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        if which != "guard":
            os.kill(child, signal.SIGKILL)
        if which != "command":
            process.kill()
        process.communicate(timeout=HANG_SECONDS)
    # Nor by a command that ends well and does not touch it.
    assert finish(cache, node, "true")[0] == 0
    assert stored(cache) == []
    # But once it was built to its end.
    assert build(cache, node, how)[0] == "built"
    assert stored(cache) == ["k1"]


@pytest.mark.slow
def test_of_a_command_that_fails_only_what_appeared_whole_is_stored(tmp_path: Path) -> None:
    for how, expected in (("in place", []), ("moved", ["k1"])):
        cache, node = tmp_path / how / "cache", tmp_path / how / "a"
        with building(cache, node, how, "-q") as process:
            go_on(process, "midway")
            assert process.stdout.readline() == "built\n"
            process.communicate(timeout=HANG_SECONDS)  # the end of its stdin is an error
        assert process.returncode == 3
        assert stored(cache) == expected


@pytest.mark.slow
def test_what_a_command_is_building_whose_guard_was_killed_is_not_stored_by_another_one(tmp_path: Path) -> None:
    cache, node = tmp_path / "cache", tmp_path / "a"
    with building(cache, node, "in place", "-q") as process:
        assert process.stdout.readline() == "midway\n"
        [child] = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        process.kill()
        process.wait(HANG_SECONDS)
        other = "touch $KERNELS/k1/source.cu; mkdir $KERNELS/k2; echo x > $KERNELS/k2/f"
        assert finish(cache, node, other)[0] == 0
        assert stored(cache) == []
        process.communicate("\n\n", timeout=HANG_SECONDS)
        until(lambda: not Path(f"/proc/{child}").exists())
    assert finish(cache, node, "mkdir $KERNELS/k3; echo x > $KERNELS/k3/f")[0] == 0
    assert stored(cache) == ["k3"]


@pytest.mark.slow
def test_what_a_command_leaves_running_keeps_no_later_one_from_storing(tmp_path: Path) -> None:
    cache, node = tmp_path / "cache", tmp_path / "a"
    make = "mkdir $KERNELS/{0}; echo x > $KERNELS/{0}/f; sleep 1000 < /dev/null > /dev/null 2>&1 & echo $!"
    left = [finish(cache, node, make.format(name))[1] for name in ("k1", "k2")]
    for each in left:
        os.kill(int(each), signal.SIGKILL)
    assert stored(cache) == ["k1", "k2"]


@pytest.mark.slow
def test_what_a_program_writes_into_what_was_laid_down_changes_no_entry(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    build(cache, tmp_path / "a", "moved")
    for node in ("b", "c"):
        assert build(cache, tmp_path / node, "moved")[0] == "found"
        assert is_built(tmp_path / node / "k1")
        overwrite = "echo other > $KERNELS/k1/source.cu; mv $KERNELS/k1 $KERNELS/.x; mv $KERNELS/.x $KERNELS/k1"
        assert finish(cache, tmp_path / node, overwrite)[0] == 0
    assert stored(cache) == ["k1"]


@pytest.mark.long
def test_ranks_that_begin_together_all_find_what_is_stored_and_each_folder_is_stored_once(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for name in ("k1", "k2", "k3"):
        build(cache, tmp_path / "a", "in place", name=name)
    show = "cat $KERNELS/*/source.cu && mkdir -p $KERNELS/new && echo new > $KERNELS/new/f"
    words = ("--dir", str(cache), "--keep", "KERNELS/*/", "--", "sh", "-c", show)
    ranks = [start(*words, KERNELS=str(tmp_path / "b"), SLURM_LOCALID=str(rank)) for rank in range(4)]
    assert [process.communicate(timeout=HANG_SECONDS)[0] for process in ranks] == ["source" * 3] * 4
    assert [process.returncode for process in ranks] == [0] * 4
    assert stored(cache) == ["k1", "k2", "k3", "new"]
    assert sorted(os.listdir(tmp_path / "b")) == ["k1", "k2", "k3", "new"]


@pytest.mark.slow
def test_without_lockcache_nothing_is_kept_and_the_command_runs(tmp_path: Path) -> None:
    node = tmp_path / "a"
    make = "mkdir -p $KERNELS/k1 && echo x > $KERNELS/k1/f"
    words = ("--keep", "KERNELS/*/", "--", "sh", "-c", make)
    assert finish(tmp_path / "cache", node, make, LOCKCACHE_DISABLE="1")[0] == 0
    unusable = start(*words, KERNELS=str(node), LOCKCACHE_DIR="/proc/none")
    assert "goes on without lockcache" in unusable.communicate(timeout=HANG_SECONDS)[1]
    assert unusable.returncode == 0
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow
def test_a_folder_that_cannot_be_made_is_one_line_and_the_command_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = ("--dir", str(tmp_path / "cache"), "--keep", f"{tmp_path}/file/x/*/", "--", "echo", "ran")
    out, err = start(*words).communicate(timeout=HANG_SECONDS)
    assert out == "ran\n"
    assert err.startswith(f"lockcache: --keep {tmp_path}/file/x/*/: nothing more is kept: ")


def test_folders_that_hold_the_cache_itself_are_refused(tmp_path: Path) -> None:
    for keep in (f"{tmp_path}/*/", f"{tmp_path}/cache/entries/*/"):
        ended = run("run", "--dir", tmp_path / "cache", "--keep", keep, "--", "true")
        assert ended.returncode == 2
        assert "have to be apart" in ended.stderr


def test_in_a_directory_that_a_group_shares_nothing_is_kept_without_signatures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, node = tmp_path / "cache", tmp_path / "a"
    FileStreamProgramCache(cache, group=True).close()
    make = "mkdir -p $KERNELS/k; echo x > $KERNELS/k/f"
    assert "shared with a group" in finish(cache, node, make, LOCKCACHE_GROUP="1")[2]
    assert stored(cache) == []
