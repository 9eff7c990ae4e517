# SPDX-License-Identifier: Apache-2.0
"""Bundles of a directory with a seed: what programs get there, and nothing else."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lockcache import BundleProgramCache, Entry, FileStreamProgramCache
from lockcache.filestream.disk import entry_name, last_use_ns
from tests.cli.command import run
from tests.unit.bundle.bundles import CREATED_NS, bundle_of, write
from tests.unit.material import entry_path

# What programs get in the directory.
SERVED = {b"only in the seed": b"s" * 100, b"stored again": b"newer", b"own": b"own"}


@pytest.fixture
def node(tmp_path: Path) -> Path:
    older = {b"only in the seed": b"s" * 100, b"stored again": b"older", b"deleted": b"d" * 100}
    seed = write(tmp_path / "seed.lcb", bundle_of(older))
    with FileStreamProgramCache(tmp_path / "node", seed=seed) as cache:
        cache[b"stored again"] = b"newer"
        cache.put_entry(b"own", Entry(b"own", {"kind": "ptx", "arch": "sm_90"}))
        del cache[b"deleted"]
        assert {key: cache.get(key) for key in (*older, b"own")} == {**SERVED, b"deleted": None}
    return tmp_path / "node"


def _made(node: Path, path: Path, *options: str) -> dict[bytes, bytes | None]:
    """Returns what is in a bundle that is made of a directory."""
    made = run("bundle", "make", "--json", "-o", path, *options, node)
    assert made.returncode == 0, made
    with BundleProgramCache(path) as bundle:
        found = {key: bundle.get(key) for key in (*SERVED, b"deleted")}
        assert len(bundle) == json.loads(made.stdout)["entries"]
    assert json.loads(made.stdout)["seeded"] == (b"s" * 100 in found.values())
    return {key: value for key, value in found.items() if value is not None}


def test_a_bundle_has_what_programs_get(node: Path, tmp_path: Path) -> None:
    assert _made(node, tmp_path / "made.lcb") == SERVED
    assert "seeded      1\n" in run("bundle", "make", "-o", tmp_path / "made.lcb", node).stdout


def test_a_packed_bundle_has_it_too_last_used_when_it_was_compiled(node: Path, tmp_path: Path) -> None:
    packed = run("pack", "--json", tmp_path / "made.lcb.zst", node)
    assert (packed.returncode, json.loads(packed.stdout)["seeded"]) == (0, 1)
    assert run("unpack", tmp_path / "made.lcb.zst", tmp_path / "unpacked").returncode == 0
    status = os.stat(entry_path(tmp_path / "unpacked", b"only in the seed"))
    assert last_use_ns(status) // 10**9 == CREATED_NS // 10**9
    with FileStreamProgramCache(tmp_path / "unpacked") as cache:
        assert {key: cache.get(key) for key in SERVED} == SERVED
        assert len(cache) == 3
    assert run("pack", tmp_path / "again.lcb.zst", node).returncode == 0
    assert (tmp_path / "again.lcb.zst").read_bytes() == (tmp_path / "made.lcb.zst").read_bytes()


def test_filters_look_into_the_seed(node: Path, tmp_path: Path) -> None:
    """Its programs are cubins, and no entry of the directory is."""
    path = tmp_path / "some.lcb"
    assert _made(node, path, "--kind", "cubin") == {b"only in the seed": b"s" * 100}
    assert _made(node, path, "--kind", "ptx") == {b"own": b"own"}
    assert _made(node, path, "--newer-than", "1d").keys() == {b"own", b"stored again"}
    wrong = run("bundle", "make", "--kind", "hsaco", "-o", tmp_path / "none.lcb", node)
    assert (wrong.returncode, "cubin" in wrong.stderr) == (2, True)


def test_promoting_adds_no_program_of_the_seed(node: Path, tmp_path: Path) -> None:
    """It may have been left out of the bundle for its size."""
    run("promote", node, tmp_path / "other.lcb")
    with BundleProgramCache(tmp_path / "other.lcb") as bundle:
        assert len(bundle) == 2


@pytest.mark.parametrize("how", ["key", "hash"])
def test_an_entry_of_the_seed_is_inspected_explained_and_removed(node: Path, how: str) -> None:
    name = entry_name(b"only in the seed")
    key = "only in the seed" if how == "key" else name[:12]
    shown = run("inspect", "--json", key, node)
    found = json.loads(shown.stdout)
    assert (found["name"], found["size_bytes"], found["verified"], found["last_use_ns"]) == (name, 100, True, None)
    assert found["file"] == str(node / "lockcache" / "seed.lcb")
    assert "last use      not recorded" in run("inspect", key, node).stdout
    why = run("why", key, node)
    assert (why.returncode, "the seed of" in why.stderr, "was not compiled here" in why.stderr) == (1, True, True)
    assert run("rm", key, "--dir", node).stdout.startswith("removed 1 entry ")
    assert run("inspect", key, node).returncode == 2
    with FileStreamProgramCache(node) as cache:
        assert cache.get(b"only in the seed") is None
