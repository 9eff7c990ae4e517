# SPDX-License-Identifier: Apache-2.0
"""The page that follows a put names the functions that a real put passes, in their order."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

from lockcache import FileStreamProgramCache
from tests.docs.pages import PROJECT

_ROW = re.compile(r"^\| `([\w/]+\.py): ([\w.]+)` \|", re.MULTILINE)


def _passed_by_a_put(path: Path) -> list[tuple[str, str]]:
    """Returns the files and names of the functions that a put passes, each where it is first called."""
    passed: dict[tuple[str, str], None] = {}

    def note(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(f"{PROJECT}/lockcache/"):
            passed[str(Path(file).relative_to(PROJECT)), frame.f_code.co_name] = None

    with FileStreamProgramCache(path) as cache:
        cache[b"first"] = b"x" * 4000
        sys.setprofile(note)
        try:
            cache[b"k"] = b"y" * 4000
        finally:
            sys.setprofile(None)
    return list(passed)


def test_its_rows_are_passed_in_their_order(cache_path: Path) -> None:
    rows = [
        (file, name.rpartition(".")[2])
        for file, name in _ROW.findall((PROJECT / "docs/internals/a-put.md").read_text())
    ]
    passed = _passed_by_a_put(cache_path)
    assert len(rows) == 20
    assert [row for row in passed if row in rows] == rows
