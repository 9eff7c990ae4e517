"""Archives to unpack: valid ones, and members that no packer writes."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import zstandard

from lockcache.archive.gathering import Choice
from lockcache.archive.members import Manifest, end_of_archive, entry_header, manifest_member, padding
from lockcache.archive.packing import Packed, pack_directory
from lockcache.archive.unpacking import Acceptance, Unpacked, unpack_archive
from lockcache.filestream.directory import CacheDirectory
from lockcache.filestream.disk.layout import Layout, entry_name
from lockcache.filestream.entry.codec import Record, pack

CREATED_NS = 1_700_000_000_123_456_789
USED_NS = 1_750_000_000_987_654_321


def packed(root: Path, choice: Choice | None = None, **options: object) -> tuple[bytes, Packed]:
    out = io.BytesIO()
    done = pack_directory(Layout(str(root)), out, choice, **options)  # type: ignore[arg-type]
    return out.getvalue(), done


def unpacked(
    archive: bytes,
    root: Path,
    acceptance: Acceptance | None = None,
    progress: Callable[[int, Manifest], object] = lambda done, manifest: None,
) -> Unpacked:
    directory = CacheDirectory(str(root), 5.0)
    try:
        return unpack_archive(io.BytesIO(archive), lambda: directory, acceptance, progress)[1]
    finally:
        directory.close()


def compress(tar: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(tar)


def archive_of(*members: bytes, entries: int = 100, size_bytes: int = 1 << 40) -> bytes:
    """Returns an archive of these members, with a manifest that allows many entries and bytes."""
    return compress(manifest_member(Manifest(entries, size_bytes)) + b"".join(members) + end_of_archive())


def entry(key: bytes, payload: bytes, *, name_of: bytes | None = None, record: bytes | None = None) -> bytes:
    """Returns a valid member, except for the name or the record if they are given."""
    name = entry_name(key)
    if record is None:
        record = pack(name, payload, Record(len(payload), CREATED_NS, 7, b""))
    shown = name if name_of is None else entry_name(name_of)
    return entry_header(shown, len(payload), USED_NS, record) + payload + padding(len(payload))


def member(
    name: str,
    kind: bytes = tarfile.REGTYPE,
    body: bytes = b"",
    *,
    link: str = "",
    size: int | None = None,
    stated: Mapping[str, str] = {},
) -> bytes:
    """Returns any member that tar can express."""
    header = tarfile.TarInfo(name)
    header.type, header.linkname, header.mtime = kind, link, 1_700_000_000
    header.size = len(body) if size is None else size
    header.pax_headers = dict(stated)
    return header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + body + padding(len(body))
