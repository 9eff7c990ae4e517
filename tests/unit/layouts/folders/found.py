# SPDX-License-Identifier: Apache-2.0
"""Entries and bytes that a directory of another program holds."""

from __future__ import annotations

from lockcache.layouts import Files, measure
from lockcache.lowlevel import Found

__all__ = ["entries", "held_bytes"]


def entries(files: Files) -> dict[str, Found]:
    return {found.name: found for found in files.scan() if found.inode}


def held_bytes(files: Files) -> int:
    return measure(files.scan(), 0).slot.bytes
