# SPDX-License-Identifier: Apache-2.0
"""Keys and entries for tests, and a writer and a reader of a pyptx directory that do the same as pyptx 0.1.1.

Writer and reader stand in for pyptx where it is not installed: :mod:`tests.unit.integrations.test_pyptx_foreign`
compares them with the real package where it is.
"""

from __future__ import annotations

import importlib.util
import json
import os
import struct
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from lockcache.integrations.pyptx import CacheEntry, CacheKey

needs_pyptx = pytest.mark.skipif(importlib.util.find_spec("pyptx") is None, reason="needs pyptx: pip install pyptx")

# The digests are those of pyptx 0.1.1.
KEYS = {
    "301bf4026fb2633ac532e2a5ff57db70": ("f", (), (), "sm_90a"),
    "e5719d95ccc646b0737e17fd66017272": (
        "gemm",
        (("BM", 128), ("BN", 256)),
        (((1024, 512), "bfloat16"), ((512, 64), "float32")),
        "sm_90a",
    ),
    "88f88abf410957c074f8fe750882ea97": (
        "Ünïcode.<locals>.k\U0001f600",
        (("s", "ключ"),),
        (((), "int8"),),
        "sm_100",
    ),
    "1594c38ef9f212e4f0ec2dd5e3d17b42": (
        "k",
        (("x", 1.5), ("y", None), ("z", True), ("n", float("nan")), ("i", float("inf"))),
        (),
        "sm_80",
    ),
    "f78d46d3242998cacc7ce2e61c2f3ea0": (
        "k",
        (("tile", (64, (32, 16))), ("names", ["a", "b"])),
        (((0,), "u8"),),
        "sm_80",
    ),
    "78509a55a1eac6a7e9855e86e9798403": ("k", (("options", {"b": 1, "a": [2, {"d": 3, "c": 4}]}),), (), "sm_80"),
    "53f9d38160063af9525a74340b0389c2": (
        "k",
        (("path", PurePosixPath("/a b")), ("kind", int)),
        (((2**70,), "f16"),),
        "sm_80",
    ),
    "6314ec8aa4e9380b704796e0e9fbdd6d": ("", (("", ""),), (([3, 4], "f32"),), ""),
}

KEY = CacheKey("gemm", (("BM", 128), ("tile", (64, (32, 16)))), (((1024, 512), "bfloat16"),), "sm_90a")
NAME = KEY.hash()
PTX = ".version 8.0\r\n.target sm_90a\n// Ünïcode\r"
ENTRY = CacheEntry(KEY, PTX, b"\x7fELF\0cubin", {"smem": 49152, "cluster": (2, (1, 1)), "blob": b"\xff"})


def elf(sections: int = 4, *, missing_bytes: int = 0) -> bytes:
    """Returns a CUDA ELF file with a table of sections at its end, like a cubin."""
    body = b"code" * 50
    head = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    head += struct.pack("<HHIQQQIHHHHHH", 2, 190, 1, 0, 0, 64 + len(body), 0, 64, 0, 0, 64, sections, 1)
    whole = head + body + b"\0" * 64 * sections
    return whole[: len(whole) - missing_bytes]


def file(directory: Path, suffix: str, name: str = NAME) -> Path:
    return directory / f"{name}.{suffix}"


def age(path: Path, seconds: float) -> None:
    """Set a file's times back by so many seconds."""
    now = path.stat().st_mtime
    os.utime(path, (now - seconds, now - seconds))


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def empty(path: Path) -> None:
    os.truncate(path, 0)


def garbage(path: Path) -> None:
    path.write_bytes(b"\xff\xfe{[\x00")


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def write_entry(directory: Path, entry: CacheEntry) -> None:
    """Write an entry in place like pyptx does: PTX first and json last, an older cubin left where it is."""
    base = directory / entry.key.hash()
    base.with_suffix(".ptx").write_text(entry.ptx_source)
    if entry.cubin_bytes is not None:
        base.with_suffix(".cubin").write_bytes(entry.cubin_bytes)
    key = {
        "fn_id": entry.key.fn_id,
        "template_kwargs": [list(pair) for pair in entry.key.template_kwargs],
        "input_shapes": [[list(shape), dtype] for shape, dtype in entry.key.input_shapes],
        "arch": entry.key.arch,
    }
    base.with_suffix(".json").write_text(json.dumps({"key": key, "metadata": entry.metadata}, default=str))


def read_entry(directory: Path, name: str) -> tuple[str, bytes | None, dict[str, Any]] | None:
    """Returns (PTX, cubin, metadata) like pyptx, which needs json and PTX, and verifies nothing."""
    base = directory / name
    try:
        sidecar = json.loads(base.with_suffix(".json").read_text())
        ptx = base.with_suffix(".ptx").read_text()
    except FileNotFoundError:
        return None
    cubin = base.with_suffix(".cubin")
    return ptx, cubin.read_bytes() if cubin.exists() else None, sidecar["metadata"]
