# SPDX-License-Identifier: Apache-2.0
"""Places where a cache stands: images of another user, places for everybody, roots of disks, odd names, limits."""

from __future__ import annotations

import gc
import json
import logging
import os
import resource
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache, UnsafeCacheDirError
from lockcache.cli import main
from tests.access import group_members
from tests.access.group_members import run_as
from tests.programs import run_forked

BUILDER, RANDOM = 1001, 1_000_680_000


def store(path: Path, key: str, **arguments: object) -> dict[str, bytes | None]:
    with FileStreamProgramCache(path, **arguments) as cache:  # type: ignore[arg-type]
        cache[key] = key.encode()
        return {each: cache.get(each) for each in ("built", "run")}


@pytest.fixture
def of_group_0(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have processes run as under OpenShift: any user, of group 0, without others."""

    def become(uid: int) -> None:
        os.setgroups([])
        os.setgid(0)
        os.setuid(uid)

    monkeypatch.setattr(group_members, "become", become)


@pytest.mark.root
@pytest.mark.usefixtures("of_group_0")
@pytest.mark.parametrize("group", ["0", True, "root"])
def test_what_one_user_of_a_group_builds_another_one_reads_and_adds_to(home, group):
    home.chmod(0o777)
    run_as(BUILDER, lambda: store(home / "kernels", "built", group=group))
    assert run_as(RANDOM, lambda: store(home / "kernels", "run", group=group)) == {"built": b"built", "run": b"run"}
    assert run_as(BUILDER, lambda: store(home / "kernels", "built", group=group))["run"] == b"run"


@pytest.mark.root
@pytest.mark.usefixtures("of_group_0")
def test_the_refusal_of_another_users_directory_names_the_way_by_a_group(home):
    home.chmod(0o777)
    run_as(BUILDER, lambda: store(home / "kernels", "built"))
    (home / "kernels").chmod(0o755)
    with pytest.raises(UnsafeCacheDirError, match="LOCKCACHE_GROUP=1"):
        run_as(RANDOM, lambda: store(home / "kernels", "run"))


def test_a_place_for_everybodys_files_is_refused_with_a_folder_to_use_and_not_to_be_closed(tmp_path):
    tmp_path.chmod(0o1777)
    with pytest.raises(UnsafeCacheDirError, match=f"lockcache-{os.geteuid()}") as refused:
        FileStreamProgramCache(tmp_path)
    assert "chmod" not in str(refused.value)


def test_the_root_of_a_file_system_is_a_directory_of_its_own(tmp_path, caplog):
    (tmp_path / "lost+found").mkdir(mode=0o700)
    with caplog.at_level(logging.WARNING):
        store(tmp_path, "run")
    assert not caplog.records
    assert (tmp_path / "CACHEDIR.TAG").exists()


def test_who_runs_out_of_descriptors_is_told_the_limit(cache_path, caplog):
    cache, soft = FileStreamProgramCache(cache_path), resource.getrlimit(resource.RLIMIT_NOFILE)
    cache["before"] = b"x"
    gc.collect()  # else what ran in this process before may give descriptors back in the middle
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, soft[1]))
        with pytest.raises(OSError, match="Too many open files"):
            taken.extend(iter(lambda: os.open(os.devnull, os.O_RDONLY), -1))
        with caplog.at_level(logging.WARNING):
            cache["new"] = b"x"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, soft)
        for fd in taken:
            os.close(fd)
    assert "ulimit -n" in caplog.text
    cache.close()


@pytest.mark.parametrize(
    "words",
    [
        ("stats",),
        ("ls",),
        ("policy", "get"),
        ("doctor",),
        ("verify",),
        ("recount",),
        ("top", "--once"),
        ("inspect", "k"),
    ],
)
def test_json_of_a_path_that_is_not_utf_8_is_what_strict_readers_take(tmp_path, words):
    root = Path(os.fsdecode(os.fsencode(tmp_path) + b'/odd\xff"\n'))
    store(root, "k")
    done = run_forked(main, "lockcache", *words, "--json", root)
    assert done.stdout, done.stderr
    assert "\\ud" not in done.stdout
    found = [json.loads(line) for line in done.stdout.splitlines()]
    if "path" in found[0]:
        assert found[0]["path"] == f'{tmp_path}/odd\\xff"\n'
