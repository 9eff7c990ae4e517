# SPDX-License-Identifier: Apache-2.0
"""Bundles to read: valid ones, and files that no writer leaves."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Mapping
from pathlib import Path

from lockcache import metadata
from lockcache.bundle.gathering import Gathered
from lockcache.bundle.making import make_bundle
from lockcache.filestream.bundle.writer import BundleWriter
from lockcache.filestream.disk.layout import Layout
from lockcache.filestream.entry.codec import Record, pack
from lockcache.filestream.entry.signing import KeyRing

CREATED_NS = 1_700_000_000_123_456_789


def name_of(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def bundle_of(entries: Mapping[bytes, bytes], keys: KeyRing | None = None, created_ns: int = CREATED_NS) -> bytes:
    """Returns a valid bundle of these keys and values."""
    out = io.BytesIO()
    writer = BundleWriter(out)
    for key, value in entries.items():
        name = name_of(key)
        record = Record(len(value), created_ns, 7, metadata.encode({"kind": "cubin"}))
        writer.add(name, value, (pack if keys is None else keys.pack)(name.hex(), value, record))
    writer.finish()
    return out.getvalue()


def write(path: Path, content: bytes) -> Path:
    """Write ``content`` to ``path`` like the writer of a bundle: by a rename, and writable by no other user."""
    staged = path.with_name(f".{path.name}")
    with open(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    staged.rename(path)
    return path


def made_of(root: Path, path: Path) -> Gathered:
    """Make a bundle of the directory ``root`` at ``path``."""
    out = io.BytesIO()
    made = make_bundle(Layout(str(root)), out)
    write(path, out.getvalue())
    return made
