# SPDX-License-Identifier: Apache-2.0
"""A Warp cache, filled as by Warp 1.19: a module is built next to its directory and renamed into place."""

from __future__ import annotations

import os
from pathlib import Path

#: The bytes of a module's files.
MODULE_BYTES = 9_000


def name_of(number: int) -> str:
    return f"wp_simulate_{number}_{number:07x}"


def compile_module(root: Path, number: int, *, is_finished: bool = True) -> Path:
    """Build a module, and move it into place. Returns its path."""
    name = name_of(number)
    built, place = root / f"{name}_p{os.getpid()}_t1", root / name
    built.mkdir(parents=True)
    root.chmod(0o700)
    (built / f"{name}.cpp").write_bytes(b"/" * 4_000)
    if not is_finished:
        return built
    (built / f"{name}.cpu0a.o").write_bytes(b"o" * 4_900)
    (built / f"{name}.meta").write_bytes(b"{" + b" " * 98 + b"}")
    built.rename(place)
    return place


def set_age(folder: Path, seconds: float) -> None:
    for path in folder.iterdir():
        when = path.stat().st_mtime - seconds
        os.utime(path, (when, when))
