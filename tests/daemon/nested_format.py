# SPDX-License-Identifier: Apache-2.0
"""vLLM's and Inductor's directories, with caches of other programs in them, filled as vLLM 0.11 and torch 2.14 do."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import random
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from tests.daemon import triton_format

AN_HOUR = 3600


def hash_of(number: int) -> str:
    """Returns the name of the folder of vLLM's compilations of a model."""
    return hashlib.sha256(b"model %d" % number).hexdigest()[:10]


def inductor_hash(prefix: str, number: int) -> str:
    digest = hashlib.sha256(f"{prefix}{number}".encode()).digest()
    return prefix + base64.b32encode(digest)[:51].decode("ascii").lower()


def compile_code(root: Path, number: int) -> Path:
    """Compile a code of Inductor's, under its lock. Returns its source."""
    name = inductor_hash("c", number)
    folder = root / name[1:3]
    folder.mkdir(parents=True, exist_ok=True)
    (root / "locks").mkdir(exist_ok=True)
    (root / "locks" / f"{name}.lock").touch()
    (folder / f"{name}.cpp").write_text(f"code {number}")
    (folder / f"{name}.so").write_bytes(b"b" * 6000)
    (folder / f"{name}.so.load_ok").touch()
    return folder / f"{name}.cpp"


def store_graph(root: Path, number: int) -> Path:
    """Store a graph of Inductor's in both of its caches. Returns its folder in the first."""
    key = inductor_hash("f", number)
    for folder in (root / "fxgraph" / key[1:3] / key, root / "aotautograd" / inductor_hash("a", number)):
        folder.mkdir(parents=True, exist_ok=True)
        for guards in range(2):
            (folder / inductor_hash("", guards)).write_bytes(b"%d\n" % number * 2000)
    return root / "fxgraph" / key[1:3] / key


def fill_inductor(root: Path, numbers: range) -> None:
    """Compile graphs, each with a code and a kernel of Triton's, that were used in the order of their numbers."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in numbers:
        code, graph = compile_code(root, number), store_graph(root, number)
        triton_format.compile_kernel(root / "triton" / "0", number)
        aot = root / "aotautograd" / inductor_hash("a", number)
        kernel = root / "triton/0" / triton_format.key_of(number)
        parts = [*code.parent.glob(f"{code.stem}*"), *graph.iterdir(), *aot.iterdir(), *kernel.iterdir()]
        _age(parts, number)


def compile_model(root: Path, number: int, ranks: int = 2, *, is_finished: bool = True) -> Path:
    """Start a server on a model that was not compiled before. Returns the folder of its hash."""
    place = root / "torch_compile_cache" / hash_of(number)
    for rank in range(ranks):
        own = place / f"rank_{rank}_0"
        (own / "backbone").mkdir(parents=True)
        (own / "backbone/computation_graph.py").write_text("graph")
        (own / "inductor_cache").mkdir()
        compile_code(own / "inductor_cache", number)
        store_graph(own / "inductor_cache", number)
        triton_format.compile_kernel(own / "triton_cache", number)
        if is_finished:
            (own / "backbone/vllm_compile_cache.py").write_text(repr({(None, 0, "inductor"): number}))
    return place


def fill_vllm(root: Path, numbers: range) -> None:
    """Compile models that were used an hour ago, in the order of their numbers."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    for number in numbers:
        set_age(compile_model(root, number), number)


def set_age(place: Path, number: int) -> None:
    _age(place.rglob("*"), number)


def _age(paths: Iterable[Path], number: int) -> None:
    when = int(time.time()) - AN_HOUR + number
    for path in paths:
        if not path.is_dir():
            os.utime(path, (when, when))


def is_whole(place: Path, number: int) -> bool:
    """Returns whether a folder of a hash has all that vLLM made in it."""
    return all(
        (place / f"rank_{rank}_0" / name).exists()
        for rank in range(2)
        for name in (
            "backbone/computation_graph.py",
            "backbone/vllm_compile_cache.py",
            f"triton_cache/{triton_format.key_of(number)}/__grp__k.json",
        )
    )


def start_servers(root: str, seed: int, seconds: float, models: int) -> tuple[int, int]:
    """Start servers on random models. Returns (warm, cold). Raises if a folder is there of which a part is missing."""
    draw, warm, cold = random.Random(seed), 0, 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        number = draw.randrange(models)
        place = Path(root) / "torch_compile_cache" / hash_of(number)
        seen = _inode(place)
        if seen:
            # One that is renamed away meanwhile is not there any more, or another server's is.
            assert is_whole(place, number) or _inode(place) != seen
            warm += 1
        else:
            cold += _compile_aside(Path(root), seed, number)
    return warm, cold


def _compile_aside(root: Path, seed: int, number: int) -> bool:
    """Compile a model where no other server looks, and put it in its place. Returns whether it was the first."""
    staged = root.parent / f"staged.{seed}"
    with contextlib.suppress(OSError):
        compile_model(staged, number).rename(root / "torch_compile_cache" / hash_of(number))
        return True
    shutil.rmtree(staged)
    return False


def _inode(place: Path) -> int:
    try:
        return place.stat().st_ino
    except FileNotFoundError:
        return 0
