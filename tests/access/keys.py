# SPDX-License-Identifier: Apache-2.0
"""Files of signing keys."""

from __future__ import annotations

from pathlib import Path


def write_keys(path: Path, *keys: bytes) -> Path:
    path.write_text("# a comment\n\n" + "".join(f"{key.hex()}\n" for key in keys))
    path.chmod(0o600)
    return path


OLD, NEW, FOREIGN = (bytes([number]) * 32 for number in (1, 2, 3))
