# SPDX-License-Identifier: Apache-2.0
"""Files that state lengths of up to 2**64, or are holes of a terabyte: each place that reads a length reads a bound.

By the memory that the process took at most: what is stated would take all that the machine has.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockcache import FileStreamProgramCache
from lockcache.filestream.bundle_format import Place, encode_end, encode_start, lay_out
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.entry.codec import HEAD_BYTES, LONG_PAYLOAD, XATTR
from tests.access.planted_files import KEY, NAME
from tests.unit.bundle.bundles import bundle_of, write

_HOLE_BYTES = 1 << 40
_LARGE_HOLE_BYTES = 1 << 30  # a test that fails takes no more memory than that
_SEEDED = b"seeded"
# Each reader of a directory, in a process of its own, which says how much memory it took at most, in MB.
_PROGRAM = """
import contextlib, io, json, re, resource, sys
from lockcache import BundleProgramCache, FileStreamProgramCache
from lockcache.cli.program import run
root, bundle, name = sys.argv[1:]
said = io.StringIO()
with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
    with FileStreamProgramCache(root, record_files=True) as cache:
        found = [cache.get(key) for key in (b"k", b"seeded")]
        cache.get_entry(b"k")
        with contextlib.suppress(TypeError, ValueError):
            cache.get_files(b"k")
        cache.view_files(b"k")
        len(cache), cache.stats()
        cache.recount()
    for words in (["ls", root], ["inspect", name, root], ["stats", root], ["verify", root], ["why", root],
                  ["pack", bundle + ".pack", root], ["bundle", "verify", bundle],
                  ["unpack", bundle, root + ".unpacked"], ["bundle", "make", root, "-o", bundle + ".made"]):
        print(words[0], run(words))
    with contextlib.suppress(OSError, ValueError):
        with BundleProgramCache(bundle) as cache:
            found.append(cache.get(b"seeded"))
rss = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) // 1024
print(json.dumps([rss, [each is not None for each in found], said.getvalue()]))
"""


def _head(tail_bytes: int, payload_bytes: int = _LARGE_HOLE_BYTES, *, beside: bool = False) -> bytes:
    """Returns the head of a record that nobody made."""
    algorithm = 1 | (0x80 if beside else 0)
    return struct.pack("<2sBBIIqq", b"LC", 1, algorithm, tail_bytes, payload_bytes, 1, 1).ljust(HEAD_BYTES, b"\7")


def _hole(path: str | Path, size_bytes: int, content: bytes = b"") -> str:
    Path(path).parent.mkdir(exist_ok=True, parents=True)
    with open(path, "wb") as file:
        file.write(content)
        file.truncate(size_bytes)
    return str(path)


def _entry(root: Path, head: bytes, size_bytes: int) -> None:
    os.setxattr(_hole(Layout(str(root)).entry(NAME), size_bytes), XATTR, head)


def large_attribute(root: Path) -> None:
    _entry(root, _head(0), _LARGE_HOLE_BYTES)


def largest_attribute(root: Path) -> None:
    _entry(root, _head(0, LONG_PAYLOAD), _HOLE_BYTES)


def tail_beside(root: Path) -> None:
    _entry(root, _head(2**32 - 1, beside=True), _LARGE_HOLE_BYTES)
    _hole(Layout(str(root)).record(NAME), _LARGE_HOLE_BYTES, b"tail")


def record_file(root: Path) -> None:
    _hole(Layout(str(root)).entry(NAME), _LARGE_HOLE_BYTES)
    _hole(Layout(str(root)).record(NAME), 1 << 24, _head(2**32 - 1))


def no_record(root: Path) -> None:
    _hole(Layout(str(root)).entry(NAME), _LARGE_HOLE_BYTES)


def misses(root: Path) -> None:
    path = Path(Layout(str(root)).misses)
    content = bytearray(path.read_bytes() if path.exists() else bytes(4096))
    content[8:16] = b"\xff" * 8
    path.write_bytes(content)


def small_files(root: Path) -> None:
    """Put a hole in the place of each file that is read whole."""
    layout = Layout(str(root))
    for path in (layout.pins, layout.scrub, layout.daemon_status, layout.misses, layout.closures, layout.state,
                 f"{layout.remote}/{'0' * 16}/counters", f"{layout.remote}/{'0' * 16}/name", f"{layout.runs}/run",
                 layout.lease(NAME, 0)):  # fmt: skip
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        _hole(path, _HOLE_BYTES)


def slot_of_bundle(root: Path) -> None:
    """Make a bundle with an entry of a GiB, which is a hole, and the seed of it."""
    table_at = 64 + 128 + _LARGE_HOLE_BYTES + HEAD_BYTES
    table = lay_out([Place(bytes.fromhex(entry_name(_SEEDED)), 128, _LARGE_HOLE_BYTES, HEAD_BYTES)])
    for path in (str(root.parent / "kernels.lcb"), Layout(str(root)).seed):
        _hole(path, table_at, encode_start() + bytes(64) + _head(0))
        with open(path, "r+b") as file:
            file.seek(table_at)
            file.write(table + encode_end(encode_start(), table, table_at, 1))
        os.chmod(path, 0o600)


_PLANTED: list[Callable[[Path], None]] = [
    large_attribute, largest_attribute, tail_beside, record_file, no_record, misses, small_files, slot_of_bundle,
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant",
    [
        pytest.param(plant, marks=() if plant in (large_attribute, slot_of_bundle) else pytest.mark.long)
        for plant in _PLANTED
    ],
    ids=lambda plant: plant.__name__,
)
def test_nothing_that_is_stated_is_believed_to_be_there(tmp_path: Path, plant: Callable[[Path], None]) -> None:
    root, bundle = tmp_path / "cache", write(tmp_path / "kernels.lcb", bundle_of({_SEEDED: b"of the seed"}))
    with FileStreamProgramCache(root, seed=bundle, record_files=True) as cache:
        assert cache.get(_SEEDED) is not None
        cache[KEY] = b"value"
        assert cache.get(b"missing") is None
    plant(root)
    words = [sys.executable, "-c", _PROGRAM, str(root), str(bundle), NAME]
    ended = subprocess.run(words, capture_output=True, text=True, check=True, timeout=300)
    most_mb, found, said = json.loads(ended.stdout.splitlines()[-1])
    assert "Traceback" not in said
    assert most_mb < 400, (most_mb, found, said)
