# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests of ``lockcache.headers``."""

from __future__ import annotations

from pathlib import Path

import pytest

from lockcache.headers import closure_cache, computed, files
from tests.unit.headers.trees import Tree


@pytest.fixture(autouse=True)
def forgetful() -> None:
    """Empty all memories, so that no test uses what an earlier one left."""
    closure_cache._closures.clear()
    files._contents.clear()
    computed._said.clear()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have files count as old enough at once, so that remembered results are used: no ctime can be set back."""
    monkeypatch.setattr(files, "_RACY_NS", 0)


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    """Writes files below the working directory, which is empty. ``->x`` makes a link."""
    monkeypatch.chdir(tmp_path)

    def write(contents: dict[str, str]) -> None:
        for name, content in contents.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if content.startswith("->"):
                path.symlink_to(content[2:])
            else:
                path.write_text(content)

    return write
