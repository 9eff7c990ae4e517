# SPDX-License-Identifier: Apache-2.0
"""A Triton cache, filled and read in the same steps and the same order as by Triton 3.9, with made-up kernels.

A reader raises an error where Triton's own code would.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import random
import time
import uuid
from pathlib import Path

STAGES = ("source", "ttir", "ttgir", "llir", "ptx", "cubin")
#: The bytes of a kernel's files, about.
KERNEL_BYTES = 10_000


def key_of(number: int) -> str:
    return base64.b32encode(hashlib.sha256(b"%d" % number).digest()).decode().rstrip("=")


def put(root: Path, number: int, name: str, content: str) -> str:
    """Stage a file in a folder of its own below the key's, rename it, and remove the folder."""
    folder = os.path.join(root, key_of(number))
    staged = os.path.join(folder, f"tmp.pid_{os.getpid()}_{uuid.uuid4()}")
    os.makedirs(staged, exist_ok=True)
    with open(os.path.join(staged, name), "w") as file:
        file.write(content)
    os.replace(os.path.join(staged, name), os.path.join(folder, name))
    os.removedirs(staged)
    return os.path.join(folder, name)


def compile_kernel(root: Path, number: int, stages: tuple[str, ...] = STAGES, *, publish: bool = True) -> None:
    """Look, compile, put each stage, then the group file; and read all of it back."""
    os.makedirs(os.path.join(root, key_of(number)), exist_ok=True)
    tag = f"{number}\n"
    group = {f"k.{stage}": put(root, number, f"k.{stage}", tag * (KERNEL_BYTES // 6 // len(tag))) for stage in stages}
    if publish:
        group["k.json"] = put(root, number, "k.json", json.dumps({"number": number}))
        put(root, number, "__grp__k.json", json.dumps({"child_paths": group}))
        _read(group, number)


def read_kernel(root: Path, number: int) -> bool:
    """Returns whether it was a hit. Raises like Triton for a file that is removed between the check and the reading."""
    folder = root / key_of(number)
    os.makedirs(folder, exist_ok=True)
    path = folder / "__grp__k.json"
    if not path.exists():
        return False
    try:
        group = json.loads(path.read_text())["child_paths"]
    except (OSError, ValueError):
        return False
    if not all(os.path.exists(child) for child in group.values()):
        return False
    _read(group, number)
    return True


def _read(group: dict[str, str], number: int) -> None:
    for name, path in group.items():
        text = Path(path).read_text()
        assert (json.loads(text)["number"] if name == "k.json" else int(text.split()[0])) == number


def compile_many(root: str, seed: int, seconds: float, numbers: int) -> tuple[int, int]:
    """Want random kernels. Returns (hits, compilations). Raises if a kernel is not whole."""
    draw = random.Random(seed)
    hits = compiled = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        number = draw.randrange(numbers)
        if read_kernel(Path(root), number):
            hits += 1
        else:
            compile_kernel(Path(root), number)
            compiled += 1
    return hits, compiled


def fill(root: Path, numbers: range) -> None:
    """Store kernels that were used an hour ago, in the order of their numbers."""
    root.mkdir(mode=0o700, exist_ok=True)
    for number in numbers:
        compile_kernel(root, number)
        set_age(root, number)


@functools.cache
def _an_hour_ago(root: Path) -> int:
    """Returns a time an hour before the directory was filled, because a run of all tests takes long."""
    return int(time.time()) - 3600


def set_age(root: Path, number: int, seconds: int | None = None) -> None:
    when = _an_hour_ago(root) + number if seconds is None else seconds
    for path in (root / key_of(number)).iterdir():
        os.utime(path, (when, when))


def keys_on_disk(root: Path) -> set[str]:
    return {path.name for path in root.iterdir() if path.name != "lockcache" and any(path.iterdir())}
