# SPDX-License-Identifier: Apache-2.0
"""Bad usage is one line that names the value, and exit code 2."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache_stress.scenarios.registry import TROUBLE_SCENARIOS
from tests.stress.support import stress

_WHY_NOT = next(each for each in TROUBLE_SCENARIOS if each.name == "disk-full").why_not()
DISK_FULL = pytest.mark.skipif(_WHY_NOT is not None, reason=str(_WHY_NOT))


@pytest.mark.long
@pytest.mark.parametrize(
    "words, named",
    [
        (("nope",), "nope"),
        (("same-key", "--max-size", "ten"), "ten"),
        (("same-key", "--seconds", "nan"), "'nan' is not a number"),
        (("stopped-holder", "--processes", "3"), "at least 4 processes"),
        (("same-key", "--directory", "/proc/no-such"), "/proc/no-such"),
        (("gpu", "--out", "/proc/no-such"), "--out /proc/no-such"),
        (("hosts",), "--nfs, --juicefs, --glusterfs"),
        (("hosts", "--glusterfs", "--scenarios", "herd,calls"), "calls"),
        (("fleet", "--markdown", "--json"), "--markdown and --json"),
        (("fleet", "--counts", "/proc/version"), "holds no counts"),
        (("simulate", "--costs", "/no/such"), "/no/such"),
        (("simulate", "--size", "big"), "big"),
        (("remote", "--servers", "memcached"), "'memcached'"),
        pytest.param(("disk-full", "--directory", "/mine"), "/mine", marks=DISK_FULL),
    ],
)  # fmt: skip
def test_a_bad_option_is_one_line_and_exit_code_2(words: tuple[str, ...], named: str, run_path: Path) -> None:
    ran = stress(*words, run_path=run_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert named in ran.stderr


def test_a_run_does_not_evict_what_a_cache_of_somebodys_holds(run_path: Path) -> None:
    path = run_path / "mine"
    with FileStreamProgramCache(path) as cache:
        cache["k"] = b"code"
    ran = stress("same-key", "--seconds", "1", "--directory", str(path), run_path=run_path)
    assert ran.returncode == 2
    assert "holds a cache of 1 entry, which this would evict" in ran.stderr
    with FileStreamProgramCache(path) as cache:
        assert (cache["k"], cache.max_size_bytes) == (b"code", None)


def test_a_directory_that_others_may_write_to_is_refused(run_path: Path) -> None:
    unsafe = run_path / "unsafe"
    unsafe.mkdir()
    unsafe.chmod(0o777)
    ran = stress("same-key", "--directory", str(unsafe), run_path=run_path)
    assert ran.returncode == 2
    assert len(ran.stderr.splitlines()) == 1, ran.stderr
    assert str(unsafe) in ran.stderr


def test_without_a_command_the_help_is_shown(run_path: Path) -> None:
    ran = stress(run_path=run_path)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert all(word in ran.stderr for word in ("Usage:", "Examples:", "Commands:"))
