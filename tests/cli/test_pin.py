# SPDX-License-Identifier: Apache-2.0
"""``lockcache pin`` and ``unpin``: what they say, refuse and list."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.disk import entry_name
from tests.cli.command import run

KEYS = [f"key {number}" for number in range(6)]


@pytest.fixture
def pinnable(cache_path: Path) -> str:
    with FileStreamProgramCache(cache_path, max_size_bytes=100_000) as cache:
        for key in KEYS:
            cache[key] = bytes(12_000)
    return str(cache_path)


def said(*words: object) -> dict[str, Any]:
    ended = run(*words, "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_what_is_pinned_is_listed_shown_and_let_go(pinnable: str) -> None:
    names = [entry_name(key.encode()) for key in KEYS]
    assert said("pin", KEYS[0], names[1][:12], "--dir", pinnable)["pinned"] == names[:2]
    assert [pin["name"] for pin in said("pin", "--list", "--dir", pinnable)["pins"]] == names[:2]
    assert said("stats", pinnable)["pinned"]["entries"] == 2
    assert "\npinned      2 entries, " in run("stats", pinnable).stdout
    listed = [json.loads(line) for line in run("ls", "--json", pinnable).stdout.splitlines()]
    assert {each["name"] for each in listed if each["is_pinned"]} == {*names[:2]}
    assert run("ls", pinnable).stdout.count("(pinned)") == 2
    assert said("evict", "--to", "1B", "--yes", pinnable)["evicted_entries"] == 4
    assert said("unpin", names[0][:8], "--dir", pinnable)["unpinned"] == names[:1]
    assert said("unpin", "--all", "--dir", pinnable)["pins"] == 0


def test_more_than_half_of_the_cap_is_refused(pinnable: str) -> None:
    ended = run("pin", *KEYS[:5], "--dir", pinnable)
    assert ended.returncode == 2
    assert "may take half of the cap, 50,000" in ended.stderr
    assert said("pin", "--list", "--dir", pinnable)["pins"] == []


def test_a_manifest_is_the_set_of_what_is_pinned_and_what_is_not_stored_is_said(pinnable: str, tmp_path: Path) -> None:
    manifest = tmp_path / "job.manifest"
    names = sorted([entry_name(key.encode()) for key in KEYS[:2]])
    manifest.write_text("\n".join(["# lockcache manifest 1", *sorted([*names, "0" * 64]), ""]))
    found = said("pin", "--manifest", manifest, "--dir", pinnable)
    assert (found["pinned"], found["not_stored"], found["pins"]) == (names, 1, 2)
    assert "1 key not stored, and not pinned" in run("pin", "--manifest", manifest, "--dir", pinnable).stdout
    assert said("unpin", "--manifest", manifest, "--dir", pinnable)["pins"] == 0


@pytest.mark.parametrize(
    "words, why",
    [
        (("pin",), "Nothing says what to pin"),
        (("pin", "--list", "k"), "--list changes nothing"),
        (("pin", "absent"), "absent"),
        (("unpin",), "Nothing says what to unpin"),
        (("unpin", "absent"), "'absent' is not pinned"),
    ],
)
def test_mistakes_are_named_and_end_with_2(pinnable: str, words: tuple[str, ...], why: str) -> None:
    ended = run(*words, "--dir", pinnable)
    assert ended.returncode == 2
    assert why in ended.stderr
