# SPDX-License-Identifier: Apache-2.0
"""Manifests with the operator's command: made, listed, merged, and what they list fetched from a server."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk import entry_name
from lockcache.remote.manifest import format_manifest, read_manifest
from tests.cli.command import run
from tests.remote.conftest import one_server, server
from tests.remote.servers import Valkey, free_port

__all__ = ["one_server", "server"]

KEYS = [f"kernel {number}" for number in range(20)]
NAMES = frozenset(entry_name(key.encode()) for key in KEYS)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    root = tmp_path / "filled"
    with FileStreamProgramCache(root) as cache:
        for number, key in enumerate(KEYS):
            cache.put_entry(key, Entry(key.encode() * 50, {"kind": "cubin", "arch": f"sm_{80 + number % 2}"}))
    return root


@pytest.fixture
def manifest(filled: Path, tmp_path: Path) -> Path:
    assert run("manifest", "make", "-o", tmp_path / "job.manifest", filled).returncode == 0
    return tmp_path / "job.manifest"


def test_a_directory_a_bundle_and_a_seed_are_listed_with_the_filters_of_ls(filled: Path, tmp_path: Path) -> None:
    path = tmp_path / "m"
    made = run("manifest", "make", "--json", "-o", path, filled)
    assert json.loads(made.stdout) == {"path": str(filled), "file": str(path), "keys": 20}
    assert read_manifest(str(path)) == NAMES
    run("manifest", "make", "--arch", "sm_80", "-o", path, filled)
    of_arch = read_manifest(str(path))
    assert len(of_arch) == 10
    run("bundle", "make", "-o", tmp_path / "k.lcb", filled)
    run("manifest", "make", "-o", path, tmp_path / "k.lcb")
    assert read_manifest(str(path)) == NAMES
    run("manifest", "make", "--arch", "sm_80", "-o", path, tmp_path / "k.lcb")
    assert read_manifest(str(path)) == of_arch
    with FileStreamProgramCache(tmp_path / "seeded", seed=tmp_path / "k.lcb") as cache:
        cache["own"] = b"v"
    run("manifest", "make", "-o", path, tmp_path / "seeded")
    assert read_manifest(str(path)) == NAMES | {entry_name(b"own")}


def test_it_is_listed_with_what_a_directory_has(manifest: Path, filled: Path) -> None:
    assert run("manifest", "ls", manifest).stdout.split() == sorted(NAMES)
    with FileStreamProgramCache(filled) as cache:
        del cache[KEYS[0]]
    heading, *lines = run("manifest", "ls", manifest, filled).stdout.splitlines()
    assert heading.startswith("NAME")
    assert [line.split()[0] for line in lines] == sorted(NAMES)
    assert [line.split()[0] for line in lines if set(line.split()[1:]) == {"-"}] == [entry_name(KEYS[0].encode())]
    found = [json.loads(line) for line in run("manifest", "ls", "--json", manifest, filled).stdout.splitlines()]
    assert [each["name"] for each in found if not each["is_here"]] == [entry_name(KEYS[0].encode())]
    assert {each["arch"] for each in found if each["is_here"]} == {"sm_80", "sm_81"}


def test_manifests_are_merged_also_into_one_of_them(manifest: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(format_manifest([entry_name(b"more")]))
    merged = json.loads(run("manifest", "merge", "--json", "-o", manifest, manifest, other).stdout)
    assert (merged["files"], merged["keys"]) == (2, 21)
    assert read_manifest(str(manifest)) == NAMES | {entry_name(b"more")}


def test_what_it_lists_is_fetched_into_a_directory_that_is_made(
    server: Valkey, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKCACHE_REMOTE", server.url)
    with FileStreamProgramCache(tmp_path / "filling") as cache:
        cache.update((key, key.encode() * 50) for key in KEYS[:-1])
    monkeypatch.delenv("LOCKCACHE_REMOTE")
    ended = run("manifest", "fetch", "--json", "--remote", server.url, manifest, tmp_path / "node")
    found = json.loads(ended.stdout)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert (found["keys"], found["present"], found["fetched"], found["missing"]) == (20, 0, 19, 1)
    assert found["bytes"] == sum(len(key) * 50 for key in KEYS[:-1])
    with FileStreamProgramCache(tmp_path / "node") as cache:
        assert all(cache[key] == key.encode() * 50 for key in KEYS[:-1])
    again = run("manifest", "fetch", manifest, tmp_path / "node", LOCKCACHE_REMOTE=server.url)
    assert "present  19" in " ".join(again.stdout.split()).replace("present ", "present  ")
    [shown] = json.loads(run("stats", "--json", tmp_path / "node").stdout)["remote"]
    assert shown["prefetched"] == 19


def test_a_server_that_is_gone_is_exit_code_1_and_says_so(manifest: Path, tmp_path: Path) -> None:
    ended = run("manifest", "fetch", "--remote", f"redis://127.0.0.1:{free_port()}", manifest, tmp_path / "node")
    assert ended.returncode == 1
    assert ended.stderr.startswith("lockcache: not all could be fetched: redis://127.0.0.1:")
    assert "fetched" in ended.stdout


def test_run_hands_the_manifest_on_and_refuses_what_is_none(
    server: Valkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "from lockcache import *; print(FileStreamProgramCache().get_or_compute('k', lambda: b'compiled'))"
    path = tmp_path / "job.manifest"
    words = ["run", "--remote", server.url, "--manifest", path, "--quiet", "--dir", tmp_path / "node", "--"]
    ended = run(*words, sys.executable, "-c", program)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "b'compiled'\n", "")
    assert read_manifest(str(path)) == {entry_name(b"k")}
    path.write_text("my only copy\n")
    ended = run(*words, "true")
    assert (ended.returncode, "line 1: this is not a manifest" in ended.stderr) == (2, True)
    ended = run("run", "--manifest", tmp_path / "missing" / "m", "--", "true")
    assert (ended.returncode, str(tmp_path / "missing") in ended.stderr) == (2, True)
    shown = json.loads(run("config", "--json", LOCKCACHE_MANIFEST=str(path)).stdout)["manifest"]
    assert shown == {"value": str(path), "origin": "$LOCKCACHE_MANIFEST"}
    assert os.path.exists(path)
