# SPDX-License-Identifier: Apache-2.0
"""A TileLang cache, filled as by TileLang 0.1.15: an entry is staged in ``.staging``, and renamed to its place."""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from pathlib import Path

VERSION = "0.1.15"
NAMESPACE = f"{VERSION}/linux-x86_64"
#: The bytes of an entry's files.
ENTRY_BYTES = 9_000


def name_of(number: int) -> str:
    """Returns the path below the root of a kernel's entry."""
    return f"{NAMESPACE}/kernels/{_key_of(number)}"


def compile_kernel(root: Path, number: int, *, is_finished: bool = True, kind: str = "kernels") -> Path:
    """Stage a kernel, or a result of tuning (``autotuner``), and move it into place. Returns its path."""
    begin(root)
    key, namespace = _key_of(number), root / NAMESPACE
    staged = namespace / ".staging" / f"{key}_{os.getpid()}_{uuid.uuid4().hex[:8]}"
    staged.mkdir()
    source = source_of(number)
    files = {"device_kernel.cu": source, "host_kernel.cu": source, "kernel_lib.so": b"l" * 7_000, "params.json": b"{ }"}
    manifest = {name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    files["manifest.json"] = json.dumps({"version": 1, "files": manifest}).encode()
    files["manifest.json"] += b" " * (ENTRY_BYTES - sum(map(len, files.values())))
    if kind == "autotuner":
        files |= dict.fromkeys(("best_config.json", "function.pkl", "latency.json"), b"[ ]")
    for name, data in list(files.items())[: None if is_finished else 1]:
        (staged / name).write_bytes(data)
    if not is_finished:
        return staged
    return _publish(staged, namespace / kind / key)


def compile_binary(root: Path, number: int) -> Path:
    """Stage what a device compiler made, and move it into place. Returns its path."""
    key, place = _key_of(number), root / VERSION / "cuda-binaries"
    staged = root / VERSION / ".staging/cuda-binaries" / f"{key}.{os.getpid()}.{uuid.uuid4().hex}"
    staged.mkdir(parents=True)
    (staged / "kernel.cubin").write_bytes(b"c" * 8_000)
    (staged / "metadata.json").write_bytes(b"{" + b" " * 998 + b"}")
    return _publish(staged, place / key)


def begin(root: Path) -> None:
    """Make the folders that TileLang makes when it is imported."""
    for name in ("kernels", ".staging"):
        (root / NAMESPACE / name).mkdir(parents=True, exist_ok=True)
    root.chmod(0o700)


def _publish(staged: Path, place: Path) -> Path:
    place.parent.mkdir(exist_ok=True)
    return staged.rename(place)


def _key_of(number: int) -> str:
    return hashlib.sha256(b"%d" % number).hexdigest()


def source_of(number: int) -> bytes:
    """Returns the generated source of a kernel."""
    return (
        '// tilelang target: {"kind":"cuda","tag":"","keys":["cuda","gpu"],"arch":"sm_90a"}\n#include <tl/gemm.h>\n'
        f'extern "C" __global__ void simulate_{number}_kernel(float* A);\n'
    ).encode()
