# SPDX-License-Identifier: Apache-2.0
"""``lockcache inspect``, run as an operator runs it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from lockcache import Entry, FileStreamProgramCache
from lockcache.filestream.disk.layout import entry_name
from tests.cli.command import run

METADATA = {
    "kind": "cubin",
    "arch": "sm_90",
    "compiler": "nvrtc 13.5",
    "compile_cost_ns": 45_000_000,
    "symbol_mapping": {"fill<int>": b"_Z4fillIiEvPT_"},
    "note": "\x1b[2Jmine",
}


@pytest.fixture
def filled(cache_path: Path) -> Path:
    with FileStreamProgramCache(cache_path) as cache:
        cache.put_entry("my kernel", Entry(b"code", METADATA))
        cache[b"\x00\xff"] = b".version 9.5\n.target sm_75\n.address_size 64\n.visible .entry k(\n)\n// .entry not_me("
    return cache_path


def inspect(*arguments: object) -> dict[str, Any]:
    ended = run("inspect", "--json", *arguments)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


NAME = entry_name(b"my kernel")


def test_an_entry_is_found_by_the_name_that_ls_shows_if_one_alone_has_it(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        for key, label in (("a", "axpy<float[2]>"), ("b", "gemm"), ("c", "gemm"), ("d", "")):
            cache.get_or_compute(key, lambda: b"code", label=label)
    assert inspect("axpy<float[2]>", cache_path)["name"] == entry_name(b"a")
    several = run("inspect", "gemm", cache_path)
    assert several.returncode == 2
    assert all(entry_name(key)[:12] in several.stderr for key in (b"b", b"c"))
    for nobodys in ("axpy*", "unknown"):
        assert run("inspect", nobodys, cache_path).returncode == 2, "a name, and no pattern"


def test_ptx_is_taken_apart(filled: Path) -> None:
    code = inspect("hex:00ff", filled)["code"]
    assert (code["kind"], code["target"], code["ptx_version"], code["address_size"]) == ("ptx", "sm_75", "9.5", 64)
    assert code["entries"] == ["k"]


def test_it_is_shown_for_people_without_control_characters(filled: Path) -> None:
    shown = run("inspect", "my kernel", filled).stdout
    assert "fill<int>" in shown
    assert "(verified)" in shown
    assert f"(uid {os.getuid()}), who owns its file" in shown
    assert "\x1b" not in shown


def test_an_altered_entry_is_said_not_to_verify(filled: Path) -> None:
    path = filled / "entries" / NAME[:2] / NAME[2:]
    path.write_bytes(b"evil")
    assert inspect("my kernel", filled)["verified"] is False
    assert "does not verify" in run("inspect", NAME[:8], filled).stdout


def test_a_start_of_several_hashes_is_refused(filled: Path) -> None:
    shard = filled / "entries" / "ab"
    shard.mkdir(mode=0o700, exist_ok=True)
    for digit in "01":
        (shard / ("cd" + digit * 60)).write_bytes(b"x")
    ended = run("inspect", "abcd", filled)
    assert ended.returncode == 2
    assert "several" in ended.stderr
    assert inspect("abcd0", filled)["record"] == "none"


def test_json_has_no_numbers_that_are_none(cache_path: Path) -> None:
    with FileStreamProgramCache(cache_path) as cache:
        cache.put_entry("k", Entry(b"code", {"loss": float("nan"), "bounds": (float("-inf"), 1.5)}))
    ended = run("inspect", "--json", "k", cache_path)
    found = json.loads(ended.stdout, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    assert found["metadata"] == {"loss": "nan", "bounds": ["-inf", 1.5]}
