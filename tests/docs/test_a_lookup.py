# SPDX-License-Identifier: Apache-2.0
"""The page that follows a lookup names the objects that a real one passes on its way to the file."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.entry import EntryReader
from tests.docs.pages import PROJECT

_PAGE = (PROJECT / "docs/internals/a-lookup.md").read_text()
ROWS = re.findall(r"^\| ((?:of|that|whose|with) [^|]+) \| ([^|]+) \|", _PAGE, re.MULTILINE)


def _way_of_a_hit(cache: FileStreamProgramCache) -> list[object]:
    """Returns the objects that stand between the cache and its reader on the stack, when the reader begins."""
    way: list[object] = []

    def note(frame: FrameType | None, event: str, _: object) -> None:
        if way or event != "call" or frame is None or not isinstance(frame.f_locals.get("self"), EntryReader):
            return
        while frame is not None and frame.f_locals.get("self") is not cache:
            way.insert(0, frame.f_locals.get("self"))
            frame = frame.f_back

    sys.setprofile(note)
    try:
        assert cache.get(b"k") == b"x"
    finally:
        sys.setprofile(None)
    return list(dict.fromkeys(way))[:-1]


@pytest.mark.parametrize("words, objects", ROWS or [("no", "row")])
def test_its_rows_are_what_a_hit_passes(
    words: str, objects: str, cache_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "manifest" in words:
        monkeypatch.setenv("LOCKCACHE_MANIFEST", str(tmp_path / "manifest"))
    if "server" in words:
        monkeypatch.setenv("LOCKCACHE_REMOTE", "redis://127.0.0.1:1")  # no hit asks it
    if "network" in words:
        monkeypatch.setattr("lockcache.filestream.disk.mounts.network_kind", lambda root: "lustre")
    group, turns, reads = "share" in words, "turns" in words, "only reads" in words or "auto"
    FileStreamProgramCache(cache_path, group=group)[b"k"] = b"x"
    with FileStreamProgramCache(cache_path, group=group, read_only=reads, compile_once=turns) as cache:
        way = [type(each).__name__ for each in _way_of_a_hit(cache)]
    assert (len(way) <= 1, ", ".join(map("`{}`".format, way)) or "none") == (True, objects)
