# SPDX-License-Identifier: Apache-2.0
"""Asks Triton's cache manager for one key, again and again: writers store groups of their own, readers look."""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from triton.runtime.cache import get_cache_manager

KEY = "ab" * 32
NAMES = [f"kernel.{stage}" for stage in ("ttir", "llir", "ptx", "cubin", "json")]


def _content(name: str, mark: int) -> bytes:
    return json.dumps({"name": name, "mark": mark, "padding": "x" * (mark % 7 * 400)}).encode()


def _mark_of(group: dict[str, str]) -> int | None:
    """Returns the mark that all files of a group have; ``None`` for a mixed group."""
    found = {name: json.loads(Path(path).read_bytes()) for name, path in group.items()}
    marks = {each["mark"] for each in found.values()}
    is_whole = sorted(found) == sorted(NAMES) and all(
        Path(group[name]).read_bytes() == _content(name, each["mark"]) for name, each in found.items()
    )
    return marks.pop() if len(marks) == 1 and is_whole else None


def _write(number: int) -> bool:
    manager = get_cache_manager(KEY)
    manager.get_group("kernel.json")
    group = {name: manager.put(_content(name, number), name) for name in NAMES}
    manager.put_group("kernel.json", group)
    return _mark_of(group) is not None


def _read() -> bool | None:
    manager = get_cache_manager(KEY)
    group = manager.get_group("kernel.json")
    return None if group is None else _mark_of(group) is not None


def main(role: str) -> None:
    print("ready", flush=True)
    seconds = json.loads(sys.stdin.readline())[0]
    until, counts = time.monotonic() + seconds, {"whole": 0, "mixed": 0, "missed": 0, "failed": 0}
    while time.monotonic() < until:
        try:
            is_whole = _write(random.randrange(10**6)) if role == "writer" else _read()
        except Exception as error:  # noqa: BLE001 - the test hears of it
            counts["failed"] += 1
            counts["error"] = f"{type(error).__name__}: {error}"[:300]
            continue
        counts["missed" if is_whole is None else "whole" if is_whole else "mixed"] += 1
    print(json.dumps(counts), flush=True)


main(sys.argv[1])
