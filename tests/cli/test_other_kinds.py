# SPDX-License-Identifier: Apache-2.0
"""A file that a command would write over must be of the kind that it writes, or empty."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from tests.cli.command import run

_COMMANDS = {
    "a packed cache": ("pack", "{file}", "{cache}"),
    "a bundle": ("bundle", "make", "-o", "{file}", "{cache}"),
    "a bundle of bundles": ("bundle", "merge", "-o", "{file}", "{bundle}"),
    "a manifest": ("manifest", "make", "-o", "{file}", "{cache}"),
    "a manifest of manifests": ("manifest", "merge", "-o", "{file}", "{manifest}"),
}


@pytest.fixture
def places(tmp_path: Path) -> dict[str, Path]:
    with FileStreamProgramCache(tmp_path / "c") as cache:
        cache["k"] = b"v"
    found = {name: tmp_path / name for name in ("cache", "bundle", "manifest", "packed", "file")}
    found["cache"] = tmp_path / "c"
    for kind, file in (("a bundle", "bundle"), ("a manifest", "manifest"), ("a packed cache", "packed")):
        assert run(*_filled(kind, {**found, "file": found[file]})).returncode == 0
    return found


def _filled(command: str, places: dict[str, Path]) -> list[str]:
    return [word.format(**places) for word in _COMMANDS[command]]


@pytest.mark.parametrize("command", _COMMANDS)
def test_a_file_of_another_kind_is_not_written_over(command: str, places: dict[str, Path]) -> None:
    other = places["manifest" if "manifest" not in command else "packed"]
    for content in (b"hello\n", b"L", other.read_bytes()):
        places["file"].write_bytes(content)
        ended = run(*_filled(command, places))
        assert ended.returncode == 2, ended.stdout
        assert f"exists and is not {command.partition(' of ')[0]}; name another file" in ended.stderr
        assert places["file"].read_bytes() == content


@pytest.mark.parametrize("command", _COMMANDS)
def test_one_of_its_kind_or_an_empty_one_is(command: str, places: dict[str, Path]) -> None:
    places["file"].touch()
    for _ in range(2):
        assert run(*_filled(command, places)).returncode == 0
        assert places["file"].stat().st_size > 0
