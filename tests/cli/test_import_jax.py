# SPDX-License-Identifier: Apache-2.0
"""``lockcache import-jax``: a directory of JAX's own, taken over; what is damaged or planted is left out."""

from __future__ import annotations

import importlib.metadata
import json
import os
import zlib
from pathlib import Path

import pytest
import zstandard

from lockcache import FileStreamProgramCache
from tests.cli.command import run
from tests.daemon.directories import photograph

NAMES = ("jit_f", "jit_g")
VERSION = "0.10.2"


def key_of(name: str) -> str:
    return f"{name}-{name.encode().hex():0>64}"


def write(root: Path, name: str, value: bytes, used_ns: int | None = None) -> Path:
    """Write an entry as JAX does. ``used_ns``: as in a directory with a cap, where JAX notes the last use."""
    root.mkdir(0o700, parents=True, exist_ok=True)
    path = root / f"{key_of(name)}-cache"
    path.write_bytes(value)
    if used_ns is not None:
        (root / f"{key_of(name)}-atime").write_bytes(used_ns.to_bytes(8, "little"))
    return path


def value_of(name: str) -> bytes:
    return zlib.compress(b"\0\0\0\1" + name.encode() * 1000)


@pytest.fixture
def jax(tmp_path: Path) -> Path:
    root = tmp_path / "jax"
    for name in NAMES:
        write(root, name, value_of(name), 0)
    (root / ".lockfile").touch()
    (root / "xla_gpu_per_fusion_autotune_cache_dir").mkdir()
    return root


def imported(jax: Path, target: Path, *words: str) -> tuple[int, dict[str, int]]:
    ended = run("import-jax", "--json", "--jax-version", VERSION, *words, jax, target)
    assert ended.stderr == ""
    return ended.returncode, json.loads(ended.stdout)


def test_programs_are_where_the_adapter_looks(jax: Path, cache_path: Path) -> None:
    code, found = imported(jax, cache_path, "--dry-run")
    assert (code, found["would_import"], cache_path.exists()) == (0, 2, False)
    before = photograph(jax)
    assert imported(jax, cache_path) == (0, {"imported": 2, "present": 0, "damaged": 0, "dropped": 0})
    assert photograph(jax) == before
    with FileStreamProgramCache(cache_path) as cache:
        for name in NAMES:
            entry = cache.get_entry(f"jax/{VERSION}/{key_of(name)}")
            assert entry is not None
            assert (entry.code, entry.metadata["namespace"]) == (value_of(name), "jax")
    assert imported(jax, cache_path)[1] == {"imported": 0, "present": 2, "damaged": 0, "dropped": 0}


def test_a_dry_run_changes_nothing_in_a_cache_that_is_there(jax: Path, cache_path: Path) -> None:
    imported(jax, cache_path)
    write(jax, "jit_h", value_of("jit_h"))
    before = photograph(cache_path)
    found = imported(jax, cache_path, "--dry-run")[1]
    assert (found["would_import"], found["present"]) == (1, 2)
    assert photograph(cache_path) == before


def test_what_is_planted_or_damaged_is_left_out(jax: Path, cache_path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(zlib.compress(b"secret"))
    whole = zstandard.compress(os.urandom(1000))
    for name, value in {
        "jit_empty": b"",
        "jit_text": b"text",
        "jit_cut": value_of("jit_cut")[:-1],
        "jit_long": value_of("jit_long") + b"more",
        "jit_cut_zstd": whole[:-1],
    }.items():
        write(jax, name, value)
    write(jax, "jit_zstd", whole)
    write(jax, "jit_link", b"").unlink()
    (jax / f"{key_of('jit_link')}-cache").symlink_to(secret)
    (jax / f"{key_of('jit_folder')}-cache").mkdir()
    os.mkfifo(jax / f"{key_of('jit_pipe')}-cache")
    (jax / f"{key_of(NAMES[0])}-atime").unlink()
    (jax / f"{key_of(NAMES[0])}-atime").mkdir()
    (jax / f"{key_of(NAMES[1])}-atime").unlink()
    (jax / f"{key_of(NAMES[1])}-atime").symlink_to("/dev/zero")
    (jax / f"{os.fsdecode(bytes([255]))}-{0:064}-cache").write_bytes(secret.read_bytes())
    (jax / "notes-cache").write_bytes(secret.read_bytes())
    assert imported(jax, cache_path) == (1, {"imported": 3, "present": 0, "damaged": 5, "dropped": 0})
    assert not any(path.read_bytes() == secret.read_bytes() for path in cache_path.glob("entries/*/*"))


@pytest.mark.parametrize("size", [0, 1, 300, 70_000, 400_000])
@pytest.mark.parametrize("options", [{}, {"write_content_size": False}, {"write_checksum": True}])
def test_what_zstd_compressed_is_whole_only_if_nothing_is_missing(
    tmp_path: Path, cache_path: Path, size: int, options: dict[str, bool]
) -> None:
    for kind, content in (("random", os.urandom(size)), ("same", bytes(size))):
        value = zstandard.ZstdCompressor(**options).compress(content)
        write(tmp_path / "jax", f"jit_{kind}", value)
        for cut in {1, 3, len(value) // 2}:
            write(tmp_path / "jax", f"jit_{kind}_{cut}", value[:-cut])
        write(tmp_path / "jax", f"jit_{kind}_more", value + b"\0")
    code, found = imported(tmp_path / "jax", cache_path, "--dry-run")
    assert (code, found["would_import"]) == (1, 2)


def test_the_version_is_that_of_the_jax_that_is_installed_here(
    jax: Path, cache_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def version(_: str) -> str:
        raise importlib.metadata.PackageNotFoundError

    monkeypatch.setattr(importlib.metadata, "version", version)
    ended = run("import-jax", jax, cache_path)
    assert (ended.returncode, cache_path.exists()) == (2, False)
    assert "no JAX is installed here: name the version of your programs, --jax-version" in ended.stderr
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "1.2.3")
    assert run("import-jax", jax, cache_path).returncode == 0
    with FileStreamProgramCache(cache_path) as cache:
        assert cache.get(f"jax/1.2.3/{key_of(NAMES[0])}") == value_of(NAMES[0])
