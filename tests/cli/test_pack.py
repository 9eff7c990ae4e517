# SPDX-License-Identifier: Apache-2.0
"""Shipping a warm cache with the operator's command: files, pipes, full disks, kills, and others at work meanwhile."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from zstandard import FRAME_HEADER

from lockcache import BundleProgramCache, Entry, FileStreamProgramCache
from lockcache.errors import how_to_install
from lockcache.lowlevel import Policy
from tests.cli.command import LOCKCACHE, give_to_somebody, run, run_as_somebody
from tests.processes.provable_values import value_for
from tests.state_pages import policy_of
from tests.unit.bundle.packed import compress, entry, packed_of

KEYS = [b"%d" % number for number in range(100)]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    root = tmp_path / "filled"
    with FileStreamProgramCache(root) as cache:
        for key in KEYS:
            cache.put_entry(key, Entry(value_for(key, 1, 0), {"arch": "sm_90"}))
    return root


def test_a_cache_goes_through_a_file(filled: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "warm.lcb.zst"
    packed = json.loads(run("pack", "--json", bundle, filled).stdout)
    assert (packed["entries"], packed["bundle_bytes"]) == (len(KEYS), bundle.stat().st_size)
    assert bundle.stat().st_mode & 0o777 == 0o600
    unpacked = json.loads(run("unpack", "--json", bundle, tmp_path / "other").stdout)
    assert (unpacked["stored"], unpacked["bytes"]) == (len(KEYS), packed["bytes"])
    with FileStreamProgramCache(tmp_path / "other", verified_only=True) as cache:
        assert all(cache[key] == value_for(key, 1, 0) for key in KEYS)


def test_a_cache_goes_through_a_pipe(filled: Path, tmp_path: Path) -> None:
    line = f"{LOCKCACHE} pack --level 1 - {filled} | {LOCKCACHE} unpack - {tmp_path / 'other'}"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended
    assert len(FileStreamProgramCache(tmp_path / "other")) == len(KEYS)


def test_a_file_in_zst_is_compressed_and_others_are_bundles_that_programs_read(filled: Path, tmp_path: Path) -> None:
    assert run("pack", tmp_path / "warm.lcb", filled).returncode == 0
    assert run("pack", "--level", "0", tmp_path / "other.zst", filled).returncode == 0
    assert run("pack", "--level", "3", tmp_path / "small.lcb", filled).returncode == 0
    assert run("pack", tmp_path / "named.zstd", filled).returncode == 0
    with BundleProgramCache(tmp_path / "warm.lcb") as bundle:
        assert all(bundle[key] == value_for(key, 1, 0) for key in KEYS)
    assert (tmp_path / "other.zst").read_bytes() == (tmp_path / "warm.lcb").read_bytes()
    assert (tmp_path / "small.lcb").read_bytes().startswith(FRAME_HEADER)
    assert (tmp_path / "named.zstd").read_bytes() == (tmp_path / "small.lcb").read_bytes()
    assert json.loads(run("unpack", "--json", tmp_path / "warm.lcb", tmp_path / "made").stdout)["stored"] == len(KEYS)
    assert run("pack", tmp_path / "warm.lcb", filled).returncode == 0  # a bundle may be replaced


def test_without_zstd_a_bundle_is_not_compressed_or_one_line_says_what_to_install(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("pack", tmp_path / "warm.lcb.zst", filled).returncode == 0
    monkeypatch.setitem(sys.modules, "zstandard", None)
    before = sorted(tmp_path.iterdir())
    install = f"zstandard: {how_to_install('cli')}"
    ended = run("pack", tmp_path / "other.lcb.zst", filled)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert install in ended.stderr
    assert "--level 0" in ended.stderr
    ended = run("unpack", tmp_path / "warm.lcb.zst", tmp_path / "made")
    assert (ended.returncode, ended.stdout, ended.stderr) == (2, "", f"lockcache: needs {install}\n")
    assert sorted(tmp_path.iterdir()) == before
    assert run("pack", tmp_path / "warm.lcb", filled).returncode == 0
    assert run("unpack", tmp_path / "warm.lcb", tmp_path / "made").returncode == 0
    assert len(FileStreamProgramCache(tmp_path / "made")) == len(KEYS)


def test_the_default_directory_has_its_cap_also_where_it_is_made_by_unpacking(filled: Path, tmp_path: Path) -> None:
    run("pack", tmp_path / "warm.lcb.zst", filled)
    assert run("unpack", tmp_path / "warm.lcb.zst", XDG_CACHE_HOME=str(tmp_path), LOCKCACHE_DIR="").returncode == 0
    found = policy_of(tmp_path / "lockcache")
    assert found == Policy(10 * 10**9, is_default=True)


def test_what_is_damaged_makes_exit_1_and_the_rest_is_stored(tmp_path: Path) -> None:
    bundle = tmp_path / "warm.lcb.zst"
    bundle.write_bytes(compress(packed_of(entry(b"a", b"1"), entry(b"b", b"2", name_of=b"c"), entry(b"d", b"3"))))
    ended = run("unpack", bundle, tmp_path / "other")
    assert ended.returncode == 1
    assert "digest" in ended.stderr
    assert len(FileStreamProgramCache(tmp_path / "other")) == 2
    strict = run("unpack", "--strict", bundle, tmp_path / "strict")
    assert (strict.returncode, "stored   1\n" in strict.stdout, "damaged  1\n" in strict.stdout) == (1, True, True)
    assert len(FileStreamProgramCache(tmp_path / "strict")) == 1


def _damage(root: Path, count: int) -> list[str]:
    """Break the first ``count`` entries; their names."""
    broken = sorted(root.glob("entries/*/*"))[:count]
    for path in broken:
        path.write_bytes(b"altered")
    return [path.parent.name + path.name for path in broken]


@pytest.mark.long
@pytest.mark.parametrize("output", ["a file", "stdout"])
def test_what_is_damaged_makes_packing_exit_1_and_is_named(output: str, filled: Path, tmp_path: Path) -> None:
    names = _damage(filled, 2)
    bundle = tmp_path / "warm.lcb.zst"
    with open(bundle if output == "stdout" else os.devnull, "wb") as out:
        command = [LOCKCACHE, "pack", "-" if output == "stdout" else bundle, filled]
        ended = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    said = ended.stderr.splitlines()
    assert set(said[-3:-1]) == {f"lockcache: {name}: damaged, left out" for name in names}
    assert said[-1].startswith("lockcache: 2 damaged and 0 unreadable entries were left out")
    assert len(said) == (4 if output == "stdout" else 3)
    unpacked = run("unpack", "--strict", "--json", bundle, tmp_path / "other")
    assert (unpacked.returncode, json.loads(unpacked.stdout)["stored"]) == (0, len(KEYS) - 2)


@pytest.mark.root
def test_what_may_not_be_read_makes_packing_exit_1_and_is_named(open_path: Path) -> None:
    with FileStreamProgramCache(open_path / "cache") as cache:
        cache.update({key: value_for(key, 1, 0) for key in KEYS[:3]})
    (open_path / "out").mkdir()
    give_to_somebody(open_path)
    path = next(open_path.glob("cache/entries/*/*"))
    path.chmod(0)
    ended = run_as_somebody("pack", "--json", open_path / "out" / "warm.lcb.zst", open_path / "cache")
    found = json.loads(ended.stdout)
    assert (ended.returncode, found["entries"], found["damaged"], found["unreadable"]) == (1, 2, 0, 1)
    assert f"{path.parent.name}{path.name}: unreadable" in ended.stderr
